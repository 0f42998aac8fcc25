"""Fitting, loading, asking, changing, measuring."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT, SAMPLE

import polytag


def ids(answers):
    return [[tag.id for tag in row] for row in answers]


# --- asking


def test_tags_are_the_command_lines(model, documents, program, lexical_folder):
    lines = "".join(json.dumps(document) + "\n" for document in documents[:50])
    out = subprocess.run(
        [program, "predict", str(lexical_folder), "--k", "7"], input=lines, capture_output=True, text=True, check=True
    )
    expected = [json.loads(line)["labels"] for line in out.stdout.splitlines()]
    found = model.tag(
        [document["text"] for document in documents[:50]],
        k=7,
        titles=[document["title"] for document in documents[:50]],
        ids=[document["id"] for document in documents[:50]],
    )
    assert [[(tag.id, tag.name, tag.seen) for tag in row] for row in found] == [
        [(label["id"], label["name"], label["seen"]) for label in row] for row in expected
    ]
    scores = [(tag.score, label["score"]) for row, line in zip(found, expected) for tag, label in zip(row, line)]
    # The command line writes as many digits as a number of 32 bits needs.
    assert all(abs(ours - theirs) < 1e-6 for ours, theirs in scores) and scores


def test_every_form_of_strings_gives_the_same(model, texts):
    numpy, pandas = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    texts = [*texts[:5], "", "ümläut tea 茶 🍵"]
    expected = model.tag(texts, k=3)
    assert any(expected) and expected[5] == []
    forms = [
        tuple(texts),
        iter(texts),
        numpy.array(texts),
        numpy.array(texts, dtype=object),
        numpy.array(texts, dtype=numpy.dtypes.StringDType()),
        pandas.Series(texts),
        pandas.Series(texts, dtype=object),
        pandas.Series(texts, dtype="string[pyarrow]"),
        pandas.Series(texts, dtype="category"),
        pandas.Index(texts),
        polars.Series(texts),
        polars.Series(texts, dtype=polars.Categorical),
        pyarrow.array(texts),
        pyarrow.array(texts, pyarrow.large_string()),
        pyarrow.array(texts, pyarrow.string_view()),
        pyarrow.array(texts).dictionary_encode(),
        pyarrow.chunked_array([texts[:2], [], texts[2:]]),
        pyarrow.array(["not this", *texts])[1:],
    ]
    for form in forms:
        assert model.tag(form, k=3) == expected, type(form)
    for empty in ([], numpy.array([], dtype=str), pyarrow.array([], pyarrow.string()), pyarrow.nulls(0)):
        assert model.tag(empty) == []


def test_tags_are_tuples_with_names(model):
    (tag, *_) = model.tag(["A web server written in Go"], k=2)[0]
    assert tag == (tag.id, tag.name, tag.score, tag.seen)
    assert isinstance(tag.score, float) and isinstance(tag.seen, bool)
    assert repr(tag).startswith(f"Tag(id='{tag.id}', name='{tag.name}', score=0.")
    assert pickle.loads(pickle.dumps(tag)) == tag


def test_k_threshold_and_allowed_labels_hold(model, texts):
    ten = model.tag(texts[:20], k=10)
    assert ids(model.tag(texts[:20], k=3)) == [row[:3] for row in ids(ten)]
    least = ten[0][4].score
    assert model.tag(texts[:1], k=10, threshold=least)[0] == [tag for tag in ten[0] if tag.score >= least]
    allowed = {"devel::web", "role::program"}
    found = model.tag(texts, k=5, allow=allowed)
    assert {tag.id for row in found for tag in row} == allowed


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.tag("one text"), TypeError, "put it in a list"),
        (lambda m: m.tag(b"bytes"), TypeError, "put it in a list"),
        (lambda m: m.tag(None), TypeError, "of type NoneType"),
        (lambda m: m.tag({"text": ["a"]}), TypeError, "give one of its columns"),
        (lambda m: m.tag(["a", 7]), TypeError, r"texts\[1\] is of type int"),
        (lambda m: m.tag(["a", float("nan")]), TypeError, r"texts\[1\] is of type float"),
        (lambda m: m.tag([["a"]]), TypeError, r"texts\[0\] is of type list"),
        (lambda m: m.tag(["a", None]), ValueError, r"texts\[1\] is missing"),
        (lambda m: m.tag(["\ud800"]), ValueError, r"texts\[0\] is no text"),
        (lambda m: m.tag(["a"], k=0), ValueError, "k=0: say at least 1"),
        (lambda m: m.tag(["a"], k=2.5), TypeError, "a whole number"),
        (lambda m: m.tag(["a"], k=10**30), ValueError, "k="),
        (lambda m: m.tag(["a"], threshold="high"), TypeError, "a number is expected"),
        (lambda m: m.tag(["a"], threshold=float("nan")), ValueError, "finite"),
        (lambda m: m.tag(["a"], allow=[]), ValueError, "names no label"),
        (lambda m: m.tag(["a"], allow=["nonsense"]), ValueError, "no label with the id \"nonsense\""),
        (lambda m: m.tag(["a"], allow="role::program"), TypeError, "a list is expected"),
        (lambda m: m.tag(["a"], titles=["x", "y"]), ValueError, "2 titles and 1 texts"),
        (lambda m: m.tag(["a"], ids=[1]), TypeError, r"ids\[0\] is of type int"),
        (lambda m: m.explain(7), TypeError, "text is of type int"),
        (lambda m: m.explain("a", labels=["nonsense"]), ValueError, "no label with the id"),
        (lambda m: polytag.load(m.path, device="gpu"), ValueError, "auto, cpu, cuda or cuda:N"),
        (lambda m: polytag.load(m.path, precision="f64"), ValueError, "f32 or int8"),
        (lambda m: polytag.load(m.path, device="cuda", precision="int8"), ValueError, "for the CPU only"),
        (lambda m: polytag.fit((["a"], [["b"]]), engine_precision="f64"), ValueError, "f32 or int8"),
        (lambda m: polytag.load(m.path, threads=0), ValueError, "threads=0"),
        (lambda m: polytag.load(m.path, threads=100_000), ValueError, "1 to 512"),
        (lambda m: polytag.Model(m.path), TypeError, "polytag.load"),
    ],
)
def test_what_cannot_be_used_is_named(model, call, error, words):
    with pytest.raises(polytag.InputError, match=words) as raised:
        call(model)
    assert isinstance(raised.value, error)


def test_tables_are_no_texts(model):
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for table in (pandas.DataFrame({"text": ["a"]}), polars.DataFrame({"text": ["a"]})):
        with pytest.raises(polytag.InputTypeError, match="tag_arrow"):
            model.tag(table)
    with pytest.raises(polytag.InputTypeError, match="Int64, where strings are expected"):
        model.tag(polars.Series([1, 2]))
    with pytest.raises(polytag.InputError, match=r"texts\[1\] is missing"):
        model.tag(polars.Series(["a", None]))


def test_explanations_point_at_characters(model):
    text = "Ümläute: ein 茶-Server für das Web, a web server"
    explanations = model.explain(text, k=3, title="A tool")
    assert [(e.id, e.name) for e in explanations] == [
        (tag.id, tag.name) for tag in model.tag([text], k=3, titles=["A tool"])[0]
    ]
    best = explanations[0]
    assert best.reasons and abs(sum(reason.weight for reason in best.reasons) - best.score) < 1e-4
    named = model.explain(text, labels=["devel::web"])[0]
    assert named.reasons[0].words == "web" and named.reasons[0].field == "text"
    if marks := [mark for mark in named.marks if mark.weight > 0]:
        assert {text[mark.start : mark.end].lower() for mark in marks} == {"web"}


# --- models


def test_a_model_says_what_it_is(model, lexical_folder):
    assert (model.method, len(model), model.path) == ("lexical", 617, lexical_folder)
    assert model.manifest["method"] == "lexical"
    assert not model.gives_probabilities and model.takes_new_labels
    labels = model.labels
    assert len(labels) == 617 and len({label.id for label in labels}) == 617
    program = next(label for label in labels if label.id == "role::program")
    assert program.seen and program.train_documents > 100
    assert repr(model) == f"<polytag.Model 'lexical' with 617 labels in '{lexical_folder}'>"


def test_a_folder_that_is_no_model_is_named(tmp_path):
    with pytest.raises(polytag.ModelError, match="nothing-here"):
        polytag.load(tmp_path / "nothing-here")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(polytag.ModelError, match="manifest.json"):
        polytag.load(tmp_path)


def test_models_are_pickled_by_their_path(model):
    again = pickle.loads(pickle.dumps(model))
    assert again.path == model.path and again.tag(["web server"]) == model.tag(["web server"])


def test_threads_ask_at_once(model, texts):
    expected = model.tag(texts)
    with ThreadPoolExecutor(8) as pool:
        assert all(answer == expected for answer in pool.map(model.tag, [texts] * 16))
    one = polytag.load(model.path, threads=1)
    assert one.tag(texts) == expected


def test_the_interpreter_goes_on_meanwhile(model, texts):
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    many = texts * 60
    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.perf_counter()
    model.tag(many, k=1)
    ended = time.perf_counter()
    done.set()
    ticker.join()
    # While lists and tags are made the lock is held; while texts are tagged it is not.
    during = [tick for tick in ticks if started < tick < ended]
    assert len(during) > (ended - started) / 0.05


def _tag_in_child(model, queue):
    queue.put(model.tag(["web server"]))


def test_a_forked_process_can_ask(model):
    expected = model.tag(["web server"] * 2000)[:1]
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_tag_in_child, args=(model, queue))
        child.start()
    assert queue.get(timeout=60) == expected
    child.join(60)
    assert child.exitcode == 0


# --- labels


def test_a_label_is_in_the_next_answer_and_on_the_disk(own_model):
    text = ["A browser for the Gemini protocol"]
    own_model.add_labels(
        [
            polytag.Label("protocol::gemini", "Gemini", "A protocol between Gopher and HTTP", ("gemini protocol",)),
            ("protocol::gopher-two", "Gopher again"),
            {"id": "x", "name": "Something else", "parents": ["protocol::gopher-two"]},
        ]
    )
    assert own_model.tag(text, k=1)[0][0][:2] == ("protocol::gemini", "Gemini")
    again = polytag.load(own_model.path)
    assert len(again) == 620 and again.tag(text) == own_model.tag(text)
    added = {label.id: label for label in again.labels}["protocol::gemini"]
    assert added.aliases == ("gemini protocol",) and not added.seen
    own_model.rename_label("protocol::gemini", "Space capsule")
    own_model.describe_label("protocol::gemini", None)
    own_model.remove_labels(["protocol::gopher-two", "x"])
    assert len(own_model) == len(polytag.load(own_model.path)) == 618
    # Its alias is still its own.
    assert own_model.tag(["gemini protocol"], k=1)[0][0].name == "Space capsule"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([("new", "New"), ("role::program", "Program")], "there already"),
        ([("", "Nameless")], "empty id"),
        ([("new", "  ")], "has no name"),
        ([("new", 7)], "no string"),
        ([{"id": "new"}], "needs id and name"),
        ([{"id": "new", "name": "New", "colour": "red"}], "it needs id and name"),
        ([7], "is no label"),
        (polytag.Label("new", "New"), "put it in a list"),
        ([{"id": "new", "name": "New", "aliases": "one"}], "no list of strings"),
    ],
)
def test_labels_are_added_all_or_none(own_model, labels, words):
    with pytest.raises(polytag.InputError, match=words):
        own_model.add_labels(labels)
    assert len(own_model) == len(polytag.load(own_model.path)) == 617


def test_how_label_vectors_are_kept_is_a_setting(tmp_path):
    encoder = str(ROOT / "crates/polytag-nn/testdata/encoders/bert")
    model = polytag.fit(SAMPLE, method="frozen", encoder=encoder, out=tmp_path / "model", precision="f16", engine_precision="int8")
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert manifest["config"]["precision"] == "f16"
    assert model.tag(["a web server"], k=1)[0]


@pytest.mark.parametrize("method", ["lexical", "frozen"])
def test_threads_add_labels_at_once(tmp_path, method):
    # An encoder shares its work among threads, which take up other work while they wait.
    encoder = str(ROOT / "crates/polytag-nn/testdata/encoders/bert") if method == "frozen" else None
    model = polytag.fit(SAMPLE, method=method, encoder=encoder, out=tmp_path / "model", threads=2)

    def add(number):
        model.add_labels([{"id": f"new-{number}-{place}", "name": f"a new label {number} {place}"} for place in range(40)])

    adding = [threading.Thread(target=add, args=(number,), daemon=True) for number in range(6)]
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join(timeout=120)
    added = {f"new-{number}-{place}" for number in range(6) for place in range(40)}
    here, kept = ({label.id for label in known.labels} for known in (model, polytag.load(model.path)))
    assert added <= here and here == kept


def test_labels_that_are_not_there_are_not_removed(own_model):
    with pytest.raises(polytag.InputError, match="no label has the id"):
        own_model.remove_labels(["role::program", "nonsense"])
    assert len(own_model) == 617


# --- fitting and measuring


def test_texts_and_labels_make_a_model(tmp_path):
    texts = ["Trading tea by sea", "A law on bees", "Tea and bees", "Unlabelled words"]
    labels = [["tea"], ["bee"], ["tea", "bee"], None]
    model = polytag.fit((texts, labels, {"tea": "tea", "bee": {"name": "bee", "aliases": ["honey"]}, "rail": "railway"}), "lexical")
    assert ids(model.tag(["green tea", "honey", "the railway"], k=1)) == [["tea"], ["bee"], ["rail"]]
    assert {label.id: label.train_documents for label in model.labels} == {"tea": 2, "bee": 2, "rail": 0}
    kept = model.save(tmp_path / "kept")
    folder = model.path
    del model
    assert not folder.exists() and ids(kept.tag(["green tea"], k=1)) == [["tea"]]
    with pytest.raises(polytag.InputError, match="there is something already"):
        kept.save(tmp_path / "kept")


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    files = [
        {file.name: file.read_bytes() for file in polytag.fit(SAMPLE, "label-tree", tmp_path / name, seed=3).path.iterdir()}
        for name in ("one", "two")
    ]
    assert files[0] == files[1]


def test_what_happens_is_told():
    heard = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        polytag.fit(SAMPLE, "label-tree", progress=heard.append)
    stages = [event["stage"] for event in heard if event["event"] == "started"]
    assert "counting words" in stages
    with pytest.warns(polytag.PolytagWarning, match="carried by no document"):
        polytag.fit(SAMPLE, "label-tree")


def test_a_listener_that_fails_stops_the_work(tmp_path):
    def fail(event):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        polytag.fit(SAMPLE, "label-tree", tmp_path / "model", progress=fail)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: polytag.fit(SAMPLE, "nonsense"), "no method is called \"nonsense\""),
        (lambda: polytag.fit(SAMPLE, "lexical", nonsense=1), "nonsense"),
        (lambda: polytag.fit(SAMPLE, "lexical", ngrams=object()), "JSON"),
        (lambda: polytag.fit(SAMPLE / "nowhere", "lexical"), "nowhere"),
        (lambda: polytag.fit(SAMPLE, "frozen", encoder="/nowhere/at/all"), "nowhere"),
        (lambda: polytag.fit(["a"], "lexical"), r"\(texts, labels\)"),
        (lambda: polytag.fit((["a", "b"], [["x"]]), "lexical"), "1 lists of labels and 2 texts"),
        (lambda: polytag.fit((["a"], [[1]]), "lexical"), r"labels\[0\] holds 1"),
        (lambda: polytag.fit(([b"a"], [["x"]]), "lexical"), r"texts\[0\] is of type bytes"),
        (lambda: polytag.fit((["\ud800"], [["x"]]), "lexical"), r"texts\[0\] is no text"),
        (lambda: polytag.fit(SAMPLE, "lexical", seed=-1), "seed=-1"),
        (lambda: polytag.fit(SAMPLE, "lexical", dev=(["a"], [["x"]])), "go with texts"),
    ],
)
def test_what_cannot_be_fitted_is_named(call, words):
    with pytest.raises(polytag.InputError, match=words):
        call()


def test_measures_are_the_command_lines(model, program, lexical_folder):
    out = subprocess.run(
        [program, "evaluate", str(lexical_folder), str(SAMPLE), "--json", "-", "--replicates", "50"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert polytag.evaluate(model, SAMPLE, replicates=50) == json.loads(out.stdout)


def test_texts_can_be_measured_on(model, documents):
    task = ([d["text"] for d in documents], [d["labels"] for d in documents])
    report = polytag.evaluate(model, task, k=[1, 5], replicates=0)
    assert report["documents"] == 300 and 0 < report["metrics"]["nDCG@5"] < 100 and not report["intervals"]
    for wrong in ({"split": "nonsense"}, {"k": [0]}, {"replicates": -1}):
        with pytest.raises(polytag.InputError):
            polytag.evaluate(model, task, **wrong)
    with pytest.raises(polytag.InputTypeError):
        polytag.evaluate("model", task)


# --- Ctrl-C


def interrupted(code: str, *arguments: str) -> tuple[str, float]:
    """Runs a program, interrupts it when it says so, and tells what it said then and how long it took to end."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(1.0)
    assert child.poll() is None, "it was done before it could be interrupted"
    started = time.perf_counter()
    child.send_signal(signal.SIGINT)
    try:
        said, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode == 0, said
    return said, time.perf_counter() - started


def test_ctrl_c_stops_tagging(lexical_folder):
    said, took = interrupted(
        """
        import sys, polytag
        model = polytag.load(sys.argv[1])
        texts = ["A web server with TLS and HTTP/2, written in Go, for the desktop. " * 40] * 1_000_000
        print("ready", flush=True)
        try:
            model.tag(texts)
        except KeyboardInterrupt:
            print(len(model.tag(["web"])[0]))
        """,
        str(lexical_folder),
    )
    assert said == "5\n" and took < 30


def test_ctrl_c_stops_a_fit_and_leaves_nothing(tmp_path):
    code = """
        import sys, warnings, polytag
        warnings.simplefilter("ignore")
        texts = [f"word{i % 997} and word{i % 991} of text {i}" * 20 for i in range(60_000)]
        labels = [[f"label{i % 5000}"] for i in range(60_000)]
        told = []
        def tell(event):
            if not told:
                print("ready", flush=True)
            told.append(event)
        try:
            polytag.fit((texts, labels), "label-tree", sys.argv[1], progress=tell)
        except KeyboardInterrupt:
            print("stopped")
        """
    said, took = interrupted(code, str(tmp_path / "model"))
    assert said == "stopped\n" and took < 45
    assert os.listdir(tmp_path) == []
