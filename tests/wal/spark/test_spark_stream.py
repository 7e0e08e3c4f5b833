"""`rafka_wal` as a stream: every record once, over restarts of query and broker, within limits, beside retention."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from tests.wal.spark.logs_for_spark import (
    SMALL,
    Consumed,
    Filler,
    as_consumed,
    consume_all,
    everything,
    live_broker,
    topic,
)
from wal import SingleWal, TopicRecord
from wal.arrow_columns import arrow_schema
from wal.errors import LogDamagedError
from wal.segment import segment_numbers
from wal.spark_options import parse_options
from wal.spark_source import WalStreamReader


def stream_reader(folder: Path, **options: object) -> WalStreamReader:
    parsed = parse_options({"path": str(folder), **{name: str(value) for name, value in options.items()}})
    return WalStreamReader(parsed)


def batches(reader: WalStreamReader, start: dict[str, object] | None = None) -> list[pa.Table]:
    """Runs the reader as Spark does, until nothing new comes; the last offset is kept on the reader."""
    at = reader.initialOffset() if start is None else start
    found = []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        found.append(between(reader, at, end))
        reader.commit(end)
        at = end
    return found


def between(reader: WalStreamReader, start: dict[str, object], end: dict[str, object]) -> pa.Table:
    splits = reader.partitions(start, end)
    rows = [batch for split in splits for batch in reader.read(split)]
    return pa.Table.from_batches(rows, arrow_schema(reader._options.columns))


def records(tables: list[pa.Table]) -> list[Consumed]:
    return as_consumed(pa.concat_tables(tables))


@pytest.mark.parametrize("limit", [{}, {"maxRowsPerTrigger": 50}, {"maxBytesPerTrigger": 9_000}])
def test_all_batches_together_hold_each_record_once(tmp_path: Path, limit: dict[str, int]) -> None:
    everything(tmp_path)
    reader = stream_reader(tmp_path, **limit)
    found = batches(reader)
    assert records(found) == consume_all(tmp_path)
    if limit:
        assert len(found) > 10
    if "maxRowsPerTrigger" in limit:
        assert all(0 < len(table) <= 50 for table in found[:-1])


def test_limits_are_told_to_spark(tmp_path: Path) -> None:
    everything(tmp_path)
    assert stream_reader(tmp_path).getDefaultReadLimit() == ReadAllAvailable()
    assert stream_reader(tmp_path, maxRowsPerTrigger=5).getDefaultReadLimit() == ReadMaxRows(5)
    assert stream_reader(tmp_path, maxBytesPerTrigger=7).getDefaultReadLimit() == ReadMaxBytes(7)


def test_a_batch_larger_than_the_limit_is_taken_alone(tmp_path: Path) -> None:
    with SingleWal.open(tmp_path) as log:
        record = topic("one", 1)
        log.create_topic(record)
        filler = Filler(log, random.Random(0))
        for count in (3, 20, 4):
            filler.put(record, 0, [filler.record() for _ in range(count)])
    found = batches(stream_reader(tmp_path, maxRowsPerTrigger=10))
    assert [len(table) for table in found if len(table)] == [3, 20, 4]


def test_what_is_written_while_the_stream_runs_comes_in_its_next_batches(tmp_path: Path) -> None:
    with SingleWal.open(tmp_path, SMALL) as log:
        record = topic("one")
        log.create_topic(record)
        filler = Filler(log, random.Random(0))
        reader = stream_reader(tmp_path)
        at = reader.initialOffset()
        found = []
        for _ in range(40):  # over several segments
            filler.fill(record, 10)
            end = reader.latestOffset(at, ReadAllAvailable())
            found.append(between(reader, at, end))
            at = end
        assert records(found) == consume_all(log)
        assert len(segment_numbers(tmp_path)) > 3


def test_latest_starts_behind_what_is_there(tmp_path: Path) -> None:
    everything(tmp_path)
    reader = stream_reader(tmp_path, startingOffsets="latest", topics="orders", org=1)
    at = reader.initialOffset()
    assert reader.latestOffset(at, ReadAllAvailable()) == at
    with SingleWal.open(tmp_path, SMALL) as log:
        record = log.state.by_name(1, "orders")
        assert record is not None
        before = len([row for row in consume_all(log, org=1) if row[0] == "orders"])
        Filler(log, random.Random(9)).fill(record, 3)
        after = len([row for row in consume_all(log, org=1) if row[0] == "orders"])
    assert sum(map(len, batches(reader, at))) == after - before > 0


def test_a_batch_that_is_run_again_by_another_process_holds_the_same(tmp_path: Path) -> None:
    everything(tmp_path)
    first = stream_reader(tmp_path, maxRowsPerTrigger=200)
    start = first.latestOffset(first.initialOffset(), ReadMaxRows(200))
    end = first.latestOffset(start, ReadMaxRows(200))
    held = between(first, start, end)
    assert len(held)
    with SingleWal.open(tmp_path, SMALL) as log:  # a restarted broker goes on writing
        record = log.state.by_name(1, "orders")
        assert record is not None
        Filler(log, random.Random(1)).fill(record, 20)
        again = stream_reader(tmp_path, maxRowsPerTrigger=200)
        assert between(again, start, end) == held
        assert sum(map(len, [held, *batches(again, end)])) + 200 >= len(consume_all(log))


def test_available_now_stops_at_what_was_there(tmp_path: Path) -> None:
    with SingleWal.open(tmp_path, SMALL) as log:
        record = topic("one")
        log.create_topic(record)
        filler = Filler(log, random.Random(0))
        filler.fill(record, 30)
        expected = consume_all(log)
        reader = stream_reader(tmp_path, maxRowsPerTrigger=20)
        reader.prepareForTriggerAvailableNow()
        filler.fill(record, 30)
        assert records(batches(reader)) == expected


def drop_the_first_segments(log: SingleWal, record: TopicRecord) -> None:
    for partition in range(len(record.leaders)):
        end = log.state.partition(record.topic_id.bytes, partition).high_watermark
        log.move_log_start(record.topic_id.bytes, partition, end)
    assert log.retain() > 0


def test_segments_that_retention_took_unread_are_an_error_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with SingleWal.open(tmp_path, SMALL) as log:
        record = topic("one")
        log.create_topic(record)
        filler = Filler(log, random.Random(0))
        filler.fill(record, 20)
        at = (reader := stream_reader(tmp_path)).latestOffset(reader.initialOffset(), ReadAllAvailable())
        filler.fill(record, 200)
        drop_the_first_segments(log, record)
        filler.fill(record, 5)
        with pytest.raises(LogDamagedError, match="were dropped by retention before the stream had read them"):
            batches(stream_reader(tmp_path), at)
        left = batches(stream_reader(tmp_path, failOnDataLoss="false"), at)
        assert records(left) == consume_all(log)
        assert "goes on without lost records" in caplog.text


def test_dropped_segments_of_deleted_topics_are_no_loss(tmp_path: Path) -> None:
    with SingleWal.open(tmp_path, SMALL) as log:
        kept, short = topic("kept"), topic("short")
        log.create_topic(kept)
        log.create_topic(short)
        filler = Filler(log, random.Random(0))
        at = (reader := stream_reader(tmp_path)).latestOffset(reader.initialOffset(), ReadAllAvailable())
        filler.fill(short, 200)
        log.delete_topic(short.topic_id.bytes)
        filler.fill(kept, 5)
        assert log.retain() > 0
        assert records(batches(stream_reader(tmp_path), at)) == consume_all(log)


def test_a_checkpoint_of_another_log_is_refused(tmp_path: Path) -> None:
    everything(tmp_path / "one")
    everything(tmp_path / "other")
    with pytest.raises(LogDamagedError, match="it was replaced; start with a new checkpoint"):
        batches(stream_reader(tmp_path / "other"), stream_reader(tmp_path / "one").initialOffset())


def load(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.readStream.format("rafka_wal")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def to_parquet(spark: SparkSession, folder: Path, **options: object) -> StreamingQuery:
    """Runs a stream over all that is there into files, with the checkpoint of the runs before."""
    writer = load(spark, folder / "wal", **options).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("path", str(folder / "out"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def test_a_query_that_is_started_again_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "wal"
    everything(folder)
    query = to_parquet(spark, tmp_path, maxRowsPerTrigger=800)
    assert len([p for p in query.recentProgress if p["numInputRows"]]) >= 2
    end = json.loads(query.lastProgress["sources"][0]["endOffset"])
    assert end["segment"] == segment_numbers(folder)[-1]
    to_parquet(spark, tmp_path)  # nothing new
    with SingleWal.open(folder, SMALL) as log:
        record = log.state.by_name(1, "orders")
        assert record is not None
        Filler(log, random.Random(4)).fill(record, 30)
    to_parquet(spark, tmp_path)
    assert as_consumed(spark.read.parquet(str(tmp_path / "out")).toArrow()) == consume_all(folder)


def test_a_query_that_dies_in_the_middle_of_a_batch_delivers_it_once(spark: SparkSession, tmp_path: Path) -> None:
    everything(tmp_path / "wal")
    written: dict[int, list[Consumed]] = {}

    def run(fail_at: int | None) -> None:
        def take(frame: DataFrame, batch_id: int) -> None:
            written[batch_id] = as_consumed(frame.toArrow())  # an idempotent sink
            if batch_id == fail_at:
                raise RuntimeError("the sink dies after it has written")

        frame = load(spark, tmp_path / "wal", maxRowsPerTrigger=700)
        query = start(frame, take)
        query.awaitTermination()

    def start(frame: DataFrame, take: Callable[[DataFrame, int], None]) -> StreamingQuery:
        checkpoint = str(tmp_path / "checkpoint")
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        return writer.trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink dies"):
        run(fail_at=1)
    run(fail_at=None)
    found = sorted((row for rows in written.values() for row in rows), key=lambda row: row[:4])
    assert found == consume_all(tmp_path / "wal")


def test_a_stream_follows_a_live_broker(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    with live_broker(tmp_path / "wal"):
        frame = load(spark, tmp_path / "wal", topics="kept", columns="partition,offset")
        writer = frame.writeStream.foreachBatch(lambda batch, _: seen.extend(map(tuple, batch.collect())))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        while len(seen) < 300 and query.isActive:
            query.awaitTermination(0.2)
        query.stop()
        assert query.exception() is None
    for partition in (0, 1):
        offsets = [offset for number, offset in seen if number == partition]
        assert sorted(offsets) == list(range(len(offsets)))
