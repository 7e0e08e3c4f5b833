"""Fetch, offsets and deletion of records: limits, long polls, old formats."""

import asyncio
import time
from pathlib import Path

import pytest
from broker_process import BATCH, Caller, broker, local_broker, run

from nodes import ops
from nodes.mesh import OpCode
from wal.compression import Codec
from wal.message_set import from_message_set
from wal.records import NewRecord, build_batch


async def fetch_many(caller: Caller, items: list[ops.FetchPartition], max_bytes: int) -> list[int]:
    """The bytes that each partition got."""
    answer = await caller.ask(OpCode.FETCH, ops.Fetch(12, 0, 1, max_bytes, items), ops.FetchAnswer)
    assert all(result.error == 0 for result in answer.results)
    return [len(result.records) for result in answer.results]


def test_the_first_batch_comes_at_any_size_and_later_ones_only_if_they_fit(tmp_path: Path) -> None:
    size = len(BATCH)

    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t", 3)
            for partition in (1, 1, 1, 2):
                await caller.produce("t", partition=partition)
            items = [ops.FetchPartition("t", ops.NO_ID, number, 0, 1 << 20) for number in range(3)]
            assert await fetch_many(caller, items, 1) == [0, size, 0]
            assert await fetch_many(caller, items, 2 * size) == [0, 2 * size, 0]
            assert await fetch_many(caller, items, 4 * size) == [0, 3 * size, size]
            small = [ops.FetchPartition("t", ops.NO_ID, number, 0, 1) for number in range(3)]
            assert await fetch_many(caller, small, 1 << 20) == [0, size, 0]
            assert await fetch_many(caller, items, -5) == [0, size, 0]

    run(body())


def test_a_long_poll_waits_for_min_bytes_and_no_longer_than_max_wait(tmp_path: Path) -> None:
    size = len(BATCH)

    async def body() -> None:
        async with local_broker(tmp_path) as (caller, served):
            await caller.create("t")
            poll = asyncio.ensure_future(caller.fetch("t", wait_ms=30_000, min_bytes=3 * size))
            for count in range(3):
                await asyncio.sleep(0.02)
                assert not poll.done(), f"{count} batches are not enough"
                assert len(served.waits) == 1
                await caller.produce("t")
            assert len((await poll).records) == 3 * size
            assert len(served.waits) == 0
            began = time.monotonic()
            late = await caller.fetch("t", 3, wait_ms=200)
            assert (late.error, len(late.records)) == (0, 0)
            assert time.monotonic() - began >= 0.19
            assert len(served.waits) == 0

    run(body())


def test_a_long_poll_on_a_topic_that_is_deleted_ends(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            poll = asyncio.ensure_future(caller.fetch("t", wait_ms=30_000))
            await asyncio.sleep(0.05)
            gone = ops.DeleteTopics([ops.TopicRef("t", ops.NO_ID)])
            assert (await caller.ask(OpCode.DELETE_TOPIC, gone, ops.TopicsAnswer)).results[0].error == 0
            assert (await poll).error == 3

    run(body())


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_old_clients_get_message_sets_and_can_write_them(tmp_path: Path, version: int, magic: int) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            await caller.produce("t", build_batch([NewRecord(b"k", b"v%d" % n, 1000 + n) for n in range(3)]))
            found = await caller.fetch("t", version=version)
            assert found.records[16] == magic
            assert isinstance(found.records, memoryview)
            old = bytes(found.records)
            assert [record.value for record in from_message_set(old)] == [b"v0", b"v1", b"v2"]
            stored = await caller.produce("t", old, version=2)
            assert (stored.error, stored.base_offset) == (0, 3)
            assert (await caller.fetch("t")).high_watermark == 6

    run(body())


def test_zstd_for_a_client_that_cannot_read_it_is_error_76(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            await caller.produce("t")
            await caller.produce("t", build_batch([NewRecord(b"k", b"v", 1)], codec=Codec.ZSTD))
            for version in (1, 4, 9):
                assert (await caller.fetch("t", 0, version=version)).error == 0
                assert (await caller.fetch("t", 1, version=version)).error == 76
            assert (await caller.fetch("t", 1, version=10)).error == 0

    run(body())


def test_delete_records_moves_the_start_for_good(tmp_path: Path) -> None:
    async def delete(caller: Caller, offset: int) -> ops.DeleteRecordsResult:
        item = ops.DeleteRecords([ops.DeleteRecordsPartition("t", 0, offset)])
        return (await caller.ask(OpCode.DELETE_RECORDS, item, ops.DeleteRecordsAnswer)).results[0]

    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            for _ in range(5):
                await caller.produce("t")
            assert await delete(caller, 3) == ops.DeleteRecordsResult(0, 3)
            assert await delete(caller, 1) == ops.DeleteRecordsResult(0, 3), "what is gone stays gone"
            assert (await delete(caller, 6)).error == 1
            assert (await delete(caller, -2)).error == 1
            assert (await caller.fetch("t", 2)).error == 1
            caller.process.process.kill()
        async with broker(tmp_path) as caller:
            assert (await caller.fetch("t", 3)).log_start_offset == 3
            assert await delete(caller, -1) == ops.DeleteRecordsResult(0, 5)

    run(body())


def test_a_leader_epoch_that_never_was_is_error_75(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            item = ops.FetchPartition("t", ops.NO_ID, 0, 0, 1000, leader_epoch=1)
            answer = await caller.ask(OpCode.FETCH, ops.Fetch(12, 0, 1, 1000, [item]), ops.FetchAnswer)
            assert answer.results[0].error == 75
            ends = [ops.EpochPartition("t", 0, 0, 0), ops.EpochPartition("t", 0, 5), ops.EpochPartition("t", 0, 0, 9)]
            found = await caller.ask(OpCode.EPOCH_ENDS, ops.EpochEnds(ends), ops.EpochAnswer)
            assert found.results == [ops.EpochResult(0, 0, 0), ops.EpochResult(), ops.EpochResult(75)]

    run(body())


def test_retention_removes_old_records_while_the_broker_runs(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path, "--retention-interval", "0.1", "--segment-bytes", "4096") as caller:
            await caller.create("short", **{"retention.ms": "1"})
            await caller.create("small", **{"retention.bytes": "500"})
            for _ in range(20):
                await caller.produce("short")
                await caller.produce("small", build_batch([NewRecord(b"k", b"v" * 200, int(time.time() * 1000))]))
            deadline = time.monotonic() + 20
            while (await caller.fetch("short", 20)).log_start_offset < 20:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
            start = (await caller.fetch("small", 20)).log_start_offset
            assert 0 < start < 20

    run(body())


def test_status_counts_what_went_through(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t", 3)
            await caller.produce("t")
            await caller.fetch("t")
            status = await caller.ask(OpCode.STATUS, ops.Op(), ops.BrokerStatus)
            assert (status.topics, status.partitions, status.produced_records) == (1, 3, 1)
            assert status.produced_bytes == status.fetched_bytes == len(BATCH)
            assert status.log_bytes > len(BATCH)

    run(body())
