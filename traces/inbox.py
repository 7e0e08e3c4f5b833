"""Requests that were taken and are not in the tables yet: files beside the store, `<store>-inbox-<number>`.

An entry is `length, crc32, spans, received, checked` and the bytes of the request. It is written in one call before its
sender is answered, so it outlives the end of the process. Which entries are in the tables is said by the tables: a
`Position` that is committed with their rows.
"""

import logging
import os
import struct
import threading
import zlib
from collections import deque
from pathlib import Path
from typing import NamedTuple

from traces.errors import StoreError

log = logging.getLogger("traces.inbox")

_HEADER = struct.Struct("<IIIq?")
# A file is removed when all of it is in the tables: large enough to be rare, small enough to give room back soon.
_FILE_BYTES = 16 * 1024 * 1024


class Position(NamedTuple):
    """The end of what is in the tables."""

    file: int
    offset: int


class Entry(NamedTuple):
    """One request that waits."""

    body: bytes
    spans: int
    received: int
    checked: bool  # when it came; otherwise by who reads it
    end: Position


class _Waiting(NamedTuple):
    file: int
    offset: int  # of the body
    size: int
    spans: int
    received: int
    checked: bool


class Inbox:
    """Many threads append, one reads."""

    def __init__(self, store: Path, done: Position) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._spans = 0
        self._file = done.file
        self._load(done)
        self._file += 1
        self._written = 0
        self._writing: int | None = None
        self._reading: tuple[int, int] | None = None  # number and descriptor

    @property
    def spans(self) -> int:
        """How many spans wait."""
        return self._spans

    @property
    def requests(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def append(self, body: bytes, spans: int, received: int, checked: bool = True) -> None:
        """Keeps a request; raises StoreError if there is no room for it."""
        header = _HEADER.pack(len(body), zlib.crc32(body), spans, received, checked)
        with self._lock:
            try:
                file = self._open_for_writing()
                written = os.writev(file, (header, body))
                if written < len(header) + len(body):
                    os.ftruncate(file, self._written)
                    raise OSError(None, "no room for the whole request")
            except OSError as error:
                raise StoreError(
                    f"the spans cannot be kept beside {self._store}: {error.strerror}; free space, then send them again"
                ) from None
            place = self._written + len(header)
            self._waiting.append(_Waiting(self._file, place, len(body), spans, received, checked))
            self._written += written
            self._spans += spans

    def read(self, spans: int) -> list[Entry]:
        """The oldest entries, up to so many spans and at least one; they wait on until `forget`."""
        chosen: list[_Waiting] = []
        with self._lock:
            for waiting in self._waiting:
                if chosen and waiting.spans > spans:
                    break
                chosen.append(waiting)
                spans -= waiting.spans
        return [self._entry(waiting) for waiting in chosen]

    def forget(self, entries: list[Entry]) -> None:
        """These are in the tables now."""
        with self._lock:
            first = self._waiting[0].file
            for entry in entries:
                self._waiting.popleft()
                self._spans -= entry.spans
            last = self._waiting[0].file if self._waiting else self._file
        for number in range(first, last):
            self._path(number).unlink(missing_ok=True)

    def close(self) -> None:
        """Closes the files, and removes them if nothing waits."""
        with self._lock:
            for descriptor in (self._writing, self._reading and self._reading[1]):
                if descriptor is not None:
                    os.close(descriptor)
            self._writing = self._reading = None
            if not self._waiting:
                self._path(self._file).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._store.with_name(f"{self._store.name}-inbox-{number:06d}")

    def _open_for_writing(self) -> int:
        if self._writing is not None and self._written >= _FILE_BYTES:
            os.close(self._writing)
            self._writing = None
            self._file += 1
        if self._writing is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._writing = os.open(self._path(self._file), flags, 0o600)
            self._written = 0
        return self._writing

    def _entry(self, waiting: _Waiting) -> Entry:
        number, offset, size, spans, received, checked = waiting
        if self._reading is None or self._reading[0] != number:
            if self._reading is not None:
                os.close(self._reading[1])
            self._reading = number, os.open(self._path(number), os.O_RDONLY)
        body = os.pread(self._reading[1], size, offset)
        return Entry(body, spans, received, checked, Position(number, offset + size))

    def _load(self, done: Position) -> None:
        """Finds what an earlier process left."""
        pattern = f"{self._store.name}-inbox-*"
        numbers = (path.name.rpartition("-")[2] for path in self._store.parent.glob(pattern))
        for number in sorted(int(digits) for digits in numbers if digits.isdecimal()):
            path = self._path(number)
            if number >= done.file:
                self._load_file(number, path.read_bytes(), done.offset if number == done.file else 0)
            if number < done.file or all(waiting.file != number for waiting in self._waiting):
                path.unlink()
            self._file = max(self._file, number)

    def _load_file(self, number: int, content: bytes, at: int) -> None:
        while at + _HEADER.size <= len(content):
            size, crc, spans, received, checked = _HEADER.unpack_from(content, at)
            body = content[at + _HEADER.size : at + _HEADER.size + size]
            if len(body) < size or zlib.crc32(body) != crc:
                break
            self._waiting.append(_Waiting(number, at + _HEADER.size, size, spans, received, checked))
            self._spans += spans
            at += _HEADER.size + size
        if at < len(content):
            # The process ended while it wrote: the sender was not answered, and sends it again.
            log.warning("%s: %d bytes at its end are no whole request", self._path(number), len(content) - at)
