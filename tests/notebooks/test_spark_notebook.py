"""The Spark notebook: executed with small parameters, where there is a Java for Spark."""

from pathlib import Path

import pytest

from lab.command import main
from tests.notebooks import test_notebooks

NOTEBOOK = test_notebooks.FOLDER / "40_spark_on_the_wal.ipynb"


def test_the_spark_notebook_is_thin_and_clean() -> None:
    test_notebooks.test_a_notebook_is_thin_and_clean(NOTEBOOK)


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark_java")
def test_the_spark_notebook_runs_from_top_to_bottom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["regress", "--out", str(tmp_path), "-p", "records", "600", str(NOTEBOOK)])
    assert code == 0, capsys.readouterr().out
