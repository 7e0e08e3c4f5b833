"""Puts batches into the store's tables, one transaction a call. Used by the writing thread only."""

import sqlite3
from collections.abc import Iterable

from traces.otlp import Batch, Group, SpanRow
from traces.schema import tag_hash

# Of known trace numbers and tag hashes; thrown away when full. A trace is complete within seconds.
_CACHE_LIMIT = 200_000

_SPAN = "INSERT OR IGNORE INTO spans VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TAG = "INSERT OR IGNORE INTO tags VALUES (?, ?)"
_TRACE = """
INSERT INTO traces VALUES (?, ?, ?, ?)
ON CONFLICT (trace_no) DO UPDATE SET start = min(start, excluded.start), received = excluded.received
"""


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
        self._hashes: dict[tuple[int, str, str], int] = {}
        self._next_trace = self._db.execute("SELECT coalesce(max(trace_no), 0) + 1 FROM traces").fetchone()[0]
        self.traces: int = self._db.execute("SELECT count(*) FROM traces").fetchone()[0]

    def insert(self, batches: Iterable[Batch], now: int, late_before: int) -> tuple[int, int]:
        """Stores all; returns how many spans were new, and how many of all came late. All or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            result = self._insert(batches, now, late_before)
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.forget()
            raise
        return result

    def _insert(self, batches: Iterable[Batch], now: int, late_before: int) -> tuple[int, int]:
        rows: list[tuple[object, ...]] = []
        tags: set[tuple[int, int]] = set()
        starts: dict[bytes, int] = {}
        late = 0
        for batch in batches:
            for group in batch.groups:
                service, source = self._source(group)
                for span in group.spans:
                    trace_no = self._trace(span, starts)
                    operation = self._operation(service, span)
                    if span.start + span.duration < late_before:
                        late += 1
                    for key, value in span.tags:
                        tags.add((self._hash(service, key, value), trace_no))
                    rows.append(
                        (
                            trace_no,
                            span.span_id,
                            span.parent_id,
                            source,
                            service,
                            operation,
                            span.status,
                            span.start,
                            span.duration,
                            span.body,
                        )
                    )
        numbers = self._trace_numbers
        self._db.executemany(_TRACE, [(numbers[key], key, start, now) for key, start in starts.items()])
        added = self._db.executemany(_SPAN, rows).rowcount
        # In order of the table: neighbours then share pages.
        self._db.executemany(_TAG, sorted(tags))
        if len(numbers) > _CACHE_LIMIT:
            numbers.clear()
        return added, late

    def _trace(self, span: SpanRow, starts: dict[bytes, int]) -> int:
        key = span.trace_id
        known = starts.get(key)
        if known is None or span.start < known:
            starts[key] = span.start
        number = self._trace_numbers.get(key)
        if number is None:
            row = self._db.execute("SELECT trace_no FROM traces WHERE trace_id = ?", (key,)).fetchone()
            if row is None:
                number = self._next_trace
                self._next_trace += 1
                self.traces += 1
            else:
                number = int(row[0])
            self._trace_numbers[key] = number
        return number

    def _hash(self, service: int, key: str, value: str) -> int:
        known = (service, key, value)
        number = self._hashes.get(known)
        if number is None:
            if len(self._hashes) >= _CACHE_LIMIT:
                self._hashes.clear()
            number = self._hashes[known] = tag_hash(service, key, value)
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
