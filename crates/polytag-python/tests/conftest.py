"""What the tests share: the bundled sample, models fitted on it, and the command line where it is built."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import polytag

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "testdata" / "debtags-sample"

# A cache that nobody has pulled an encoder into: what a test sees is not for the user's own cache to say.
os.environ["POLYTAG_CACHE"] = str(ROOT / "target" / "tmp" / "cache")


@pytest.fixture(scope="session")
def documents() -> list[dict]:
    """The dev split of the sample."""
    lines = (SAMPLE / "dev.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


@pytest.fixture(scope="session")
def texts(documents) -> list[str]:
    return [document["text"] for document in documents]


@pytest.fixture(scope="session")
def lexical_folder(tmp_path_factory) -> Path:
    """A model of words, which is soon fitted. For reading only."""
    folder = tmp_path_factory.mktemp("models") / "lexical"
    polytag.fit(SAMPLE, "lexical", folder)
    return folder


@pytest.fixture(scope="session")
def model(lexical_folder) -> polytag.Model:
    """The same, loaded. For reading only."""
    return polytag.load(lexical_folder)


@pytest.fixture
def own_model(model, tmp_path) -> polytag.Model:
    """A copy that a test may change."""
    return model.save(tmp_path / "model")


@pytest.fixture(scope="session")
def program() -> str:
    """The command line, to compare with."""
    program = os.environ.get("POLYTAG_PROGRAM", str(ROOT / "target" / "debug" / "polytag"))
    if not Path(program).is_file():
        pytest.skip(f"the command line is not built: there is no {program}")
    return program
