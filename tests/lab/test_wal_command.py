"""`rafka-lab wal` as a person calls it."""

import json
from pathlib import Path

import pytest

from lab.command import main
from tests.wal.sample_log import SMALL, batch, fill, topic
from wal import SingleWal
from wal.segment import log_path

TRACE = bytes(range(16))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    orders = topic("orders")
    with SingleWal.open(tmp_path / "log", SMALL) as log:
        log.create_topic(orders)
        fill(log, orders, 100)
        log.append([batch(orders.topic_id, 1, b"traced", trace=TRACE)])
    return tmp_path / "log"


def call(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main(["wal", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_ls_lists_segments_and_partitions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "ls", folder)
    assert code == 0
    assert "0000000000.log" in out
    assert out.splitlines()[-1].split()[:5] == ["orders", "1", "0", "101", "51"]
    code, out, _ = call(capsys, "ls", folder, "--json")
    shown = json.loads(out)
    assert [part["high_watermark"] for part in shown["partitions"]] == [100, 101]
    assert shown["segments"][0]["sealed"]


def test_cat_prints_entries_and_records_with_their_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "cat", folder, "--json", "--records", "--topic", "orders", "--partition", "1")
    entries = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert len(entries) == 51
    assert entries[-1]["trace_id"] == TRACE.hex()
    assert entries[-1]["records"][0]["offset"] == 100
    code, out, _ = call(capsys, "cat", folder, "--limit", "2", "--from", f"0:{entries[0]['position']}", "--records")
    assert code == 0
    assert "'second'" in out
    assert out.count("base_offset=") == 2


def test_verify_says_where_and_its_exit_code_tells(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "verify", folder)
    assert (code, out.startswith("sound: ")) == (0, True)
    path = log_path(folder, 1)
    data = bytearray(path.read_bytes())
    data[5_000] ^= 1
    path.write_bytes(data)
    code, out, _ = call(capsys, "verify", folder, "--json")
    shown = json.loads(out)
    assert (code, shown["sound"]) == (1, False)
    assert shown["problems"][0]["path"] == str(path)
    code, out, _ = call(capsys, "repair", folder)
    assert code == 1
    assert "gap   topic" in out
    assert f"to {folder}-repaired; lost" in out
    code, out, _ = call(capsys, "verify", f"{folder}-repaired")
    assert (code, "sound, with 1 gaps" in out) == (0, True)


@pytest.mark.parametrize("action", ["ls", "cat", "verify", "repair"])
def test_a_folder_that_is_not_there_is_one_sentence(
    tmp_path: Path, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call(capsys, action, tmp_path / "nowhere")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "nowhere" in err


def test_an_unknown_command_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert "wal " in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "wal " in capsys.readouterr().out
