"""Links from a produce to the traces of those who made its records: the W3C `traceparent` headers in a batch.

Runs for every traced batch, so it looks for the bytes that such a header has on the wire and decodes no records. A
value that holds an encoded record can be taken for one; a link too many does no harm.
"""

import re
from collections.abc import Iterator

from opentelemetry.trace import SpanContext, TraceFlags

from traces import names
from wal.batch import HEADER_SIZE, BatchHeader, Buffer
from wal.compression import Codec, decompress
from wal.errors import BatchError

# Of one produce: a trace for each record of a usual batch, few enough for a span that a person reads.
MAX_LINKS = 32
# Searched whole, which takes 8 us at most: what a producer's usual batch has.
WHOLE_BYTES = 24 * 1024
# Of larger ones, looked at from each end. Records of one producer are alike, and the headers of a single large record
# are at its end: only if there is one in these are all bytes searched.
SEARCHED_BYTES = 4 * 1024
# Headers looked at until there are MAX_LINKS different ones: a batch may carry the same one a thousand times.
_SEARCHED_HEADERS = 256
# Larger compressed batches are not opened: inflating them would hold up the broker's other calls.
_COMPRESSED_BYTES = 64 * 1024
_INFLATED_BYTES = 1024 * 1024

_VALUE_BYTES = 55


def _zigzag(number: int) -> bytes:
    return bytes((number << 1,))


# A header as a record has it: length of the key, key, length of the value, value.
_HEADER = re.compile(
    re.escape(_zigzag(len(names.TRACEPARENT)) + names.TRACEPARENT.encode() + _zigzag(_VALUE_BYTES))
    + rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})"
)


def links_of(header: BatchHeader, batch: Buffer) -> list[SpanContext]:
    """The contexts that records of a checked batch name, each once, in their order."""
    found: dict[tuple[int, int], SpanContext] = {}
    for count, match in enumerate(_headers(_plain(header, batch))):
        if count == _SEARCHED_HEADERS or len(found) == MAX_LINKS:
            break
        trace_id, span_id, flags = (int(group, 16) for group in match.groups())
        context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        if context.is_valid:
            found.setdefault((trace_id, span_id), context)
    return list(found.values())


def _headers(records: memoryview) -> Iterator[re.Match[bytes]]:
    if (
        len(records) <= WHOLE_BYTES
        or _HEADER.search(records, 0, SEARCHED_BYTES) is not None
        or _HEADER.search(records, len(records) - SEARCHED_BYTES) is not None
    ):
        yield from _HEADER.finditer(records)


def _plain(header: BatchHeader, batch: Buffer) -> memoryview:
    """The records' bytes; none where opening them would cost too much or is not possible."""
    records = memoryview(batch)[HEADER_SIZE:]
    if header.codec is Codec.NONE:
        return records
    if len(records) > _COMPRESSED_BYTES:
        return memoryview(b"")
    try:
        return decompress(header.codec, records, _INFLATED_BYTES)
    except BatchError:  # inflates to more, or cannot be read: the consumer's business, as without tracing
        return memoryview(b"")
