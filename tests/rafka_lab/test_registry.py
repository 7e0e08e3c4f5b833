"""Which labs run here: told by files that are locked as long as a lab runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rafka_lab import Lab
from rafka_lab.registry import Entry, folder, running

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_a_running_lab_is_found_and_a_stopped_one_is_not() -> None:
    assert running() == []
    with Lab() as lab:
        (about,) = running()
        assert about["bootstrap"] == lab.bootstrap
        assert about["page"] == f"{lab.traces_url}/"
    assert running() == []
    assert list(folder().iterdir()) == []


def test_the_file_of_a_killed_process_is_not_believed() -> None:
    code = (
        "import time; from rafka_lab.registry import Entry; e = Entry({}); print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert running() == [{}]
        process.kill()
        process.wait()
        assert running() == []
    assert list(folder().iterdir()) == []


def test_a_lab_runs_where_no_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    entry = Entry({})
    assert "will not find this lab" in caplog.text
    entry.close()
    assert running() == []


def test_entries_are_the_users_own() -> None:
    entry = Entry({"bootstrap": "x"})
    (file,) = folder().iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert file.stat().st_uid == os.getuid()
    entry.close()
