"""Real clients through the gateway to a fake broker: produce, fetch, metadata and a little administration."""

import asyncio
import subprocess
import time
import uuid
import warnings
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from gateway_cluster import Cluster
from kafka_wire import Client, create

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PyPartition

RECORDS = [f"record {number}".encode() for number in range(500)]


@pytest.fixture
def kcat(gateway: Cluster, program: Callable[[str], str]) -> Callable[..., str]:
    path = program("kcat")

    def run(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [path, "-b", gateway.bootstrap, *arguments], input=stdin, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def topic(gateway: Cluster) -> str:
    with Client(gateway.port) as client:
        return create(client, partitions=3)


def test_kcat_lists_the_gateway_as_the_only_broker(kcat: Callable[..., str], gateway: Cluster, topic: str) -> None:
    listed = kcat("-L", "-t", topic)
    assert f"broker 0 at {gateway.bootstrap} (controller)" in listed
    assert "with 3 partitions" in listed


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kcat_produces_with_every_codec(kcat: Callable[..., str], topic: str, codec: str) -> None:
    lines = [f"line {number} {'x' * 50}" for number in range(200)]
    said = kcat("-P", "-t", topic, "-p", "1", "-z", codec, "-d", "feature,msg", stdin="\n".join(lines))
    assert "not compressing" not in said
    read = kcat("-C", "-t", topic, "-p", "1", "-e", "-q", "-X", "check.crcs=true")
    assert read.splitlines() == lines


def test_kcat_knows_all_features(kcat: Callable[..., str]) -> None:
    said = kcat("-L", "-d", "feature")
    for feature in ("ApiVersion", "MsgVer2", "IdempotentProducer", "ZSTD", "LZ4", "OffsetTime"):
        assert f"Feature {feature}" in said, feature
        assert f"Disabling feature {feature}" not in said


def test_kcat_with_idempotence_and_from_an_offset(kcat: Callable[..., str], topic: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", stdin="\n".join(map(str, range(100))))
    assert kcat("-C", "-t", topic, "-p", "0", "-o", "57", "-c", "2", "-q").split() == ["57", "58"]
    assert kcat("-Q", "-t", f"{topic}:0:-1").split() == [topic, "[0]", "offset", "100"]


def test_a_transactional_producer_is_told_at_once(program: Callable[[str], str], gateway: Cluster, topic: str) -> None:
    command = [program("kcat"), "-b", gateway.bootstrap, "-P", "-t", topic, "-X", "transactional.id=x"]
    started = time.monotonic()
    done = subprocess.run(command, input="a", capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "Transactional" in done.stderr
    assert time.monotonic() - started < 4  # kcat itself gives up after 5


def test_an_idle_consumer_polls_about_twice_a_second(kcat: Callable[..., str], gateway: Cluster, topic: str) -> None:
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        subprocess.run(
            ["kcat", "-b", gateway.bootstrap, "-C", "-t", topic, "-o", "end", "-d", "protocol"],
            capture_output=True,
            timeout=4,
        )
    fetches = (caught.value.stderr or b"").count(b"Sent FetchRequest")
    assert 2 <= fetches <= 16


def test_kcat_without_version_negotiation_gets_old_answers(kcat: Callable[..., str], topic: str) -> None:
    """It speaks Metadata 0 and Fetch 1; the fake broker has no old message sets, so only an empty topic is read."""
    old = ("-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0")
    assert f'topic "{topic}" with 3 partitions' in kcat("-L", "-t", topic, *old)
    assert "Reached end of topic" in kcat("-C", "-t", topic, "-e", *old)


def test_confluent_kafka_produces_fetches_and_administers(gateway: Cluster) -> None:
    settings = {"bootstrap.servers": gateway.bootstrap}
    admin = AdminClient(settings)
    name = f"confluent-{uuid.uuid4().hex}"
    admin.create_topics([NewTopic(name, 2)])[name].result(20)
    assert len(admin.list_topics(timeout=20).topics[name].partitions) == 2
    failures = []
    producer = Producer(settings | {"enable.idempotence": True})
    for number, value in enumerate(RECORDS):
        producer.produce(name, value, partition=number % 2, on_delivery=lambda e, _: failures.append(e) if e else None)
    assert producer.flush(20) == 0
    assert failures == []
    consumer = Consumer(settings | {"group.id": "unused"})
    consumer.assign([TopicPartition(name, 0, 0), TopicPartition(name, 1, 0)])
    read: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(read) < len(RECORDS) and time.monotonic() < deadline:
        read += [message.value() for message in consumer.consume(500, 1.0)]
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=20) == (0, 250)
    consumer.close()
    assert sorted(read) == sorted(RECORDS)
    admin.delete_topics([name])[name].result(20)
    assert name not in admin.list_topics(timeout=20).topics


def test_confluent_kafka_finds_a_recreated_topic_while_consuming(gateway: Cluster) -> None:
    settings = {"bootstrap.servers": gateway.bootstrap, "topic.metadata.refresh.interval.ms": 200}
    admin = AdminClient(settings)
    name = f"again-{uuid.uuid4().hex}"
    producer = Producer(settings)
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    producer.produce(name, b"first", partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer(settings | {"group.id": "unused", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    assert first_value(consumer) == b"first"
    admin.delete_topics([name])[name].result(20)
    admin.create_topics([NewTopic(name, 1)])[name].result(20)
    again = Producer(settings)
    for value in (b"second", b"third"):
        again.produce(name, value, partition=0)
    assert again.flush(20) == 0
    assert first_value(consumer) == b"third"  # its position, offset 1, is a valid one in the new topic
    consumer.close()


def first_value(consumer: Consumer) -> bytes | None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is None or isinstance(value, bytes)
            return value
    return None


def test_aiokafka_produces_and_fetches(gateway: Cluster, topic: str) -> None:
    async def run() -> list[bytes | None]:
        producer = AIOKafkaProducer(bootstrap_servers=gateway.bootstrap, acks="all")
        await producer.start()
        for number, value in enumerate(RECORDS):
            await producer.send(topic, value, partition=number % 3)
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=gateway.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([AioPartition(topic, number) for number in range(3)])
        read: list[bytes | None] = []
        async with asyncio.timeout(30):
            while len(read) < len(RECORDS):
                found = await consumer.getmany(timeout_ms=1000)
                read += [record.value for records in found.values() for record in records]
        await consumer.stop()
        return read

    assert sorted(value or b"" for value in asyncio.run(run())) == sorted(RECORDS)


def test_kafka_python_produces_and_fetches(gateway: Cluster, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=gateway.bootstrap)
    for number, value in enumerate(RECORDS):
        producer.send(topic, value, partition=number % 3)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=gateway.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000, group_id=None
    )
    consumer.assign([PyPartition(topic, number) for number in range(3)])
    read = [next(consumer).value for _ in RECORDS]
    consumer.close()
    assert sorted(read) == sorted(RECORDS)
