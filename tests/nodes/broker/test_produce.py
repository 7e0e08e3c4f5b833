"""Produce: order, acks, back-pressure, idempotent producers, and the trace id in the log."""

import asyncio
import time
from pathlib import Path

from broker_process import BATCH, broker, local_broker, run

from nodes import ops
from nodes.broker.settings import BrokerSettings
from nodes.mesh import OpCode
from wal.batch import encode_batch, parse_header
from wal.disk import Disk
from wal.entry import Kind
from wal.records import NewRecord, build_batch
from wal.settings import WalSettings


class SlowDisk(Disk):
    def sync(self, fd: int) -> None:
        time.sleep(0.05)
        super().sync(fd)


def test_a_lanes_calls_are_stored_in_order_also_while_the_log_has_no_room(tmp_path: Path) -> None:
    settings = BrokerSettings(wal=WalSettings(max_unsynced_bytes=500))
    batches = [build_batch([NewRecord(b"k", b"%d" % n, 1000)]) for n in range(60)]

    async def body() -> None:
        async with local_broker(tmp_path, settings, SlowDisk()) as (caller, served):
            await caller.create("t")
            calls = [asyncio.ensure_future(caller.produce("t", batch, lane=1)) for batch in batches]
            while served.wal.has_room:
                await asyncio.sleep(0.001)
            assert (await caller.fetch("t")).error == 0, "others are served meanwhile"
            assert not all(call.done() for call in calls)
            results = await asyncio.gather(*calls)
            assert [result.base_offset for result in results] == list(range(60))
            found = await caller.fetch("t")
            assert isinstance(found.records, memoryview)
            place = -1
            for n in range(60):  # the values stand in the log in the order of the calls
                place = bytes(found.records).index(b"\x02k" + bytes([2 * len(b"%d" % n)]) + b"%d" % n, place + 1)

    run(body())


def test_acks_0_is_readable_soon_and_acks_1_at_once(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            assert (await caller.produce("t", acks=1)).base_offset == 0
            assert (await caller.fetch("t")).high_watermark == 1
            waiting = asyncio.ensure_future(caller.fetch("t", 1, wait_ms=20_000))
            await asyncio.sleep(0.05)
            began = time.monotonic()
            assert (await caller.produce("t", acks=0)).error == 0
            found = await waiting
            assert (found.high_watermark, len(found.records)) == (2, len(BATCH))
            assert time.monotonic() - began < 10, "woken by the write, not by the end of the wait"

    run(body())


def test_other_acks_are_error_21(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            assert (await caller.produce("t", acks=2)).error == 21
            assert await caller.end_offset("t") == 0

    run(body())


def test_one_bad_partition_does_not_harm_the_others(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path, "--brokers", "2") as caller:
            topic = await caller.create("t", 4)
            ours = [partition for partition, leader in enumerate(topic.leaders) if leader == 0]
            theirs = next(partition for partition, leader in enumerate(topic.leaders) if leader == 1)
            items = [
                ops.ProducePartition("t", ops.NO_ID, ours[0], BATCH),
                ops.ProducePartition("t", ops.NO_ID, theirs, BATCH),
                ops.ProducePartition("", topic.topic_id, ours[1], BATCH),
                ops.ProducePartition("t", ops.NO_ID, 99, BATCH),
                ops.ProducePartition("nothing", ops.NO_ID, 0, BATCH),
                ops.ProducePartition("", b"\x07" * 16, 0, BATCH),
                ops.ProducePartition("t", ops.NO_ID, ours[0], BATCH),
            ]
            answer = await caller.ask(OpCode.PRODUCE, ops.Produce(12, -1, 1000, items), ops.ProduceAnswer)
            assert [result.error for result in answer.results] == [0, 6, 0, 3, 3, 100, 42]
            assert await caller.end_offset("t", ours[0]) == 1

    run(body())


def test_another_organisation_sees_nothing_of_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            topic = await caller.create("t")
            assert (await caller.produce("t", org=2)).error == 3
            found = await caller.ask(OpCode.METADATA, ops.Metadata(None, None, False), ops.MetadataAnswer, org=2)
            assert found.topics == []
            by_id = ops.Metadata(None, [topic.topic_id], False)
            assert (await caller.ask(OpCode.METADATA, by_id, ops.MetadataAnswer, org=2)).topics[0].error == 100
            mine = await caller.ask(OpCode.CREATE_TOPICS, _wish("t"), ops.TopicsAnswer, org=2)
            assert mine.results[0].error == 0
            assert mine.results[0].topic is not None
            assert mine.results[0].topic.rrl == "2/lab/rafka/topics/t"

    run(body())


def _wish(name: str) -> ops.CreateTopics:
    return ops.CreateTopics([ops.NewTopic(name, 1, 1, [], {})], False)


def test_the_trace_id_of_a_call_is_in_its_log_entry(tmp_path: Path) -> None:
    trace_id = bytes(range(16))
    header = b"\x00" + trace_id + b"\x01" * 8 + b"\x00" + bytes(6)

    async def body() -> None:
        async with local_broker(tmp_path) as (caller, served):
            await caller.create("t")
            assert (await caller.produce("t", trace=header)).error == 0
            stored = [entry.header for entry in served.wal.segments.entries() if entry.header.kind == Kind.DATA]
            assert [entry.trace_id for entry in stored] == [trace_id]

    run(body())


def test_producer_ids_are_never_given_twice_not_even_after_kill_9(tmp_path: Path) -> None:
    seen: set[int] = set()

    async def body() -> None:
        for _ in range(3):
            async with broker(tmp_path) as caller:
                new = ops.InitProducerId(-1, -1)
                for _ in range(20):
                    answer = await caller.ask(OpCode.INIT_PRODUCER_ID, new, ops.InitProducerIdAnswer)
                    assert (answer.error, answer.producer_epoch) == (0, 0)
                    assert answer.producer_id not in seen
                    seen.add(answer.producer_id)
                caller.process.process.kill()

    run(body())


def test_ids_of_two_brokers_never_meet_and_an_epoch_is_raised(tmp_path: Path) -> None:
    new = ops.InitProducerId(-1, -1)

    async def body() -> None:
        ids = []
        for index in (0, 1):
            async with broker(tmp_path / str(index), "--brokers", "2", "--index", str(index)) as caller:
                first = await caller.ask(OpCode.INIT_PRODUCER_ID, new, ops.InitProducerIdAnswer)
                ids.append(first.producer_id)
                again = ops.InitProducerId(first.producer_id, 0)
                raised = await caller.ask(OpCode.INIT_PRODUCER_ID, again, ops.InitProducerIdAnswer)
                assert raised == ops.InitProducerIdAnswer(0, first.producer_id, 1)
                last = ops.InitProducerId(first.producer_id, 2**15 - 2)
                fresh = await caller.ask(OpCode.INIT_PRODUCER_ID, last, ops.InitProducerIdAnswer)
                assert (fresh.error, fresh.producer_epoch) == (0, 0)
                assert fresh.producer_id != first.producer_id
        assert abs(ids[0] - ids[1]) >= 2**40

    run(body())


def test_an_epoch_that_is_older_than_the_one_in_use_is_error_47(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            got = await caller.ask(OpCode.INIT_PRODUCER_ID, ops.InitProducerId(-1, -1), ops.InitProducerIdAnswer)
            header = parse_header(BATCH)._replace(producer_id=got.producer_id, producer_epoch=3, base_sequence=0)
            assert (await caller.produce("t", encode_batch(header, BATCH[61:]))).error == 0
            old = ops.InitProducerId(got.producer_id, 1)
            assert (await caller.ask(OpCode.INIT_PRODUCER_ID, old, ops.InitProducerIdAnswer)).error == 47

    run(body())
