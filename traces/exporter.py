"""The exporting side of the recorder: a bounded queue, and one thread that encodes batches and sends them by OTLP/HTTP.

`put` never blocks: a collector that is dead or slow costs the caller nothing, and what does not fit is counted.
"""

import gzip
import http.client
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from traces import protobuf
from traces.settings import RecorderSettings

log = logging.getLogger("traces.exporter")

# Answers after which OTLP allows the same request to be sent again.
_RETRYABLE = frozenset((429, 502, 503, 504))
# Tells the collector how many spans were lost before they reached it, so that its statistics can show them.
DROPPED_HEADER = "rafka-dropped-spans"
# How many spans a request has: the collector then need not look while the nodes are busy.
RECORDED_HEADER = "rafka-recorded-spans"
_ANSWER_LIMIT = 4096
# Python runs one thread at a time and takes turns after half a millisecond: so long would the node's event loop wait
# for us at each of its steps. Instead we step aside by ourselves, often; 200,000 spans/s are left.
_SPANS_IN_A_ROW = 64
_STEP_ASIDE = 2e-5
# For an attempt under way when the time limit of a shutdown is reached.
_JOIN_GRACE = 0.5


class Scope(Protocol):
    """What an instrumentation scope contributes to a request."""

    message: bytes
    schema_url: str


class Finished(Protocol):
    """A span that has ended, with those that go with it."""

    def encode(self) -> list[bytes]: ...

    @property
    def scope(self) -> Scope: ...

    @property
    def count(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class RecorderStats:
    """`dropped` did not fit into the queue or came after the end; `refused` were sent, and not taken."""

    exported: int = 0
    dropped: int = 0
    refused: int = 0
    queued: int = 0


class Exporter:
    """Owns the queue, the thread and the connection."""

    def __init__(self, settings: RecorderSettings) -> None:
        self._settings = settings
        self._queue: deque[Finished] = deque()
        self._wake = threading.Event()
        self._idle = threading.Condition()
        self._sending = 0
        self._exported = self._dropped = self._refused = self._told = 0
        self._flush_wanted = 0
        self._stop_at: float | None = None
        self._room = settings.queue_size  # none when it is closed
        self._wake_at = settings.batch_size - 1
        self._gave_up = False
        self._count_lock = threading.Lock()
        self._said: set[str] = set()
        self._resource = protobuf.resource(settings.resource)
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="traces-exporter", daemon=True)
        self._thread.start()

    def put(self, span: Finished) -> None:
        """Takes a span over, or counts it as dropped. The bound is soft by the number of threads that end spans."""
        queue = self._queue
        waiting = len(queue)
        if waiting >= self._room:
            self._drop(span.count)
            return
        queue.append(span)
        if waiting == self._wake_at:
            self._wake.set()

    def stats(self) -> RecorderStats:
        return RecorderStats(
            exported=self._exported,
            dropped=self._dropped,
            refused=self._refused,
            queued=_count(list(self._queue)) + self._sending,
        )

    def flush(self, timeout: float) -> bool:
        """Waits until all that was put before is sent or refused."""
        deadline = time.monotonic() + timeout
        with self._idle:
            self._flush_wanted += 1
            self._wake.set()
            try:
                while (self._queue or self._sending) and self._thread.is_alive():
                    if not self._idle.wait(max(0.0, deadline - time.monotonic())):
                        return False
            finally:
                self._flush_wanted -= 1
        return not self._queue and not self._sending

    def shutdown(self, timeout: float) -> bool:
        """Flushes within the limit and ends the thread; what is left then is dropped, and counted."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + timeout
        self._room = 0
        self._wake.set()
        self._thread.join(timeout + _JOIN_GRACE)
        left = list(self._queue)
        self._queue.clear()
        self._drop(_count(left))
        return not self._gave_up and not left and not self._thread.is_alive()

    def _run(self) -> None:
        sent_at = time.monotonic()
        while True:
            before = len(self._queue)
            if before < self._settings.batch_size and self._stop_at is None and not self._flush_wanted:
                self._wake.wait(self._settings.delay)
            self._wake.clear()
            if self._queue and not self._may_wait(before, time.monotonic() - sent_at):
                self._send_next()
                sent_at = time.monotonic()
            with self._idle:
                if not self._queue:
                    self._idle.notify_all()
            if self._stop_at is not None and (not self._queue or time.monotonic() >= self._stop_at):
                self._disconnect()
                return

    def _may_wait(self, before: int, age: float) -> bool:
        """While traffic flows nobody looks at its last trace, and few large requests cost less than many small ones."""
        if self._stop_at is not None or self._flush_wanted or age >= self._settings.busy_delay:
            return False
        return self._settings.busy_spans <= len(self._queue) - before and len(self._queue) < self._settings.batch_size

    def _send_next(self) -> None:
        self._sending = 1  # never nothing while spans are in neither place
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._settings.batch_size))]
        self._sending = count = _count(batch)
        messages = self._encode(batch)
        spans = sum(len(group) for group in messages.values())
        self._refused += count - spans
        body = protobuf.export_request(
            self._resource, [(scope.message, scope.schema_url, group) for scope, group in messages.items()]
        )
        self._deliver(gzip.compress(body, 1) if self._settings.gzip else body, spans)
        self._sending = 0

    def _encode(self, batch: list[Finished]) -> dict[Scope, list[bytes]]:
        messages: dict[Scope, list[bytes]] = {}
        for count, span in enumerate(batch):
            if count % _SPANS_IN_A_ROW == 0 and self._stop_at is None:
                time.sleep(_STEP_ASIDE)
            try:
                messages.setdefault(span.scope, []).extend(span.encode())
            except Exception as error:  # noqa: BLE001 - one bad span (a name that is no string) must not lose the batch
                self._say("unencodable", f"a span cannot be encoded and is dropped: {error!r}")
        return messages

    def _deliver(self, body: bytes, spans: int) -> None:
        """Sends until it is taken, refused for good, or the end has come."""
        pause = self._settings.backoff_first
        while True:
            try:
                status, said = self._post(body, spans)
            except (OSError, http.client.HTTPException) as error:
                self._disconnect()
                self._say("unreachable", f"no collector answers at {self._settings.endpoint} ({error}); spans wait")
            else:
                if status not in _RETRYABLE:
                    self._count(status, said, spans)
                    return
            if self._stop_at is not None and time.monotonic() + pause >= self._stop_at:
                self._gave_up = True
                self._drop(spans)
                return
            self._rest(pause)
            pause = min(pause * 2, self._settings.backoff_limit)

    def _count(self, status: int, said: bytes, spans: int) -> None:
        self._said.discard("unreachable")
        rejected = spans
        if status == 200:
            rejected = _rejected(said) if said else 0
        if rejected:
            self._say(f"status {status}", f"{self._settings.endpoint} refused {rejected} spans: {status} {said!r}")
        self._refused += rejected
        self._exported += spans - rejected

    def _drop(self, spans: int) -> None:
        if spans:
            with self._count_lock:
                self._dropped += spans
            limit = f"it takes none, and the queue holds no more than {self._settings.queue_size}"
            self._say("dropped", f"spans for {self._settings.endpoint} are dropped: {limit}")

    def _rest(self, pause: float) -> None:
        """Waits before the next attempt; the wish to stop or to flush cuts it short once."""
        self._wake.wait(pause)
        if self._wake.is_set():
            self._wake.clear()
            time.sleep(min(pause, self._settings.backoff_first))

    def _post(self, body: bytes, spans: int) -> tuple[int, bytes]:
        connection = self._connect()
        headers = {
            "content-type": "application/x-protobuf",
            "user-agent": "rafka-lab-recorder",
            RECORDED_HEADER: str(spans),
            **self._settings.headers,
        }
        if self._settings.gzip:
            headers["content-encoding"] = "gzip"
        dropped = self._dropped
        if dropped > self._told:
            headers[DROPPED_HEADER] = str(dropped - self._told)
        parts = urlsplit(self._settings.endpoint)
        connection.request("POST", parts.path + (f"?{parts.query}" if parts.query else ""), body, headers)
        with connection.getresponse() as response:
            said = response.read()[:_ANSWER_LIMIT]
        if response.status == 200:
            self._told = dropped
        return response.status, said

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            parts = urlsplit(self._settings.endpoint)
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            left = self._settings.timeout
            if self._stop_at is not None:
                left = min(left, max(0.1, self._stop_at - time.monotonic()))
            self._connection = kind(parts.hostname or "", parts.port, timeout=left)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _say(self, what: str, message: str) -> None:
        """Logs each kind of trouble once, until it is over: a node's log must not fill with it."""
        if what not in self._said:
            self._said.add(what)
            log.warning("%s", message)


def _count(spans: list[Finished]) -> int:
    return sum(span.count for span in spans)


def _rejected(answer: bytes) -> int:
    """How many spans a 200 answer says were not taken."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        return int(ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans)
    except DecodeError:
        return 0
