"""Rows 7, 8, 16, 17, 19, 20 and 25 of KAFKA-PITFALLS.md: what a producer may send, and what it is told."""

import datetime
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from dropping_proxy import DroppingProxy
from kcat_program import Kcat
from raw_client import RawClient, schema
from reading import high_watermark, read_all

from rafka_lab import Lab
from wal.batch import CONTROL_BIT, BatchHeader, encode_batch, parse_header
from wal.compression import Codec
from wal.records import NewRecord, build_batch

PRODUCE = 0
ALL, NONE = -1, 0


def produce_request(version: int, topic: str, records: bytes, acks: int = ALL) -> Any:
    module = schema("produce", version, "request")
    partition = module.PartitionProduceData(index=0, records=records)
    return module.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout=datetime.timedelta(seconds=10),
        topic_data=(module.TopicProduceData(name=topic, partition_data=(partition,)),),
    )


def produced(bootstrap: str, topic: str, records: bytes, version: int = 9) -> Any:
    """The partition's answer to one raw produce."""
    with RawClient(bootstrap) as client:
        answer = client.ask(
            produce_request(version, topic, records), schema("produce", version, "response").ProduceResponse
        )
        return answer.responses[0].partition_responses[0]


BATCH = build_batch([NewRecord(b"k", b"v", 1000)])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_row_07_kcat_writes_and_reads_every_codec(kcat: Kcat, topic_name: str, codec: str) -> None:
    lines = [f"key{n}:value{n}" for n in range(50)]
    kcat.produce(topic_name, *lines, options=("-z", codec, "-K:", "-H", "name=worth"))
    read = kcat.consume(topic_name, "-X", "check.crcs=true", form="%k:%s %h %o")
    assert read == [f"{line} name=worth {n}" for n, line in enumerate(lines)]


def _damaged() -> bytes:
    damaged = bytearray(BATCH)
    damaged[-1] ^= 1
    return bytes(damaged)


def _remade(batch: bytes = BATCH, **changes: int) -> bytes:
    header: BatchHeader = parse_header(batch)._replace(**changes)
    return encode_batch(header, batch[61:])


def _three(codec: Codec) -> bytes:
    return build_batch([NewRecord(b"k", b"v" * 20, 1000)] * 3, codec=codec)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        pytest.param(BATCH, 0, id="a sound batch"),
        pytest.param(_damaged(), 2, id="a wrong CRC"),
        pytest.param(BATCH[:40], 2, id="half a header"),
        pytest.param(BATCH + BATCH, 87, id="two batches"),
        pytest.param(_remade(attributes=CONTROL_BIT), 87, id="a control batch"),
        pytest.param(_remade(record_count=2), 87, id="a count that does not fit the last delta"),
        pytest.param(_remade(record_count=9, last_offset_delta=8), 87, id="more records than bytes"),
        *(
            pytest.param(_remade(_three(codec), record_count=n, last_offset_delta=n - 1), 87, id=f"3 are {n}, {codec}")
            for codec in Codec
            for n in (2, 4)
        ),
        pytest.param(_remade(record_count=0, last_offset_delta=-1), 87, id="no record"),
        pytest.param(_remade(attributes=7), 76, id="an unknown codec"),
        pytest.param(b"", 2, id="nothing"),
    ],
)
def test_row_07_a_batch_that_later_readers_could_not_take_is_refused(
    bootstrap: str, new_topic: Callable[..., str], records: bytes, code: int
) -> None:
    topic = new_topic()
    answer = produced(bootstrap, topic, records)
    assert answer.error_code == code
    assert answer.base_offset == (0 if code == 0 else -1)
    assert high_watermark(bootstrap, topic) == (1 if code == 0 else 0)


@pytest.mark.parametrize(("version", "code"), [(3, 76), (6, 76), (7, 0), (12, 0)])
def test_row_07_zstd_needs_produce_7(bootstrap: str, new_topic: Callable[..., str], version: int, code: int) -> None:
    batch = build_batch([NewRecord(b"k", b"v", 1000)], codec=Codec.ZSTD)
    assert produced(bootstrap, new_topic(), batch, version).error_code == code


def test_row_08_log_append_time_is_stamped_with_a_right_crc_and_returned(
    bootstrap: str, kcat: Kcat, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    answer = produced(bootstrap, topic, BATCH)
    assert answer.error_code == 0
    stamped = int(answer.log_append_time.timestamp() * 1000)
    assert before <= stamped <= int(time.time() * 1000)
    assert kcat.consume(topic, "-X", "check.crcs=true", form="%T %o") == [f"{stamped} 0"]


def test_row_08_offsets_are_set_without_breaking_the_crc(kcat: Kcat, topic_name: str) -> None:
    kcat.produce(topic_name, "a", "b")
    kcat.produce(topic_name, "c")
    assert kcat.consume(topic_name, "-X", "check.crcs=true", form="%o %s") == ["0 a", "1 b", "2 c"]


def test_row_16_kcat_with_idempotence(kcat: Kcat, topic_name: str) -> None:
    kcat.produce(topic_name, *"abc", options=("-X", "enable.idempotence=true"))
    assert kcat.consume(topic_name) == ["a", "b", "c"]


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Lab, DroppingProxy]]:
    """A cluster that advertises a proxy: all traffic of clients that start there goes through it."""
    proxy = DroppingProxy()
    with Lab(data=tmp_path / "data", advertise=proxy.address, trace_ratio=0) as lab:
        proxy.target = lab.bootstrap
        try:
            yield lab, proxy
        finally:
            proxy.close()


def idempotent_batch(sequence: int, count: int = 1, producer_id: int = 7, epoch: int = 0) -> bytes:
    records = [NewRecord(b"k", b"%d" % (sequence + n), 1000) for n in range(count)]
    batch = build_batch(records)
    header = parse_header(batch)._replace(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return encode_batch(header, batch[61:])


def test_row_17_a_duplicate_is_a_success_with_the_first_offset_a_gap_is_45_an_old_epoch_is_47(
    tmp_path: Path,
) -> None:
    with Lab(data=tmp_path / "data", trace_ratio=0) as lab:
        producer = Producer({"bootstrap.servers": lab.bootstrap})
        producer.produce("t", b"first")  # makes the topic
        assert producer.flush(20) == 0
        for sequence in range(6):
            assert produced(lab.bootstrap, "t", idempotent_batch(sequence)).base_offset == sequence + 1
        answers = [produced(lab.bootstrap, "t", idempotent_batch(sequence)) for sequence in range(1, 6)]
        assert [(one.error_code, one.base_offset) for one in answers] == [(0, n) for n in range(2, 7)]
        assert produced(lab.bootstrap, "t", idempotent_batch(9)).error_code == 45
        lab.nodes["broker-0"].kill().start()
        deadline = time.monotonic() + 20
        while (again := produced(lab.bootstrap, "t", idempotent_batch(5))).error_code in (6, 7):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert (again.error_code, again.base_offset) == (0, 6), "producer state survives kill -9"
        assert produced(lab.bootstrap, "t", idempotent_batch(0, epoch=1)).base_offset == 7
        assert produced(lab.bootstrap, "t", idempotent_batch(6)).error_code == 47
        assert high_watermark(lab.bootstrap, "t") == 8


def test_row_17_a_client_whose_answers_are_lost_leaves_no_duplicate(proxied: tuple[Lab, DroppingProxy]) -> None:
    _, proxy = proxied
    producer = Producer(
        {
            "bootstrap.servers": proxy.address,
            "enable.idempotence": True,
            "linger.ms": 0,
            "batch.num.messages": 1,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "message.timeout.ms": 40_000,
        }
    )
    acked: list[bytes] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acked.append(message.value() or b"")

    for n in range(60):
        if n % 10 == 5:
            assert producer.flush(30) == 0
            proxy.drop_answers(1)
        producer.produce("t", b"%d" % n, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert proxy.dropped == 6
    expected = [b"%d" % n for n in range(60)]
    assert sorted(acked, key=int) == expected
    assert [message.value() for message in read_all(proxy.address, "t", 60)] == expected
    assert high_watermark(proxy.address, "t") == 60


def test_row_19_acks_0_gets_no_answer_and_the_next_request_gets_its_own(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with RawClient(bootstrap) as client:
        for _ in range(3):
            client.send(produce_request(9, topic, BATCH, acks=NONE))
        sent = client.send(produce_request(9, topic, BATCH))
        correlation, _ = client.receive_bytes()
        assert correlation == sent, "the first answer on the wire is that of the first request that wants one"
    assert high_watermark(bootstrap, topic) == 4


def test_row_19_an_error_with_acks_0_closes_the_connection(bootstrap: str, topic_name: str) -> None:
    with RawClient(bootstrap) as client:
        client.send(produce_request(9, topic_name, BATCH, acks=NONE))
        assert client.is_closed()


def test_row_19_confluent_goes_from_acks_0_to_acks_1(bootstrap: str, topic_name: str) -> None:
    for acks in (0, 1):
        producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
        for n in range(100):
            producer.produce(topic_name, b"%d %d" % (acks, n))
        assert producer.flush(20) == 0
    expected = [b"%d %d" % (acks, n) for acks in (0, 1) for n in range(100)]
    assert [message.value() for message in read_all(bootstrap, topic_name, 200)] == expected


def test_row_20_answers_come_in_the_order_of_requests(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """A slow one first (a long poll), then fast ones: nothing overtakes it."""
    topic = new_topic()
    fetches = schema("fetch", 11, "request")
    partition = fetches.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    poll = fetches.FetchRequest(
        max_wait=datetime.timedelta(milliseconds=400),
        min_bytes=1_000_000,
        topics=(fetches.FetchTopic(topic=topic, partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    with RawClient(bootstrap) as client:
        sent = [client.send(poll)]
        sent += [client.send(produce_request(9, topic, BATCH)) for _ in range(4)]
        sent.append(client.send_bytes(18, 0, b""))
        assert [client.receive_bytes()[0] for _ in sent] == sent


def test_row_20_five_requests_in_flight_keep_their_order(bootstrap: str, topic_name: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "max.in.flight.requests.per.connection": 5,
            "linger.ms": 0,
            "batch.num.messages": 3,
        }
    )
    for n in range(600):
        producer.produce(topic_name, b"%d" % n)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert [message.value() for message in read_all(bootstrap, topic_name, 600)] == [b"%d" % n for n in range(600)]


def test_row_25_a_batch_over_max_message_bytes_is_error_10(bootstrap: str, kcat: Kcat, topic_name: str) -> None:
    big = b"x" * 2_000_000
    said = kcat.run(
        "-P", "-t", topic_name, "-X", "message.max.bytes=3000000", "-D", "%", stdin=big, fails=True
    ).stderr.decode()
    assert "Message size too large" in said
    assert high_watermark(bootstrap, topic_name) == 0


def test_row_25_a_topics_own_limit_counts(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": "100"})
    assert produced(bootstrap, topic, BATCH).error_code == 0
    assert produced(bootstrap, topic, build_batch([NewRecord(b"k", b"v" * 100, 1)])).error_code == 10


@pytest.mark.parametrize("length", [100 * 1024 * 1024 + 1, 2**31 - 1, -1, 0])
def test_row_25_a_frame_over_the_limit_closes_the_connection(bootstrap: str, length: int) -> None:
    with RawClient(bootstrap) as client:
        client.socket.sendall(struct.pack(">i", length))
        assert client.is_closed()
