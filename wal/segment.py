"""Segment files: names, the 64-byte header, reading, and walking the entries with every byte checked.

Nothing here writes; `writer` does. FORMAT.md has the layout.
"""

import os
import re
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from wal.entry import HEADER_SIZE, EntryHeader, entry_fault, unpack_header
from wal.errors import ForeignFileError, LogDamagedError, UnknownFormatError
from wal.settings import MAX_ENTRY_BYTES, MIB

FORMAT_VERSION = 1
LOG_MAGIC = b"RAFKAWAL"
INDEX_MAGIC = b"RAFKAIDX"
_HEADER = struct.Struct("<8sHHIQ16sq12sI")
FILE_HEADER_SIZE = _HEADER.size
_CRC_AT = FILE_HEADER_SIZE - 4
_VERSION_AT = 8
_LOG_NAME = re.compile(r"^(\d{10})\.log$")

# One read while scanning: large enough that the system call does not matter, small enough to stay in the CPU's cache.
SCAN_BYTES = 4 * MIB


class FileHeader(NamedTuple):
    """What a segment's log and index files say of themselves."""

    number: int
    log_id: bytes
    created: int

    @property
    def seed(self) -> int:
        """Starts every entry's CRC, so that an entry of another log, or of another segment, is never valid here."""
        return crc32c(self.log_id + self.number.to_bytes(8, "little"))


def log_path(folder: Path, number: int) -> Path:
    return folder / f"{number:010d}.log"


def index_path(folder: Path, number: int) -> Path:
    return folder / f"{number:010d}.oidx"


def segment_numbers(folder: Path) -> list[int]:
    """The segments that lie in the folder, oldest first."""
    return sorted(int(found[1]) for path in folder.iterdir() if (found := _LOG_NAME.match(path.name)))


def pack_file_header(magic: bytes, header: FileHeader) -> bytes:
    """The first 64 bytes of a log or index file."""
    fields = (magic, FORMAT_VERSION, FILE_HEADER_SIZE, 0, header.number, header.log_id, header.created, bytes(12), 0)
    packed = _HEADER.pack(*fields)
    return packed[:_CRC_AT] + crc32c(packed[:_CRC_AT]).to_bytes(4, "little")


def parse_file_header(data: bytes, magic: bytes, path: Path) -> FileHeader:
    """The header, checked; the errors say what the file is instead."""
    if data[: len(magic)] != magic:
        raise ForeignFileError(
            f"{path} is not a file of this log (it does not start with {magic.decode()}): move it away, "
            "or run `rafka-lab wal repair` if it was damaged",
            path=path,
            position=0,
        )
    if len(data) < FILE_HEADER_SIZE:
        raise LogDamagedError(
            f"{path} is cut off inside its header, at byte {len(data)}: run `rafka-lab wal repair`",
            path=path,
            position=len(data),
        )
    _, version, _, _, number, log_id, created, _, crc = _HEADER.unpack(data[:FILE_HEADER_SIZE])
    if crc != crc32c(data[:_CRC_AT]):
        raise LogDamagedError(
            f"the header of {path} is damaged (its CRC does not match): run `rafka-lab wal repair`",
            path=path,
            position=0,
        )
    if version != FORMAT_VERSION:
        raise UnknownFormatError(
            f"{path} has format version {version}, and this program reads version {FORMAT_VERSION}: "
            "use the version of rafka-lab that wrote it, or a newer one",
            path=path,
            position=_VERSION_AT,
        )
    return FileHeader(number, log_id, created)


class BadEntryError(LogDamagedError):
    """The bytes at `position` are no valid entry. Whether that is a torn tail or damage, recovery decides."""

    @property
    def at(self) -> int:
        """The position, which this error always has."""
        assert self.position is not None
        return self.position


class Hole(NamedTuple):
    """Bytes from `start` to `end` that hold no valid entry."""

    start: int
    end: int
    what: str


class SegmentFile:
    """An open log file, for reading. The descriptor lives as long as somebody holds this object."""

    def __init__(self, path: Path, fd: int | None = None, header: FileHeader | None = None) -> None:
        """`header` stands in for one that is damaged."""
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if fd is None else fd
        weakref.finalize(self, os.close, self.fd)
        self.header = header or self._own_header()
        self.seed = self.header.seed

    def _own_header(self) -> FileHeader:
        header = parse_file_header(os.pread(self.fd, FILE_HEADER_SIZE, 0), LOG_MAGIC, self.path)
        name = _LOG_NAME.match(self.path.name)
        if name is not None and int(name[1]) != header.number:
            raise ForeignFileError(
                f"{self.path} says that it is segment {header.number}: it was renamed or copied; move it away",
                path=self.path,
                position=0,
            )
        return header

    @property
    def number(self) -> int:
        return self.header.number

    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self.fd).st_size

    def entry(self, position: int, length: int) -> memoryview:
        """One whole entry, checked."""
        data = os.pread(self.fd, length, position)
        self.check(data, position, length)
        return memoryview(data)

    def check(self, data: bytes | memoryview, position: int, length: int) -> None:
        """Raises unless `data` is exactly the entry that should stand at `position`."""
        fault = entry_fault(data, position, self.seed)
        if fault is None and (stated := int.from_bytes(data[:4], "little")) != length:
            fault = f"the entry has {stated} bytes, and {length} were expected"
        if fault is not None:
            raise LogDamagedError(
                f"{self.path} is damaged at position {position}: {fault}. Stop the broker and run "
                f"`rafka-lab wal repair {self.path.parent}`",
                path=self.path,
                position=position,
            )

    def scan(self, start: int, end: int) -> Iterator[tuple[EntryHeader, memoryview]]:
        """Every entry from `start` to `end` with its body, each checked; BadEntryError at the first bad one."""
        position = start
        while position < end:
            chunk = memoryview(os.pread(self.fd, min(SCAN_BYTES, end - position), position))
            at = 0
            while at < len(chunk):
                length = _stated_length(chunk, at)
                if length is None or at + length > len(chunk):  # not whole in this chunk
                    if at:
                        break  # read again, from this entry's start
                    if length is not None and length <= min(MAX_ENTRY_BYTES, end - position):
                        chunk = memoryview(os.pread(self.fd, length, position))
                fault = entry_fault(chunk[at:], position + at, self.seed)
                if fault is not None:
                    raise self._bad(position + at, fault)
                header = unpack_header(chunk, at)
                yield header, chunk[at + HEADER_SIZE : at + header.length]
                at += header.length
            position += at

    def _bad(self, position: int, fault: str) -> BadEntryError:
        return BadEntryError(
            f"{self.path} has no valid entry at position {position}: {fault}", path=self.path, position=position
        )

    def salvage(self) -> Iterator[tuple[EntryHeader, memoryview] | Hole]:
        """All valid entries of the file in order, and between them the holes."""
        position, size = FILE_HEADER_SIZE, self.size()
        while position < size:
            try:
                for entry, body in self.scan(position, size):
                    position = entry.end
                    yield entry, body
            except BadEntryError as error:
                following = next(self.search(error.at + 1, size), None)
                position = size if following is None else following.position
                yield Hole(error.at, position, str(error))

    def search(self, start: int, end: int) -> Iterator[EntryHeader]:
        """The valid entries at or behind `start`, wherever they begin.

        An entry names its own position, so candidates are found by comparing every 8 bytes with where they stand.
        """
        position = start
        while end - position >= HEADER_SIZE:
            chunk = os.pread(self.fd, min(SCAN_BYTES, end - position), position)
            found = self._first_valid(chunk, position, end)
            if found is not None:
                yield found
                position = found.end
            else:
                position += max(1, len(chunk) - HEADER_SIZE + 1)

    def _first_valid(self, chunk: bytes, start: int, end: int) -> EntryHeader | None:
        for at in _candidates(chunk, start):
            header = unpack_header(chunk, at)
            if header.end <= end:
                entry = os.pread(self.fd, header.length, header.position)
                if entry_fault(entry, header.position, self.seed) is None:
                    return header
        return None


_POSITION_AT = 8  # of an entry header's position field


def _stated_length(chunk: memoryview, at: int) -> int | None:
    """What the header at `at` says of its entry's length; None where the header itself is not whole."""
    return None if len(chunk) - at < HEADER_SIZE else int.from_bytes(chunk[at : at + 4], "little")


def _candidates(chunk: bytes, start: int) -> list[int]:
    """Where in the chunk a header could begin: its position field says just that place."""
    data = np.frombuffer(chunk, np.uint8)
    found: list[np.ndarray] = []
    for shift in range(8):
        words = data[shift + _POSITION_AT :]
        words = words[: len(words) // 8 * 8].view("<u8")
        places = np.arange(len(words), dtype=np.uint64) * 8 + shift
        found.append(places[words == places + start])
    places = np.sort(np.concatenate(found))
    return [int(place) for place in places if place + HEADER_SIZE <= len(chunk)]
