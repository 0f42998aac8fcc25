"""Tables in and out through Arrow."""

from __future__ import annotations

import threading

import pytest

import polytag

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def table(documents):
    columns = {
        "id": [document["id"] for document in documents],
        "title": [document["title"] for document in documents],
        "text": [document["text"] for document in documents],
        "weight": [float(place) for place in range(len(documents))],
    }
    return pyarrow.table(columns)


@pytest.fixture(scope="module")
def expected(model, documents):
    titles = [document["title"] for document in documents]
    return model.tag([document["text"] for document in documents], k=5, titles=titles)


def labels(tagged) -> list:
    return tagged.column("labels").to_pylist()


def as_dicts(tags) -> list:
    return [[tag._asdict() for tag in row] for row in tags]


def test_a_table_in_is_a_table_out(model, table, expected):
    tagged = model.tag_arrow(table)
    assert (len(tagged), tagged.column_names, tagged.without_text) == (300, ["id", "labels"], 0)
    out = tagged.to_pyarrow()
    assert out.column("id") == table.column("id") and labels(out) == as_dicts(expected)
    fields = [("id", pyarrow.string()), ("name", pyarrow.string()), ("score", pyarrow.float32()), ("seen", pyarrow.bool_())]
    struct = pyarrow.struct([pyarrow.field(*field, nullable=False) for field in fields])
    kind = pyarrow.list_(pyarrow.field("item", struct, nullable=False))
    assert out.schema.field("labels").type == kind
    out.validate(full=True)


def test_every_kind_of_table_gives_the_same(model, table, expected):
    pandas, polars, duckdb = (pytest.importorskip(name) for name in ("pandas", "polars", "duckdb"))
    frame, lazy = table.to_pandas(), polars.from_arrow(table)
    assert isinstance(frame, pandas.DataFrame)
    forms = [
        table,
        table.combine_chunks().to_batches()[0],
        pyarrow.concat_tables([table.slice(0, 7), table.slice(7, 0), table.slice(7)]),
        pyarrow.concat_tables([table.slice(0, 1), table]).combine_chunks().slice(1),
        table.to_reader(max_chunksize=37),
        frame,
        lazy,
        duckdb.sql("from frame"),
        table.cast(pyarrow.schema([(f.name, pyarrow.string_view() if f.name == "text" else f.type) for f in table.schema])),
    ]
    for form in forms:
        assert labels(model.tag_arrow(form).to_pyarrow()) == as_dicts(expected), type(form)


def test_everyone_takes_the_answer(model, table, expected):
    pandas, polars, duckdb = (pytest.importorskip(name) for name in ("pandas", "polars", "duckdb"))
    tagged = model.tag_arrow(table, k=5)
    first = as_dicts(expected)[0]
    assert pyarrow.record_batch(tagged).column("labels")[0].as_py() == first
    assert pyarrow.RecordBatchReader.from_stream(tagged).read_all().num_rows == 300
    assert tagged.to_polars()["labels"][0].to_list() == first == polars.DataFrame(tagged)["labels"][0].to_list()
    assert list(tagged.to_pandas()["labels"][0]) == first
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert list(pandas.DataFrame.from_arrow(tagged)["labels"][0]) == first
    assert duckdb.sql("select labels[1].id from tagged limit 1").fetchall() == [(first[0]["id"],)]
    # Once more: an answer is not used up by reading it.
    assert pyarrow.table(tagged).num_rows == 300


def test_nothing_is_copied(model, table):
    def addresses(column):
        return [buffer.address for buffer in column.chunk(0).buffers() if buffer]

    one = table.combine_chunks()
    out = model.tag_arrow(one, keep=["text", "weight"]).to_pyarrow()
    assert out.num_rows <= 512, "larger tables are put together of pieces"
    for name in ("id", "text", "weight"):
        assert addresses(out.column(name)) == addresses(one.column(name)), name


def test_columns_go_by_name(model, table, expected):
    renamed = table.rename_columns(["key", "heading", "body", "labels"])
    out = model.tag_arrow(renamed, text="body", id="key", title="heading", keep=["heading"]).to_pyarrow()
    assert out.column_names == ["id", "heading", "labels"] and labels(out) == as_dicts(expected)
    everything = model.tag_arrow(table, keep="all").to_pyarrow()
    assert everything.column_names == ["id", "title", "text", "weight", "labels"]
    bare = model.tag_arrow(table.select(["text"])).to_pyarrow()
    assert bare.column("id").to_pylist() == list(range(1, 301))
    numbered = table.select(["text", "title"]).append_column("id", pyarrow.array(range(300), pyarrow.uint16()))
    assert model.tag_arrow(numbered).to_pyarrow().column("id") == numbered.column("id")


def test_nulls_are_rows(model, table):
    texts = pyarrow.array([None, *table.column("text").to_pylist()[1:5], None, ""])
    tagged = model.tag_arrow(pyarrow.table({"text": texts}))
    found = labels(tagged.to_pyarrow())
    assert (len(tagged), tagged.without_text) == (7, 2)
    assert [row is None for row in found] == [True, False, False, False, False, True, False] and found[6] == []
    nothing = model.tag_arrow(pyarrow.table({"text": pyarrow.nulls(3)}))
    assert labels(nothing.to_pyarrow()) == [None] * 3
    empty = model.tag_arrow(table.slice(0, 0)).to_pyarrow()
    assert (empty.num_rows, empty.column_names) == (0, ["id", "labels"])
    assert pyarrow.record_batch(model.tag_arrow(table.slice(0, 0))).num_rows == 0


def test_many_rows_come_in_few_batches(model, table, expected):
    large = pyarrow.concat_tables([table] * 10).combine_chunks()
    out = model.tag_arrow(large)
    stream = pyarrow.RecordBatchReader.from_stream(out)
    assert [batch.num_rows for batch in stream] == [3000]
    assert labels(out.to_pyarrow()) == as_dicts(expected) * 10


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"body": ["a"]}, {}, 'no column is called "text"; there are "body"'),
        ({"text": [1.5]}, {}, '"text" is of type Float64'),
        ({"text": [b"a"]}, {}, '"text" is of type Binary'),
        ({"text": [["a"]]}, {}, '"text" is of type List'),
        ({"text": ["a"], "id": [1.5]}, {}, '"id" is of type Float64'),
        ({"text": ["a"], "title": [1]}, {}, '"title" is of type Int64'),
        ({"text": ["a"]}, {"id": "key"}, 'no column is called "key"'),
        ({"text": ["a"]}, {"keep": ["weight"]}, 'no column is called "weight"'),
        ({"text": ["a"]}, {"keep": "weight"}, "a list of names"),
        ({"text": ["a"], "labels": [1]}, {"keep": "all"}, 'two columns called "labels"'),
        ({"text": ["a"]}, {"text": None}, "text=None"),
        ({"text": ["a"]}, {"k": 0}, "k=0"),
        ({"text": ["a"]}, {"allow": ["nonsense"]}, "no label with the id"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(model, columns, options, words):
    for stream in (False, True):
        with pytest.raises(polytag.InputError, match=words):
            model.tag_arrow(pyarrow.table(columns), **options, stream=stream)


def test_what_is_no_table_is_named(model):
    for data, words in (
        ([{"text": "a"}], "list is no Arrow data"),
        ("docs.parquet", "str is no Arrow data"),
        (pyarrow.array(["a"]), "an array of type Utf8"),
        (pyarrow.Table, "type is no Arrow data"),
    ):
        with pytest.raises(polytag.InputTypeError, match=words):
            model.tag_arrow(data)


def test_texts_that_are_no_text_are_refused(model):
    # pyarrow makes strings of any bytes, if it is told to.
    raw = pyarrow.array([b"fine", b"\xff\xfe broken"], pyarrow.binary())
    text = pyarrow.Array.from_buffers(pyarrow.string(), 2, raw.buffers())
    with pytest.raises(polytag.InputError, match="(?i)utf"):
        model.tag_arrow(pyarrow.table({"text": text}))
    with pytest.raises(polytag.InputError, match="(?i)utf"):
        model.tag(text)


def batches_that_end_badly(table):
    yield from table.to_batches(max_chunksize=10)[:2]
    raise OSError("the disk is gone")


def test_a_source_that_fails_is_heard(model, table):
    reader = pyarrow.RecordBatchReader.from_batches(table.schema, batches_that_end_badly(table))
    with pytest.raises(polytag.InputError, match="the disk is gone"):
        model.tag_arrow(reader)


def test_streams_are_tagged_as_they_are_read(model, table, expected):
    read = []

    def batches():
        for batch in table.to_batches(max_chunksize=100):
            read.append(batch.num_rows)
            yield batch

    def reader():
        return pyarrow.RecordBatchReader.from_batches(table.schema, batches())

    stream = model.tag_arrow(reader(), stream=True)
    assert isinstance(stream, polytag.TaggedStream) and read == []
    first = next(stream)
    assert len(first) == 100 and read == [100]
    rest = pyarrow.table(stream)
    assert rest.num_rows == 200 and read == [100] * 3
    assert labels(first.to_pyarrow()) + labels(rest) == as_dicts(expected)
    with pytest.raises(polytag.InputError, match="read already"):
        pyarrow.table(stream)
    assert [len(tagged) for tagged in model.tag_arrow(reader(), stream=True)] == [100] * 3
    polars = pytest.importorskip("polars")
    # polars may hold the interpreter's lock while it reads, and what is read comes from Python.
    assert polars.DataFrame(model.tag_arrow(reader(), stream=True)).height == 300
    bad = pyarrow.RecordBatchReader.from_batches(table.schema, batches_that_end_badly(table))
    with pytest.raises(Exception, match="the disk is gone"):
        pyarrow.table(model.tag_arrow(bad, stream=True))


def test_a_source_may_ask_the_model_itself(model, table, expected):
    one = polytag.load(model.path, threads=1)
    texts = table.column("text").to_pylist() * 3  # More than are tagged at once.

    def batches():
        for batch in table.to_batches(max_chunksize=100):
            assert len(one.tag(texts)) == 900 and len(one.tag_arrow(batch)) == 100
            yield batch

    answers = []

    def tag():
        for form in ("all", "stream"):
            reader = pyarrow.RecordBatchReader.from_batches(table.schema, batches())
            tagged = one.tag_arrow(reader) if form == "all" else one.tag_arrow(reader, stream=True)
            answers.append([row for part in ([tagged] if form == "all" else tagged) for row in labels(part.to_pyarrow())])

    worker = threading.Thread(target=tag, daemon=True)
    worker.start()
    worker.join(timeout=120)
    assert answers == [as_dicts(expected)] * 2
