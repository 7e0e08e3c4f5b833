"""Requests of every API and version: what kio writes is read back equal, and no bytes give anything but our errors."""

import contextlib
import dataclasses
import datetime
import io
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.produce.v9 import request as produce
from kio.serial import entity_writer

from nodes.kafka import (
    APIS,
    Api,
    KafkaWireError,
    MalformedRequestError,
    UnknownApiError,
    UnsupportedVersionError,
    decode_request,
    entities,
)
from nodes.kafka.cursor import MAX_ITEMS

VERSIONS = [(api, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)]
# For each of about a hundred versions.
EXAMPLES = 5
IN_KIO = [(api, version) for api, version in VERSIONS if version >= api.lowest_in_kio]


def name_of(value: object) -> str:
    return value.schema if isinstance(value, Api) else str(value)


def framed(api_key: int, version: int, body: bytes, *, flexible: bool, client_id: bytes = b"\0\1c") -> memoryview:
    tags = b"\0" if flexible else b""
    return memoryview(struct.pack(">hhi", api_key, version, 77) + client_id + tags + body)


def plain(value: Any) -> Any:
    """The entity with its record bytes as bytes, so that two can be compared."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


@pytest.mark.parametrize(("api", "version"), IN_KIO, ids=name_of)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_what_kio_writes_is_read_back_equal(api: Api, version: int, data: st.DataObject) -> None:
    kind = entities.request_type(api, version)
    entity = data.draw(st.from_type(kind))
    buffer = io.BytesIO()
    entity_writer(kind)(buffer, entity)
    frame = framed(api.key, version, buffer.getvalue(), flexible=kind.__flexible__)
    request = decode_request(frame)
    assert plain(request.body) == plain(entity)
    assert (request.api, request.version, request.correlation_id, request.client_id) == (api, version, 77, "c")


# Bytes that look like lengths and counts find more than evenly spread ones.
LIKELY = st.sampled_from([0, 0, 0, 1, 2, 3, 0x7F, 0x80, 0xFF])
BODIES = st.lists(st.one_of(LIKELY, LIKELY, st.integers(0, 255)), max_size=120).map(bytes)


@given(st.sampled_from(VERSIONS), st.sampled_from([b"\xff\xff", b"\0\0", b"\0\1x"]), BODIES)
def test_any_body_gives_a_request_or_an_error_of_this_package(
    which: tuple[Api, int], client_id: bytes, body: bytes
) -> None:
    api, version = which
    frame = struct.pack(">hhi", api.key, version, 1) + client_id + body
    try:
        request = decode_request(memoryview(frame))
    except KafkaWireError:
        return
    assert request.api is api


@given(st.binary(max_size=60))
def test_any_frame_gives_a_request_or_an_error_of_this_package(frame: bytes) -> None:
    with contextlib.suppress(KafkaWireError):
        assert decode_request(memoryview(frame)).size == len(frame)


METADATA, DELETE_TOPICS, FIND_COORDINATOR = 3, 20, 10


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (METADATA, 1, b"\x7f\xff\xff\xff"),
        (METADATA, 1, b"\xff\xff\xff\xfe"),
        (METADATA, 9, b"\0\xff\xff\xff\xff\x07"),
        (METADATA, 9, b"\0\xff\xff\xff\xff\xff\xff"),
        (DELETE_TOPICS, 1, b"\x7f\xff\xff\xff"),
        (DELETE_TOPICS, 0, b"\x7f\xff\xff\xff"),
        (FIND_COORDINATOR, 4, b"\0\0\xff\xff\xff\xff\x07"),
    ],
)
def test_an_array_that_announces_more_than_there_is_is_refused(api_key: int, version: int, body: bytes) -> None:
    """kio's own reader ends the process on some of these."""
    with pytest.raises(MalformedRequestError):
        decode_request(memoryview(struct.pack(">hhi", api_key, version, 1) + b"\xff\xff" + body))


def test_more_items_than_any_client_sends_are_refused() -> None:
    names = b"\0\0" * (MAX_ITEMS + 1)
    frame = struct.pack(">hhi", 3, 1, 1) + b"\xff\xff" + struct.pack(">i", MAX_ITEMS + 1) + names
    with pytest.raises(MalformedRequestError, match="items"):
        decode_request(memoryview(frame))


def test_unknown_apis_and_versions_are_named() -> None:
    with pytest.raises(UnknownApiError, match="API 999"):
        decode_request(memoryview(struct.pack(">hhi", 999, 0, 1) + b"\xff\xff"))
    with pytest.raises(UnsupportedVersionError, match="0 to 12") as caught:
        decode_request(memoryview(struct.pack(">hhi", 0, 13, 5) + b"\xff\xff"))
    assert (caught.value.api_key, caught.value.correlation_id) == (0, 5)


def test_record_bytes_are_not_copied() -> None:
    records = b"records" * 1000
    partition = produce.PartitionProduceData(index=0, records=records)
    topic = produce.TopicProduceData(name="t", partition_data=(partition,))
    entity = produce.ProduceRequest(acks=1, timeout=datetime.timedelta(seconds=1), topic_data=(topic,))
    body = io.BytesIO()
    entity_writer(produce.ProduceRequest)(body, entity)
    frame = framed(0, 9, body.getvalue(), flexible=True)
    read = decode_request(frame).body.topic_data[0].partition_data[0].records
    assert isinstance(read, memoryview)
    assert read.obj is frame.obj
    assert read == records
