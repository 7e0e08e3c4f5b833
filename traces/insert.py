"""Puts kept requests into the store's tables, one transaction a call. Used by the indexing thread only."""

import logging
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from traces.errors import MalformedError
from traces.inbox import Entry, Position
from traces.otlp import check
from traces.rows import Group, SpanRow, Tag, groups_of, text_of
from traces.schema import tag_hash

log = logging.getLogger("traces.insert")

# Of known trace numbers and tag hashes; thrown away when full. A trace is complete within seconds.
_CACHE_LIMIT = 200_000

_SPAN = "INSERT OR IGNORE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TAG = "INSERT OR IGNORE INTO tags VALUES (?, ?)"
_TRACE = """
INSERT INTO traces VALUES (?, ?, ?, ?)
ON CONFLICT (trace_no) DO UPDATE SET start = min(start, excluded.start), received = excluded.received
"""


class Inserted(NamedTuple):
    """What became of the spans of some requests. `late` ones came long after their end."""

    new: int
    known: int
    late: int
    rejected: int


class Inserter:
    """Knows the numbers of services, operations, sources and recent traces."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self.forget()

    def forget(self) -> None:
        """Drops all that was remembered: after a failed transaction, or when old rows were removed."""
        self._services: dict[str, int] = {}
        self._operations: dict[tuple[int, str], int] = {}
        self._kinds: set[tuple[int, int]] = set()
        self._sources: dict[tuple[bytes, bytes], int] = {}
        self._trace_numbers: dict[bytes, int] = {}
        self._hashes: dict[int, dict[Tag, int]] = {}  # by service
        self._next_trace: int = self._db.execute("SELECT coalesce(max(trace_no), 0) + 1 FROM traces").fetchone()[0]
        self.traces: int = self._db.execute("SELECT count(*) FROM traces").fetchone()[0]

    def done(self) -> Position:
        """How far the inbox is in the tables."""
        return Position(*self._db.execute("SELECT file, offset FROM inbox").fetchone())

    def insert(self, entries: Sequence[Entry], late: int) -> Inserted:
        """Stores all or nothing. `late` is in nanoseconds."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            result = self._insert(entries, late)
            self._db.execute("UPDATE inbox SET file = ?, offset = ?", entries[-1].end)
            self._db.execute("COMMIT")
        except Exception:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.forget()
            raise
        return result

    def _insert(self, entries: Sequence[Entry], late: int) -> Inserted:
        rows: list[tuple[object, ...]] = []
        tags: set[tuple[int, int]] = set()
        starts: dict[bytes, int] = {}
        received: dict[bytes, int] = {}
        late_count = rejected = 0
        for entry in entries:
            late_before = entry.received - late
            body, bad = (entry.body, 0) if entry.checked else _checked(entry)
            rejected += bad
            for group in groups_of(body):
                service, source = self._source(group)
                hashes = self._hashes.setdefault(service, {})
                for span in group.spans:
                    trace_id, span_id, parent_id, _, _, status, start, duration, body, own = span
                    known = starts.get(trace_id)
                    if known is None or start < known:
                        starts[trace_id] = start
                    received[trace_id] = entry.received
                    trace_no = self._trace_numbers.get(trace_id) or self._trace(trace_id)
                    if start + duration < late_before:
                        late_count += 1
                    for tag in own:
                        tags.add((hashes.get(tag) or self._hash(service, tag), trace_no))
                    operation = self._operation(service, span)
                    rows.append(
                        (trace_no, span_id, parent_id, source, service, operation, status, start, duration, body)
                    )
        numbers = self._trace_numbers
        self._db.executemany(_TRACE, [(numbers[key], key, start, received[key]) for key, start in starts.items()])
        added = self._db.executemany(_SPAN, rows).rowcount
        # In order of the table: neighbours then share pages.
        self._db.executemany(_TAG, sorted(tags))
        if len(numbers) > _CACHE_LIMIT:
            numbers.clear()
        return Inserted(added, len(rows) - added, late_count, rejected)

    def _trace(self, key: bytes) -> int:
        row = self._db.execute("SELECT trace_no FROM traces WHERE trace_id = ?", (key,)).fetchone()
        if row is None:
            number = self._next_trace
            self._next_trace += 1
            self.traces += 1
        else:
            number = int(row[0])
        self._trace_numbers[key] = number
        return number

    def _hash(self, service: int, tag: Tag) -> int:
        hashes = self._hashes[service]
        if len(hashes) >= _CACHE_LIMIT:
            hashes.clear()
        number = hashes[tag] = tag_hash(service, *text_of(tag))
        return number

    def _source(self, group: Group) -> tuple[int, int]:
        service = self._services.get(group.service)
        if service is None:
            service = self._services[group.service] = self._number(
                "SELECT service_id FROM services WHERE name = ?",
                "INSERT INTO services (name) VALUES (?)",
                (group.service,),
            )
        key = (group.resource, group.scope)
        source = self._sources.get(key)
        if source is None:
            row = self._db.execute("SELECT source_id FROM sources WHERE resource = ? AND scope = ?", key).fetchone()
            if row is None:
                insert = "INSERT INTO sources (service_id, resource, scope) VALUES (?, ?, ?)"
                row = (self._db.execute(insert, (service, *key)).lastrowid,)
            source = self._sources[key] = int(row[0] or 0)
        return service, source

    def _operation(self, service: int, span: SpanRow) -> int:
        key = (service, span.name)
        operation = self._operations.get(key)
        if operation is None:
            operation = self._operations[key] = self._number(
                "SELECT operation_id FROM operations WHERE service_id = ? AND name = ?",
                "INSERT INTO operations (service_id, name) VALUES (?, ?)",
                key,
            )
        if (operation, span.kind) not in self._kinds:
            self._db.execute("INSERT OR IGNORE INTO operation_kinds VALUES (?, ?)", (operation, span.kind))
            self._kinds.add((operation, span.kind))
        return operation

    def _number(self, select: str, insert: str, key: tuple[object, ...]) -> int:
        row = self._db.execute(select, key).fetchone()
        if row is None:
            row = (self._db.execute(insert, key).lastrowid,)
        return int(row[0] or 0)


def _checked(entry: Entry) -> tuple[bytes, int]:
    """The good spans of a request that was not looked at when it came, and how many others it has: our recorder makes
    none, but the file may have been made by somebody else."""
    try:
        checked = check(entry.body)
    except MalformedError as error:
        log.error("%d spans of a recorder cannot be read and are dropped: %s", entry.spans, error)
        return b"", entry.spans
    if checked.rejected:
        log.error("of a recorder: %s", checked.message)
    return checked.body, checked.rejected
