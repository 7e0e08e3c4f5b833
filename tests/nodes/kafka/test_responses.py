"""Responses of every API and version: kio's own reader reads back what was written, header and length included."""

import datetime
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from nodes.kafka import APIS, Api, ApiKey, ErrorCode, Request, encode_response, encode_versions_answer, entities
from nodes.kafka.codec import JOIN_BELOW, Wire

# For each of about a hundred versions.
EXAMPLES = 5
IN_KIO = [
    (api, version) for api in APIS.values() for version in range(api.lowest_in_kio, api.highest + 1)
]  # fmt: skip


def name_of(value: object) -> str:
    return value.schema if isinstance(value, Api) else str(value)


@pytest.mark.parametrize(("api", "version"), IN_KIO, ids=name_of)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_what_is_written_kio_reads_back_equal(api: Api, version: int, data: st.DataObject) -> None:
    kind = entities.response_type(api, version)
    entity = data.draw(st.from_type(kind))
    answer = b"".join(encode_response(Request(Wire(api, version), 99, None, None, 0), entity))
    length, correlation_id = struct.unpack_from(">ii", answer)
    assert (length, correlation_id) == (len(answer) - 4, 99)
    flexible_header = kind.__flexible__ and api.key is not ApiKey.API_VERSIONS
    start = 9 if flexible_header else 8
    assert not flexible_header or answer[8] == 0
    read, size = entity_reader(kind)(answer, start)
    assert read == entity
    assert start + size == len(answer)


def test_large_records_are_passed_on_as_they_are() -> None:
    records = memoryview(bytes(JOIN_BELOW))
    api = APIS[ApiKey.FETCH]
    build = entities.Builders(api, 11)
    partition = build.PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        aborted_transactions=None,
        records=records,
    )
    topic = build.FetchableTopicResponse(topic="t", topic_id=None, partitions=(partition,))
    response = build.FetchResponse(
        throttle_time=datetime.timedelta(), error_code=ErrorCode.none, session_id=0, responses=(topic,)
    )
    parts = encode_response(Request(Wire(api, 11), 1, None, None, 0), response)
    assert any(part is records for part in parts)
    assert len(parts) == 2


def test_the_answer_to_a_version_above_ours_is_a_version_0_body_with_our_ranges() -> None:
    answer = encode_versions_answer(7, 35)
    kind = entities.response_type(APIS[ApiKey.API_VERSIONS], 0)
    read, size = entity_reader(kind)(answer, 8)
    assert struct.unpack_from(">ii", answer) == (len(answer) - 4, 7)
    assert 8 + size == len(answer)
    assert read.error_code == 35
    assert {item.api_key: (item.min_version, item.max_version) for item in read.api_keys} == {
        key: (api.lowest, api.highest) for key, api in APIS.items()
    }
