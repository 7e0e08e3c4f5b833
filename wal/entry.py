"""One entry of the log: its kinds and its fixed header. FORMAT.md is the contract; this file is its Python.

Bodies are left to `control` (control entries) and `batch` (data entries).
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from wal.settings import MAX_ENTRY_BYTES

ENTRY_HEADER = struct.Struct("<IIQBBHiQ16sqIiqqqhHi16sqI")
HEADER_SIZE = ENTRY_HEADER.size
# Length and CRC stand in front of what the CRC covers.
CRC_FROM = 8
# `unsynced` is capped here: a smaller claim of durability is always safe.
MAX_UNSYNCED = 0xFFFF_FFFF

NO_TOPIC = bytes(16)
NO_TRACE = bytes(16)


class Kind(IntEnum):
    """What an entry is. Kinds from 0x80 on may be skipped by a reader that does not know them; others may not."""

    DATA = 0x01
    TOPIC_CREATED = 0x02
    TOPIC_DELETED = 0x03
    TOPIC_CHANGED = 0x04
    LOG_START_MOVED = 0x05
    VALUES_CHANGED = 0x06
    CHECKPOINT = 0x07
    SEGMENT_SEALED = 0x08
    SEGMENTS_DROPPED = 0x09


KNOWN_KINDS = frozenset(Kind)
FIRST_OPTIONAL_KIND = 0x80


class EntryHeader(NamedTuple):
    """The fixed header, field by field as on disk."""

    length: int
    crc: int
    position: int
    kind: int
    flags: int = 0
    attributes: int = 0
    partition: int = -1
    org_id: int = 0
    topic_id: bytes = NO_TOPIC
    base_offset: int = -1
    record_count: int = 0
    leader_epoch: int = -1
    base_timestamp: int = -1
    max_timestamp: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    reserved: int = 0
    base_sequence: int = -1
    trace_id: bytes = NO_TRACE
    append_time: int = 0
    unsynced: int = 0

    @property
    def end(self) -> int:
        """Where the next entry starts."""
        return self.position + self.length

    @property
    def durable_to(self) -> int:
        """All bytes of the segment before this position were on the disk when this entry was written."""
        return self.position - self.unsynced

    @property
    def next_offset(self) -> int:
        """The offset behind the last record of a data entry."""
        return self.base_offset + self.record_count

    @property
    def codec(self) -> int:
        """The compression of a data entry's records, as Kafka numbers it."""
        return self.attributes & 0x07

    @property
    def kind_name(self) -> str:
        """The kind in words, also for kinds of a later version."""
        return Kind(self.kind).name.lower() if self.kind in KNOWN_KINDS else f"unknown_0x{self.kind:02x}"


def unpack_header(data: bytes | memoryview, at: int = 0) -> EntryHeader:
    """The header at `at`, unchecked."""
    return EntryHeader._make(ENTRY_HEADER.unpack_from(data, at))


def entry_fault(entry: bytes | memoryview, position: int, seed: int) -> str | None:
    """What is wrong with the bytes of one whole entry that should stand at `position`; None if all is right."""
    if len(entry) < HEADER_SIZE:
        return f"only {len(entry)} bytes are left of an entry's header of {HEADER_SIZE}"
    length, crc, at = struct.unpack_from("<IIQ", entry)
    if not HEADER_SIZE <= length <= MAX_ENTRY_BYTES:
        return f"the entry's length is {length}"
    if at != position:
        return f"the entry names {at} as its position"
    if length > len(entry):
        return f"only {len(entry)} bytes are left of an entry of {length}"
    if crc32c(entry[CRC_FROM:length], seed) != crc:
        return "the entry's CRC does not match its bytes"
    return None
