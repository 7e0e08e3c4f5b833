"""The store's writing side. A request is kept, and answered, when it has been written to the inbox; a thread puts it
into the tables later: when the machine has time to spare, when somebody asks, or when much waits. The same thread
removes what is too old or too much.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from traces.errors import BusyError, StoreError
from traces.inbox import Entry, Inbox
from traces.insert import Inserted, Inserter
from traces.otlp import Checked
from traces.retention import Retention
from traces.schema import open_for_writing
from traces.spare_time import SpareTime

log = logging.getLogger("traces.store")


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    """The limits of one store."""

    # A day of experiments. Counted from a trace's last arrival, so that a wrong clock loses nothing.
    retention_hours: float = 24.0
    # About five million spans of the lab's size.
    max_bytes: int = 2 * 1024**3
    # Spans that wait to be indexed, about 60 MB in the inbox. Above it senders wait for their answer, and are told to
    # come again if that takes too long: less than the ten seconds that they wait by default.
    pending_spans: int = 200_000
    room_seconds: float = 5.0
    # Above it there is no waiting for spare time: a question should never find more than two seconds of work.
    eager_spans: int = 100_000
    # One transaction, while somebody waits and while nobody does: then other programs may want the processors again.
    transaction_spans: int = 20_000
    spare_spans: int = 2_000
    # How often spare time is looked for.
    spare_seconds: float = 0.1
    # A span that arrives this long after its end is counted as late.
    late_seconds: float = 60.0
    # How often age and size are looked at.
    retention_seconds: float = 10.0
    # After a failed transaction: a disk that is full is not free again at once.
    failure_seconds: float = 1.0
    # At the end; what is left then stays in the inbox, and is indexed after the next start.
    close_seconds: float = 2.0


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
    """Owns the file, the inbox and the indexing thread."""

    def __init__(
        self, path: Path, settings: StoreSettings | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self.settings = settings or StoreSettings()
        self._clock = clock
        self._connection = open_for_writing(path)
        self._inserter = Inserter(self._connection)
        self._retention = Retention(self._connection)
        self._inbox = Inbox(path, self._inserter.done())
        self._spare_time = SpareTime()
        self._stats = StoreStats()
        # Guards all below; notified when there is work, and when work was done.
        self._changed = threading.Condition()
        self._taken, self._indexed = self._inbox.requests, 0  # requests, in their order
        self._asking = 0
        self._failures = 0
        self._failure = ""
        self._close_at: float | None = None
        self._measure()
        self._thread = threading.Thread(target=self._run, name="traces-index", daemon=True)
        self._thread.start()

    def add(self, checked: Checked, arrived: float | None = None) -> None:
        """Keeps a request; when this returns, its spans outlive the process. Raises BusyError if too much waits for
        too long since it `arrived`, by the monotonic clock (or was given to us)."""
        with self._changed:
            waited = time.monotonic() - arrived if arrived is not None else 0
            left = max(0.0, self.settings.room_seconds - waited)
            self._changed.wait_for(lambda: not self._is_full(checked.accepted), left)
            self._check_room(checked.accepted)
            self._stats.rejected += checked.rejected
            if checked.accepted:
                self._inbox.append(checked.body, checked.accepted, int(self._clock() * 1e9), not checked.later)
                self._stats.received += checked.accepted
                self._taken += 1
                self._changed.notify_all()

    def catch_up(self) -> None:
        """Waits until all that was kept before is in the tables: for who is about to read them. If they cannot be
        written, which was logged, reading goes on with what they hold."""
        with self._changed:
            wanted, failures = self._taken, self._failures
            self._asking += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(
                    lambda: self._indexed >= wanted or self._failures > failures or not self._thread.is_alive()
                )
            finally:
                self._asking -= 1

    def count_dropped(self, spans: int) -> None:
        """Adds what a recorder says it could not send."""
        with self._changed:
            self._stats.dropped += spans

    def count_refused(self) -> None:
        """Adds a request that could not be read at all."""
        with self._changed:
            self._stats.refused_requests += 1

    def stats(self) -> dict[str, Any]:
        with self._changed:
            return {**asdict(self._stats), "pending": self._inbox.spans}

    def close(self) -> None:
        """Takes no more, indexes within the time limit, closes the files."""
        with self._changed:
            if self._close_at is not None:
                return
            self._close_at = time.monotonic() + self.settings.close_seconds
            self._changed.notify_all()
        self._thread.join()
        self._inbox.close()
        self._connection.execute("PRAGMA optimize")
        self._connection.close()

    def _is_full(self, spans: int) -> bool:
        """Whether waiting would help: more waits than may, and it is being worked on."""
        waiting = self._inbox.spans
        too_much = waiting > 0 and waiting + spans > self.settings.pending_spans
        return too_much and self._close_at is None and not self._failure

    def _check_room(self, spans: int) -> None:
        if self._close_at is not None:
            raise StoreError("the collector is ending; send the spans again later")
        if self._failure:
            self._stats.refused_requests += 1
            raise StoreError(f"the store cannot be written: {self._failure}; free space, then send the request again")
        if self._is_full(spans):
            self._stats.refused_requests += 1
            raise BusyError(f"{self._inbox.spans} spans wait to be indexed; send the same request again later")

    def _run(self) -> None:
        next_look = time.monotonic() + self.settings.retention_seconds
        while True:
            with self._changed:
                spans = self._spans_to_index()
                if not spans and self._close_at is not None:
                    return
                if not spans:
                    self._changed.wait(self._pause(next_look))
                    spans = self._spans_to_index()
            if spans:
                self._index(spans)
            if time.monotonic() >= next_look and self._close_at is None:
                # A step may not be enough; what has arrived meanwhile is written first.
                more = self._expire()
                next_look = time.monotonic() + (0 if more else self.settings.retention_seconds)

    def _spans_to_index(self) -> int:
        """How many may be indexed now; 0 if that can wait."""
        if not self._inbox.spans:
            return 0
        if self._close_at is not None:
            return self.settings.spare_spans if time.monotonic() < self._close_at and not self._failure else 0
        if self._asking or self._inbox.spans > min(self.settings.eager_spans, self.settings.pending_spans // 2):
            return self.settings.transaction_spans
        return self.settings.spare_spans if self._spare_time.is_there() else 0

    def _pause(self, next_look: float) -> float:
        left = max(0.001, next_look - time.monotonic())
        return min(left, self.settings.spare_seconds) if self._inbox.spans else left

    def _index(self, spans: int) -> None:
        """One transaction; if a request cannot be read at all, one a request."""
        try:
            entries = self._inbox.read(spans)
            try:
                inserted = [self._insert(entries)]
            except (sqlite3.Error, OSError):
                raise
            except Exception:  # noqa: BLE001 - one of them is to blame, and is named when it is alone
                inserted = [self._insert_alone(entry) for entry in entries]
        except (sqlite3.Error, OSError) as error:
            self._wait_for_disk(error)
            return
        self._inbox.forget(entries)
        with self._changed:
            self._failure = ""
            self._indexed += len(entries)
            for part in inserted:
                self._stats.spans += part.new
                self._stats.duplicates += part.known
                self._stats.late += part.late
                self._stats.rejected += part.rejected
            self._stats.traces = self._inserter.traces
            self._changed.notify_all()

    def _insert(self, entries: Sequence[Entry]) -> Inserted:
        return self._inserter.insert(entries, int(self.settings.late_seconds * 1e9))

    def _insert_alone(self, entry: Entry) -> Inserted:
        """A request that was taken and then cannot be read is our own mistake: it is said, and must not hold up those
        behind it for ever."""
        try:
            return self._insert([entry])
        except (sqlite3.Error, OSError):
            raise
        except Exception:
            log.exception("a request of %d spans cannot be indexed and is dropped", entry.spans)
            return Inserted(0, 0, 0, entry.spans)

    def _wait_for_disk(self, error: Exception) -> None:
        log.error("%d spans wait, they cannot be written to %s: %s", self._inbox.spans, self.path, error)
        with self._changed:
            self._failures += 1
            self._failure = str(error)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._close_at is not None, self.settings.failure_seconds)

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
        with self._changed:
            self._stats.expired += gone
        self._measure()
        return gone > 0

    def _measure(self) -> None:
        spans, size = self._retention.count_spans(), self._retention.used_bytes()
        with self._changed:
            self._stats.spans, self._stats.bytes = spans, size
            self._stats.traces = self._inserter.traces
