"""What people do first: install the wheel, run the lines of the README."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import cluster
import pytest
from conftest import ROOT

import polytag

LINES = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def needs(lines: str) -> set[str]:
    """The packages besides ours that lines import, by us or themselves."""
    found = set(re.findall(r"(?:import|from) ([a-z]+)", lines)) | set(re.findall(r"import \w+, (\w+)", lines))
    ours = {"polytag.sklearn": "sklearn", "polytag.spark": "pyspark"}
    return (found | {package for module, package in ours.items() if module in lines}) - {"polytag"}


def test_the_readmes_lines_run(tmp_path):
    """All of them in order, as one would in a notebook; those whose packages are missing are left out, in words."""
    assert len(LINES) >= 4 and any("polytag.fit" in lines for lines in LINES)
    wanted = []
    for lines in LINES:
        missing = [name for name in needs(lines) if importlib.util.find_spec(name) is None]
        if "pyspark" in needs(lines) and (reason := cluster.missing()):
            missing.append(reason)
        if missing:
            print(f"not run: lines that need {', '.join(missing)}")
        else:
            wanted.append(lines)
    os.symlink(ROOT / "testdata", tmp_path / "testdata")
    program = "\n".join(wanted)
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert "network::server" in ran.stdout and "cbam" in ran.stdout


def test_the_wheel_needs_nothing_else(tmp_path):
    """In a fresh environment, from the wheel alone."""
    wheel = os.environ.get("POLYTAG_WHEEL")
    if not wheel:
        pytest.skip("POLYTAG_WHEEL does not name a wheel")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", wheel], check=True)
    os.symlink(ROOT / "testdata", tmp_path / "testdata")
    ran = subprocess.run([python, "-c", LINES[0]], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "network::server" in ran.stdout
    refused = subprocess.run([python, "-c", "import polytag.sklearn"], capture_output=True, text=True)
    assert "ModuleNotFoundError" in refused.stderr


def test_the_examples_in_the_documentation_hold():
    import doctest

    assert doctest.testmod(polytag).failed == 0


def test_everything_is_documented():
    for name in polytag.__all__:
        thing = getattr(polytag, name)
        if callable(thing):
            assert thing.__doc__, name
    undocumented = [name for name in dir(polytag.Model) if not name.startswith("_") and not getattr(polytag.Model, name).__doc__]
    assert undocumented == []


def test_the_types_hold(tmp_path):
    """The package under mypy, and the stubs of the native half against what it really has."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    config = tmp_path / "mypy.ini"
    libraries = "".join(f"[mypy-{name}.*]\nignore_missing_imports = true\n" for name in ("pyarrow", "pandas", "polars", "pyspark", "sklearn"))
    config.write_text("[mypy]\nstrict = true\n" + libraries)
    modules = ["polytag", "polytag.spark", *(f"polytag.{path.stem}" for path in Path(polytag.__file__).parent.glob("_[a-z]*.py"))]
    options = ["--config-file", str(config), "--cache-dir", str(tmp_path / "cache")]
    for command in (
        ["mypy", *options, "--follow-imports=silent", *(part for module in modules for part in ("-m", module))],
        ["mypy.stubtest", "--mypy-config-file", str(config), "--ignore-disjoint-bases", "polytag._native"],
    ):
        ran = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr


