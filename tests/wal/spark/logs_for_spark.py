"""Logs with a bit of everything for the Spark source, and all that a consumer over the wire would be given of them."""

import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import pyarrow as pa

from wal import (
    Codec,
    Durability,
    NewBatch,
    NewRecord,
    SingleWal,
    TopicRecord,
    WalReader,
    WalSettings,
    build_batch,
    check_batch,
    decode_records,
    with_log_append_time,
)
from wal.arrow_columns import arrow_schema
from wal.batch import parse_header
from wal.spark_options import Options, parse_options
from wal.spark_plan import LogPlan, Split
from wal.spark_read import read_split
from wal.view import LogView

LIVE_BROKER = """
import random, sys, time
from tests.wal.spark.logs_for_spark import SMALL, Filler, topic
from wal import SingleWal
log = SingleWal.open(sys.argv[1], SMALL)
kept, moving = topic("kept"), topic("moving")
log.create_topic(kept); log.create_topic(moving)
filler = Filler(log, random.Random(5))
print("ready", flush=True)
while True:
    time.sleep(0.02)
    short = topic("short-lived"); log.create_topic(short)
    filler.fill(kept, 1); filler.fill(moving, 12); filler.fill(short, 12)
    log.delete_topic(short.topic_id.bytes)
    for partition in (0, 1):
        end = log.state.partition(moving.topic_id.bytes, partition).high_watermark
        log.move_log_start(moving.topic_id.bytes, partition, end)
    log.retain()
"""

SMALL = WalSettings(segment_bytes=40_000, checkpoint_bytes=8_000)
ROOT = Path(__file__).parents[3]
START = 1_700_000_000_000

# topic, partition, offset, milliseconds, kind of time, key, value, headers
Consumed = tuple[str, int, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def topic(name: str, partitions: int = 2, org: int = 1) -> TopicRecord:
    return TopicRecord(
        topic_id=uuid4(),
        org_id=org,
        name=name,
        ulid=f"top_{name}",
        slug=name,
        rrl=f"{org}/dev/lab/topics/{name}",
        leaders=[0] * partitions,
        configs={"retention.ms": "-1"},  # the records' times are long ago
    )


@dataclass
class Filler:
    """Appends random batches: all codecs, nulls, headers, both kinds of time."""

    log: SingleWal
    random: random.Random
    time: int = START

    def fill(self, record: TopicRecord, batches: int) -> None:
        for _ in range(batches):
            self.put(record, self.random.randrange(len(record.leaders)), self.records())

    def records(self) -> list[NewRecord]:
        return [self.record() for _ in range(self.random.randint(1, 12))]

    def record(self) -> NewRecord:
        self.time += self.random.randint(0, 50)
        chance = self.random.random()
        headers = (("traceparent", b"00-ab"), ("é", None)) if chance < 0.2 else ()
        key = None if chance < 0.3 else b"key-%d" % self.random.randrange(40)
        value = None if chance > 0.9 else self.random.randbytes(self.random.randrange(120))
        return NewRecord(key, value, self.time, headers)

    def put(self, record: TopicRecord, partition: int, records: list[NewRecord], codec: Codec | None = None) -> None:
        batch = build_batch(records, codec=self.random.choice(list(Codec)) if codec is None else codec)
        if self.random.random() < 0.2:
            batch = with_log_append_time(batch, self.time)
        trace = self.random.randbytes(16) if self.random.random() < 0.8 else bytes(16)
        new = NewBatch(record.topic_id.bytes, partition, batch, check_batch(batch), trace)
        (done,) = self.log.append([new], Durability.WRITTEN)
        assert done.error is None


@contextmanager
def live_broker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes, rolls, deletes topics and drops segments without end. The topic `kept` only grows."""
    with subprocess.Popen(
        [sys.executable, "-c", LIVE_BROKER, str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as broker:
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline() == "ready\n"
            yield broker
            assert broker.poll() is None, "the broker process has ended"
        finally:
            broker.kill()


def everything(folder: Path, seed: int = 1) -> None:
    """Several segments with live topics, a deleted one, one made anew under its name, and log starts that moved."""
    with SingleWal.open(folder, SMALL) as log:
        filler = Filler(log, random.Random(seed))
        orders, clicks, gone = topic("orders", 3), topic("clicks"), topic("gone")
        again, foreign, empty = topic("gone"), topic("orders", 1, org=2), topic("empty")
        for record in (orders, clicks, gone, foreign, empty):
            log.create_topic(record)
        for _ in range(30):
            for record in (orders, clicks, gone, foreign):
                filler.fill(record, 2)
        log.delete_topic(gone.topic_id.bytes)
        log.create_topic(again)
        filler.fill(again, 5)
        middle = log.state.partition(clicks.topic_id.bytes, 0).high_watermark // 2
        log.move_log_start(clicks.topic_id.bytes, 0, middle)
        filler.fill(orders, 5)


def consume(view: LogView, topic_id: bytes, partition: int) -> list[Consumed]:
    """A partition as a consumer reads it: whole batches from the log start on, in steps, earlier records left out."""
    name = view.state.topics[topic_id].name
    first = offset = view.state.partition(topic_id, partition).log_start
    found: list[Consumed] = []
    while step := view.read(topic_id, partition, offset, max_bytes=4_000):
        for batch in step:
            for r in decode_records(batch):
                if r.offset >= first:
                    row = (name, partition, r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers)
                    found.append(row)
        offset = parse_header(step[-1]).next_offset
    return found


def consume_all(folder: Path | LogView, org: int | None = None) -> list[Consumed]:
    view = folder if isinstance(folder, LogView) else WalReader(folder)
    return sorted(
        (
            row
            for topic_id, record in view.state.topics.items()
            if org in (None, record.org_id)
            for partition in range(len(record.leaders))
            for row in consume(view, topic_id, partition)
        ),
        key=lambda row: row[:4],
    )


def scan(folder: Path | str, **options: object) -> pa.Table:
    """What the source reads, planned and read in this process, without Spark around it."""
    return scan_plan(plan_scan(folder, **options))


def plan_scan(folder: Path | str, **options: object) -> tuple[Options, list[Split]]:
    parsed = parse_options({"path": str(folder), **{name: str(value) for name, value in options.items()}})
    plan = LogPlan(parsed)
    return parsed, plan.splits(plan.selection())


def scan_plan(planned: tuple[Options, list[Split]]) -> pa.Table:
    options, splits = planned
    sent = [pickle.loads(pickle.dumps(split)) for split in splits]  # as to another machine
    found = [batch for split in sent for batch in read_split(split, options)]
    return pa.Table.from_batches(found, arrow_schema(options.columns))


def as_consumed(table: pa.Table) -> list[Consumed]:
    columns = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers"]
    found = [
        (
            row["topic"],
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in table.select(columns).to_pylist()
    ]
    return sorted(found, key=lambda row: row[:4])


def topic_id(folder: Path, name: str, org: int = 1) -> UUID:
    record = WalReader(folder).state.by_name(org, name)
    assert record is not None
    return record.topic_id
