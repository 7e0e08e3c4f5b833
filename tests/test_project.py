"""The repository's own promises: every version pinned, one list of dependencies, programs that CI must have."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDS_PROGRAM = """
def test_needs(program):
    program("no-such-program")
"""


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_every_dependency_is_pinned_and_no_index_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[<>=;\[ ]", line)[0]).lower() for line in wanted}
    assert names <= set(pinned())
    assert "://" not in (ROOT / "constraints.txt").read_text()


def test_the_conda_environment_takes_its_packages_from_pyproject() -> None:
    text = (ROOT / "environment.yml").read_text()
    assert "- -e ." in text
    assert "openjdk 17" in text


@pytest.mark.parametrize(("required", "outcome"), [("", "1 skipped"), ("kcat,no-such-program", "1 failed")])
def test_a_missing_program_skips_a_test_or_fails_it_where_it_is_required(
    tmp_path: Path, required: str, outcome: str
) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(NEEDS_PROGRAM)
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", str(tmp_path)],
        env=os.environ | {"RAFKA_LAB_REQUIRE": required},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    assert outcome in said
    assert "no-such-program is not on PATH" in said


def test_a_second_make_installs_nothing(tmp_path: Path) -> None:
    """With a stamp that is newer than what it stands for, make has nothing to do before the command itself."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    first = subprocess.run(["make", "-n", "check"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "pip install" in first
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".ready").touch()
    second = subprocess.run(["make", "-n", "check"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "pip install" not in second
    assert "ruff" in second
