"""`Broker`: the parts that handlers work with, the background tasks around the log, and the broker's end."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from nodes import heap
from nodes.broker import configs
from nodes.broker.producer_ids import ProducerIds
from nodes.broker.registry import Registry
from nodes.broker.settings import BrokerSettings
from nodes.broker.syncing import Syncs
from nodes.broker.waiting import Key, Waits
from wal.errors import DiskFullError, LogClosedError, WalError
from wal.log import SingleWal

log = logging.getLogger(__name__)

_SETTLE_POLL = 0.005  # a sync takes about a millisecond


class Counters:
    """What STATUS tells."""

    __slots__ = ("fetched_bytes", "produced_bytes", "produced_records")

    def __init__(self) -> None:
        self.produced_records = 0
        self.produced_bytes = 0
        self.fetched_bytes = 0


class Broker:
    """One broker over an open log. Make it in a running event loop."""

    def __init__(self, wal: SingleWal, settings: BrokerSettings) -> None:
        self.wal = wal
        self.settings = settings
        self.registry = Registry(wal, settings)
        self.broker_configs = configs.broker_configs(settings, str(wal.folder))
        self.waits = Waits()
        self.syncs = Syncs(wal, self.fail)
        self.producer_ids = ProducerIds(wal, settings, self.syncs.synced)
        self.counters = Counters()
        self.failure: WalError | None = None
        self.failed = asyncio.Event()
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._buffered: dict[Key, int] = {}
        self._flush_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begins retention and the watches over log and memory."""
        self._spawn(self._watch())
        self._spawn(self._retain())
        self._spawn(self._give_memory_back())

    def fail(self, error: WalError) -> None:
        """The log takes no more appends: the broker must end."""
        if self.failure is None:
            self.failure = error
            log.critical("the broker ends, since its log has failed: %s", error)
            self.failed.set()

    async def settle(self) -> None:
        """Takes no more records, ends long polls, and returns when what was at work is answered."""
        self.stopping = True
        self.waits.close()
        grace = self.settings.stop_grace if self.failure is None else self.settings.failed_grace
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self.syncs.waiting:
                    await asyncio.sleep(_SETTLE_POLL)

    def close(self) -> None:
        """Checkpoints the log and lets go of it. Calls at work must have ended before."""
        for task in self._tasks:
            task.cancel()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        with contextlib.suppress(LogClosedError):
            self.wal.close()

    # Records that become visible

    def appended(self, key: Key, size: int, *, buffered: bool) -> None:
        """Wakes fetches. Buffered records (acks=0) can be read only after they were written, which happens soon."""
        if not buffered:
            self.waits.appended(key, size)
            return
        self._buffered[key] = self._buffered.get(key, 0) + size
        if self._flush_timer is None:
            self._flush_timer = self._loop.call_later(self.settings.flush_interval, self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        try:
            self.wal.flush()
        except DiskFullError as error:
            log.warning("acks=0 records wait in memory: %s", error)
            self._flush_timer = self._loop.call_later(self.settings.watch_interval, self._flush)
            return
        except WalError as error:
            self.fail(error)
            return
        visible, self._buffered = self._buffered, {}
        for key, size in visible.items():
            self.waits.appended(key, size)

    # Background

    async def _watch(self) -> None:
        """A sync can fail while nobody waits for it."""
        while self.wal.failure is None:
            await asyncio.sleep(self.settings.watch_interval)
        self.fail(self.wal.failure)

    async def _retain(self) -> None:
        """In a thread: it reads indexes and removes files."""
        while True:
            await asyncio.sleep(self.settings.retention_interval)
            try:
                freed = await asyncio.to_thread(self.wal.retain)
            except DiskFullError as error:
                log.warning("retention could not be written down and is tried again: %s", error)
                continue
            except WalError as error:
                self.fail(error)
                return
            if freed:
                log.info("retention freed %d bytes", freed)

    async def _give_memory_back(self) -> None:
        idle_trim = heap.IdleTrim(self.settings.free_heap_bytes)
        while True:
            await asyncio.sleep(self.settings.memory_interval)
            idle_trim.look(self.counters.produced_bytes + self.counters.fetched_bytes)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def data_folder(folder: Path) -> Path:
    """Where the log is within a node's folder, which also holds the node's key."""
    return folder / "data"
