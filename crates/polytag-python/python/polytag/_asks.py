"""What is asked of the native half, in one piece each."""

from __future__ import annotations

from typing import Any, TypedDict


class Asked(TypedDict):
    """How many labels, out of which."""

    k: int
    threshold: float | None
    allow: list[str] | None


class TextAsk(Asked):
    """About texts."""

    titles: Any
    ids: Any


class ColumnAsk(Asked):
    """About a table."""

    text: str
    id: str | None
    title: str | None
    keep: list[str]
    keep_all: bool


class LoadAsk(TypedDict):
    """About a model folder."""

    path: str
    device: str
    precision: str
    threads: int | None
    cache: str | None


class EvaluateAsk(TypedDict):
    """About how good a model is."""

    task: str
    split: str
    k: list[int] | None
    recall_k: list[int] | None
    zsr_k: list[int] | None
    propensity: tuple[float, float] | None
    item_to_item: bool
    replicates: int | None
    seed: int


class FitAsk(TypedDict):
    """About a model to be."""

    task: str
    out: str
    method: str
    settings: str
    seed: int
    memory: int | None
    device: str
    precision: str
    threads: int | None
    cache: str | None
