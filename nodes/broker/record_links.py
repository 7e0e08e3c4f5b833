"""Links from a produce to the traces of those who made its records: the W3C `traceparent` headers in a batch.

Runs for every traced batch, so it looks for the bytes that such a header has on the wire and decodes no records. A
value that holds an encoded record can be taken for one; a link too many does no harm.
"""

import re

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
_HEADER = re.compile(re.escape(_OPENING) + rb"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def links_of(records: bytes) -> list[SpanContext]:
    """The contexts that plain records name, each once, in their order."""
    start = records.find(_OPENING)  # much faster than the pattern, and nearly always all there is to do
    if start < 0:
        return []
    found: dict[tuple[int, int], SpanContext] = {}
    for count, match in enumerate(_HEADER.finditer(records, start)):
        if count == _SEARCHED_HEADERS or len(found) == MAX_LINKS:
            break
        trace_id, span_id, flags = (int(group, 16) for group in match.groups())
        context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
        if context.is_valid:
            found.setdefault((trace_id, span_id), context)
    return list(found.values())
