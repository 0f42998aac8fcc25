"""What goes in and comes out: labels, tags and the reasons for them."""

from __future__ import annotations

from typing import NamedTuple


class Tag(NamedTuple):
    """A label that was given to a text."""

    id: str
    """The id of the label."""
    name: str
    """Its name."""
    score: float
    """How well it fits; a probability where ``Model.gives_probabilities`` says so."""
    seen: bool
    """Whether a training document carries it."""

    def __repr__(self) -> str:
        return f"Tag(id={self.id!r}, name={self.name!r}, score={self.score:.4g}, seen={self.seen})"


class Label(NamedTuple):
    """A label: an id for programs, and words for people and for matching."""

    id: str
    """Its id, unique in its model."""
    name: str
    """Its name, which says what it means."""
    description: str | None = None
    """What it means, in a sentence or more."""
    aliases: tuple[str, ...] = ()
    """Other names for the same thing."""
    parents: tuple[str, ...] = ()
    """Ids of broader labels; they need not exist."""
    train_documents: int = 0
    """How many training documents carry it; not looked at where a label is added."""

    @property
    def seen(self) -> bool:
        """Whether a training document carries it."""
        return self.train_documents > 0


class Reason(NamedTuple):
    """Words of a text that speak for a label."""

    words: str
    """The words, as the method sees them."""
    field: str
    """Where they stand: ``title``, ``text``, or ``predicted`` for labels that another model predicts."""
    weight: float
    """How much of the score is due to them."""
    attention: float | None = None
    """How much of its attention the label gives them, where labels attend."""


class Mark(NamedTuple):
    """A word of the text, by its place, and what it has to do with a score."""

    field: str
    """Whether it stands in the ``title`` or in the ``text``."""
    start: int
    """Its first character there."""
    end: int
    """The character after it: ``text[start:end]`` is the word."""
    weight: float
    """How much of the score is due to it."""
    attention: float | None = None
    """How much of its attention the label gives it, where labels attend."""


class Explanation(NamedTuple):
    """Why a label fits a text."""

    id: str
    """The id of the label."""
    name: str
    """Its name."""
    score: float
    """Its score; zero where nothing speaks for it."""
    matched: str | None
    """The name or description of the label that fits best, if any does."""
    reasons: list[Reason]
    """What speaks for it, the most important first."""
    marks: list[Mark]
    """The words of the text in their order, where the method can say what each adds; else none."""
