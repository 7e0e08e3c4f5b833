"""An entry's bytes for a person: offset, hex, text, and which field of the entry or of its batch each run is."""

from collections.abc import Iterator

from wal.batch import HEADER_SIZE as BATCH_HEADER_SIZE
from wal.entry import HEADER_SIZE, Kind

# (bytes, name), as wal/FORMAT.md lists them.
_ENTRY_FIELDS = (
    (4, "length"), (4, "crc"), (8, "position"), (1, "kind"), (1, "flags"), (2, "attributes"), (4, "partition"),
    (8, "org_id"), (16, "topic_id"), (8, "base_offset"), (4, "record_count"), (4, "leader_epoch"),
    (8, "base_timestamp"), (8, "max_timestamp"), (8, "producer_id"), (2, "producer_epoch"), (2, "reserved"),
    (4, "base_sequence"), (16, "trace_id"), (8, "append_time"), (4, "unsynced"),
)  # fmt: skip
# Kafka's own v2 batch header.
_BATCH_FIELDS = (
    (8, "batch.base_offset"), (4, "batch.length"), (4, "batch.leader_epoch"), (1, "batch.magic"), (4, "batch.crc"),
    (2, "batch.attributes"), (4, "batch.last_offset_delta"), (8, "batch.base_timestamp"),
    (8, "batch.max_timestamp"), (8, "batch.producer_id"), (2, "batch.producer_epoch"), (4, "batch.base_sequence"),
    (4, "batch.record_count"),
)  # fmt: skip
assert sum(size for size, _ in _ENTRY_FIELDS) == HEADER_SIZE
assert sum(size for size, _ in _BATCH_FIELDS) == BATCH_HEADER_SIZE

_KIND_AT = 16
_LINE = 16


def hexdump(entry: bytes | memoryview, position: int, limit: int) -> str:
    """One line a field, then the body in lines of 16 bytes, `limit` bytes of it at most."""
    data = bytes(entry)
    fields = [*_ENTRY_FIELDS, *(_BATCH_FIELDS if data[_KIND_AT] == Kind.DATA else ())]
    lines, at = [], 0
    for size, name in fields:
        lines.append(_line(position + at, data[at : at + size], name))
        at += size
    shown = data[at : at + limit]
    lines += [_line(position + at + start, part, "records" if start == 0 else "") for start, part in _parts(shown)]
    left = len(data) - at - len(shown)
    if left:
        lines.append(f"... {left:,} more bytes")
    return "\n".join(lines)


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(data), _LINE):
        yield start, data[start : start + _LINE]


def _line(at: int, part: bytes, name: str) -> str:
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<47}  {text:<16}  {name}".rstrip()
