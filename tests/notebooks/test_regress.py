"""`rafka-lab regress`: what fails, fails in the right cell and is told everywhere; what cannot be run is refused."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from broken import write

from lab.command import main
from lab.regress_command import value_of


def results(out: Path) -> dict[str, ElementTree.Element]:
    return {str(case.get("name")): case for case in ElementTree.parse(out / "junit.xml").getroot()}


@pytest.mark.timeout(180)
def test_each_notebook_fails_in_its_own_cell_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = {
        "fails_its_assertion": (4, "AssertionError: the answer is 42"),
        "has_a_syntax_error": (4, "SyntaxError"),
        "has_a_wrong_flag": (4, "UsageError: kcat: option -Y not recognized"),
        "kills_its_kernel": (None, "the kernel died"),
        "takes_too_long": (None, "took longer than"),
        "asks_for_an_unknown_topic": (4, "there is no topic 'nowhere'"),
    }
    notebooks = [write(tmp_path, name) for name in ["fine", *expected]]
    out = tmp_path / "out"
    code = main(["regress", "--jobs", "2", "--timeout", "15", "--out", str(out), *map(str, notebooks)])
    assert code == 1
    said = capsys.readouterr().out
    index = (out / "index.html").read_text()
    found = results(out)
    assert "passed  fine" in said
    assert found["fine"].find("failure") is None
    for name, (cell, error) in expected.items():
        failure = found[name].find("failure")
        assert failure is not None, name
        message = str(failure.get("message"))
        assert error in message + str(failure.text), (name, message)
        assert (f"cell {cell}: " in message) == (cell is not None), (name, message)
        assert f'href="{name}.html"' in index
        assert (out / f"{name}.ipynb").is_file()
        assert f"failed  {name}" in said
    assert "the answer is 42" in index
    assert "the answer is 42" in (out / "fails_its_assertion.html").read_text()
    assert "1 of 7 fine" in said


def test_parameters_reach_the_notebooks_that_have_them(tmp_path: Path) -> None:
    notebook = write(tmp_path, "fails_its_assertion")
    out = tmp_path / "out"
    assert main(["regress", "--out", str(out), "-p", "limit", "42", str(notebook)]) == 0
    assert "limit = 42" in (out / "fails_its_assertion.ipynb").read_text()


def test_what_is_needed_and_missing_is_skipped_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    notebook = write(tmp_path, "fine", own={"needs": ["java"]})
    out = tmp_path / "out"
    assert main(["regress", "--out", str(out), str(notebook)]) == 0
    assert "skipped fine" in capsys.readouterr().out
    skipped = results(out)["fine"].find("skipped")
    assert skipped is not None
    assert "openjdk" in str(skipped.get("message"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.ipynb"], "no notebook nowhere.ipynb"),
        (["-p", "no_such", "1"], "no notebook has a parameter 'no_such'"),
        (["--jobs", "-1"], "at least one"),
        (["README.md"], "not a notebook"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert main(["regress", "--out", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


def test_values_are_json_or_text() -> None:
    assert [value_of(text) for text in ("3", "true", '["all", "1"]', "all", "1.5")] == [
        3,
        True,
        ["all", "1"],
        "all",
        1.5,
    ]
