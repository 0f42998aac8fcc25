"""Models: loading, fitting, asking and measuring them."""

from __future__ import annotations

import json
import operator
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, overload

from . import _cache, _native, _task
from ._asks import Asked, ColumnAsk, EvaluateAsk, FitAsk, LoadAsk, TextAsk
from ._errors import InputError, InputTypeError
from ._native import Tagged, TaggedStream
from ._types import Explanation, Label, Mark, Reason, Tag

Progress = Callable[[dict[str, Any]], None]
Folder = str | os.PathLike[str]


class Model:
    """A model folder, loaded.

    Any number of threads may ask it at once; the interpreter's lock is released while it works, and Ctrl-C stops it. A model is
    pickled as the path of its folder, so that a process on another machine needs the folder at the same place.

    Made by :func:`polytag.load` and :func:`polytag.fit`.
    """

    _inner: _native.Model
    # How it was loaded.
    _options: dict[str, Any]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise InputTypeError("a model is made by polytag.load(folder) or polytag.fit(task)")

    @classmethod
    def _of(cls, native: _native.Model, options: dict[str, Any]) -> Model:
        model = object.__new__(cls)
        model._inner, model._options = native, options
        return model

    def _goes_with(self, folder: str) -> Model:
        """The same, whose folder is removed with it, by the process that made it."""
        weakref.finalize(self, _remove, folder, os.getpid())
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_again, (str(self.path), self._options)

    def __repr__(self) -> str:
        return f"<polytag.Model {self.method!r} with {len(self):,} labels in {str(self.path)!r}>"

    def __len__(self) -> int:
        """How many labels it has."""
        return len(self._inner)

    @property
    def path(self) -> Path:
        """Its folder."""
        return Path(self._inner.path)

    @property
    def method(self) -> str:
        """The method that it was fitted with."""
        return self._inner.method

    @property
    def device(self) -> str:
        """Where it works."""
        return self._inner.device

    @property
    def manifest(self) -> dict[str, Any]:
        """What its folder holds: method, configuration, seed, sources, checksums."""
        return dict(json.loads(self._inner.manifest()))

    @property
    def gives_probabilities(self) -> bool:
        """Whether its scores are probabilities, each label's a question of its own."""
        return self._inner.gives_probabilities

    @property
    def takes_new_labels(self) -> bool:
        """Whether labels can be added to it: not where each has what training gave it."""
        return self._inner.takes_new_labels

    @property
    def labels(self) -> list[Label]:
        """Its labels, as a list of its own; changing that changes nothing here."""
        return self._inner.labels(Label)

    def tag(
        self,
        texts: Any,
        k: int = 5,
        threshold: float | None = None,
        allow: Iterable[str] | None = None,
        *,
        titles: Any = None,
        ids: Any = None,
    ) -> list[list[Tag]]:
        """The best labels of each text, the best first.

        ``texts`` is a list, a NumPy array, a column of pandas or polars, or an Arrow array of strings; strings are read where
        they lie. A list may be shorter than ``k``: a method does not rank labels it has nothing to say about.

        :param k: how many labels at most.
        :param threshold: labels that score less are left out.
        :param allow: the ids of labels to answer with; all, unless said.
        :param titles: a title for each text, or none: methods weigh titles more.
        :param ids: an id for each text, for models that know documents by their ids.
        """
        ask: TextAsk = {**_asked(k, threshold, allow), "titles": titles, "ids": ids}
        return self._inner.tag(texts, ask, Tag)

    @overload
    def tag_arrow(self, data: Any, text: str = ..., id: str | None = ..., title: str | None = ..., k: int = ...,
                  threshold: float | None = ..., allow: Iterable[str] | None = ..., *,
                  keep: Iterable[str] | Literal["all"] = ..., stream: Literal[False] = ...) -> Tagged: ...  # fmt: skip

    @overload
    def tag_arrow(self, data: Any, text: str = ..., id: str | None = ..., title: str | None = ..., k: int = ...,
                  threshold: float | None = ..., allow: Iterable[str] | None = ..., *,
                  keep: Iterable[str] | Literal["all"] = ..., stream: Literal[True]) -> TaggedStream: ...  # fmt: skip

    def tag_arrow(
        self,
        data: Any,
        text: str = "text",
        id: str | None = None,
        title: str | None = None,
        k: int = 5,
        threshold: float | None = None,
        allow: Iterable[str] | None = None,
        *,
        keep: Iterable[str] | Literal["all"] = (),
        stream: bool = False,
    ) -> Tagged | TaggedStream:
        """A table with the labels of its rows, through Arrow's interface for Python: nothing is copied on the way in or out.

        ``data`` is a table, a batch or a reader of pyarrow, a frame of polars or pandas, a relation of duckdb, or anything
        else with ``__arrow_c_stream__`` or ``__arrow_c_array__``; all of these take the answer, too. It has a row for
        each that came in: ``id`` as it was, or the number of the row from one, then the columns that are kept, and
        ``labels``, a list of structs ``id, name, score, seen``. A row whose text is null has null labels.

        :param text: the column of texts.
        :param id: the column of ids, strings or whole numbers; ``id``, where there is one, unless said.
        :param title: the column of titles; ``title``, where there is one, unless said.
        :param k: how many labels at most.
        :param threshold: labels that score less are left out.
        :param allow: the ids of labels to answer with; all, unless said.
        :param keep: other columns that are carried through, or ``"all"``.
        :param stream: whether rows are tagged as the answer is read, once, a batch at a time, so that tables larger than memory pass
            through. An iterator over tagged batches, and Arrow data to those who read that; these see a failure as one of Arrow's.
        """
        for name, column in (("text", text), ("id", id), ("title", title)):
            if not isinstance(column, str) and (name == "text" or column is not None):
                raise InputTypeError(f"{name}={column!r}: the name of a column, a string, is expected")
        if isinstance(keep, str) and keep != "all":
            raise InputTypeError(f'keep={keep!r}: a list of names of columns, or "all", is expected')
        ask: ColumnAsk = {
            **_asked(k, threshold, allow),
            "text": text,
            "id": id,
            "title": title,
            "keep": [] if keep == "all" else _strings(keep, "keep"),
            "keep_all": keep == "all",
        }
        return self._inner.tag_stream(data, ask) if stream else self._inner.tag_arrow(data, ask)

    def add_labels(self, labels: Iterable[Any]) -> None:
        """Adds labels: on the disk when this returns, and in the next answer. Nothing is trained. All are added, or none.

        A label is a :class:`polytag.Label`, a dict with its fields, or a pair of id and name. The model is read again, so give
        many labels at once rather than one by one. A model that a server holds open refuses changes from elsewhere.
        """
        if isinstance(labels, (str, Label)) or hasattr(labels, "keys"):
            raise InputTypeError("labels are added as a list of them; put it in a list")
        records = [_task.label_record(_task.as_label(label)) for label in labels]
        self._change([{"change": "add", "label": record} for record in records])

    def remove_labels(self, ids: Iterable[str]) -> None:
        """Takes labels out, by their ids: on the disk when this returns. All are removed, or none."""
        self._change([{"change": "remove", "id": id} for id in _strings(ids, "ids")])

    def rename_label(self, id: str, name: str) -> None:
        """Gives a label another name: on the disk when this returns, and in the next answer."""
        self._change([{"change": "rename", "id": id, "name": name}])

    def describe_label(self, id: str, description: str | None) -> None:
        """Says what a label means, or with ``None`` takes that away: on the disk when this returns."""
        self._change([{"change": "describe", "id": id, "description": description}])

    def _change(self, changes: list[dict[str, Any]]) -> None:
        if changes:
            self._inner.change_labels(json.dumps(changes))

    def explain(
        self,
        text: str,
        k: int = 5,
        *,
        title: str | None = None,
        id: str | None = None,
        labels: Iterable[str] | None = None,
    ) -> list[Explanation]:
        """Why labels fit a text: the best ``k``, or those whose ids are named."""
        for name, value in (("text", text), ("title", title), ("id", id)):
            if not isinstance(value, str) and (name == "text" or value is not None):
                raise InputTypeError(f"{name} is of type {type(value).__name__}, where a string is expected")
        named = None if labels is None else _strings(labels, "labels")
        explained = json.loads(self._inner.explain((text, title, id), named, _whole("k", k)))
        return [
            Explanation(
                entry["id"],
                entry["name"],
                entry["score"],
                entry["matched"],
                [Reason(**reason) for reason in entry["reasons"]],
                [Mark(**mark) for mark in entry.get("marks", ())],
            )
            for entry in explained
        ]

    def save(self, folder: Folder) -> Model:
        """Copies the model to a folder that is not there yet, whole or not at all, and loads it from there."""
        target = Path(folder).absolute()
        if target.exists():
            raise InputError(f"{target}: there is something already; name a folder that is not there yet")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as beside:
            copy = Path(beside, "model")
            shutil.copytree(self.path, copy, ignore=shutil.ignore_patterns("*.lock"))
            copy.rename(target)
        return _load_again(str(target), self._options)


def _remove(folder: str, process: int) -> None:
    # A process that was forked has a copy of the object, and not of the folder.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _load_again(path: str, options: dict[str, Any]) -> Model:
    return load(path, **options)


def load(
    folder: Folder,
    device: str = "auto",
    precision: Literal["f32", "int8"] = "f32",
    *,
    threads: int | None = None,
    cache: Folder | None = None,
) -> Model:
    """Loads a model folder, with the labels added since it was fitted.

    :param device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or ``cuda:N``; for models with an encoder.
    :param precision: ``int8`` is faster on a CPU, with scores that differ a little; for models with an encoder.
    :param threads: how many threads it works with; one a core, unless said.
    :param cache: the folder that keeps compiled kernels; that of the command line, unless said.
    """
    for name, value in (("device", device), ("precision", precision)):
        if not isinstance(value, str):
            raise InputTypeError(f"{name}={value!r}: a string is expected")
    ask: LoadAsk = {
        "path": str(Path(folder).expanduser().absolute()),
        "device": device,
        "precision": precision,
        "threads": _threads(threads),
        "cache": _cache.root(cache),
    }
    native = _native.Model.load(ask)
    return Model._of(native, {"device": device, "precision": precision, "threads": threads, "cache": cache})


def fit(
    task: Any,
    method: str = "auto",
    out: Folder | None = None,
    seed: int = 0,
    *,
    titles: Any = None,
    dev: tuple[Any, Any] | None = None,
    encoder: str | None = None,
    device: str = "auto",
    engine_precision: str = "f32",
    threads: int | None = None,
    memory: int | None = None,
    cache: Folder | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Model:
    """Learns from a task and writes a model folder.

    ``task`` is a task folder, or ``(texts, labels)`` or ``(texts, labels, label_texts)``: texts as :meth:`Model.tag` takes
    them, a list of label ids for each (``None`` where nobody labelled it), and what labels mean, as a mapping from ids to names or
    as a list of :class:`polytag.Label`. A label that is not described goes by its id; one that no text carries can be found all the
    same, by methods that read what labels mean.

    Ctrl-C stops it, and leaves no half-written model. Methods that train keep their state beside ``out``: the same call
    goes on where it was broken off.

    :param method: one of ``polytag.METHODS``; ``auto`` chooses by what there is.
    :param out: where the model goes; a model that is there is replaced. Unless said, a temporary folder that goes with the model
        object; :meth:`Model.save` keeps it.
    :param seed: what makes one run differ from another; the same seed gives the same bytes.
    :param titles: titles of the texts, where ``task`` is texts.
    :param dev: texts and labels to measure on while training, where ``task`` is texts.
    :param encoder: a known name, a name on the hub, or a folder, for methods that have one.
    :param engine_precision: ``f32``, or ``int8`` for 8-bit integers wherever texts are encoded but not learned from; steps of a
        training are in f32 in any case. ``int8`` works on the CPU, which ``device="auto"`` then takes, for the steps as well.
        (``precision`` is a setting of methods that keep label vectors, and says how they keep them.)
    :param memory: bytes that documents may take while they are learned from, for methods that can put them on the disk.
    :param progress: called with a dict for each thing that happens: stages begun, steps made, values measured.
    :param settings: settings of the method, such as ``epochs=4``.
    """
    if out is None:
        folder = tempfile.mkdtemp(prefix="polytag-model-")
        try:
            model = fit(task, method, Path(folder, "model"), seed, titles=titles, dev=dev, encoder=encoder, device=device,
                        engine_precision=engine_precision, threads=threads, memory=memory, cache=cache, progress=progress, **settings)  # fmt: skip
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return model._goes_with(folder)
    if encoder is not None:
        settings["encoder"] = encoder
    try:
        written = json.dumps(settings)
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"a setting cannot be written as JSON: {error}") from None
    with tempfile.TemporaryDirectory(prefix="polytag-task-") as made:
        ask: FitAsk = {
            "task": _task_folder(task, made, "train", titles, dev),
            "out": str(Path(out).expanduser().absolute()),
            "method": method,
            "settings": written,
            "seed": _whole("seed", seed, least=0),
            "memory": None if memory is None else _whole("memory", memory),
            "device": device,
            "precision": engine_precision,
            "threads": _threads(threads),
            "cache": _cache.root(cache),
        }
        native = _native.fit(ask, progress)
    return Model._of(native, {"device": device, "precision": engine_precision, "threads": threads, "cache": cache})


def evaluate(
    model: Model,
    task: Any,
    split: str = "dev",
    *,
    k: Iterable[int] | None = None,
    recall_k: Iterable[int] | None = None,
    zsr_k: Iterable[int] | None = None,
    propensity: tuple[float, float] | None = None,
    item_to_item: bool = False,
    replicates: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """How good a model is on a split of a task, in percent, with 95 % intervals from a bootstrap over documents.

    ``task`` is a task folder, or ``(texts, labels)``. The answer holds ``metrics`` and ``intervals`` by name (``nDCG@5``), and how
    many documents and labels there were. A label is unseen where no document that the model was fitted on carries it.

    :param k: depths of precision, nDCG and their like.
    :param recall_k: depths of recall.
    :param zsr_k: depths of the recall of unseen labels.
    :param propensity: A and B of the propensity.
    :param item_to_item: whether documents are labels themselves, under their own ids, and left out of their own rankings.
    :param replicates: of the bootstrap; 0 gives no intervals.
    """
    if not isinstance(model, Model):
        raise InputTypeError(f"model is of type {type(model).__name__}; polytag.load and polytag.fit make one")

    def depths(values: Iterable[int] | None, what: str) -> list[int] | None:
        return None if values is None else [_whole(what, value) for value in values]

    with tempfile.TemporaryDirectory(prefix="polytag-task-") as made:
        ask: EvaluateAsk = {
            "task": _task_folder(task, made, split, None, None),
            "split": split,
            "k": depths(k, "k"),
            "recall_k": depths(recall_k, "recall_k"),
            "zsr_k": depths(zsr_k, "zsr_k"),
            "propensity": propensity,
            "item_to_item": item_to_item,
            "replicates": None if replicates is None else _whole("replicates", replicates, least=0),
            "seed": _whole("seed", seed, least=0),
        }
        return dict(json.loads(model._inner.evaluate(ask, progress)))


def _task_folder(task: Any, made: str, split: str, titles: Any, dev: tuple[Any, Any] | None) -> str:
    """The folder of a task; what is in memory is written to ``made``."""
    if isinstance(task, (str, os.PathLike)):
        if titles is not None or dev is not None:
            raise InputError("titles and dev go with texts; a task folder has its own")
        return str(Path(task).expanduser().absolute())
    if not isinstance(task, tuple) or len(task) not in (2, 3):
        raise InputTypeError(
            f"a task is a folder, (texts, labels) or (texts, labels, label_texts); this is of type {type(task).__name__}"
        )
    if split not in ("train", "dev", "test"):
        raise InputError(f"no split is called {split!r}; say train, dev or test")
    splits = {split: (task[0], task[1], titles)}
    if dev is not None:
        splits["dev"] = (*dev, None)
    _task.write_task(made, splits, task[2] if len(task) == 3 else None)
    return made


def _asked(k: int, threshold: float | None, allow: Iterable[str] | None) -> Asked:
    """How many labels, out of which, checked."""
    if threshold is not None:
        try:
            threshold = float(threshold)
        except (TypeError, ValueError):
            raise InputTypeError(f"threshold={threshold!r}: a number is expected") from None
        if threshold - threshold != 0:
            raise InputError(f"threshold={threshold}: it must be finite")
    return {
        "k": _whole("k", k),
        "threshold": threshold,
        "allow": None if allow is None else _strings(allow, "allow"),
    }


def _whole(name: str, value: Any, least: int = 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputTypeError(f"{name}={value!r}: a whole number is expected") from None
    if not least <= number < 2**63:
        raise InputError(f"{name}={value}: say at least {least}")
    return number


def _threads(threads: int | None) -> int | None:
    return None if threads is None else _whole("threads", threads)


def _strings(strings: Any, what: str) -> list[str]:
    listed = _task.values(strings, what)
    for place, item in enumerate(listed):
        if not isinstance(item, str):
            raise InputTypeError(f"{what}[{place}] is {item!r}, where a string is expected")
    return listed
