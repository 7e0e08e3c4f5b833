"""`rafka-lab bench` and `profile`: arguments, one sentence for what goes wrong, exit codes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lab.command import main
from rafka_lab.bench.machine import this_machine
from rafka_lab.bench.report import Report
from rafka_lab.bench.results import FORMAT, Run, ratios, save
from rafka_lab.bench.targets import judge

ROOT = Path(__file__).parents[2]


def a_result(path: Path, ours: float) -> Path:
    report = Report("rafka")
    report.begin("requests")
    report.compare("64 connections, acks=1", "requests", "1/s", {"rafka": [ours], "kafka": [100.0]})
    found = ratios(report.figures, "rafka", ["kafka"])
    run = Run(
        format=FORMAT,
        command="rafka-lab bench --peer kafka",
        started="2026-01-02T03:04:05+00:00",
        seconds=1,
        quick=False,
        machine=this_machine(),
        versions={"rafka": "ours", "kafka": "theirs"},
        figures=report.figures,
        ratios=found,
        checks=[],
        targets=judge(found, "kafka"),
    )
    save(run, path)
    return path


def fails(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["bench", *words]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("rafka-lab bench: ")
    assert errors.count("\n") == 1
    return errors


def test_the_help_names_every_suite(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for suite in ("produce", "fetch", "latency", "requests", "startup", "recovery", "memory", "growth", "mesh", "wal"):
        assert f"\n  {suite} " in said


def test_a_suite_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--suite", "everything"])
    assert ended.value.code == 2
    assert "invalid choice: 'everything'" in capsys.readouterr().err


def test_what_cannot_work_is_said_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "there is no folder" in fails(capsys, "--json", str(tmp_path / "no" / "a.json"))
    assert "is no HOST:PORT" in fails(capsys, "--suite", "produce", "--peer", "kafka.example")
    assert "nothing answers at 127.0.0.1:1" in fails(capsys, "--suite", "produce", "--peer", "127.0.0.1:1")
    assert "cannot be read" in fails(capsys, "--from", str(tmp_path / "none.json"))


@pytest.mark.parametrize(("ours", "code", "word"), [(80.0, 0, "met"), (20.0, 1, "MISSED")])
def test_earlier_results_make_the_page_and_the_exit_code_says_whether_targets_are_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ours: float, code: int, word: str
) -> None:
    page = tmp_path / "BENCHMARKS.md"
    assert main(["bench", "--from", str(a_result(tmp_path / "a.json", ours)), "--markdown", str(page)]) == code
    said = capsys.readouterr().out
    assert "requests: 64 connections, acks=1, requests" in said
    assert word in said
    assert "rafka-lab bench --peer kafka" in page.read_text()


def test_a_signal_ends_all_of_it_and_leaves_no_files(tmp_path: Path) -> None:
    program = "import sys; from lab.command import main; sys.exit(main())"
    bench = subprocess.Popen(
        [sys.executable, "-c", program, "bench", "--suite", "produce"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "RAFKA_LAB_BENCH_DIR": str(tmp_path)},
    )
    nodes: list[psutil.Process] = []
    while len(nodes) < 3:  # gateway, broker, mock
        assert bench.poll() is None
        nodes = psutil.Process(bench.pid).children(recursive=True)
        time.sleep(0.02)
    bench.terminate()
    _, errors = bench.communicate(timeout=30)
    assert (bench.returncode, errors) == (130, "rafka-lab bench: interrupted\n")
    assert psutil.wait_procs(nodes, timeout=10)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_a_profile_without_py_spy_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert main(["profile", "--out", str(tmp_path / "out")]) == 2
    assert "pip install py-spy" in capsys.readouterr().err
