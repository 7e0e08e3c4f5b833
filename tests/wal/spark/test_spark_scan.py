"""Planning and reading of `rafka_wal` without Spark: the same records as a consumer, options, damage, a live log."""

import pickle
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
import pyarrow.compute as pc
import pytest
from crc32c import crc32c

from tests.wal.spark.logs_for_spark import (
    SMALL,
    START,
    Filler,
    as_consumed,
    consume_all,
    everything,
    live_broker,
    plan_scan,
    scan,
    scan_plan,
    topic,
)
from wal import SingleWal, WalReader
from wal.compression import Codec
from wal.entry import Kind
from wal.errors import LogDamagedError, UnknownFormatError, WalError
from wal.segment import log_path, segment_numbers
from wal.spark_options import OptionError


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs") / "wal"
    everything(folder)
    assert len(segment_numbers(folder)) >= 3
    return folder


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("split_bytes", [3_000, 1 << 20])
def test_any_log_gives_what_a_consumer_reads(tmp_path: Path, seed: int, split_bytes: int) -> None:
    everything(tmp_path, seed)
    assert as_consumed(scan(tmp_path, splitBytes=split_bytes)) == consume_all(tmp_path)


def test_every_record_leads_to_its_trace_and_its_bytes_on_disk(log: Path) -> None:
    entries = {
        (entry.segment, entry.header.position): entry.header
        for entry in WalReader(log).entries()
        if entry.header.kind == Kind.DATA
    }
    rows = scan(log, columns="segment,position,offset,trace_id,org_id,topic_id,append_time,producer_id").to_pylist()
    for row in rows:
        header = entries[row["segment"], row["position"]]
        assert header.base_offset <= row["offset"] < header.next_offset
        assert row["org_id"] == header.org_id
        assert row["trace_id"] == (header.trace_id.hex() if any(header.trace_id) else None)
        assert row["topic_id"].replace("-", "") == header.topic_id.hex()
        assert round(row["append_time"].timestamp() * 1000) == header.append_time
        assert row["producer_id"] == header.producer_id
    assert any(row["trace_id"] for row in rows)
    assert not all(row["trace_id"] for row in rows)


def test_offsets_without_any_decoded_column_are_the_same(log: Path) -> None:
    assert scan(log, columns="topic,partition,offset") == scan(log).select(["topic", "partition", "offset"])


def test_options_choose_topics_partitions_organisation_and_starting_offsets(log: Path) -> None:
    one = scan(log, topics="orders", partitions="0,2-2", org=1)
    assert as_consumed(one) == [row for row in consume_all(log, org=1) if row[0] == "orders" and row[1] in (0, 2)]
    assert as_consumed(scan(log, org=2)) == consume_all(log, org=2)
    later = scan(log, startingOffsets='{"gone": {"0": 5, "1": -2}}')
    assert as_consumed(later) == [row for row in consume_all(log) if row[:2] != ("gone", 0) or row[2] >= 5]


def test_starting_and_ending_timestamps_are_of_the_records(log: Path) -> None:
    first, last = START + 4_000, START + 12_345
    expected = [row for row in consume_all(log) if first <= row[3] < last]
    assert expected
    assert as_consumed(scan(log, startingTimestamp=first, endingTimestamp=last)) == expected
    iso = [datetime.fromtimestamp(time / 1000, UTC).isoformat() for time in (first, last)]
    assert as_consumed(scan(log, startingTimestamp=iso[0], endingTimestamp=iso[1])) == expected
    assert len(scan(log, startingTimestamp=first, endingTimestamp=last, columns="offset")) == len(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "orders"}, r"has no option topic \(did you mean topics\?\); the options are: path, view, org"),
        ({"view": "rows"}, "option view is 'rows': choose one of records, batches"),
        ({"columns": "offset,colour"}, "there is no colour; the columns are: key, value, topic"),
        ({"partitions": "one"}, "such as 0,2 or 0-3"),
        ({"partitions": "7"}, "no topic that is read has a partition 7; the last one is 2"),
        ({"topics": "ordres"}, "has no topic ordres; its topics are: clicks, empty, gone, orders"),
        ({"startingOffsets": "{"}, "give earliest, latest, or JSON such as"),
        ({"startingTimestamp": "yesterday"}, "give milliseconds since 1970"),
        ({"verifyCrc": "maybe"}, "give true or false"),
        ({"splitBytes": "0"}, "a whole number of at least 1"),
    ],
)
def test_a_wrong_option_is_one_clear_sentence(log: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        scan(log, **options)


def test_a_log_of_a_newer_format_is_refused(log: Path, tmp_path: Path) -> None:
    newer = shutil.copytree(log, tmp_path / "newer")
    path = log_path(newer, segment_numbers(newer)[-1])
    data = bytearray(path.read_bytes())
    data[8] = 9
    data[60:64] = crc32c(bytes(data[:60])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnknownFormatError, match="has format version 9, and this program reads version 1"):
        scan(newer)


def damage(folder: Path, segment: int) -> tuple[int, int]:
    """Flips a bit at the end of a data entry that can be read; its position and number of records."""
    reader = WalReader(folder)
    live = [
        entry.header
        for entry in reader.entries()
        if entry.segment == segment and entry.header.topic_id in reader.state.topics and entry.header.partition == 1
    ]
    header = live[3]
    path = log_path(folder, segment)
    data = bytearray(path.read_bytes())
    data[header.position + header.length - 5] ^= 0x10
    path.write_bytes(data)
    return header.position, header.record_count


def test_damage_is_an_error_with_its_place_or_is_left_out_and_counted(
    log: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = shutil.copytree(log, tmp_path / "damaged")
    whole = len(scan(damaged))
    position, records = damage(damaged, 1)
    with pytest.raises(LogDamagedError, match=rf"0000000001.log is damaged at position {position}: .*CRC") as caught:
        scan(damaged)
    assert (caught.value.position, caught.value.path) == (position, str(log_path(damaged, 1)))
    assert len(scan(damaged, failOnDataLoss="false")) == whole - records
    assert f"left out 1 batches with {records} records of segment 1" in caplog.text
    faults = scan(damaged, view="batches", columns="segment,position,record_count,fault")
    (bad,) = faults.filter(pc.is_valid(faults["fault"])).to_pylist()
    assert (bad["segment"], bad["position"], bad["record_count"]) == (1, position, records)
    assert "CRC" in bad["fault"]


@pytest.mark.parametrize("verify", ["true", "false"])
def test_any_damaged_byte_is_an_error_or_leaves_the_records_as_they_were(tmp_path: Path, verify: str) -> None:
    with SingleWal.open(tmp_path) as log:
        record = topic("one", 1)
        log.create_topic(record)
        filler = Filler(log, random.Random(0))
        for codec in Codec:
            filler.put(record, 0, [filler.record() for _ in range(3)], codec)
    expected = scan(tmp_path)
    path = log_path(tmp_path, 0)
    data = path.read_bytes()
    first = int(expected["position"][0].as_py())
    chosen = random.Random(1)
    for at in chosen.sample(range(first, len(data)), 150):
        path.write_bytes(data[:at] + bytes((data[at] ^ 1 << chosen.randrange(8),)) + data[at + 1 :])
        try:
            found = scan(tmp_path, verifyCrc=verify)
        except WalError:
            continue
        assert verify == "false" or found == expected


def test_a_missing_segment_is_an_error_or_is_left_out(log: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(log, tmp_path / "broken")
    whole = scan(broken, columns="segment")
    left = len(whole.filter(pc.not_equal(whole["segment"], 1)))
    assert 0 < left < len(whole)
    log_path(broken, 1).unlink()
    with pytest.raises(LogDamagedError, match=r"0000000001.log is missing, and the log needs it"):
        scan(broken)
    assert len(scan(broken, failOnDataLoss="false")) == left


@pytest.mark.parametrize("kind", ["gone", "cut", "garbage"])
def test_a_log_without_a_usable_index_gives_the_same(log: Path, tmp_path: Path, kind: str) -> None:
    copy = shutil.copytree(log, tmp_path / "copy")
    for path in copy.glob("*.oidx"):
        data = path.read_bytes()
        if kind == "gone":
            path.unlink()
        else:
            path.write_bytes(data[: len(data) // 2] + (b"\x5a" * (len(data) // 2) if kind == "garbage" else b""))
    assert as_consumed(scan(copy)) == consume_all(log)


def test_an_index_that_went_away_since_the_plan_is_made_up_for_by_the_log(log: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(log, tmp_path / "copy")
    planned = plan_scan(copy, splitBytes=9_000)
    for path in copy.glob("*.oidx"):
        path.unlink()
    assert as_consumed(scan_plan(planned)) == consume_all(log)


def test_segments_that_are_dropped_since_the_plan_are_an_error_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    everything(tmp_path)
    strict, lenient = (plan_scan(tmp_path, failOnDataLoss=value) for value in ("true", "false"))
    whole = len(scan_plan(strict))
    with SingleWal.open(tmp_path, SMALL) as log:
        before = segment_numbers(tmp_path)
        for record in list(log.state.topics.values()):
            log.delete_topic(record.topic_id.bytes)
        log.retain()
        assert segment_numbers(tmp_path) != before
    with pytest.raises(WalError, match="was removed while the query ran"):
        scan_plan(strict)
    assert len(scan_plan(lenient)) < whole
    assert "left out the rest of segment" in caplog.text
    assert len(scan(tmp_path)) == 0


def test_scans_beside_a_broker_that_writes_rolls_and_deletes_see_whole_partitions(tmp_path: Path) -> None:
    with live_broker(tmp_path):
        counts: list[int] = []
        while len(segment_numbers(tmp_path)) < 5 or len(counts) < 20:
            rows = scan(tmp_path, columns="partition,offset,value", topics="kept")
            for partition in (0, 1):
                chosen = rows.filter(pc.equal(rows["partition"], partition))
                assert sorted(chosen["offset"].to_pylist()) == list(range(len(chosen)))
            counts.append(len(rows))
            scan(tmp_path, failOnDataLoss="false")
        assert counts == sorted(counts)
        assert counts[-1] > counts[0]


def test_errors_survive_the_way_home_from_a_task() -> None:
    error = LogDamagedError("damaged", path="x.log", position=7)
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.path, copied.position) == ("damaged", "x.log", 7)


def test_topics_that_share_half_of_their_ids_are_told_apart(tmp_path: Path) -> None:
    with SingleWal.open(tmp_path) as log:
        filler = Filler(log, random.Random(0))
        for number in range(3):
            record = msgspec.structs.replace(topic(f"topic-{number}"), topic_id=UUID(int=(number << 64) + 5))
            log.create_topic(record)
            filler.fill(record, 4)
    assert as_consumed(scan(tmp_path)) == consume_all(tmp_path)
