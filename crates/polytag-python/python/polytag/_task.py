"""Task folders made of what is in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._errors import InputError, InputTypeError
from ._types import Label

LabelTexts = Mapping[str, Any] | Iterable[Any]


def values(column: Any, what: str) -> list[Any]:
    """What a column holds, as a list: of a list, an array of NumPy, a column of pandas or polars, Arrow data."""
    if isinstance(column, (str, bytes, Mapping)) or hasattr(column, "columns"):
        raise InputTypeError(f"{what} are of type {type(column).__name__}, where a list is expected")
    for name in ("to_pylist", "to_list", "tolist"):
        if convert := getattr(column, name, None):
            return list(convert())
    try:
        return list(column)
    except TypeError:
        found = type(column).__name__
        raise InputTypeError(f"{what} are of type {found}, where a list is expected") from None


def as_label(label: Any) -> Label:
    """A label of whatever describes one: a ``Label``, a mapping with its fields, or a pair of id and name."""
    if isinstance(label, Label):
        made = label
    elif isinstance(label, Mapping):
        unknown = set(label) - set(Label._fields)
        if unknown or not {"id", "name"} <= set(label):
            known = ", ".join(Label._fields)
            raise InputError(f"a label has the fields {sorted(label)}; it needs id and name, and may have of: {known}")
        made = Label(**label)
    elif isinstance(label, (tuple, list)) and len(label) == 2:
        made = Label(*label)
    else:
        raise InputTypeError(f"{label!r} is no label: give a polytag.Label, a dict with its fields, or (id, name)")
    for field in ("id", "name"):
        if not isinstance(getattr(made, field), str):
            raise InputTypeError(f"the {field} of the label {made.id!r} is {getattr(made, field)!r}, which is no string")
    for field in ("aliases", "parents"):
        listed = getattr(made, field) or ()
        if not isinstance(listed, (list, tuple)) or not all(isinstance(item, str) for item in listed):
            raise InputTypeError(f"the {field} of the label {made.id!r} are {listed!r}, which is no list of strings")
    if not isinstance(made.description, str | None):
        raise InputTypeError(f"the description of the label {made.id!r} is no string")
    return made._replace(aliases=tuple(made.aliases or ()), parents=tuple(made.parents or ()))


def label_record(label: Label) -> dict[str, Any]:
    """A label as a line of a task folder has it."""
    record: dict[str, Any] = {"id": label.id, "name": label.name}
    if label.description:
        record["description"] = label.description
    if label.aliases:
        record["aliases"] = list(label.aliases)
    if label.parents:
        record["parents"] = list(label.parents)
    return record


def labels_of(texts: LabelTexts | None, carried: Iterable[str]) -> list[Label]:
    """The labels of a task: those that are described, then those that documents carry besides, whose ids are their names."""
    labels: dict[str, Label] = {}
    described: Iterable[Any] = ()
    if isinstance(texts, Mapping):
        described = (
            Label(id, text) if isinstance(text, str) else as_label({"id": id, **text} if isinstance(text, Mapping) else text)
            for id, text in texts.items()
        )
    elif texts is not None:
        described = map(as_label, texts)
    for label in described:
        if label.id in labels:
            raise InputError(f"two labels have the id {label.id!r}; give each its own")
        labels[label.id] = label
    for id in carried:
        labels.setdefault(id, Label(id, id))
    return list(labels.values())


def carried_by(labels: Any, texts: int) -> list[list[str] | None]:
    """The labels of each document: ids; none where nobody labelled it, which is not the same as an empty list."""
    given = values(labels, "labels")
    if len(given) != texts:
        raise InputError(f"there are {len(given)} lists of labels and {texts} texts; give one for each")
    carried: list[list[str] | None] = []
    for place, ids in enumerate(given):
        if ids is None or (isinstance(ids, float) and ids != ids):
            carried.append(None)
            continue
        ids = [ids] if isinstance(ids, str) else values(ids, f"labels[{place}]")
        for id in ids:
            if not isinstance(id, str) or not id:
                raise InputTypeError(f"labels[{place}] holds {id!r}, where the id of a label, a string, is expected")
        carried.append(list(dict.fromkeys(ids)))
    return carried


def write_documents(path: Path, texts: list[Any], labels: list[list[str] | None], titles: Any = None) -> None:
    """Writes a split; documents are called by their numbers, from zero."""
    titled = [None] * len(texts) if titles is None else values(titles, "titles")
    if len(titled) != len(texts):
        raise InputError(f"there are {len(titled)} titles and {len(texts)} texts; give one for each, or none")
    with path.open("w", encoding="utf-8") as file:
        for place, (text, title, ids) in enumerate(zip(texts, titled, labels, strict=True)):
            for what, value in (("texts", text), ("titles", title)):
                if not isinstance(value, str) and (what == "texts" or value is not None):
                    found = type(value).__name__
                    raise InputTypeError(f"{what}[{place}] is of type {found}, where a string is expected")
            record: dict[str, Any] = {"id": str(place), "text": text}
            if title is not None:
                record["title"] = title
            if ids is not None:
                record["labels"] = ids
            try:
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
            except UnicodeEncodeError as error:
                raise InputError(f"texts[{place}] is no text: {error}") from None


def write_labels(path: Path, labels: Sequence[Label]) -> None:
    """Writes the labels of a task."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(label_record(label), ensure_ascii=False) + "\n" for label in labels)


def write_task(
    folder: str | os.PathLike[str],
    splits: Mapping[str, tuple[Any, Any, Any]],
    label_texts: LabelTexts | None,
) -> None:
    """Writes a task folder: each split is texts, labels and titles, where there are any."""
    # Once: what is given may be an iterator.
    listed = {name: (values(texts, "texts"), labels, titles) for name, (texts, labels, titles) in splits.items()}
    carried = {name: carried_by(labels, len(texts)) for name, (texts, labels, _) in listed.items()}
    ids = (id for split in carried.values() for ids in split for id in ids or ())
    write_labels(Path(folder, "labels.jsonl"), labels_of(label_texts, ids))
    for name, (texts, _, titles) in listed.items():
        write_documents(Path(folder, f"{name}.jsonl"), texts, carried[name], titles)
