"""`rafka_wal` in Spark's batch queries: the same records as a consumer, filters, options, a log that is in use."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.wal.spark.logs_for_spark import START, as_consumed, consume_all, everything, live_broker, topic_id
from wal import SingleWal, WalReader
from wal.arrow_columns import BATCH_COLUMNS, RECORD_COLUMNS
from wal.compression import Codec
from wal.entry import Kind
from wal.segment import segment_numbers


def load(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    reader = spark.read.format("rafka_wal")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs") / "wal"
    everything(folder)
    assert len(segment_numbers(folder)) >= 3
    return folder


def test_a_query_gives_what_a_consumer_reads(spark: SparkSession, log: Path) -> None:
    expected = consume_all(log)
    assert len(expected) > 1000
    assert {row[0] for row in expected} == {"orders", "clicks", "gone"}
    assert as_consumed(load(spark, log).toArrow()) == expected
    assert as_consumed(load(spark, log, splitBytes=5_000).toArrow()) == expected


def test_the_schema_is_sparks_kafka_sources_and_what_only_the_log_knows(spark: SparkSession, log: Path) -> None:
    assert load(spark, log).columns == list(RECORD_COLUMNS)
    assert load(spark, log, view="batches").columns == list(BATCH_COLUMNS)
    chosen = load(spark, log, columns="offset, append_time,codec")
    assert chosen.columns == ["offset", "append_time", "codec"]
    assert {row.codec for row in chosen.select("codec").distinct().collect()} == {one.name.lower() for one in Codec}


def test_batches_are_the_index_of_what_can_be_read(spark: SparkSession, log: Path) -> None:
    frame = load(spark, log, view="batches")
    assert frame.selectExpr("sum(live_records)").first()[0] == len(consume_all(log))
    rows = frame.where("topic = 'orders' and org_id = 1").collect()
    chosen = topic_id(log, "orders").bytes
    entries = [entry.header for entry in WalReader(log).entries() if entry.header.topic_id == chosen]
    entries = [header for header in entries if header.kind == Kind.DATA]
    assert sorted((r.partition, r.base_offset, r.record_count, r.size, r.position) for r in rows) == sorted(
        (h.partition, h.base_offset, h.record_count, h.length, h.position) for h in entries
    )
    assert {row.codec for row in rows} <= {codec.name.lower() for codec in Codec}


CONDITIONS = [
    "topic = 'clicks'",
    "topic in ('clicks', 'gone') and partition = 1",
    "topic like 'or%' and partition >= 1",
    "topic = 'no such topic'",
    "offset >= 30 and offset < 55",
    "offset = 7 or partition = 2",
    "org_id = 2",
    "segment = 1 and partition != 0",
    "key is null and value is not null",
    f"timestamp > timestamp_millis({START + 5_000}) and timestamp <= timestamp_millis({START + 9_000})",
    "trace_id is null",
    "timestampType = 1 and offset > 10",
    "producer_id < 0",
]


def test_filters_give_the_same_rows_pushed_down_or_not(spark: SparkSession, log: Path) -> None:
    every = load(spark, log, columns=",".join([*RECORD_COLUMNS, "producer_id"]))
    held = every.localCheckpoint()  # a filter on it stays in Spark
    wanted = ["org_id", "topic", "partition", "offset", "segment", "position"]
    for condition in CONDITIONS:
        fresh = load(spark, log, columns=",".join([*RECORD_COLUMNS, "producer_id"]), filterPushdown="true")
        expected = sorted(tuple(row) for row in held.where(condition).select(*wanted).collect())
        found = sorted(tuple(row) for row in fresh.where(condition).select(*wanted).collect())
        assert found == expected, condition


def test_queries_of_one_frame_do_not_hide_each_others_rows(spark: SparkSession, log: Path) -> None:
    frame = load(spark, log)
    some, every = frame.where("topic = 'orders' and partition = 1").count(), frame.count()
    assert 0 < some < every == len(consume_all(log))
    assert frame.where("offset = 1 or partition = 0").count() > frame.where("partition = 0").count()


def plan_above_scan(frame: DataFrame) -> str:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return str(plan.partition("BatchScan")[0])


def test_filters_on_what_a_batch_shares_are_left_to_the_source(spark: SparkSession, log: Path) -> None:
    one, other = (load(spark, log, filterPushdown="true") for _ in range(2))
    assert "Filter" not in plan_above_scan(one.where("topic = 'orders' and partition in (0, 1) and org_id = 1"))
    assert "Filter" in plan_above_scan(other.where("topic = 'orders' and offset > 5"))


def test_one_trace_is_found_by_its_id(spark: SparkSession, log: Path) -> None:
    traces = [row.trace_id for row in load(spark, log).select("trace_id").collect() if row.trace_id]
    found = load(spark, log, filterPushdown="true").where(f"trace_id = '{traces[50]}'").collect()
    assert [row.trace_id for row in found] == [trace for trace in traces if trace == traces[50]]


def test_a_wrong_option_reaches_the_user_as_one_clear_sentence(spark: SparkSession, log: Path) -> None:
    with pytest.raises(PySparkException, match=r"has no option topic \(did you mean topics\?\); the options are: path"):
        load(spark, log, topic="orders")
    with pytest.raises(PySparkException, match="has no topic ordres; its topics are: clicks, empty, gone, orders"):
        load(spark, log, topics="ordres").count()


def test_no_log_an_empty_folder_and_a_log_without_records_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="there is no folder"):
        load(spark, tmp_path / "nothing").count()
    with pytest.raises(PySparkException, match=r"there is no log in .*give the folder with the \.log files"):
        load(spark, tmp_path).count()
    with pytest.raises(PySparkException, match="option path is missing"):
        spark.read.format("rafka_wal").load().count()
    SingleWal.open(tmp_path).close()
    assert load(spark, tmp_path).count() == 0
    assert load(spark, tmp_path, view="batches").count() == 0


def test_writing_is_refused_with_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="rafka_wal only reads: the broker is the one writer"):
        spark.range(3).write.format("rafka_wal").mode("append").save(str(tmp_path))


def test_a_schema_of_ones_own_is_refused_with_the_option_to_use(spark: SparkSession, log: Path) -> None:
    with pytest.raises(PySparkException, match="takes no schema of its own"):
        spark.read.format("rafka_wal").schema("offset long").load(str(log)).count()


def test_queries_beside_a_broker_that_writes_rolls_and_deletes_see_whole_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    with live_broker(tmp_path):
        counts = []
        for _ in range(3):
            rows = load(spark, tmp_path, columns="partition,offset,value", topics="kept").collect()
            for partition in (0, 1):
                offsets = sorted(row.offset for row in rows if row.partition == partition)
                assert offsets == list(range(len(offsets)))
            counts.append(len(rows))
        assert counts == sorted(counts)
        assert counts[-1] > counts[0]
