"""The store's tables and the settings of its connections. Writing is in `store.py`, reading in `search.py`.

A trace has a number, given in the order of arrival: the unique index over (trace_no, span_id) then grows at its end
instead of at random, and old traces are a range. `by_service` and `by_operation` hold all that a search without tags
looks at. `tags` finds the traces of a tag by a 64-bit hash of service, key and value; a match is checked on the span
itself, so a collision costs time and never a wrong answer.
"""

import hashlib
import sqlite3
from pathlib import Path

from traces.errors import StoreError

# Kept in the file: another version of the tables is refused instead of misread.
SCHEMA_VERSION = 2
# "rafk": tells our files from other programs' SQLite files.
APPLICATION_ID = 0x7261666B
# A reader or writer waits this long for the other; WAL mode makes it a rarity.
BUSY_SECONDS = 10.0
# Room for the inner pages of all indexes of some million spans.
CACHE_KIB = 65_536
# Checkpoints of 32 MB instead of 4 MB: each one is a sync.
CHECKPOINT_PAGES = 8192

_TABLES = """
CREATE TABLE services (service_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE operations (
    operation_id INTEGER PRIMARY KEY,
    service_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    UNIQUE (service_id, name)
);
CREATE TABLE operation_kinds (
    operation_id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    PRIMARY KEY (operation_id, kind)
) WITHOUT ROWID;
CREATE TABLE sources (
    source_id INTEGER PRIMARY KEY,
    service_id INTEGER NOT NULL,
    resource BLOB NOT NULL,
    scope BLOB NOT NULL,
    UNIQUE (resource, scope)
);
CREATE TABLE traces (
    trace_no INTEGER PRIMARY KEY,
    trace_id BLOB NOT NULL UNIQUE,
    start INTEGER NOT NULL,
    received INTEGER NOT NULL
);
CREATE INDEX traces_by_start ON traces (start);
CREATE TABLE spans (
    trace_no INTEGER NOT NULL,
    span_id INTEGER NOT NULL,
    parent_id INTEGER,
    source_id INTEGER NOT NULL,
    service_id INTEGER NOT NULL,
    operation_id INTEGER NOT NULL,
    status INTEGER NOT NULL,
    start INTEGER NOT NULL,
    duration INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX spans_by_id ON spans (trace_no, span_id);
CREATE INDEX by_service ON spans (service_id, start, duration, trace_no);
CREATE INDEX by_operation ON spans (operation_id, start, duration, trace_no);
CREATE TABLE tags (hash INTEGER NOT NULL, trace_no INTEGER NOT NULL, PRIMARY KEY (hash, trace_no)) WITHOUT ROWID;
"""
# Since version 2: how far the inbox is in the tables. One row.
_INBOX = """
CREATE TABLE inbox (file INTEGER NOT NULL, offset INTEGER NOT NULL);
INSERT INTO inbox VALUES (0, 0);
"""


def open_for_writing(path: Path) -> sqlite3.Connection:
    """Opens or makes the store; the only connection that may write."""
    try:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise StoreError(f"cannot open the trace store {path}: {error}; choose another file with --store") from None
    try:
        version = _check(connection, path)
        connection.execute("PRAGMA journal_mode=WAL")
        # A commit is then safe against the end of the process; power loss may take the last ones.
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        _tune(connection)
        if version < SCHEMA_VERSION:
            tables = _INBOX if version else _TABLES + _INBOX
            marks = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};"
            connection.executescript(f"BEGIN IMMEDIATE; {tables} {marks} COMMIT;")
    except sqlite3.Error as error:
        connection.close()
        raise StoreError(f"cannot use the trace store {path}: {error}; move the file away or name another") from None
    except StoreError:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot change anything."""
    try:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA query_only=ON")
        _tune(connection)
    except sqlite3.Error as error:
        raise StoreError(f"cannot read the trace store {path}: {error}") from None
    return connection


def tag_hash(service_id: int, key: str, value: str) -> int:
    """The number that stands for a service's tag in the store; the same in every process and version."""
    text = f"{service_id}\x1f{key}\x1f{value}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)


def _check(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    used = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    if used and owner != APPLICATION_ID:
        raise StoreError(f"{path} is another program's SQLite file; name a file of its own for the traces")
    if used and not 0 < version <= SCHEMA_VERSION:
        raise StoreError(f"{path} has version {version} of the tables, this program {SCHEMA_VERSION}; name a new file")
    return version if used else 0


def _tune(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    connection.execute("PRAGMA temp_store=MEMORY")
