"""Whatever bytes a producer sends, the broker stores a batch that readers can take, or names a Kafka error."""

from pathlib import Path
from uuid import UUID

import pytest
from broker_process import BATCH, broker, run
from hypothesis import given
from hypothesis import strategies as st

from nodes import ops
from nodes.broker.errors import Code, RefusedError
from nodes.broker.produced import check_produced
from nodes.broker.registry import Topic
from nodes.mesh import OpCode, RemoteError
from wal.batch import check_batch, encode_batch, parse_header
from wal.compression import Codec
from wal.control import TopicRecord
from wal.message_set import downconvert
from wal.records import NewRecord, build_batch

RECORDS = [NewRecord(b"k%d" % n, b"v" * n, 1000 + n, headers=(("h", b"1"),)) for n in range(5)]
BATCHES = [build_batch(RECORDS, codec=codec) for codec in Codec]
SETS = [downconvert(batch, magic) for batch in BATCHES[:-1] for magic in (0, 1)]
CODES = {2, 10, 32, 76, 87}


def topic(*, log_append_time: bool) -> Topic:
    kind = "LogAppendTime" if log_append_time else "CreateTime"
    record = TopicRecord(
        topic_id=UUID(int=1),
        org_id=1,
        name="t",
        ulid="",
        slug="t",
        rrl="",
        leaders=[0],
        configs={"message.timestamp.type": kind},
    )
    return Topic(record, 1_000_000)


def taken(data: bytes, version: int, *, log_append_time: bool) -> bytes | int:
    """The batch as it would be stored, or the error's number."""
    try:
        checked = check_produced(
            topic(log_append_time=log_append_time), ops.ProducePartition("t", b"", 0, data), version, bytes(16)
        )
    except RefusedError as error:
        return int(error.code)
    return bytes(checked.new.batch)


versions = st.integers(0, 12)


@given(st.binary(max_size=300), versions, st.booleans())
def test_any_bytes_are_refused_by_name(data: bytes, version: int, log_append_time: bool) -> None:
    result = taken(data, version, log_append_time=log_append_time)
    assert result in CODES


@given(st.sampled_from(BATCHES + SETS), versions, st.booleans(), st.data())
def test_a_batch_with_flipped_bytes_is_refused_or_sound(
    sound: bytes, version: int, log_append_time: bool, data: st.DataObject
) -> None:
    changed = bytearray(sound)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    del changed[data.draw(st.integers(1, len(changed))) :]
    result = taken(bytes(changed), version, log_append_time=log_append_time)
    if isinstance(result, bytes):
        check_batch(result)
    else:
        assert result in CODES


@pytest.mark.parametrize("data", BATCHES, ids=[codec.name for codec in Codec])
def test_sound_batches_are_stored_as_they_came(data: bytes) -> None:
    assert taken(data, 9, log_append_time=False) == data
    stamped = taken(data, 9, log_append_time=True)
    assert isinstance(stamped, bytes)
    assert check_batch(stamped).log_append_time
    assert stamped[61:] == data[61:], "the records are not touched"


@pytest.mark.parametrize("data", SETS)
def test_message_sets_are_stored_as_one_batch(data: bytes) -> None:
    stored = taken(data, 2, log_append_time=False)
    assert isinstance(stored, bytes)
    assert check_batch(stored).record_count == len(RECORDS)
    assert taken(data, 3, log_append_time=False) == 87, "from version 3 on only batches are taken"


def test_log_append_time_is_the_brokers_to_set() -> None:
    header = parse_header(BATCH)
    claimed = encode_batch(header._replace(attributes=header.attributes | 8), BATCH[61:])
    assert taken(claimed, 9, log_append_time=False) == 32
    assert isinstance(taken(claimed, 9, log_append_time=True), bytes)


def test_records_that_are_garbage_behind_a_right_crc_harm_only_those_who_decode_them(tmp_path: Path) -> None:
    header = parse_header(BATCH)
    without_lengths = encode_batch(header, b"\xff" * 40)
    garbage = encode_batch(header, b"\x28" + b"\xff" * 20)  # one record of 20 bytes, and nothing in it is right

    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            assert (await caller.produce("t", without_lengths)).error == Code.INVALID_RECORD
            assert (await caller.produce("t", garbage)).error == 0, "records are counted on the way in, not decoded"
            assert (await caller.fetch("t", version=12)).error == 0
            assert (await caller.fetch("t", version=1)).error == 2
            item = ops.ListOffsetsPartition("t", ops.NO_ID, 0, 5)
            found = await caller.ask(OpCode.LIST_OFFSETS, ops.ListOffsets([item]), ops.ListOffsetsAnswer)
            assert found.results[0].error == 2
            assert (await caller.produce("t")).base_offset == 1, "the broker goes on"

    run(body())


def test_payloads_that_are_no_ops_are_answered_with_an_error(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            for op in set(OpCode) - {OpCode.STATUS}:
                for payload in (b"", b"\xff" * 50):
                    with pytest.raises(RemoteError):
                        await caller.mesh.kafka_op_call(caller.node_id, op, 1, payload, timeout=10)
            assert (await caller.produce("t")).error == 0

    run(body())
