"""Frames of Spark, on a real cluster of one master and two workers."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time

import cluster
import pytest

import polytag

if reason := cluster.missing():
    pytest.skip(reason, allow_module_level=True)
pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from pyspark.errors import PythonException  # noqa: E402
from pyspark.sql import functions  # noqa: E402

import polytag.spark  # noqa: E402


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    started = cluster.Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        started.add_workers(None, None)
        yield started
    finally:
        started.close()


@pytest.fixture(scope="module")
def spark(workers):
    session = workers.session()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def frame(spark, documents):
    rows = [(place, document["id"], document["title"], document["text"]) for place, document in enumerate(documents)]
    return spark.createDataFrame(rows, "number long, id string, title string, text string").repartition(4).cache()


@pytest.fixture
def own_folder(model, tmp_path):
    return model.save(tmp_path / "model").path


def dicts(rows):
    return None if rows is None else [row.asDict() for row in rows]


def test_rows_are_tagged_as_everywhere(frame, model, documents, lexical_folder):
    tagged = polytag.spark.tag(frame, lexical_folder, "text", 3, "id", title_col="title")
    kind = "array<struct<id:string,name:string,score:float,seen:boolean>>"
    assert dict(tagged.dtypes) == {"number": "bigint", "id": "string", "title": "string", "text": "string", "labels": kind}
    rows = sorted(tagged.collect())
    assert [row.number for row in rows] == list(range(300))
    expected = model.tag([d["text"] for d in documents], k=3, titles=[d["title"] for d in documents])
    assert [dicts(row.labels) for row in rows] == [[tag._asdict() for tag in tags] for tags in expected]
    best = tagged.select("id", functions.col("labels")[0]["id"].alias("best"), functions.col("labels")[0]["score"] > 0)
    assert best.where("best is not null").count() == sum(map(bool, expected))


def test_nulls_are_rows(spark, lexical_folder):
    frame = spark.createDataFrame([(1, None), (2, "a web server"), (3, "")], "key int, text string")
    rows = {row.key: dicts(row.labels) for row in polytag.spark.tag(frame, lexical_folder, labels_col="tags", k=1)
            .withColumnRenamed("tags", "labels").collect()}  # fmt: skip
    assert rows[1] is None and rows[3] == [] and len(rows[2]) == 1
    assert polytag.spark.tag(frame.where("key > 9"), lexical_folder).collect() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"text_col": "nonsense"}, "no column is called 'nonsense'; there are 'number', 'id', 'title', 'text'"),
        ({"text_col": "number"}, "'number' is of type bigint, where a string is expected"),
        ({"title_col": "number"}, "'number' is of type bigint"),
        ({"labels_col": "title"}, "there is a column called 'title' already"),
        ({"k": 0}, "k=0"),
        ({"threshold": "high"}, "a number is expected"),
        ({"allow": ["nonsense"]}, "no label with the id 'nonsense'"),
    ],
)
def test_what_cannot_be_used_is_named_by_the_driver(frame, lexical_folder, options, words):
    with pytest.raises(polytag.InputError, match=words):
        polytag.spark.tag(frame, lexical_folder, **options)


def test_a_worker_without_the_model_says_so(frame, own_folder):
    tagged = polytag.spark.tag(frame, own_folder)
    shutil.rmtree(own_folder)
    with pytest.raises(PythonException, match=r"worker \S+, process \d+: no model folder at .*model; copy it there.*ship=True"):
        tagged.collect()
    with pytest.raises(polytag.ModelError, match="no model folder here to ship"):
        polytag.spark.tag(frame, own_folder, ship=True)
    # Workers may have what the driver has not; whether they do is seen when they work.
    with pytest.raises(PythonException, match="no model folder at /nowhere/at/all"):
        polytag.spark.tag(frame, "/nowhere/at/all").collect()


def test_a_worker_with_other_labels_says_so(frame, own_folder):
    tagged = polytag.spark.tag(frame, own_folder)
    polytag.load(own_folder).add_labels([("new", "New")])
    with pytest.raises(PythonException, match="holds another model than the driver's, or other labels"):
        tagged.collect()
    # Asked anew, workers that had the model load it anew.
    texts = frame.limit(1).withColumn("text", functions.lit("new"))
    assert polytag.spark.tag(texts, own_folder, k=1).collect()[0].labels[0].id == "new"


def test_a_damaged_model_is_named(frame, own_folder):
    weights = own_folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(PythonException, match=r"worker \S+, process \d+: .*weights.safetensors"):
        polytag.spark.tag(frame, own_folder).collect()


def test_a_model_can_be_shipped(frame, own_folder, model, documents):
    tagged = polytag.spark.tag(frame, polytag.load(own_folder), k=2, ship=True)
    again = polytag.spark.tag(frame.limit(10), own_folder, k=2, ship=True)
    shutil.rmtree(own_folder)
    rows = sorted(tagged.collect())
    expected = model.tag([document["text"] for document in documents], k=2)
    assert [dicts(row.labels) for row in rows] == [[tag._asdict() for tag in tags] for tags in expected]
    assert again.count() == 10


def test_a_model_is_loaded_once_a_process(spark, frame, lexical_folder):
    polytag.spark.tag(frame.repartition(12), lexical_folder).count()

    def loaded(batches):
        import pyarrow

        for _ in batches:
            pass
        keys = [key for key in polytag.spark._models if key[0] == str(lexical_folder)]
        yield pyarrow.RecordBatch.from_pylist([{"process": os.getpid(), "models": len(keys)}])

    rows = spark.range(8, numPartitions=8).mapInArrow(loaded, "process long, models long").collect()
    # Two workers with a core each.
    assert len({row.process for row in rows}) <= 2 and max(row.models for row in rows) == 1


def slowly(folder):
    """Rows as they come, a while later; each run of a partition leaves a note of where it was."""

    def pass_on(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        note = {"partition": task.partitionId(), "place": os.getcwd()}
        (folder / f"{task.taskAttemptId()}.json").write_text(json.dumps(note))
        for batch in batches:
            time.sleep(0.4)
            yield batch

    return pass_on


def test_a_worker_that_is_killed_loses_and_repeats_no_row(spark, workers, documents, lexical_folder, tmp_path):
    # Runs last: afterwards there is one worker.
    partitions = 24
    texts = spark.createDataFrame([(p, d["text"]) for p, d in enumerate(documents)], "place long, text string")
    rows = (
        spark.range(3000, numPartitions=partitions)
        .withColumn("place", functions.col("id") % 300)
        .join(functions.broadcast(texts), "place")
        .select("id", "text")
    )
    tagged = polytag.spark.tag(rows.mapInArrow(slowly(tmp_path), rows.schema), lexical_folder, k=3, id_col="id")
    expected = {row.id: dicts(row.labels) for row in polytag.spark.tag(rows, lexical_folder, k=3).collect()}
    assert len(expected) == 3000

    found: list = []
    failed: list = []

    def collect():
        try:
            found.extend(tagged.collect())
        except Exception as error:  # It is raised where it is looked at.
            failed.append(error)

    job = threading.Thread(target=collect)
    job.start()
    victim = workers.workers[1]

    def places():
        notes = [json.loads(path.read_text() or "null") for path in tmp_path.glob("*.json")]
        return [note["place"] for note in notes if note]

    deadline = time.monotonic() + 120
    while len(places()) < partitions // 2 and time.monotonic() < deadline and not failed:
        time.sleep(0.05)
    assert job.is_alive() and len(set(places())) == 2, "half-way, both workers are at work"
    assert workers.kill(victim), "there was an executor to kill"
    job.join(180)
    assert not job.is_alive() and not failed, failed
    assert sorted(row.id for row in found) == list(range(3000))
    assert {row.id: dicts(row.labels) for row in found} == expected
