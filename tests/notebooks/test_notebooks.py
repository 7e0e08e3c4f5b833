"""Every notebook: thin, clean, and executed with small parameters."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from lab.command import main

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.rglob("*.ipynb"))
OURS = [path for path in NOTEBOOKS if not path.name.startswith("40_") and ".ipynb_checkpoints" not in path.parts]
# Small enough for a suite; what a person runs is in the notebooks.
SMALL = {
    "records": 300,
    "requests": 5,
    "repeats": 2,
    "rounds": 1,
    "segment_bytes": 6000,
    "linger_ms": [0, 20],
    "batch_bytes": [1_000_000],
    "codecs": ["none", "zstd"],
    "rate": 3000,
    "suites": ["requests"],
    "seconds": 0.3,
}


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_a_notebook_is_thin_and_clean(path: Path) -> None:
    code = cells(path, "code")
    assert [cell["outputs"] for cell in code] == [[]] * len(code)
    assert {cell["execution_count"] for cell in code} == {None}
    tagged = [cell for cell in code if "parameters" in cell["metadata"].get("tags", ())]
    assert len(tagged) == 1
    lines = "\n".join(line for cell in code for line in source(cell).splitlines() if not _magic(line, cell))
    tree = ast.parse(lines)
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda)]
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Assert)], "no assertion"
    assert source(cells(path, "markdown")[0]).startswith("# ")


def _magic(line: str, cell: dict[str, Any]) -> bool:
    return line.startswith("%") or source(cell).startswith("%%") or "= %kcat" in line


@pytest.mark.timeout(300)
def test_every_notebook_runs_from_top_to_bottom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [word for name, value in SMALL.items() for word in ("-p", name, json.dumps(value))]
    code = main(["regress", "--jobs", "2", "--out", str(tmp_path), *given, *map(str, OURS)])
    said = capsys.readouterr().out
    assert code == 0, said
    assert said.count("passed") == len(OURS)
    start = (tmp_path / "00_start_here.html").read_text()
    assert "rafka-lab" in start  # the panel's static form
    assert "trace viewer" in start
    assert "widget-view" not in start
    assert "<svg" in (tmp_path / "10_follow_one_message.html").read_text()  # its charts, without a script
