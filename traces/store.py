"""The store's writing side: one thread that puts what waits into SQLite, many requests to a transaction, and removes
what is too old or too much.

A request is answered after its transaction, so what a sender was told is stored is stored.
"""

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from traces.errors import BusyError, StoreError
from traces.insert import Inserter
from traces.otlp import Batch
from traces.retention import Retention
from traces.schema import open_for_writing

log = logging.getLogger("traces.store")


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The limits of one store."""

    # A day of experiments. Counted from a trace's last arrival, so that a wrong clock loses nothing.
    retention_hours: float = 24.0
    # About five million spans of the lab's size.
    max_bytes: int = 2 * 1024**3
    # Spans that wait for the disk; above it senders are told to come again. About 100 MB.
    pending_spans: int = 200_000
    # One transaction: large ones are cheaper, but answers wait for it.
    transaction_spans: int = 20_000
    # A span that arrives this long after its end is counted as late.
    late_seconds: float = 60.0
    # How often age and size are looked at.
    retention_seconds: float = 10.0


@dataclass(kw_only=True)
class StoreStats:
    """Counted since the start, but for `spans`, `traces` and `bytes`, which are what the store holds now."""

    spans: int = 0
    traces: int = 0
    bytes: int = 0
    received: int = 0
    rejected: int = 0
    duplicates: int = 0
    late: int = 0
    expired: int = 0
    # By recorders, before they reached us: they say so in a header.
    dropped: int = 0
    refused_requests: int = 0


class Store:
    """Owns the file and the writing thread."""

    def __init__(
        self, path: Path, settings: StoreSettings | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self.settings = settings or StoreSettings()
        self._clock = clock
        self._connection = open_for_writing(path)
        self._inserter = Inserter(self._connection)
        self._retention = Retention(self._connection)
        self._stats = StoreStats()
        self._lock = threading.Lock()
        self._pending = 0
        self._queue: queue.Queue[tuple[Batch, Future[None]] | None] = queue.Queue()
        self._closed = False
        self._measure()
        self._thread = threading.Thread(target=self._run, name="traces-store", daemon=True)
        self._thread.start()

    def submit(self, batch: Batch) -> Future[None]:
        """Takes a batch over; the future is done when it is stored. Raises BusyError if too much waits already."""
        done: Future[None] = Future()
        with self._lock:
            self._stats.rejected += batch.rejected
            if self._closed:
                raise StoreError("the collector is ending; send the spans again later")
            if self._pending and self._pending + batch.accepted > self.settings.pending_spans:
                self._stats.refused_requests += 1
                raise BusyError(f"{self._pending} spans wait to be written; send the same request again later")
            self._pending += batch.accepted
            self._stats.received += batch.accepted
            self._queue.put((batch, done))
        return done

    def count_dropped(self, spans: int) -> None:
        """Adds what a recorder says it could not send."""
        with self._lock:
            self._stats.dropped += spans

    def count_refused(self) -> None:
        """Adds a request that could not be read at all."""
        with self._lock:
            self._stats.refused_requests += 1

    def stats(self) -> dict[str, Any]:
        with self._lock:
            return {**asdict(self._stats), "pending": self._pending}

    def close(self) -> None:
        """Writes all that was taken, then closes the file."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        self._connection.execute("PRAGMA optimize")
        self._connection.close()

    def _run(self) -> None:
        ended = False
        next_look = time.monotonic() + self.settings.retention_seconds
        while not ended:
            waiting, ended = self._next(max(0.001, next_look - time.monotonic()))
            if waiting:
                self._write(waiting)
            if time.monotonic() >= next_look and not ended:
                # A step may not be enough; what has arrived meanwhile is written first.
                more = self._expire()
                next_look = time.monotonic() + (0 if more else self.settings.retention_seconds)

    def _next(self, timeout: float) -> tuple[list[tuple[Batch, Future[None]]], bool]:
        """What waits, up to one transaction, and whether the end was asked for."""
        waiting: list[tuple[Batch, Future[None]]] = []
        spans = 0
        try:
            while spans < self.settings.transaction_spans:
                item = self._queue.get(timeout=timeout) if not waiting else self._queue.get_nowait()
                if item is None:
                    return waiting, True
                waiting.append(item)
                spans += item[0].accepted
        except queue.Empty:
            pass
        return waiting, False

    def _write(self, waiting: list[tuple[Batch, Future[None]]]) -> None:
        now = self._clock()
        spans = sum(batch.accepted for batch, _ in waiting)
        late_before = int((now - self.settings.late_seconds) * 1e9)
        try:
            added, late = self._inserter.insert([batch for batch, _ in waiting], int(now * 1e9), late_before)
        except sqlite3.Error as error:
            log.error("%d spans could not be written to %s: %s", spans, self.path, error)
            failure = StoreError(f"the store cannot be written: {error}; free space, then send the request again")
            with self._lock:
                self._pending -= spans
                self._stats.received -= spans
                self._stats.refused_requests += len(waiting)
            for _, done in waiting:
                done.set_exception(failure)
            return
        with self._lock:
            self._pending -= spans
            self._stats.spans += added
            self._stats.traces = self._inserter.traces
            self._stats.duplicates += spans - added
            self._stats.late += late
        for _, done in waiting:
            done.set_result(None)

    def _expire(self) -> bool:
        """One step of retention; True if there was something to remove."""
        before = int((self._clock() - self.settings.retention_hours * 3600) * 1e9)
        try:
            gone = self._retention.remove_received_before(before)
            gone += self._retention.shrink_to(self.settings.max_bytes)
        except sqlite3.Error as error:
            log.error("old traces could not be removed from %s: %s", self.path, error)
            return False
        if gone:
            self._inserter.forget()
            log.info("%d spans were removed from %s by age or size", gone, self.path)
        with self._lock:
            self._stats.expired += gone
        self._measure()
        return gone > 0

    def _measure(self) -> None:
        spans, size = self._retention.count_spans(), self._retention.used_bytes()
        with self._lock:
            self._stats.spans, self._stats.bytes = spans, size
            self._stats.traces = self._inserter.traces
