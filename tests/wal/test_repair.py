"""verify finds every kind of damage; repair copies all that is good, with its offsets."""

from pathlib import Path

import pytest

from tests.wal.sample_log import SMALL, all_batches, fill, topic
from wal import SingleWal, TopicRecord, decode_records
from wal.batch import parse_header
from wal.errors import LogLockedError, UnknownFormatError, WalError
from wal.repair import repair
from wal.segment import log_path
from wal.verify import verify


@pytest.fixture
def sample(tmp_path: Path) -> tuple[Path, TopicRecord]:
    """A closed log of several segments."""
    orders = topic("orders")
    folder = tmp_path / "log"
    with SingleWal.open(folder, SMALL) as log:
        log.create_topic(orders)
        log.create_topic(topic("deleted"))
        fill(log, orders, 120)
        log.move_log_start(orders.topic_id.bytes, 0, 4)
        log.set_values({"producer.next_id": "1000"})
        log.delete_topic(next(t for t in log.state.topics.values() if t.name == "deleted").topic_id.bytes)
    return folder, orders


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x20
    path.write_bytes(data)


def test_a_sound_log_is_sound_and_every_record_is_counted(sample: tuple[Path, TopicRecord]) -> None:
    result = verify(sample[0])
    assert result.sound
    assert (result.batches, result.records, result.torn_tail_bytes) == (120, 240, 0)
    assert result.segments > 3


def test_a_flip_anywhere_in_a_segment_is_found(sample: tuple[Path, TopicRecord]) -> None:
    path = log_path(sample[0], 1)
    good = path.read_bytes()
    for position in range(0, len(good), 97):
        flip(path, position)
        assert not verify(sample[0]).sound, position
        path.write_bytes(good)


def test_a_wrong_index_and_a_missing_segment_are_found(sample: tuple[Path, TopicRecord]) -> None:
    folder, _ = sample
    flip(folder / "0000000001.oidx", 500)
    assert "index" in verify(folder).problems[0].what
    log_path(folder, 0).unlink()
    assert any("missing" in problem.what and "0000000000" in problem.path for problem in verify(folder).problems)


def test_a_torn_tail_is_told_from_damage(sample: tuple[Path, TopicRecord]) -> None:
    folder, _ = sample
    newest = sorted(folder.glob("*.log"))[-1]
    with newest.open("ab") as file:
        file.write(b"half an entry")
    result = verify(folder)
    assert (result.sound, result.torn_tail_bytes) == (True, len(b"half an entry"))


def test_repair_of_a_sound_log_loses_nothing(sample: tuple[Path, TopicRecord], tmp_path: Path) -> None:
    folder, orders = sample
    report = repair(folder, tmp_path / "new")
    assert (report.records, report.lost_bytes, report.gaps) == (240, 0, [])
    with SingleWal.open(folder, SMALL) as old, SingleWal.open(tmp_path / "new") as new:
        assert new.state.topics == old.state.topics
        assert new.state.values == old.state.values
        for partition in range(2):
            assert all_batches(new, orders, partition) == all_batches(old, orders, partition)


def test_repair_keeps_every_batch_that_is_good_at_its_offset(sample: tuple[Path, TopicRecord], tmp_path: Path) -> None:
    folder, orders = sample
    with SingleWal.open(folder, SMALL) as old:
        expected = {parse_header(data).base_offset: data for data in all_batches(old, orders, 1)}
        rows = old.segments[1].rows()
        hit = rows[(rows["partition"] == 1)][2]
        lost = int(hit["base_offset"])
    flip(log_path(folder, 1), int(hit["position"]) + 130)
    report = repair(folder, tmp_path / "new")
    assert [(gap.partition, gap.first_missing, gap.next_found) for gap in report.gaps] == [(1, lost, lost + 2)]
    assert report.lost_bytes == hit["length"]
    with SingleWal.open(tmp_path / "new") as new:
        found = {parse_header(data).base_offset: data for data in all_batches(new, orders, 1)}
        del expected[lost]
        assert found == expected
        # A consumer that asks for a lost offset gets what comes next, whatever size it asks for.
        [step] = new.read(orders.topic_id.bytes, 1, lost, max_bytes=1)
        assert decode_records(step)[0].offset == lost + 2
        assert new.state.partition(orders.topic_id.bytes, 1).next_offset == 120


def test_repair_reads_a_segment_whose_file_header_is_damaged(sample: tuple[Path, TopicRecord], tmp_path: Path) -> None:
    for position in (0, 20, 30, 62):
        flip(log_path(sample[0], 2), position)
    report = repair(sample[0], tmp_path / "new")
    assert report.records == 240
    assert [bad.what for bad in report.bad_ranges] == ["the file's header is damaged"]


def test_repair_goes_on_without_a_segment_that_is_gone(sample: tuple[Path, TopicRecord], tmp_path: Path) -> None:
    log_path(sample[0], 1).unlink()
    report = repair(sample[0], tmp_path / "new")
    assert report.missing_segments == [1]
    assert {gap.partition for gap in report.gaps} == {0, 1}
    assert 0 < report.records < 240


def test_records_of_a_topic_whose_creation_was_lost_get_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    orders = topic("orders", 1)
    with SingleWal.open(folder) as log:
        log.create_topic(orders)
        created = log.end
        fill(log, orders, 3)
        expected = all_batches(log, orders, 0)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, data in files.items():  # as kill -9 would have left it: no later checkpoint repeats the topic
        (folder / name).write_bytes(data)
    flip(log_path(folder, 0), created.position - 10)
    report = repair(folder, tmp_path / "new")
    assert report.recovered_topics == [f"recovered-{orders.topic_id}"]
    with SingleWal.open(tmp_path / "new") as new:
        assert all_batches(new, orders, 0) == expected


def test_repair_refuses_what_it_must_not_touch(sample: tuple[Path, TopicRecord], tmp_path: Path) -> None:
    folder, _ = sample
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(WalError, match="not empty"):
        repair(folder, tmp_path / "full")
    with pytest.raises(WalError, match="there is no log"):
        repair(tmp_path / "full", tmp_path / "new")
    with SingleWal.open(folder, SMALL), pytest.raises(LogLockedError, match="stop it first"):
        repair(folder, tmp_path / "new2")


def test_a_log_of_a_newer_format_is_not_repaired(sample: tuple[Path, TopicRecord], tmp_path: Path) -> None:
    from crc32c import crc32c

    path = log_path(sample[0], 0)
    data = bytearray(path.read_bytes())
    data[8] = 9
    data[60:64] = crc32c(data[:60]).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnknownFormatError, match="format version 9"):
        repair(sample[0], tmp_path / "new")
