"""Rows 1 to 6 and 18 of KAFKA-PITFALLS.md: which versions clients find, and what old ones are given."""

import re
import struct
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kcat_program import Kcat
from raw_client import RawClient

from wal.batch import HEADER_SIZE, parse_header
from wal.message_set import from_message_set

API_VERSIONS, PRODUCE, FETCH, TRANSACTION_APIS = 18, 0, 1, range(24, 29)


def ranges(body: bytes) -> dict[int, tuple[int, int]]:
    """The API ranges of an ApiVersions v0 answer, which must end where its list ends."""
    (count,) = struct.unpack_from(">i", body, 2)
    rows = [struct.unpack_from(">hhh", body, 6 + 6 * n) for n in range(count)]
    assert len(body) == 6 + 6 * count
    return {key: (low, high) for key, low, high in rows}


def test_row_01_kafka_python_is_told_our_versions_and_does_not_loop(bootstrap: str, topic_name: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    try:
        assert producer.send(topic_name, b"one").get(20).offset == 0
    finally:
        producer.close()
    consumer = KafkaConsumer(topic_name, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    try:
        assert next(consumer).value == b"one"
    finally:
        consumer.close()


def test_row_01_a_version_above_ours_gets_error_35_in_a_v0_body_and_the_connection_stays(bootstrap: str) -> None:
    with RawClient(bootstrap) as client:
        sent = client.send_bytes(API_VERSIONS, 99, b"\x00\x01\x02", flexible=True)
        correlation, body = client.receive_bytes()
        assert correlation == sent
        assert struct.unpack_from(">h", body) == (35,)
        assert ranges(body)[API_VERSIONS] == (0, 4)
        client.send_bytes(API_VERSIONS, 0, b"")
        assert struct.unpack_from(">h", client.receive_bytes()[1]) == (0,)


def test_row_02_api_versions_answers_with_header_v0_in_every_version(bootstrap: str, kcat: Kcat) -> None:
    said = kcat.run("-L", "-d", "protocol").stderr.decode()
    assert "Received ApiVersionResponse (v3" in said
    with RawClient(bootstrap) as client:
        for version, body in ((0, b""), (1, b""), (2, b""), (3, b"\x02a\x02b\x00"), (4, b"\x02a\x02b\x00")):
            client.send_bytes(API_VERSIONS, version, body, flexible=version >= 3)
            answer = client.receive_bytes()[1]
            assert struct.unpack_from(">h", answer) == (0,), (
                f"no error code right behind the correlation id, v{version}"
            )


def test_row_02_other_flexible_answers_have_header_v1(bootstrap: str) -> None:
    with RawClient(bootstrap) as client:
        client.send_bytes(60, 0, b"\x00\x00", flexible=True)  # DescribeCluster: nothing asked, no tags
        answer = client.receive_bytes()[1]
        assert answer[0] == 0, "the header's tagged fields"
        assert struct.unpack_from(">ih", answer, 1) == (0, 0), "throttle time and error code"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_row_03_old_librdkafka_does_not_stop_compressing(
    kcat: Kcat, topic_name: str, bootstrap: str, codec: str
) -> None:
    said = kcat.produce(topic_name, "x" * 5000, options=("-z", codec, "-d", "feature,msg"))
    assert "not compressing" not in said
    assert kcat.consume(topic_name) == ["x" * 5000]
    with RawClient(bootstrap) as client:
        client.send_bytes(API_VERSIONS, 0, b"")
        assert ranges(client.receive_bytes()[1])[PRODUCE][0] == 0


def test_row_04_librdkafka_enables_every_feature(kcat: Kcat) -> None:
    said = kcat.run("-L", "-d", "feature").stderr.decode()
    enabled = set(re.findall(r"Enabling feature (\w+)", said))
    assert enabled >= {"MsgVer1", "MsgVer2", "LZ4", "ZSTD", "OffsetTime", "IdempotentProducer", "ApiVersion"}, said


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_row_05_a_client_without_negotiation_writes_and_reads_message_sets(
    kcat: Kcat, topic_name: str, codec: str
) -> None:
    old = ("-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0")
    kcat.produce(topic_name, "a:1", "b:2", "c:3", options=(*old, "-K:", "-z", codec))
    expected = ["0 a 1", "1 b 2", "2 c 3"]
    assert kcat.consume(topic_name, *old, form="%o %k %s") == expected
    assert kcat.consume(topic_name, form="%o %k %s") == expected


def test_row_05_records_of_a_new_client_reach_an_old_one(kcat: Kcat, topic_name: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4"):
        kcat.produce(topic_name, codec, options=("-z", codec, "-H", "h=1"))
    old = ("-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0")
    assert kcat.consume(topic_name, *old) == ["none", "gzip", "snappy", "lz4"]


def fetch_body(version: int, topic: str) -> bytes:
    """A Fetch request of version 0 to 6, from offset 0."""
    name = struct.pack(">h", len(topic)) + topic.encode()
    head = struct.pack(">iii", -1, 100, 1)
    if version >= 3:
        head += struct.pack(">i", 1 << 20)
    if version >= 4:
        head += b"\x00"
    log_start = struct.pack(">q", -1) if version >= 5 else b""
    partition = struct.pack(">iq", 0, 0) + log_start + struct.pack(">i", 1 << 20)
    return head + struct.pack(">i", 1) + name + struct.pack(">i", 1) + partition


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_row_06_fetch_gives_the_magic_of_its_version(
    bootstrap: str, kcat: Kcat, topic_name: str, version: int, magic: int
) -> None:
    kcat.produce(topic_name, "k:v", options=("-K:",))
    with RawClient(bootstrap) as client:
        client.send_bytes(FETCH, version, fetch_body(version, topic_name))
        body = client.receive_bytes()[1]
    start = body.index(topic_name.encode()) + len(topic_name)
    at = start + 4 + 4 + 2 + 8  # partition count, partition, error, high watermark
    at += (8 if version >= 4 else 0) + (8 if version >= 5 else 0) + (4 if version >= 4 else 0)
    (size,) = struct.unpack_from(">i", body, at)
    records = body[at + 4 : at + 4 + size]
    assert records[16] == magic
    if magic == 2:
        assert parse_header(records).record_count == 1
        assert len(records) > HEADER_SIZE
    else:
        (record,) = from_message_set(records)
        assert (record.offset, record.key, record.value) == (0, b"k", b"v")


def test_row_18_transactions_are_not_advertised_and_a_transactional_client_is_told_at_once(
    bootstrap: str, kcat: Kcat, topic_name: str
) -> None:
    with RawClient(bootstrap) as client:
        client.send_bytes(API_VERSIONS, 0, b"")
        assert not set(ranges(client.receive_bytes()[1])) & set(TRANSACTION_APIS)
    said = kcat.run("-P", "-t", topic_name, "-X", "transactional.id=x", stdin=b"1\n", fails=True, timeout=20).stderr
    assert b"are not served" in said, "the reason, at once, and not a timeout"


def test_row_05_lz4_of_an_old_client(kcat: Kcat, topic_name: str, new_topic: Callable[..., str]) -> None:
    """LZ4 came with 0.8.2, in a framing with a wrong checksum that has to be mended."""
    old = ("-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0")
    kcat.produce(topic_name, "x" * 1000, options=(*old, "-z", "lz4"))
    assert kcat.consume(topic_name) == ["x" * 1000]
    assert kcat.consume(topic_name, *old) == ["x" * 1000]
