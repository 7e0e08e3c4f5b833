"""Group commit: one thread that syncs whenever somebody waits, so that one sync serves all who came before it.

It knows log sequence numbers (bytes written since the log was opened) and callbacks, and nothing of files.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable

from wal.errors import LogClosedError, WalError

log = logging.getLogger(__name__)

Callback = Callable[[WalError | None], None]


class Syncer:
    """Calls `sync`, which returns the sequence number that is now durable, until `close`.

    `tick` is called once, `interval` seconds after `tick_soon`, unless a sync came before it.
    """

    def __init__(self, sync: Callable[[], int], tick: Callable[[], None], interval: float) -> None:
        self._sync = sync
        self._tick = tick
        self._interval = interval
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Callback]] = deque()
        self._wanted = 0
        self._durable = 0
        self._ticking = False
        self._closing = False
        self.failure: WalError | None = None
        self._thread = threading.Thread(target=self._run, name="wal-sync", daemon=True)
        self._thread.start()

    @property
    def durable(self) -> int:
        """All up to this sequence number is on the disk."""
        return self._durable

    @property
    def wanted(self) -> int:
        """The highest sequence number that somebody asked to be synced."""
        return self._wanted

    def request(self, sequence: int, callback: Callback | None = None) -> None:
        """Asks for a sync up to `sequence`. The callback runs in the sync thread, or here if it is over already."""
        with self._changed:
            if self.failure is None and self._durable < sequence and not self._closing:
                self._wanted = max(self._wanted, sequence)
                if callback is not None:
                    self._waiting.append((sequence, callback))
                self._changed.notify()
                return
        if callback is not None:
            _tell(callback, self._outcome(sequence))

    def _outcome(self, sequence: int) -> WalError | None:
        if self._durable >= sequence:
            return None
        return self.failure or LogClosedError("the log was closed before the append was on the disk")

    def wait(self, sequence: int, timeout: float | None = None) -> bool:
        """Blocks until all up to `sequence` is durable; raises if that cannot happen any more."""
        # A lock of its own for each who waits: a shared condition would wake all of them at every change.
        over = threading.Lock()
        over.acquire()
        outcome: WalError | None = None

        def tell(error: WalError | None) -> None:
            nonlocal outcome
            outcome = error
            over.release()

        self.request(sequence, tell)
        if not over.acquire(timeout=-1 if timeout is None else timeout):
            return False
        if outcome is not None:
            raise outcome
        return True

    def tick_soon(self) -> None:
        """Asks for one call of `tick` after the interval."""
        with self._changed:
            self._ticking = True
            self._changed.notify()

    def mark_durable(self, sequence: int) -> None:
        """Somebody else synced (a segment roll)."""
        with self._changed:
            self._durable = max(self._durable, sequence)
            ready = self._take_ready()
        for callback in ready:
            _tell(callback, None)

    def fail(self, error: WalError) -> None:
        """No further sync will succeed: tells all who wait, and all who ask later."""
        with self._changed:
            if self.failure is None:
                self.failure = error
            waiting, self._waiting = list(self._waiting), deque()
        for sequence, callback in waiting:
            _tell(callback, self._outcome(sequence))

    def close(self) -> None:
        """Ends the thread. What still waits is told that the log is closed."""
        with self._changed:
            self._closing = True
            waiting, self._waiting = list(self._waiting), deque()
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for sequence, callback in waiting:
            _tell(callback, self._outcome(sequence))

    def _take_ready(self) -> list[Callback]:
        ready = []
        while self._waiting and self._waiting[0][0] <= self._durable:
            ready.append(self._waiting.popleft()[1])
        return ready

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._busy() and self._ticking:
                    self._changed.wait_for(self._busy, self._interval)
                elif not self._busy():
                    self._changed.wait_for(lambda: self._busy() or self._ticking)
                    continue
                if self._closing:
                    return
                ticking, self._ticking = self._ticking and not self._busy(), False
            try:
                if ticking:
                    self._tick()
                else:
                    self.mark_durable(self._sync())
            except WalError as error:
                log.error("the log cannot be synced: %s", error)
                self.fail(error)

    def _busy(self) -> bool:
        return self._closing or (self._wanted > self._durable and self.failure is None)


def _tell(callback: Callback, outcome: WalError | None) -> None:
    """One callback that fails must not keep the acks from all the others."""
    try:
        callback(outcome)
    except Exception:
        log.exception("a callback of a sync failed")
