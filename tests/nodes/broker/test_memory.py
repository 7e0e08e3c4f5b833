"""A broker's memory: batches reuse what others left, and when traffic is over it goes back to the system."""

import asyncio
import time
from pathlib import Path

import psutil
import pytest
from broker_process import Caller, broker, run

from nodes import heap
from wal.records import NewRecord, build_batch

MIB = 1024 * 1024
BATCH = build_batch([NewRecord(None, bytes(MIB - 1000))])
# As for the gateway: what large requests may leave behind.
ALLOWED = 10_000_000
SETTLED_WITHIN = 20.0

pytestmark = pytest.mark.skipif(heap._library is None, reason="the C library is not glibc")


async def produce(caller: Caller, batches: int) -> None:
    for number in range(0, batches, 16):
        calls = [caller.produce("t", BATCH, lane=lane) for lane in range(min(16, batches - number))]
        assert all(result.error == 0 for result in await asyncio.gather(*calls))


def test_batches_of_a_megabyte_reuse_memory(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            await produce(caller, 64)
            before = _page_faults(caller.process.process.pid)
            await produce(caller, 64)
            # Memory that is taken from the system for each batch anew costs 200 of them a megabyte.
            assert _page_faults(caller.process.process.pid) - before < 64 * 100

    run(body())


def test_memory_of_large_batches_comes_back(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path) as caller:
            await caller.create("t")
            await produce(caller, 1)
            process = psutil.Process(caller.process.process.pid)
            before = process.memory_info().rss
            await produce(caller, 64)
            deadline = time.monotonic() + SETTLED_WITHIN
            while (more := process.memory_info().rss - before) > ALLOWED and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            assert more <= ALLOWED, f"{more / 1e6:.1f} MB more than before"

    run(body())


def _page_faults(pid: int) -> int:
    """Minor ones: the eighth field after the command's name."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
