"""The bridge from the log's sync thread to the event loop: many appends, one sync, one wake-up of the loop."""

import asyncio
from collections import deque
from collections.abc import Callable

from wal.errors import LogPoisonedError, WalError
from wal.log import SingleWal

Done = Callable[[WalError | None], None]


class Syncs:
    """Calls back in the event loop once all that is written so far is on the disk, or cannot be any more."""

    def __init__(self, wal: SingleWal, on_poisoned: Callable[[WalError], None]) -> None:
        self._wal = wal
        self._on_poisoned = on_poisoned
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[Done, WalError | None]] = deque()
        self._waking = False
        self.waiting = 0  # callbacks that are still to come

    def after_sync(self, done: Done) -> None:
        """`done` is called later, in the loop, with None or with the reason why the sync failed."""
        self.waiting += 1
        self._wal.when_synced(self._wal.sequence, lambda error: self._from_sync_thread(done, error))

    async def synced(self) -> None:
        """Returns when all that is written so far is on the disk; raises if that failed."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(error: WalError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.after_sync(done)
        await future

    def _from_sync_thread(self, done: Done, error: WalError | None) -> None:
        self._done.append((done, error))
        if not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._waking = False  # before the queue is read: what comes meanwhile wakes the loop once more
        while self._done:
            done, error = self._done.popleft()
            self.waiting -= 1
            done(error)
            if isinstance(error, LogPoisonedError):
                self._on_poisoned(error)
