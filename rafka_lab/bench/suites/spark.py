"""Spark over the log: decoding against aiokafka's reader, scans against Parquet, a count, freshness, growth.

All targets are ratios within this run but one: a record must be in a stream's next batch within half a second.
"""

import importlib.util
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rafka_lab.bench.bench import Bench
from rafka_lab.bench.report import Report
from rafka_lab.bench.sides import folder_for
from rafka_lab.java import INSTALL_JAVA, find_java
from rafka_lab.spark import spark_session
from wal import Durability, NewBatch, NewRecord, SingleWal, TopicRecord, WalReader, build_batch, check_batch
from wal.arrow_columns import RECORD_COLUMNS
from wal.entry import Kind
from wal.spark_options import parse_options
from wal.spark_plan import LogPlan
from wal.spark_read import read_split

QUICK_RECORDS, FULL_RECORDS = 500_000, 2_000_000
GROWTH = 10
BATCH_RECORDS = 100
# aiokafka's reader is slow enough that a part of the log says how slow.
AIOKAFKA_RECORDS = 200_000
ROUNDS = 3
FRESH_RECORDS = 40
FRESH_PAUSE = 0.25
FRESH_SECONDS = 60  # until a record that does not come is given up
START = 1_700_000_000_000
_POOL = 64  # different batches; the log repeats them


def run(bench: Bench) -> None:
    report = bench.report
    if find_java() is None:
        report.note(INSTALL_JAVA)
        return
    spark = spark_session(app_name="bench", settings={"spark.driver.memory": "4g"})
    spark.dataSource.register(Nothing)
    try:
        with folder_for("spark") as folder:
            log = folder / "wal"
            records = QUICK_RECORDS if bench.quick else FULL_RECORDS
            make_log(log, records)
            if importlib.util.find_spec("aiokafka") is None:
                report.note("aiokafka, whose decoder is compared with ours, is not installed: pip install aiokafka")
            else:
                _decode(report, log, records)
            _scan(report, spark, log, folder / "parquet", records)
            _count(report, spark, log)
            if not bench.quick:
                _freshness(report, spark, folder)
                _growth(report, spark, log, folder / "many", records)
    finally:
        spark.stop()


def topic(name: str, partitions: int = 2) -> TopicRecord:
    return TopicRecord(topic_id=uuid4(), org_id=1, name=name, ulid=name, slug=name, rrl=name, leaders=[0] * partitions)


def make_log(folder: Path, records: int) -> None:
    """Records of about 150 bytes, a header on every tenth, over three topics of two partitions."""
    chance = random.Random(1)
    pool = [_batch(chance) for _ in range(_POOL)]
    headers = [check_batch(batch) for batch in pool]
    with SingleWal.open(folder) as log:
        topics = [topic(name) for name in ("orders", "clicks", "payments")]
        for record in topics:
            log.create_topic(record)
        for number in range(records // BATCH_RECORDS):
            batch, header = pool[number % _POOL], headers[number % _POOL]
            chosen = topics[number % 3].topic_id.bytes
            log.append([NewBatch(chosen, number % 2, batch, header, os.urandom(16))])
            if not log.has_room:
                log.wait_synced()


def _batch(chance: random.Random) -> bytes:
    return build_batch(
        [
            NewRecord(
                b"key-%d" % chance.randrange(10_000),
                b'{"amount":%d,"note":"%s"}' % (chance.randrange(1_000), chance.randbytes(55).hex().encode()),
                START + number,
                (("traceparent", b"x" * 20),) if number % 10 == 0 else (),
            )
            for number in range(BATCH_RECORDS)
        ]
    )


def _best(*works: Callable[[], object]) -> list[float]:
    """Seconds of each one's fastest round. They take turns, so that a busy moment of the machine meets all of them."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, taken in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            taken.append(time.perf_counter() - start)
    return [min(taken) for taken in times]


def _decode(report: Report, log: Path, records: int) -> None:
    seconds = _best(lambda: _decode_all(log, records), lambda: _decode_with_aiokafka(log))
    ours, theirs = records / seconds[0], AIOKAFKA_RECORDS / seconds[1]
    report.figure("decode, one core, all columns", ours / 1e6, "M/s")
    report.figure("aiokafka's reader into Arrow", theirs / 1e6, "M/s")
    report.at_least("decode against aiokafka's reader", ours / theirs, 10)


def _decode_all(log: Path, records: int) -> None:
    options = parse_options({"path": str(log)})
    plan = LogPlan(options)
    rows = sum(batch.num_rows for split in plan.splits(plan.selection()) for batch in read_split(split, options))
    assert rows == records


def _decode_with_aiokafka(log: Path) -> None:
    """The same columns, as a careful program would fill them record by record."""
    from aiokafka.record.default_records import DefaultRecordBatch

    reader = WalReader(log)
    names = {topic_id: record.name for topic_id, record in reader.state.topics.items()}
    columns: dict[str, list[object]] = {name: [] for name in RECORD_COLUMNS}
    add = {name: column.append for name, column in columns.items()}
    count = 0
    for entry in reader.entries():
        header = entry.header
        if header.kind != Kind.DATA:
            continue
        name, trace = names[header.topic_id], header.trace_id.hex()
        for record in DefaultRecordBatch(bytes(entry.body)):
            add["key"](record.key)
            add["value"](record.value)
            add["topic"](name)
            add["partition"](header.partition)
            add["offset"](record.offset)
            add["timestamp"](record.timestamp * 1000)
            add["timestampType"](record.timestamp_type)
            add["headers"]([{"key": key, "value": value} for key, value in record.headers] or None)
            add["org_id"](header.org_id)
            add["trace_id"](trace)
            add["segment"](entry.segment)
            add["position"](header.position)
        count += header.record_count
        if count >= AIOKAFKA_RECORDS:
            break
    table = pa.table({name: pa.array(column, RECORD_COLUMNS[name]) for name, column in columns.items()})
    assert table.num_rows == AIOKAFKA_RECORDS


def read(spark: SparkSession, log: Path, **options: str) -> DataFrame:
    return spark.read.format("rafka_wal").options(**options).load(str(log))


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _scan(report: Report, spark: SparkSession, log: Path, parquet: Path, records: int) -> None:
    read(spark, log).write.option("compression", "zstd").parquet(str(parquet))
    ours, theirs = _best(lambda: _drain(read(spark, log)), lambda: _drain(spark.read.parquet(str(parquet))))
    report.figure("full scan in Spark", records / ours / 1e6, "M/s")
    report.at_most("full scan against zstd Parquet", ours / theirs, 2.5)


class Nothing(DataSource):
    """A source without rows: what a query costs before any work."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "topic string, partition int"

    def reader(self, schema: object) -> DataSourceReader:
        return NothingReader()


class NothingReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[str, int]]:
        return iter(())


def _count(report: Report, spark: SparkSession, log: Path) -> None:
    wanted = {"columns": "topic,partition", "filterPushdown": "true"}
    condition = "topic = 'orders' and partition = 1"
    ours, empty = _best(
        lambda: read(spark, log, **wanted).where(condition).count(),
        lambda: spark.read.format("nothing").load().where(condition).count(),
    )
    report.figure("count of a topic's partition", ours * 1e3, "ms")
    report.at_most("count with pushed topic and partition against an empty source", ours / empty, 3)


def _freshness(report: Report, spark: SparkSession, folder: Path) -> None:
    seen: dict[int, float] = {}
    acked: dict[int, float] = {}

    def take(frame: DataFrame, _number: int) -> None:
        for row in frame.collect():
            seen[row.offset] = time.perf_counter()

    record = topic("fresh", 1)
    with SingleWal.open(folder / "live") as log:
        log.create_topic(record)
        stream = spark.readStream.format("rafka_wal").option("columns", "offset").load(str(folder / "live"))
        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint")).start()
        _append(log, record, acked, 1)
        _wait_until(lambda: len(seen) == 1)  # until then the query's processes start
        report.figure("from a stream's start to its first record", seen[0] - acked[0], "s")
        writer = threading.Thread(target=_append, args=(log, record, acked, FRESH_RECORDS))
        writer.start()
        writer.join()
        _wait_until(lambda: len(seen) == len(acked))
        query.stop()
    waits = [seen[offset] - acked[offset] for offset in range(1, len(acked))]
    report.at_most("from acknowledged to a stream's batch, median", statistics.median(waits), 0.5, "s")


def _wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + FRESH_SECONDS
    while not done():
        assert time.monotonic() < end, f"the stream did not deliver within {FRESH_SECONDS} s"
        time.sleep(0.05)


def _append(log: SingleWal, record: TopicRecord, acked: dict[int, float], count: int) -> None:
    for number in range(len(acked), len(acked) + count):
        batch = build_batch([NewRecord(b"key", b"value" * 30, START + number)])
        log.append([NewBatch(record.topic_id.bytes, 0, batch, check_batch(batch))], Durability.SYNCED)
        log.wait_synced()
        acked[number] = time.perf_counter()
        time.sleep(FRESH_PAUSE)


def _growth(report: Report, spark: SparkSession, few: Path, many: Path, records: int) -> None:
    make_log(many, GROWTH * records)
    seconds = _best(lambda: _drain(read(spark, few)), lambda: _drain(read(spark, many)))
    report.at_most(f"scan of {GROWTH} times as many records", seconds[1] / seconds[0], 11)
