"""polytag on Spark, for which pyspark and pyarrow must be installed: ``pip install polytag[spark]``.

A frame is tagged with ``mapInArrow``: batches of rows go to the workers' Python as Arrow data and are tagged where they lie. Each
worker process loads the model once and keeps it for the tasks that follow (``spark.python.worker.reuse``). What a row is tagged with
depends on the row alone, so that a task that is run again, because a worker was lost, gives the same.
"""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _model
from ._asks import Asked
from ._errors import InputError, InputTypeError, ModelError
from ._model import Folder, Model

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["tag"]

# What says which model a folder holds, and which labels: the manifest has a checksum of every other file.
_STATE = ("manifest.json", "labels.snapshot", "labels.log")


class _Job(NamedTuple):
    """What a worker has to know."""

    folder: str
    """The folder of the model; of a model that was shipped, its name among Spark's files."""
    shipped: bool
    digest: str | None
    """Which model the driver sees in the folder; none, where the driver does not see it."""
    columns: dict[str, str | None]
    ask: Asked
    labels_col: str
    options: dict[str, Any]


def tag(
    df: DataFrame,
    model: Model | Folder,
    text_col: str = "text",
    k: int = 5,
    id_col: str | None = None,
    *,
    title_col: str | None = None,
    labels_col: str = "labels",
    threshold: float | None = None,
    allow: Iterable[str] | None = None,
    ship: bool = False,
    device: str = "cpu",
    precision: str = "f32",
    threads: int | None = None,
) -> DataFrame:
    """The frame with one more column, the best labels of each row: ``array<struct<id, name, score, seen>>``, the best first.

    Rows whose text is null have null labels. As all of Spark, this works when the answer is asked for.

    :param model: the model folder, at the same place on every worker, such as on a shared file system; or a ``Model``, for its
        folder. Where the driver sees the folder, too, workers refuse one that holds another model or other labels.
    :param id_col: the column of ids, for models that know documents by their ids.
    :param title_col: the column of titles: methods weigh titles more.
    :param labels_col: what the new column is called.
    :param threshold: labels that score less are left out.
    :param allow: the ids of labels to answer with; all, unless said.
    :param ship: whether the driver sends the folder to the workers, once for each model, so that they need none.
    :param device: where workers tag; ``auto`` lets every task of a machine take its GPU.
    :param precision: ``int8`` is faster on a CPU, for models with an encoder.
    :param threads: threads of a task: ``spark.task.cpus``, unless said.
    """
    session = df.sparkSession
    columns = {"text": text_col, "id": id_col, "title": title_col}
    _check_columns(df, columns, labels_col)
    folder = Path(model.path if isinstance(model, Model) else model).expanduser().absolute()
    digest = _digest(folder)
    if ship and digest is None:
        raise ModelError(f"{folder}: no model folder here to ship to the workers; name one that the driver has")
    if digest is not None:
        # What is wrong with the folder is said here and now, not by a worker.
        allow = _check_allowed(folder, allow)
    options = {"device": device, "precision": precision, "threads": threads or _task_cpus(session)}
    ask = _model._asked(k, threshold, allow)
    place = _shipped(session, folder, digest) if ship and digest else str(folder)
    job = _Job(place, ship, digest, columns, ask, labels_col, options)

    def tag_batches(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        return _tag_batches(job, batches)

    return df.mapInArrow(tag_batches, _schema(df, labels_col))


def _check_columns(df: DataFrame, columns: dict[str, str | None], labels_col: str) -> None:
    from pyspark.sql.types import IntegralType, StringType

    for role, name in columns.items():
        if name is None:
            continue
        found = [field for field in df.schema.fields if field.name == name]
        if len(found) != 1:
            how_many = "no column is" if not found else "two columns are"
            there = ", ".join(repr(field.name) for field in df.schema.fields)
            raise InputError(f"{how_many} called {name!r}; there are {there}; name another for {role}_col")
        kind = found[0].dataType
        if not isinstance(kind, (StringType, IntegralType) if role == "id" else StringType):
            expected = "a string or a whole number" if role == "id" else "a string"
            raise InputTypeError(f"the column {name!r} is of type {kind.simpleString()}, where {expected} is expected; cast it, or name another")
    if labels_col in df.columns:
        raise InputError(f"there is a column called {labels_col!r} already; drop it, or say labels_col=")


def _check_allowed(folder: Path, allow: Iterable[str] | None) -> list[str] | None:
    """The labels that are allowed, if the model has them all."""
    if allow is None:
        return None
    allowed = _model._strings(allow, "allow")
    known = {label.id for label in _model.load(folder, device="cpu").labels}
    for id in allowed:
        if id not in known:
            raise InputError(f"the model has no label with the id {id!r}")
    return allowed


def _schema(df: DataFrame, labels_col: str) -> Any:
    from pyspark.sql.types import ArrayType, BooleanType, FloatType, StringType, StructField, StructType

    label = StructType(
        [
            StructField("id", StringType(), False),
            StructField("name", StringType(), False),
            StructField("score", FloatType(), False),
            StructField("seen", BooleanType(), False),
        ]
    )
    return StructType([*df.schema.fields, StructField(labels_col, ArrayType(label, False), True)])


def _task_cpus(session: SparkSession) -> int:
    return int(session.conf.get("spark.task.cpus", "1") or 1)


def _digest(folder: Path) -> str | None:
    """Which model a folder holds, with which labels; none where there is no model."""
    if not Path(folder, _STATE[0]).is_file():
        return None
    digest = hashlib.sha256()
    for name in _STATE:
        file = Path(folder, name)
        content = file.read_bytes() if file.is_file() else b""
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


# Archives by session and digest: kept as long as the driver, for workers that come later.
_archives: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()
_archives_lock = threading.Lock()
_archives_folder: tempfile.TemporaryDirectory[str] | None = None


def _shipped(session: SparkSession, folder: Path, digest: str) -> str:
    """Gives a model to Spark to send to whoever works; its name among Spark's files."""
    global _archives_folder
    name = f"polytag-{digest[:32]}.zip"
    with _archives_lock:
        known = _archives.setdefault(session, {})
        if digest in known:
            return known[digest]
        if _archives_folder is None:
            _archives_folder = tempfile.TemporaryDirectory(prefix="polytag-ship-")
        archive = Path(_archives_folder.name, name)
        if not archive.exists():
            part = archive.with_suffix(".part")
            with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as packed:
                for file in sorted(folder.rglob("*")):
                    if file.is_file() and not file.name.endswith(".lock"):
                        packed.write(file, file.relative_to(folder))
            part.replace(archive)
        session.addArtifacts(str(archive), archive=True)
        known[digest] = name
    return name


# The models of this worker process, by folder, what it holds, and how it is loaded.
_models: dict[tuple[Any, ...], Model] = {}
_models_lock = threading.Lock()


def _loaded(job: _Job) -> Model:
    """The model of a job, loaded once a process."""
    folder = Path(job.folder)
    if job.shipped:
        from pyspark import SparkFiles

        folder = Path(SparkFiles.get(job.folder))
    digest, here = _digest(folder), f"worker {socket.gethostname()}, process {os.getpid()}"
    if digest is None:
        raise ModelError(
            f"{here}: no model folder at {folder}; copy it there, put it on a file system that all workers share, or "
            "let the driver send it with polytag.spark.tag(..., ship=True)"
        )
    if job.digest not in (None, digest):
        raise ModelError(
            f"{here}: the folder {folder} holds another model than the driver's, or other labels; copy the driver's there, or "
            "let the driver send it with polytag.spark.tag(..., ship=True)"
        )
    key = (str(folder), digest, *sorted(job.options.items()))
    with _models_lock:
        if key not in _models:
            # Labels were changed, or another model was sent: nobody asks for the old one again.
            for old in [old for old in _models if job.shipped or old[0] == key[0]]:
                del _models[old]
            try:
                _models[key] = _model.load(folder, **job.options)
            except InputError as error:
                raise ModelError(f"{here}: {error}") from error
        return _models[key]


def _tag_batches(job: _Job, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    model = None
    for batch in batches:
        # Not before there is a row: an empty partition needs no model.
        model = model or _loaded(job)
        # Columns go by their roles, so that others, whatever they are called, are not mistaken for them.
        roles = {role: batch.column(name) for role, name in job.columns.items() if name is not None}
        table = pyarrow.RecordBatch.from_arrays(list(roles.values()), names=list(roles))
        tagged = pyarrow.record_batch(model.tag_arrow(table, **job.ask))
        yield batch.append_column(job.labels_col, tagged.column("labels"))
