"""Spark beside a real cluster: it reads from the log what a consumer reads over the wire, and writes as a producer."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rafka_lab import Lab
from rafka_lab.pipeline import run_pipeline, spans_frame
from rafka_lab.spark_writer import produce_batches
from tests.wal.spark.logs_for_spark import Consumed, as_consumed, scan

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Of brokers that know message format 2, 1 and 0, as librdkafka speaks to them; zstd came with format 2.
NEWEST = "newest"
FORMATS = {NEWEST: CODECS, "0.10.0": CODECS[:4], "0.9.0": CODECS[:3]}
PARTITIONS = 2
RECORD = st.tuples(
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=400),
    st.lists(st.tuples(st.text(min_size=1, max_size=8), st.none() | st.binary(max_size=20)), max_size=3),
)
Sent = tuple[tuple[str, str], int, list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]]]]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(data=tmp_path_factory.mktemp("lab") / "data") as running:
        produce(running)
        yield running


def produce(lab: Lab) -> None:
    """Every codec, null keys and values, headers, a topic that is deleted again, and a log start that moves."""
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 2), NewTopic("copied", 1), NewTopic("gone", 1)]).values():
        future.result(30)
    now = int(time.time() * 1000)  # older records would be gone at the broker's next look at retention
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": lab.bootstrap, "compression.type": codec})
        for number in range(40):
            key = None if number % 7 == 0 else f"{codec}-{number}".encode()
            value = None if number % 11 == 0 else codec.encode() * number
            headers = [("codec", codec.encode()), ("none", None)] if number % 5 == 0 else None
            producer.produce("orders", value, key, partition=number % 2, timestamp=now + number, headers=headers)
        producer.produce("gone", b"x")
        assert producer.flush(30) == 0
    admin.delete_topics(["gone"])["gone"].result(30)


def consume(lab: Lab, topic: str) -> list[Consumed]:
    """Everything, over the wire."""
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap,
            "group.id": "spark-tests",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    partitions = _partitions(consumer, topic)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found: list[Consumed] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "no answer within 30 s"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
            continue
        kind, time = message.timestamp()
        headers = tuple(message.headers() or ())
        row = (topic, message.partition(), message.offset(), time, kind - 1, message.key(), message.value(), headers)
        found.append(row)
    consumer.close()
    return sorted(found, key=lambda row: row[:4])


def _partitions(consumer: Consumer, topic: str) -> list[int]:
    """On a busy machine the gateway may hold a broker for down for a moment; clients ask again then."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = consumer.list_topics(topic, 30).topics[topic]
        if found.error is None and found.partitions:
            return list(found.partitions)
        time.sleep(0.2)
    pytest.fail(f"no partitions of {topic} within 60 s: {found.error}")


def log_of(lab: Lab) -> Path:
    return lab.data / "broker-0" / "data"


def read(spark: SparkSession, lab: Lab, **options: str) -> DataFrame:
    return spark.read.format("rafka_wal").options(**options).load(str(log_of(lab)))


def test_spark_reads_from_the_log_what_a_consumer_reads_over_the_wire(spark: SparkSession, lab: Lab) -> None:
    expected = consume(lab, "orders")
    assert len(expected) == 40 * len(CODECS)
    frame = read(spark, lab, topics="orders")
    assert as_consumed(frame.toArrow()) == expected
    assert {row.topic for row in read(spark, lab, columns="topic").distinct().collect()} <= {"orders", "copied"}
    with pytest.raises(PySparkException, match="has no topic gone"):
        read(spark, lab, topics="gone").count()


@settings(max_examples=20)
@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from([(version, codec) for version in FORMATS for codec in FORMATS[version]]),
            st.integers(0, PARTITIONS - 1),
            st.lists(RECORD, min_size=1, max_size=20),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_clients_send_in_whatever_format_is_read_alike_from_the_log_and_over_the_wire(
    lab: Lab, clients: dict[tuple[str, str], Producer], batches: list[Sent]
) -> None:
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    topic = f"any-{uuid4().hex}"
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    for client, partition, records in batches:
        for key, value, headers in records:
            sent = headers if client[0] == NEWEST else None  # older formats have none
            clients[client].produce(topic, value, key, partition=partition, headers=sent)
        assert clients[client].flush(30) == 0
    over_the_wire = consume(lab, topic)
    assert len(over_the_wire) == sum(len(records) for _, _, records in batches)
    assert as_consumed(scan(log_of(lab), topics=topic)) == over_the_wire
    admin.delete_topics([topic])[topic].result(30)
    assert topic not in scan(log_of(lab), columns="topic")["topic"].to_pylist()


@pytest.fixture(scope="module")
def clients(lab: Lab) -> dict[tuple[str, str], Producer]:
    """A producer for each message format and codec."""
    old = {"api.version.request": False, "enable.idempotence": False}
    return {
        (version, codec): Producer(
            {"bootstrap.servers": lab.bootstrap, "compression.type": codec, "linger.ms": 1}
            | ({} if version == NEWEST else {**old, "broker.version.fallback": version})
        )
        for version, codecs in FORMATS.items()
        for codec in codecs
    }


def test_rows_are_produced_through_the_gateway(spark: SparkSession, lab: Lab) -> None:
    rows = read(spark, lab, topics="orders", partitions="1").select("key", "value", "headers", "timestamp")
    before = len(consume(lab, "copied"))
    rows.write.format("rafka").option("bootstrapServers", lab.bootstrap).option("topic", "copied").mode("append").save()
    copied = consume(lab, "copied")[before:]
    expected = [row for row in consume(lab, "orders") if row[1] == 1]
    assert sorted(map(repr, (row[3:] for row in copied))) == sorted(map(repr, (row[3:] for row in expected)))


def test_each_batch_of_a_stream_is_produced(spark: SparkSession, lab: Lab, tmp_path: Path) -> None:
    before = len(consume(lab, "copied"))
    stream = spark.readStream.format("rafka_wal").option("topics", "orders").option("columns", "key,value")
    writer = stream.load(str(log_of(lab))).writeStream.foreachBatch(produce_batches(lab.bootstrap, "copied"))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert len(consume(lab, "copied")) - before == 40 * len(CODECS)


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"topic": "copied"}, ["value"], "option bootstrapServers is missing"),
        (
            {"topic": "copied", "bootstrapServers": "x:1", "topics": "y"},
            ["value"],
            "has no option topics .did you mean",
        ),
        ({"bootstrapServers": "x:1"}, ["value"], "give either option topic or a column topic"),
        ({"topic": "copied", "bootstrapServers": "x:1"}, ["key"], "there is no column value"),
        ({"topic": "copied", "bootstrapServers": "x:1"}, ["value", "offset"], "no column offset; a row may have: key"),
    ],
)
def test_what_cannot_be_produced_is_refused_with_a_sentence(
    spark: SparkSession, lab: Lab, options: dict[str, str], columns: list[str], message: str
) -> None:
    frame = read(spark, lab, topics="orders").select(*columns)
    with pytest.raises(PySparkException, match=message):
        frame.write.format("rafka").options(**options).mode("append").save()


def test_a_topic_is_not_overwritten_and_not_read(spark: SparkSession, lab: Lab) -> None:
    frame = read(spark, lab, topics="orders").select("value")
    target = frame.write.format("rafka").option("bootstrapServers", lab.bootstrap).option("topic", "copied")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        target.mode("overwrite").save()
    with pytest.raises(PySparkException, match="rafka only writes"):
        spark.read.format("rafka").load()


def wait_for_traces(lab: Lab, wanted: set[str]) -> None:
    """Nodes send their spans in batches, a moment after the requests."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        connection = sqlite3.connect(lab.data / "collector" / "traces.sqlite")
        found = {row[0] for row in connection.execute("SELECT lower(hex(trace_id)) FROM traces")}
        connection.close()
        if wanted <= found:
            return
        time.sleep(0.2)
    pytest.fail(f"{len(wanted - found)} of {len(wanted)} traces are not in the store after 60 s")


def test_the_pipeline_joins_the_spans_of_the_requests_that_stored_the_records(
    spark: SparkSession, lab: Lab, tmp_path: Path
) -> None:
    stored = {row.trace_id for row in read(spark, lab, columns="trace_id").distinct().collect()}
    wait_for_traces(lab, stored)
    result = run_pipeline(spark, lab.data, tmp_path)
    hops = {row["name"] for row in result.tables["hops"].to_pylist()}
    assert {"gateway.kafka.request", "mesh.kafkaop.handle", "broker.produce.store"} <= hops
    spans = spans_frame(spark, lab.data / "collector" / "traces.sqlite")
    traces = {row.trace_id for row in read(spark, lab, topics="orders", columns="trace_id").distinct().collect()}
    assert traces
    assert traces <= {row.trace_id for row in spans.select("trace_id").distinct().collect()}
