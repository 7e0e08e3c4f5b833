"""Searches in the store: which traces have a span that fits.

Without tags an index is walked by time, newest first, until the limit. With tags there are two ways: a rare tag's
traces are walked, or, where all tags are common, the time index with a look at the tag of each trace. A hash match is
always checked on the span itself.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from traces.otlp import KIND_NAMES, MAX_TIME, tags_of, value_text
from traces.schema import tag_hash

# A tag with fewer traces is rare: walking all of them takes less than a tenth of a second.
_RARE_TRACES = 2000
SPAN_KIND = "span.kind"

Tag = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class TraceQuery:
    """A search. Times are nanoseconds; a trace is found if one of its spans fits all that is given."""

    service: str | None = None
    operation: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    min_duration: int = 0
    max_duration: int = MAX_TIME
    start: int = 0
    end: int = MAX_TIME
    limit: int = 20


def find(db: sqlite3.Connection, query: TraceQuery) -> list[int]:
    """The numbers of the newest traces that fit, newest first."""
    if query.service is None:
        services = [row[0] for row in db.execute("SELECT service_id FROM services")]
    else:
        services = [row[0] for row in db.execute("SELECT service_id FROM services WHERE name = ?", (query.service,))]
    found: set[int] = set()
    for service in services:
        found.update(_of_service(db, service, query))
    begin = "SELECT start FROM traces WHERE trace_no = ?"
    starts = {number: (db.execute(begin, (number,)).fetchone() or (0,))[0] for number in found}
    return sorted(found, key=lambda number: starts[number], reverse=True)[: query.limit]


def _of_service(db: sqlite3.Connection, service: int, query: TraceQuery) -> list[int]:
    scan = _Scan.of(db, service, query)
    if scan is None:
        return []
    if query.tags:
        return _tagged(db, service, scan, query)
    numbers = f"SELECT DISTINCT trace_no FROM spans INDEXED BY {scan.index} WHERE {scan.where}"
    rows = db.execute(f"{numbers} ORDER BY start DESC LIMIT ?", (*scan.values, query.limit))
    return [row[0] for row in rows]


@dataclass(frozen=True)
class _Scan:
    """The conditions on a span's columns, and the index that serves them."""

    index: str
    where: str
    values: tuple[int, ...]

    @classmethod
    def of(cls, db: sqlite3.Connection, service: int, query: TraceQuery) -> "_Scan | None":
        """None if the service has no such operation."""
        limits = (query.start, query.end, query.min_duration, query.max_duration)
        where = "spans.start BETWEEN ? AND ? AND duration BETWEEN ? AND ?"
        if not query.operation:
            return cls("by_service", f"service_id = ? AND {where}", (service, *limits))
        named = "SELECT operation_id FROM operations WHERE service_id = ? AND name = ?"
        row = db.execute(named, (service, query.operation)).fetchone()
        return None if row is None else cls("by_operation", f"operation_id = ? AND {where}", (row[0], *limits))


def _tagged(db: sqlite3.Connection, service: int, scan: _Scan, query: TraceQuery) -> list[int]:
    sources = _source_tags(db, service)
    wanted = set(query.tags.items())
    if not _possible_kind(db, service, query.tags.get(SPAN_KIND)):
        return []
    on_sources = set().union(*sources.values()) if sources else set()
    on_spans = [tag for tag in wanted if tag not in on_sources and tag[0] != SPAN_KIND]
    hashes = [tag_hash(service, key, value) for key, value in on_spans]
    counts = [(_count(db, number), number) for number in hashes]
    rarest = min(counts, default=(_RARE_TRACES, 0))
    if rarest[0] == 0:
        return []
    rows = _by_tag(db, scan, rarest[1]) if rarest[0] < _RARE_TRACES else _by_time(db, scan, hashes)
    return _checked(rows, wanted, sources, query.limit)


def _by_tag(db: sqlite3.Connection, scan: _Scan, number: int) -> Iterable[tuple[int, int, bytes]]:
    return db.execute(
        "SELECT spans.trace_no, source_id, body FROM tags CROSS JOIN spans INDEXED BY spans_by_id"
        f" WHERE hash = ? AND spans.trace_no = tags.trace_no AND {scan.where} ORDER BY tags.trace_no DESC",
        (number, *scan.values),
    )


def _by_time(db: sqlite3.Connection, scan: _Scan, hashes: list[int]) -> Iterable[tuple[int, int, bytes]]:
    has_tag = "".join(
        " AND EXISTS (SELECT 1 FROM tags WHERE hash = ? AND tags.trace_no = spans.trace_no)" for _ in hashes
    )
    return db.execute(
        f"SELECT trace_no, source_id, body FROM spans INDEXED BY {scan.index}"
        f" WHERE {scan.where}{has_tag} ORDER BY start DESC",
        (*scan.values, *hashes),
    )


def _checked(
    rows: Iterable[tuple[int, int, bytes]], wanted: set[Tag], sources: dict[int, set[Tag]], limit: int
) -> list[int]:
    found: dict[int, None] = {}
    for trace_no, source, body in rows:
        if trace_no in found:
            continue
        span = Span.FromString(body)
        left = wanted - sources.get(source, set()) - {(SPAN_KIND, KIND_NAMES[span.kind])}
        if not left or left <= tags_of(span):
            found[trace_no] = None
            if len(found) == limit:
                break
    return list(found)


def _count(db: sqlite3.Connection, number: int) -> int:
    limited = "SELECT count(*) FROM (SELECT 1 FROM tags WHERE hash = ? LIMIT ?)"
    return int(db.execute(limited, (number, _RARE_TRACES)).fetchone()[0])


def _possible_kind(db: sqlite3.Connection, service: int, kind: str | None) -> bool:
    if kind is None:
        return True
    if kind not in KIND_NAMES:
        return False
    some = (
        "SELECT 1 FROM operations JOIN operation_kinds USING (operation_id) WHERE service_id = ? AND kind = ? LIMIT 1"
    )
    return db.execute(some, (service, KIND_NAMES.index(kind))).fetchone() is not None


def _source_tags(db: sqlite3.Connection, service: int) -> dict[int, set[Tag]]:
    """The tags that all spans of a source have: its resource's, and its scope's with its name and version."""
    rows = db.execute("SELECT source_id, resource, scope FROM sources WHERE service_id = ?", (service,))
    return {number: set(_tags_of_source(resource, scope)) for number, resource, scope in rows}


def _tags_of_source(resource: bytes, scope: bytes) -> Iterator[Tag]:
    described = InstrumentationScope.FromString(scope)
    for attribute in (*Resource.FromString(resource).attributes, *described.attributes):
        yield attribute.key, value_text(attribute.value)
    yield "otel.scope.name", described.name
    yield "otel.scope.version", described.version
