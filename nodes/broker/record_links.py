"""Links from a produce to the traces of those who made its records: the W3C `traceparent` headers in a batch.

Runs for every traced batch, so it looks for the bytes that such a header has on the wire and decodes no records. A
value that holds an encoded record can be taken for one; a link too many does no harm.
"""

import ctypes
import re
from collections.abc import Callable

from opentelemetry.trace import SpanContext, TraceFlags

from traces import names

# Of one produce: a trace for each record of a usual batch, few enough for a span that a person reads.
MAX_LINKS = 32
# Headers looked at until there are MAX_LINKS different ones: a batch may carry the same one a thousand times.
_SEARCHED_HEADERS = 256

_VALUE_BYTES = 55


def _zigzag(number: int) -> bytes:
    return bytes((number << 1,))


# A header as a record has it: length of the key, key, length of the value, value.
_OPENING = _zigzag(len(names.TRACEPARENT)) + names.TRACEPARENT.encode() + _zigzag(_VALUE_BYTES)
_FIRST = _OPENING[:1]
# Places of it that are looked at one by one, before all of the opening is searched for.
_FIRST_BYTES = 8
_HEADER = re.compile(re.escape(_OPENING) + rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def _finder() -> Callable[[bytes], bool]:
    """Whether a header's opening is in records. glibc and macOS search three times as fast as Python."""
    try:
        memmem = ctypes.PyDLL(None).memmem  # PyDLL: to give Python's lock away and get it back would take longer
    except (AttributeError, OSError, TypeError):
        return lambda records: _OPENING in records
    memmem.restype = ctypes.c_void_p
    memmem.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    return lambda records: memmem(records, len(records), _OPENING, len(_OPENING)) is not None


_holds_one = _finder()


def _may_hold_one(records: bytes) -> bool:
    """Text hardly has a header's first byte, and a single byte is found at the speed of memory."""
    place = -1
    for _ in range(_FIRST_BYTES):
        place = records.find(_FIRST, place + 1)
        if place < 0:
            return False
        if records.startswith(_OPENING, place):
            return True
    return _holds_one(records)


def links_of(records: bytes) -> list[SpanContext]:
    """The contexts that plain records name, each once, in their order."""
    if not _may_hold_one(records):
        return []
    found: dict[tuple[int, int], SpanContext] = {}
    for count, match in enumerate(_HEADER.finditer(records)):
        if count == _SEARCHED_HEADERS or len(found) == MAX_LINKS:
            break
        trace_id, span_id, flags = (int(group, 16) for group in match.groups())
        context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        if context.is_valid:
            found.setdefault((trace_id, span_id), context)
    return list(found.values())
