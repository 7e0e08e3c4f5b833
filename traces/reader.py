"""The store's reading side: services, operations, whole traces, summaries, dependencies; searches are `search.py`'s.

Every thread has a connection of its own, which cannot change anything.
"""

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from traces.errors import StoreError
from traces.otlp import KIND_NAMES, STATUS_ERROR
from traces.rows import take_schema_url
from traces.schema import open_for_reading
from traces.search import TraceQuery, find

# A graph of who calls whom needs no more; counting all of 1,000,000 spans takes two seconds.
DEPENDENCY_TRACES = 20_000


@dataclass(frozen=True)
class StoredSource:
    """A resource and a scope."""

    service: str
    resource: Resource
    scope: InstrumentationScope
    resource_schema_url: str = ""
    scope_schema_url: str = ""


@dataclass(frozen=True)
class StoredTrace:
    """The spans of a trace by source, each in order of start."""

    trace_id: bytes
    groups: list[tuple[StoredSource, list[Span]]]


@dataclass(frozen=True, kw_only=True)
class TraceSummary:
    """What a list of traces shows. `services` are (name, spans, spans with an error)."""

    trace_id: bytes
    root_service: str
    root_operation: str
    start: int
    end: int
    spans: int
    errors: int
    orphans: int
    services: list[tuple[str, int, int]]


class Reader:
    """Answers questions about one store's file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connections of all threads; none may be in use."""
        with self._lock:
            for connection in self._opened:
                connection.close()
            self._opened.clear()

    @property
    def _db(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = open_for_reading(self._path)
            with self._lock:
                self._opened.append(connection)
        return connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within it this thread reads the store as it is at its first question, whatever is removed meanwhile."""
        db = self._db
        is_outer = not db.in_transaction
        if is_outer:
            db.execute("BEGIN")
        try:
            yield
        finally:
            # An error of the disk can have ended it already.
            if is_outer and db.in_transaction:
                db.execute("ROLLBACK")

    def services(self) -> list[str]:
        return [row[0] for row in self._db.execute("SELECT name FROM services ORDER BY name")]

    def operations(self, service: str, kind: str = "") -> list[tuple[str, str]]:
        """(name, kind) of a service's operations; `kind` restricts them."""
        rows = self._db.execute(
            "SELECT operations.name, kind FROM operations JOIN services USING (service_id)"
            " JOIN operation_kinds USING (operation_id) WHERE services.name = ? ORDER BY operations.name, kind",
            (service,),
        )
        found = ((name, KIND_NAMES[number]) for name, number in rows)
        return [(name, named) for name, named in found if not kind or named == kind]

    def trace_number(self, trace_id: bytes) -> int | None:
        row = self._db.execute("SELECT trace_no FROM traces WHERE trace_id = ?", (trace_id,)).fetchone()
        return None if row is None else int(row[0])

    def find(self, query: TraceQuery) -> list[int]:
        """The numbers of the newest traces that fit, newest first."""
        with self.snapshot():
            return find(self._db, query)

    def traces(self, numbers: list[int]) -> list[StoredTrace]:
        """All spans of each; one that was removed since it was found is left out."""
        with self.snapshot():
            return [trace for number in numbers if (trace := self._trace(number)) is not None]

    def summaries(self, numbers: list[int]) -> list[TraceSummary]:
        """The same as summaries, from the index columns only."""
        with self.snapshot():
            return [summary for number in numbers if (summary := self._summary(number)) is not None]

    def _trace(self, number: int) -> StoredTrace | None:
        row = self._db.execute("SELECT trace_id FROM traces WHERE trace_no = ?", (number,)).fetchone()
        if row is None:
            return None
        groups: dict[int, list[Span]] = {}
        rows = self._db.execute(
            "SELECT source_id, body FROM spans WHERE trace_no = ? ORDER BY start, duration DESC", (number,)
        )
        for source, body in rows:
            groups.setdefault(source, []).append(Span.FromString(body))
        return StoredTrace(row[0], [(self._source(source), spans) for source, spans in groups.items()])

    def _summary(self, number: int) -> TraceSummary | None:
        row = self._db.execute("SELECT trace_id FROM traces WHERE trace_no = ?", (number,)).fetchone()
        spans = self._db.execute(
            "SELECT span_id, parent_id, services.name, operations.name, status, start, start + duration"
            " FROM spans JOIN operations USING (operation_id)"
            " JOIN services ON services.service_id = spans.service_id WHERE trace_no = ? ORDER BY start",
            (number,),
        ).fetchall()
        if row is None or not spans:
            return None
        known = {span[0] for span in spans}
        roots = [span for span in spans if span[1] is None]
        orphans = [span for span in spans if span[1] is not None and span[1] not in known]
        root = (roots or orphans or spans)[0]
        counts = Counter(span[2] for span in spans)
        errors = Counter(span[2] for span in spans if span[4] == STATUS_ERROR)
        return TraceSummary(
            trace_id=row[0],
            root_service=root[2],
            root_operation=root[3],
            start=spans[0][5],
            end=max(span[6] for span in spans),
            spans=len(spans),
            errors=errors.total(),
            orphans=len(orphans),
            services=[(name, counts[name], errors[name]) for name in sorted(counts)],
        )

    def dependencies(self, start: int, end: int) -> list[tuple[str, str, int]]:
        """(calling service, called service, spans) for children whose parent belongs to another service, over the
        newest `DEPENDENCY_TRACES` traces that began in that time."""
        rows = self._db.execute(
            "SELECT caller.name, called.name, calls FROM ("
            " SELECT parent.service_id AS parent_service, child.service_id AS child_service, count(*) AS calls"
            " FROM (SELECT trace_no FROM traces WHERE start BETWEEN ? AND ? ORDER BY start DESC LIMIT ?) AS newest"
            " CROSS JOIN spans child ON child.trace_no = newest.trace_no"
            " CROSS JOIN spans parent ON parent.trace_no = child.trace_no AND parent.span_id = child.parent_id"
            " WHERE parent.service_id <> child.service_id GROUP BY 1, 2)"
            " JOIN services caller ON caller.service_id = parent_service"
            " JOIN services called ON called.service_id = child_service ORDER BY 1, 2",
            (start, end, DEPENDENCY_TRACES),
        )
        return [(caller, called, calls) for caller, called, calls in rows]

    def _source(self, number: int) -> StoredSource:
        row = self._db.execute(
            "SELECT name, resource, scope FROM sources JOIN services USING (service_id) WHERE source_id = ?", (number,)
        ).fetchone()
        if row is None:
            raise StoreError(f"source {number} was removed from the store while it was read; search again")
        resource, scope = Resource.FromString(row[1]), InstrumentationScope.FromString(row[2])
        return StoredSource(row[0], resource, scope, take_schema_url(resource), take_schema_url(scope))
