"""polytag as an estimator of scikit-learn, which must be installed: ``pip install polytag[sklearn]``."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from . import _task
from ._errors import InputError, InputTypeError
from ._model import Model, fit, load
from ._types import Label

__all__ = ["PolytagClassifier"]


def _gives_probabilities(classifier: PolytagClassifier) -> bool:
    check_is_fitted(classifier)
    if not classifier.model_.gives_probabilities:
        raise AttributeError(
            f"the scores of {classifier.model_.method!r} rank labels and are no probabilities; "
            "fit label-tree, blend or zest with alike=0, or use predict"
        )
    return True


class PolytagClassifier(ClassifierMixin, BaseEstimator):
    """Tags texts, one label each or any number.

    ``X`` is a list, an array or a column of texts. ``y`` says what is learned, and ``predict`` answers alike:

    - a label for each text: one label each;
    - a list of labels for each text: any number of labels, those of ``label_texts`` among them that no text carries;
    - a matrix of zeros and ones, a column a label, dense or sparse: any number of labels, as a dense matrix.

    A list of lists of nothing but zeros and ones, all of one length, is a matrix.

    :param method: one of ``polytag.METHODS``; ``label-tree`` needs no encoder and gives probabilities.
    :param label_texts: what labels mean, for methods that read it: a mapping from labels to names, or to dicts of ``name``,
        ``description``, ``aliases`` and ``parents``. With a matrix, labels are the numbers of its columns.
    :param threshold: with any number of labels, those that score less are not given: 0.5 unless said, where scores are
        probabilities.
    :param k: with any number of labels, the most that are given. Where scores are no probabilities and there is neither
        threshold nor k, as many as texts had in training, on average.
    :param settings: settings of the method, a dict.
    :param encoder: the encoder, for methods that have one.
    :param device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    :param threads: one a core, unless said.
    :param random_state: the seed, a whole number.

    Once fitted it has ``classes_``, the labels in the order of ``predict_proba``'s columns, and ``model_``, the
    :class:`polytag.Model`; ``model_.save(folder)`` keeps that for the command line, a server or Spark. A pickle holds the whole
    model.
    """

    def __init__(
        self,
        method: str = "label-tree",
        *,
        label_texts: Mapping[Any, Any] | None = None,
        threshold: float | None = None,
        k: int | None = None,
        settings: Mapping[str, Any] | None = None,
        encoder: str | None = None,
        device: str = "auto",
        threads: int | None = None,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.label_texts = label_texts
        self.threshold = threshold
        self.k = k
        self.settings = settings
        self.encoder = encoder
        self.device = device
        self.threads = threads
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PolytagClassifier:
        """Learns from texts and their labels."""
        texts = _task.values(X, "X")
        if not texts:
            raise InputError("X holds no text; there is nothing to learn from")
        if y is None:
            raise InputError(
                "This PolytagClassifier estimator requires y to be passed, but the target y is None; "
                "polytag.fit learns from texts without labels"
            )
        kind, classes, carried = _targets(y, self.label_texts)
        if len(carried) != len(texts):
            raise InputError(f"there are {len(texts)} texts and {len(carried)} rows of labels; give one for each")
        ids = [str(label) for label in classes]
        if len(set(ids)) != len(ids) or "" in ids:
            raise InputError("labels must differ as strings, and none be empty")
        labels = [_described(self.label_texts, label, id) for label, id in zip(classes, ids, strict=True)]
        named = [[ids[place] for place in places] for places in carried]
        self.model_ = fit(
            (texts, named, labels),
            method=self.method,
            seed=self.random_state,
            encoder=self.encoder,
            device=self.device,
            threads=self.threads,
            **dict(self.settings or {}),
        )
        self.kind_, self.classes_, self._places = kind, classes, {id: place for place, id in enumerate(ids)}
        self.cardinality_ = sum(map(len, carried)) / len(carried)
        counts = Counter(place for places in carried for place in places)
        self._usual = max(range(len(ids)), key=lambda place: (counts[place], -place), default=0)
        return self

    def predict(self, X: Any) -> Any:
        """The label of each text, or its labels, in the form of ``y``."""
        check_is_fitted(self)
        if self.kind_ == "one":
            tags = self.model_.tag(_texts(X), k=1)
            # Where a method has nothing to say, what was most frequent is the best guess.
            best = [self._places[row[0].id] if row else self._usual for row in tags]
            return self.classes_[np.asarray(best, dtype=np.intp)]
        rows = [[self._places[tag.id] for tag in row] for row in self._given(X)]
        if self.kind_ == "lists":
            return [[self.classes_[place] for place in row] for row in rows]
        return _matrix(rows, len(self.classes_))

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each label, a row a text, a column for each of ``classes_``.

        Where a text has one label, the probabilities of a row add up to one. Takes texts times labels numbers: ask
        ``model_.tag`` where there are very many labels.
        """
        check_is_fitted(self)
        texts = _texts(X)
        chances = np.zeros((len(texts), len(self.classes_)))
        for row, tags in enumerate(self.model_.tag(texts, k=max(1, len(self.classes_)))):
            for tag in tags:
                chances[row, self._places[tag.id]] = tag.score
        if self.kind_ == "one":
            nothing = chances.sum(axis=1) <= 0
            chances[nothing, self._usual] = 1.0
            chances /= chances.sum(axis=1, keepdims=True)
            return chances
        # Nothing is certain: in 32 bits what is nearly so is rounded to one.
        return np.minimum(chances, np.nextafter(1.0, 0.0))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of texts whose labels are all found, and no others."""
        check_is_fitted(self)
        found = self.predict(X)
        if self.kind_ == "lists":
            places = {label: place for place, label in enumerate(self.classes_)}
            # Labels that it never heard of cannot be found.
            for label in (label for row in y for label in row):
                places.setdefault(label, len(places))
            y, found = (_matrix([[places[label] for label in row] for row in rows], len(places)) for rows in (y, found))
        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def _given(self, X: Any) -> list[list[Any]]:
        threshold, k = self.threshold, self.k
        if threshold is None and self.model_.gives_probabilities:
            threshold = 0.5
        if k is None:
            usual = max(1, round(self.cardinality_))
            k = len(self.classes_) if threshold is not None else usual
        return self.model_.tag(_texts(X), k=max(1, k), threshold=threshold)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.multi_output = False
        tags.classifier_tags.multi_label = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if isinstance(model := state.get("model_"), Model):
            state["model_"] = _packed(model.path)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if isinstance(packed := state.get("model_"), bytes):
            state["model_"] = _unpacked(packed, state["device"], state["threads"])
        super().__setstate__(state)


def _texts(X: Any) -> Any:
    """Texts that have a length."""
    return X if hasattr(X, "__len__") else list(X)


def _targets(y: Any, label_texts: Any) -> tuple[str, np.ndarray, list[list[int]]]:
    """What kind of answer is learned, the labels there are, and the places of those of each text."""
    described = list(label_texts) if isinstance(label_texts, Mapping) else []
    if label_texts is not None and not isinstance(label_texts, Mapping):
        raise InputTypeError("label_texts is a mapping from labels to what they mean")
    if hasattr(y, "tocsr"):  # A sparse matrix of SciPy.
        rows = y.tocsr()
        rows.eliminate_zeros()
        places = [rows.indices[start:end].tolist() for start, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)]
        return "matrix", np.arange(rows.shape[1]), places
    if hasattr(y, "columns"):
        y = np.asarray(y)
    if (rows := _label_lists(y)) is not None:
        labels = dict.fromkeys(label for row in rows for label in row) | dict.fromkeys(described)
        classes = np.empty(len(labels), dtype=object)
        classes[:] = _ordered(labels)
        places_of = {label: place for place, label in enumerate(classes)}
        return "lists", classes, [[places_of[label] for label in dict.fromkeys(row)] for row in rows]
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = _column(array)
    check_classification_targets(array)
    if array.ndim == 2:
        return "matrix", np.arange(array.shape[1]), [np.flatnonzero(row).tolist() for row in array]
    classes, places = np.unique(array, return_inverse=True)
    if extra := [label for label in described if label not in set(classes.tolist())]:
        raise InputError(f"no text carries the label {extra[0]!r}; with one label a text every label needs one")
    return "one", classes, [[place] for place in places.tolist()]


def _column(array: np.ndarray) -> np.ndarray:
    """A column as a row, with scikit-learn's warning."""
    from sklearn.utils.validation import column_or_1d

    return np.asarray(column_or_1d(array, warn=True))


def _label_lists(y: Any) -> list[list[Any]] | None:
    """Labels as lists, if that is what they are; a matrix of zeros and ones is not."""
    if isinstance(y, np.ndarray) and (y.ndim != 1 or y.dtype != object):
        return None
    rows = _task.values(y, "y")
    if not rows or not all(isinstance(row, (list, tuple, set, frozenset, np.ndarray)) for row in rows):
        return None
    rows = [list(row) for row in rows]
    flat = [label for row in rows for label in row]
    alike = len({len(row) for row in rows}) == 1 and flat
    if alike and all(isinstance(label, (int, np.integer, np.bool_)) and label in (0, 1) for label in flat):
        return None
    return rows


def _ordered(labels: Any) -> list[Any]:
    try:
        return sorted(labels)
    except TypeError:
        return sorted(labels, key=str)


def _described(texts: Mapping[Any, Any] | None, label: Any, id: str) -> Label:
    meaning = (texts or {}).get(label, id)
    if isinstance(meaning, str):
        return Label(id, meaning)
    if not isinstance(meaning, Mapping):
        raise InputTypeError(f"label_texts[{label!r}] is neither a name nor a dict")
    return _task.as_label({"name": id, **meaning, "id": id})


def _matrix(rows: list[list[int]], columns: int) -> np.ndarray:
    matrix = np.zeros((len(rows), columns), dtype=int)
    for row, places in enumerate(rows):
        matrix[row, places] = 1
    return matrix


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, arcname="model")
    return buffer.getvalue()


def _unpacked(packed: bytes, device: str, threads: int | None) -> Model:
    folder = tempfile.mkdtemp(prefix="polytag-model-")
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive.getmembers():
                # Nothing but files and folders below ours, whatever the archive says.
                if not (member.isfile() or member.isdir()) or Path(member.name).parts[:1] != ("model",) or ".." in member.name:
                    raise InputError(f"the pickle holds {member.name!r}, which is no part of a model")
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        return load(Path(folder, "model"), device=device, threads=threads)._goes_with(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
