"""Readers beside the one writer, in this process and in another."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.wal.sample_log import SMALL, all_batches, batch, fill, topic
from wal import Position, SingleWal, WalReader, decode_records
from wal.errors import LogDamagedError, OffsetOutOfRangeError, UnknownTopicError, WalError

FOLLOWER = """
import sys
from uuid import UUID
from tests.wal.sample_log import all_batches
from wal import WalReader, decode_records
folder, topic_id, wanted = sys.argv[1], UUID(sys.argv[2]).bytes, int(sys.argv[3])
reader = WalReader(folder)
print("ready", flush=True)
offset = 0
while offset < wanted:
    reader.refresh()
    for data in reader.read(topic_id, 0, offset, 1 << 20):
        for record in decode_records(data):
            assert record.offset == offset, (record.offset, offset)
            assert record.value == b"%d" % offset, (record.value, offset)
            offset += 1
print(len(reader.segments), flush=True)
"""


def test_a_reader_sees_what_the_writer_has(tmp_path: Path) -> None:
    orders, clicks = topic("orders", retention_ms="-1"), topic("clicks", 3)
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        log.create_topic(clicks)
        fill(log, orders, 80)
        fill(log, clicks, 30)
        reader = WalReader(tmp_path)
        assert reader.end == log.end
        assert reader.state.topics == log.state.topics
        for record in (orders, clicks):
            for partition in range(len(record.leaders)):
                found = all_batches(reader, record, partition)
                assert found
                assert found == all_batches(log, record, partition)


def test_a_reader_follows_appends_rolls_log_starts_and_deletions(tmp_path: Path) -> None:
    orders, clicks = topic("orders"), topic("clicks")
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        reader = WalReader(tmp_path)
        assert not reader.refresh()
        fill(log, orders, 100)
        assert reader.refresh()
        assert len(reader.segments) == len(log.segments) > 2
        assert all_batches(reader, orders, 1) == all_batches(log, orders, 1)
        log.create_topic(clicks)
        fill(log, clicks, 4)
        log.move_log_start(orders.topic_id.bytes, 0, 50)
        reader.refresh()
        assert all_batches(reader, orders, 0) == all_batches(log, orders, 0)
        assert decode_records(all_batches(reader, orders, 0)[0])[0].offset == 50
        log.delete_topic(orders.topic_id.bytes)
        assert log.retain(now=0) > 0
        reader.refresh()
        assert [segment.number for segment in reader.segments] == [segment.number for segment in log.segments]
        with pytest.raises(UnknownTopicError, match="create it first"):
            reader.read(orders.topic_id.bytes, 0, 0, 1_000)
        assert all_batches(reader, clicks, 0) == all_batches(log, clicks, 0)


def test_a_reader_that_looked_away_while_all_its_segments_went_starts_anew(tmp_path: Path) -> None:
    orders = topic("orders", 1)
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        reader = WalReader(tmp_path)
        for _ in range(3):
            fill(log, orders, 120)
            log.move_log_start(orders.topic_id.bytes, 0, log.state.partition(orders.topic_id.bytes, 0).high_watermark)
            log.retain(now=0)
        fill(log, orders, 2)
        reader.refresh()
        assert reader.end == log.end
        assert all_batches(reader, orders, 0) == all_batches(log, orders, 0)


def test_a_new_reader_opens_a_log_whose_newest_segment_drops_older_ones(tmp_path: Path) -> None:
    orders = topic("orders", 1)
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        fill(log, orders, 120)
        log.move_log_start(orders.topic_id.bytes, 0, 200)
        assert log.retain(now=0) > 0
        assert [segment.number for segment in WalReader(tmp_path).segments] == [s.number for s in log.segments]


@pytest.mark.parametrize("damage", ["missing", "short", "foreign"])
def test_a_reader_without_a_usable_index_reads_the_log_itself(tmp_path: Path, damage: str) -> None:
    orders = topic("orders")
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        fill(log, orders, 60)
        expected = all_batches(log, orders, 0)
        for path in tmp_path.glob("*.oidx"):
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(path.read_bytes()[:100] if damage == "short" else b"something else" * 50)
        reader = WalReader(tmp_path)
        assert all_batches(reader, orders, 0) == expected


def test_reading_by_position_gives_every_entry_from_there_on(tmp_path: Path) -> None:
    orders = topic("orders")
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        fill(log, orders, 60)
        entries = list(WalReader(tmp_path).entries())
        places = [Position(entry.segment, entry.header.position) for entry in entries]
        assert places == sorted(places)
        for start in (places[0], places[40], places[-1]):
            found = [Position(entry.segment, entry.header.position) for entry in WalReader(tmp_path).entries(start)]
            assert found == places[places.index(start) :]


def test_reading_by_time_finds_the_first_record_at_or_after_it(tmp_path: Path) -> None:
    orders = topic("orders", 1)
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        fill(log, orders, 60)
        reader = WalReader(tmp_path)
        for wanted, offset in ((0, 0), (1_000, 0), (1_001, 1), (1_002, 2), (1_010, 2), (1_595, None), (1_591, 119)):
            found = reader.offset_at(orders.topic_id.bytes, 0, wanted)
            assert (None if found is None else found.offset) == offset
        latest = reader.latest_record(orders.topic_id.bytes, 0)
        assert latest is not None
        assert (latest.offset, latest.timestamp) == (119, 1_591)


def test_a_reader_in_another_process_never_sees_half_an_entry(tmp_path: Path) -> None:
    orders = topic("orders", 1)
    count = 3_000
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        command = [sys.executable, "-c", FOLLOWER, str(tmp_path), str(orders.topic_id), str(count)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "ready\n"
            for number in range(count):
                log.append([batch(orders.topic_id, 0, b"%d" % number)])
            assert int(follower.stdout.readline()) == len(log.segments)
        assert follower.returncode == 0


def test_offsets_outside_the_log_are_refused_with_its_range(tmp_path: Path) -> None:
    orders = topic("orders", 1)
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        fill(log, orders, 5)
        for offset in (-1, 11):
            with pytest.raises(OffsetOutOfRangeError, match="orders-0 holds offsets 0 to 10"):
                log.read(orders.topic_id.bytes, 0, offset, 1_000)
        assert log.read(orders.topic_id.bytes, 0, 10, 1_000) == []


def test_a_folder_without_a_log_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(WalError, match="there is no log in"):
        WalReader(tmp_path)
    with pytest.raises(WalError, match="there is no folder"):
        WalReader(tmp_path / "nowhere")


def test_a_flipped_bit_is_never_served(tmp_path: Path) -> None:
    orders = topic("orders", 1)
    with SingleWal.open(tmp_path, SMALL) as log:
        log.create_topic(orders)
        fill(log, orders, 100)
        path = log.segments[0].file.path
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
        with pytest.raises(LogDamagedError, match=rf"{path.name} is damaged at position \d+"):
            all_batches(WalReader(tmp_path), orders, 0)
