"""Java is found where it is, and its absence is one sentence that says what to install."""

from pathlib import Path

import pytest

from rafka_lab.java import find_java, hint, java_version


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21)])
def test_the_major_version_is_read_in_both_of_javas_ways(tmp_path: Path, version: str, major: int) -> None:
    assert java_version(str(fake_java(tmp_path, version))) == major


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home, on_path = fake_java(tmp_path / "home", "21"), fake_java(tmp_path / "path", "17")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == on_path
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == at_home


@pytest.mark.usefixtures("no_java")
def test_an_old_java_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, "11.0.2").parents[1]))
    assert find_java() is None


@pytest.mark.usefixtures("no_java")
def test_without_java_one_sentence_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    hint()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Java 17" in said
    assert "apt install" in said


def test_a_program_that_is_no_java_is_not_taken_for_one(tmp_path: Path) -> None:
    assert java_version(str(tmp_path / "nothing")) is None
    broken = tmp_path / "java"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert java_version(str(broken)) is None
