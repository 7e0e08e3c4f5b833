"""What a broker does when its disk fails, is full, or is slow; and how it ends when it is told to."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broker_process import ROOT, broker, run

from nodes import ops
from nodes.mesh import MeshError, OpCode
from wal.log import SingleWal

STORAGE_ERROR = 56


def test_a_failed_sync_ends_the_broker_within_a_second_with_a_clear_message(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path, disk="eio:8") as caller:
            await caller.create("t")
            acked = 0
            with contextlib.suppress(MeshError):
                for _ in range(50):
                    result = await caller.produce("t", timeout=5)
                    if result.error:
                        assert result.error == STORAGE_ERROR
                        break
                    acked += 1
            failed_at = time.monotonic()
            code = await asyncio.to_thread(caller.process.process.wait, 10)
            assert time.monotonic() - failed_at < 3, "a second, and some for a busy machine"
            assert code == 4
            said = caller.process.log.read_text()
            assert "the log failed" in said
            assert "Input/output error" in said
            assert 0 < acked < 50
            check_log(tmp_path, acked)

    run(body())


def test_a_sync_that_fails_while_nobody_waits_ends_the_broker_too(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path, disk="eio:6") as caller:
            await caller.create("t")
            with contextlib.suppress(MeshError):
                for _ in range(20):  # acks=1 asks for no sync, but a topic does
                    await caller.produce("t", acks=1, timeout=5)
                    item = ops.NewTopic(f"t{_}", 1, 1, [], {})
                    await caller.ask(OpCode.CREATE_TOPICS, ops.CreateTopics([item], False), ops.TopicsAnswer, timeout=5)
            assert await asyncio.to_thread(caller.process.process.wait, 10) == 4

    run(body())


def check_log(folder: Path, acked: int) -> None:
    with SingleWal.open(folder / "broker-0" / "data") as wal:
        (topic,) = wal.state.topics.values()
        assert wal.state.partition(topic.topic_id.bytes, 0).high_watermark >= acked


def test_a_full_disk_is_error_56_reads_go_on_and_writes_work_again_later(tmp_path: Path) -> None:
    full = tmp_path / "full"

    async def body() -> None:
        async with broker(tmp_path, disk=f"full:{full}") as caller:
            await caller.create("t")
            assert (await caller.produce("t")).base_offset == 0
            full.touch()
            refused = await caller.produce("t")
            assert refused.error == STORAGE_ERROR
            assert refused.base_offset == -1
            assert (await caller.fetch("t")).high_watermark == 1
            full.unlink()
            assert (await caller.produce("t")).base_offset == 1

    run(body())


def test_a_slow_sync_delays_only_who_waits_for_it(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path, disk="slow:0.3") as caller:
            await caller.create("t")
            began = time.monotonic()
            pending = asyncio.ensure_future(caller.produce("t"))
            await asyncio.sleep(0.02)
            found = await caller.fetch("t")
            assert found.high_watermark == 1, "a fetch is not held up, and sees what was written"
            assert not pending.done(), "no acknowledgement before the sync"
            assert (await pending).error == 0
            assert time.monotonic() - began >= 0.3

    run(body())


def test_sigterm_answers_what_is_at_work_and_checkpoints_the_log(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path, disk="slow:0.3") as caller:
            await caller.create("t")
            pending = [asyncio.ensure_future(caller.produce("t")) for _ in range(5)]
            poll = asyncio.ensure_future(caller.fetch("t", 1000, wait_ms=0))
            await poll
            waiting = asyncio.ensure_future(caller.fetch("t", 5, wait_ms=20_000))
            await asyncio.sleep(0.05)
            caller.process.process.send_signal(signal.SIGTERM)
            answers = await asyncio.gather(*pending)
            assert [answer.error for answer in answers] == [0] * 5
            assert (await waiting).error == 0, "a long poll is answered, not cut off"
            assert await asyncio.to_thread(caller.process.process.wait, 10) == 0
        with SingleWal.open(tmp_path / "broker-0" / "data") as wal:
            assert wal.report.clean
            (topic,) = wal.state.topics.values()
            assert wal.state.partition(topic.topic_id.bytes, 0).high_watermark == 5

    run(body())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--index", "2", "--brokers", "2"), "index is 2"),
        (("--segment-bytes", "1"), "segment_bytes is 1"),
        (("--default-partitions", "0"), "default-partitions is 0"),
        (("--retention-interval", "0"), "retention-interval is 0"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(tmp_path: Path, flags: tuple[str, ...], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nodes.broker", "--name", "b", "--data", str(tmp_path / "b"), *flags],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=30,
    )
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_log_that_another_broker_has_open_is_one_sentence(tmp_path: Path) -> None:
    async def body() -> None:
        async with broker(tmp_path):
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-m", "nodes.broker", "--name", "b", "--data", str(tmp_path / "broker-0")],
                capture_output=True,
                text=True,
                cwd=ROOT,
                timeout=30,
            )
            assert done.returncode == 2
            assert "is open for writing in process" in done.stderr

    run(body())
