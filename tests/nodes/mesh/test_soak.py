"""Long runs between two processes: memory, cancellations, a seeded mix of calls. Each has a short form as well."""

import asyncio
import gc
import os
import random
from pathlib import Path

import psutil
import pytest
from two_nodes import ECHO, ECHO_IN_TASK, FAIL, GIVE, REFUSE, SIZE, SLEEP, Child, run

from nodes.mesh import SINGLE_USE, CallTimeoutError, Mesh, RemoteError, Status, fast_iroh

# RELIABILITY.md: what 200,000 calls may add to the memory of either process.
GROWTH_BYTES = 1_000_000
MIXED_LANES = (None, SINGLE_USE, "a", "b", "c", "d")
MIXED_SIZES = (0, 1, 200, 16 * 1024, 16 * 1024 + 1, 70_000, 400_000)


async def nothing_is_left(mesh: Mesh, child: Child) -> None:
    """Every call has its answer, and the tables and credits are as before the first one."""
    calling = mesh._links[child.node_id].calling
    async with asyncio.timeout(10):
        while calling._calls or calling._waiting or calling._waiting_single:
            await asyncio.sleep(0.01)
    assert calling._bytes == 0
    assert len(calling._free_slots) == mesh.settings.single_streams
    assert len(fast_iroh._polls) < 50  # one for each stream that is being read, not one for each call
    for lane in MIXED_LANES:
        assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"next", lane=lane, timeout=5) == b"next"


async def echo_calls(mesh: Mesh, child: Child, count: int) -> None:
    async def caller(lane: int) -> None:
        for n in range(count // 64):
            op = ECHO if n % 2 else ECHO_IN_TASK
            await mesh.kafka_op_call(child.node_id, op, 7, b"x" * 200, lane=lane)

    await asyncio.gather(*(caller(lane) for lane in range(64)))


def memory_stays(folder: Path, count: int) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        await echo_calls(mesh, child, 12_800)
        gc.collect()
        processes = [psutil.Process(child.process.pid), psutil.Process(os.getpid())]
        before = [process.memory_info().rss for process in processes]
        await echo_calls(mesh, child, count)
        gc.collect()
        grown = [process.memory_info().rss - old for process, old in zip(processes, before, strict=True)]
        assert max(grown) <= GROWTH_BYTES, grown
        await nothing_is_left(mesh, child)

    run(test, folder)


def test_20_000_calls_leave_no_memory_behind(tmp_path: Path) -> None:
    memory_stays(tmp_path, 20_000)


@pytest.mark.soak
def test_200_000_calls_leave_no_memory_behind(tmp_path: Path) -> None:
    memory_stays(tmp_path, 200_000)


def cancelled_calls(folder: Path, count: int) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        for start in range(0, count, 1000):
            lanes = (None, SINGLE_USE, "one", start)
            tasks = [
                asyncio.create_task(mesh.kafka_op_call(child.node_id, ECHO, 7, b"x" * 200, lane=lanes[n % 4]))
                for n in range(1000)
            ]
            await asyncio.sleep(0.001 * (start // 1000 % 5))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        # At once: not after the cancelled ones have had their answers.
        for lane in (None, SINGLE_USE, "one"):
            assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"next", lane=lane, timeout=5) == b"next"
        await nothing_is_left(mesh, child)

    run(test, folder)


def test_after_4_000_cancelled_calls_the_next_one_works(tmp_path: Path) -> None:
    cancelled_calls(tmp_path, 4_000)


@pytest.mark.soak
def test_after_40_000_cancelled_calls_the_next_one_works(tmp_path: Path) -> None:
    cancelled_calls(tmp_path, 40_000)


async def one_of_many(mesh: Mesh, child: Child, chance: random.Random) -> None:
    """A random call whose answer is known beforehand; it may be cancelled or given too little time."""
    lane = chance.choice(MIXED_LANES)
    size = chance.choice(MIXED_SIZES)
    body = chance.randbytes(size)
    op, given, expected = chance.choice(
        [
            (ECHO, body, body),
            (ECHO_IN_TASK, body, body),
            (SIZE, body, b"%d" % size),
            (GIVE, b"%d" % size, bytes(size)),
            (SLEEP, b"0.02", b"slept"),
            (FAIL, body, None),
            (REFUSE, body, None),
        ]
    )
    timeout = chance.choice([30, 30, 30, 0.01])
    call = asyncio.create_task(mesh.kafka_op_call(child.node_id, op, 7, given, lane=lane, timeout=timeout))
    leaves_after = chance.choice([None, None, None, chance.random() * 0.02])
    if leaves_after is not None:
        await asyncio.wait([call], timeout=leaves_after)
        call.cancel()
    failed: int | None = None
    try:
        answer = await call
    except asyncio.CancelledError:
        assert leaves_after is not None
    except CallTimeoutError:
        assert timeout == 0.01
    except RemoteError as error:
        failed = error.code
    else:
        assert answer == expected
        return
    if failed is not None:
        in_time = {FAIL: Status.HANDLER_FAILED, REFUSE: 142}.get(op)
        assert failed == in_time or (failed == Status.DEADLINE and timeout == 0.01)


def mixed_calls(folder: Path, count: int, seed: int) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        chances = [random.Random(f"{seed}-{n}") for n in range(40)]

        async def caller(chance: random.Random) -> None:
            for _ in range(count // len(chances)):
                await one_of_many(mesh, child, chance)

        await asyncio.gather(*(caller(chance) for chance in chances))
        await nothing_is_left(mesh, child)
        assert mesh.roster.counters["malformed"] == 0

    run(test, folder)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_mix_of_calls_gives_right_answers_and_leaves_nothing_behind(tmp_path: Path, seed: int) -> None:
    mixed_calls(tmp_path, 800, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 20))
def test_a_long_mix_of_calls_gives_right_answers_and_leaves_nothing_behind(tmp_path: Path, seed: int) -> None:
    mixed_calls(tmp_path, 20_000, seed)
