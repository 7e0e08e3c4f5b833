"""Removes whole traces from the store: those not added to for too long, and the oldest while the file is too large."""

import sqlite3

# Of what is removed for size: a little more than needed, so that it does not happen at every look.
_SHRINK_SHARE = 0.1
# Traces of one step: what arrives waits for it, about a second.
STEP_TRACES = 10_000


class Retention:
    """Works on the writer's connection, between its transactions."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def used_bytes(self) -> int:
        """What the rows need. Removed rows leave pages that new ones use, so the file does not shrink."""
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def count_spans(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM spans").fetchone()[0])

    def remove_received_before(self, moment: int) -> int:
        """Removes traces whose last span arrived before, at most one step of them; returns how many spans went."""
        old = "SELECT trace_no FROM traces WHERE received < ? LIMIT ?"
        return self._remove([row[0] for row in self._db.execute(old, (moment, STEP_TRACES))])

    def shrink_to(self, limit: int) -> int:
        """Removes traces that arrived first while the rows need more, at most one step of them; returns how many
        spans went."""
        used = self.used_bytes()
        if used <= limit:
            return 0
        total = self._db.execute("SELECT count(*) FROM traces").fetchone()[0]
        share = min(1.0, 1 - limit / used + _SHRINK_SHARE)
        oldest = "SELECT trace_no FROM traces ORDER BY trace_no LIMIT ?"
        wanted = min(STEP_TRACES, max(1, int(total * share)))
        return self._remove([row[0] for row in self._db.execute(oldest, (wanted,))])

    def _remove(self, numbers: list[int]) -> int:
        if not numbers:
            return 0
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute("CREATE TEMP TABLE IF NOT EXISTS gone (trace_no INTEGER PRIMARY KEY)")
            self._db.executemany("INSERT INTO gone VALUES (?)", ((number,) for number in numbers))
            spans = self._db.execute("DELETE FROM spans WHERE trace_no IN (SELECT trace_no FROM gone)").rowcount
            self._db.execute(
                "DELETE FROM tags WHERE trace_no BETWEEN ? AND ? AND trace_no IN (SELECT trace_no FROM gone)",
                (min(numbers), max(numbers)),
            )
            self._db.execute("DELETE FROM traces WHERE trace_no IN (SELECT trace_no FROM gone)")
            self._db.execute("DELETE FROM gone")
            self._remove_unused_names()
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        return spans

    def _remove_unused_names(self) -> None:
        self._db.execute(
            "DELETE FROM operations WHERE NOT EXISTS"
            " (SELECT 1 FROM spans WHERE spans.operation_id = operations.operation_id)"
        )
        self._db.execute("DELETE FROM operation_kinds WHERE operation_id NOT IN (SELECT operation_id FROM operations)")
        self._db.execute("DELETE FROM services WHERE service_id NOT IN (SELECT service_id FROM operations)")
        self._db.execute("DELETE FROM sources WHERE service_id NOT IN (SELECT service_id FROM services)")
