"""Logs that version 1 wrote, sound and damaged, are read or refused for ever as they were on the first day."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.wal.make import MIXED, contents, make
from tests.wal.logs import FastDisk, batch, put, topic
from wal import errors
from wal.errors import WalError
from wal.log import SingleWal
from wal.reader import WalReader
from wal.repair import repair
from wal.verify import verify

FIXTURES = Path(__file__).parents[1] / "fixtures" / "wal"
EXPECTED: dict[str, dict[str, Any]] = json.loads((FIXTURES / "expected.json").read_text())
RECORDS: dict[str, Any] = json.loads((FIXTURES / "records.json").read_text())


def with_outcome(outcome: str) -> list[str]:
    return sorted(name for name, expected in EXPECTED.items() if expected["outcome"] == outcome)


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    shutil.copytree(FIXTURES / request.param, tmp_path / "log")
    return tmp_path / "log"


def expected_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    return EXPECTED[request.node.callspec.params["folder"]]


def lost(found: dict[str, Any]) -> int:
    """How many records of the last partition are missing; all else must be the same."""
    whole = RECORDS["plain-0"]["records"]
    there = found["plain-0"]["records"]
    assert there == whole[: len(there)]
    assert found | {"plain-0": RECORDS["plain-0"]} == RECORDS
    return len(whole) - len(there)


def test_each_fixture_is_expected_and_there() -> None:
    assert {path.name for path in FIXTURES.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(EXPECTED)
    assert len(with_outcome("refused")) >= 10


@pytest.mark.parametrize("folder", with_outcome("served"), indirect=True)
def test_a_sound_log_is_served_whole(folder: Path, request: pytest.FixtureRequest) -> None:
    assert contents(WalReader(folder)) == RECORDS
    with SingleWal.open(folder, disk=FastDisk()) as log:
        assert contents(log) == RECORDS
        if "clean" in (expected := expected_of(request)):
            assert log.report.clean == expected["clean"]
        assert log.report.truncated_bytes == 0
        producer = log.state.partition(MIXED.topic_id.bytes, 0).producers[77]
        assert (producer.epoch, [one.base_sequence for one in producer.batches]) == (1, [0, 3, 6, 9, 12])
        assert put(log, MIXED, batch(b"new"), 1).base_offset == 5
        log.create_topic(topic(9, name="deleted"))
    with SingleWal.open(folder, disk=FastDisk()) as log:
        assert len(contents(log)["mixed-1"]["records"]) == 6
    assert verify(folder).sound


@pytest.mark.parametrize("folder", with_outcome("torn"), indirect=True)
def test_a_torn_log_is_served_up_to_the_tear(folder: Path, request: pytest.FixtureRequest) -> None:
    with SingleWal.open(folder, disk=FastDisk()) as log:
        assert lost(contents(log)) == expected_of(request)["lost"]
        assert log.report.truncated_bytes > 0
        assert log.report.torn_copy is not None
        assert Path(log.report.torn_copy).stat().st_size == log.report.truncated_bytes
    assert verify(folder).sound


@pytest.mark.parametrize("folder", with_outcome("refused"), indirect=True)
def test_a_damaged_log_is_refused_with_file_and_position(folder: Path, request: pytest.FixtureRequest) -> None:
    expected = expected_of(request)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def use() -> None:
        with SingleWal.open(folder, disk=FastDisk()) as log:
            contents(log)

    with pytest.raises(WalError) as caught:
        use()
    assert type(caught.value).__name__ in (expected["error"], "BadEntryError")
    assert isinstance(caught.value, getattr(errors, expected["error"]))
    assert caught.value.path == str(folder / expected["file"])
    assert caught.value.position == expected["position"]
    if expected.get("when") != "read":
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"} == before


@pytest.mark.parametrize("folder", with_outcome("refused"), indirect=True)
def test_repair_saves_what_is_good_of_a_damaged_log(
    folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if expected_of(request)["error"] == "UnknownFormatError":
        with pytest.raises(WalError, match="newer"):
            repair(folder, tmp_path / "repaired")
        return
    repair(folder, tmp_path / "repaired")
    with SingleWal.open(tmp_path / "repaired", disk=FastDisk()) as log:
        found = contents(log)
    saved = 0
    for name, partition in RECORDS.items():
        if name != "values" and name in found:
            known = {one["offset"]: one for one in partition["records"]}
            live = [one for one in found[name]["records"] if one["offset"] in known]
            assert live == [known[one["offset"]] for one in live], "a repaired record is the one that was written"
            saved += len(live)
    assert saved > 0


def test_the_set_can_be_made_anew(tmp_path: Path) -> None:
    make(tmp_path)
    assert json.loads((tmp_path / "records.json").read_text()) == RECORDS
    assert set(json.loads((tmp_path / "expected.json").read_text())) == set(EXPECTED)
