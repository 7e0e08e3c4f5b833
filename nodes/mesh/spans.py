"""The mesh's spans and the trace header of its frames. Speaks the OpenTelemetry API, by `traces.sites`.

A span that cannot be recorded is logged and never fails the call it belongs to.

A call is traced if its context is sampled, and one flag decides: without it no span is made on either side. Names and
nesting: `mesh.kafkaop.sent` > `mesh.kafkaop.handle` (other process) > `kafkaop.ack`, and `kafkaop.ack_received` under
`sent`.
"""

import functools
import logging

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags

from nodes.mesh.frames import HEADER_BYTES, NO_TRACE, is_sampled
from traces import names, sites
from traces.recorder import RecordedSpan
from traces.shape import Fixed
from traces.sites import LOST, Scope, Site, end

log = logging.getLogger(__name__)

_VERSION = b"\x00"
_RESERVED = bytes(6)
_SAMPLED_TAIL = bytes((TraceFlags.SAMPLED,)) + _RESERVED
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
# What a caller may hand over: its span (cheapest for a call that is traced), a context, a frame's 32-byte header
# (NO_TRACE costs nothing), or None for the span that is current where the call is made.
Trace = Span | SpanContext | bytes | None
_scope = Scope("rafka.mesh")
# Ops times organisations times outcomes, of which a node sees a few.
_KEPT_SITES = 1024


@functools.lru_cache(_KEPT_SITES)
def _sent(op_code: int, org_id: int) -> Site:
    return Site(_scope, names.MESH_SENT, SpanKind.CLIENT, _op(op_code, org_id))


@functools.lru_cache(_KEPT_SITES)
def _handle(op_code: int, org_id: int) -> Site:
    return Site(_scope, names.MESH_HANDLE, SpanKind.SERVER, _op(op_code, org_id))


@functools.lru_cache(_KEPT_SITES)
def _ack(op_code: int, org_id: int, status: int) -> Site:
    return Site(_scope, names.ACK, attributes=Fixed({**_op(op_code, org_id), names.MESH_STATUS: status}))


@functools.lru_cache(_KEPT_SITES)
def _ack_received(op_code: int, org_id: int) -> Site:
    return Site(_scope, names.ACK_RECEIVED, attributes=_op(op_code, org_id))


def _op(op_code: int, org_id: int) -> Fixed:
    """What all spans of one kind of call share."""
    return Fixed({names.MESH_OP_CODE: op_code, names.MESH_ORG_ID: org_id})


def header_of(context: SpanContext) -> bytes:
    """The 32-byte header of a context; all zero for none."""
    if not context.is_valid:
        return NO_TRACE
    ids = context.trace_id.to_bytes(16, "big") + context.span_id.to_bytes(8, "big")
    return _VERSION + ids + bytes((context.trace_flags & 0xFF,)) + _RESERVED


def context_of(header: bytes) -> SpanContext:
    """The context in a header; an invalid one for a header that holds none. Never raises."""
    flags = header[25]
    return SpanContext(
        int.from_bytes(header[1:17], "big"),
        int.from_bytes(header[17:25], "big"),
        is_remote=True,
        trace_flags=_SAMPLED if flags == TraceFlags.SAMPLED else TraceFlags(flags),
    )


def start_sent(given: Trace, op_code: int, org_id: int) -> tuple[Span | None, bytes]:
    """Starts the caller's span if the context is sampled; the header for the frame in any case."""
    if type(given) is RecordedSpan:
        recorded = given.child(_scope.name, _sent(op_code, org_id))
        return recorded, _VERSION + recorded.ids + _SAMPLED_TAIL
    if isinstance(given, bytes):
        if len(given) != HEADER_BYTES:
            raise ValueError(f"a trace header has {HEADER_BYTES} bytes, not {len(given)}")
        if not is_sampled(given):
            return None, given
        parent: Span = NonRecordingSpan(context_of(given))
    elif isinstance(given, SpanContext):
        if not given.trace_flags & TraceFlags.SAMPLED:
            return None, header_of(given)
        parent = NonRecordingSpan(given)
    else:
        parent = trace.get_current_span() if given is None else given
        if not parent.is_recording() and not parent.get_span_context().trace_flags & TraceFlags.SAMPLED:
            return None, header_of(parent.get_span_context())
    try:
        span = _sent(op_code, org_id).child(parent)
        return span, header_of(span.get_span_context())
    except Exception:
        log.exception(LOST)
        return None, header_of(parent.get_span_context())


def not_sent(given: Trace, op_code: int, org_id: int, error: BaseException) -> None:
    """The span of a call that found no way to its peer."""
    span, _ = start_sent(given, op_code, org_id)
    if span is not None:
        end(span, f"{type(error).__name__}: {error}")


def request_sent(span: Span, request_id: int) -> None:
    try:
        span.set_attribute(names.MESH_REQUEST_ID, request_id)
    except Exception:
        log.exception(LOST)


def ack_received(span: Span, op_code: int, org_id: int, request_id: int) -> None:
    """The short span at the answer's arrival."""
    try:
        _ack_received(op_code, org_id).point(span, {names.MESH_REQUEST_ID: request_id})
    except Exception:
        log.exception(LOST)


def end_abandoned(span: Span) -> None:
    """The caller went before the answer came: its decision, and no error."""
    try:
        span.add_event(names.ABANDONED_EVENT)
        span.end()
    except Exception:
        log.exception(LOST)


def start_handle(header: bytes, op_code: int, org_id: int, request_id: int) -> Span | None:
    """The serving side's span; call it only for a sampled header."""
    try:
        own = {names.MESH_REQUEST_ID: request_id}
        return _handle(op_code, org_id).remote_child(bytes(header[1:17]), bytes(header[17:25]), own)
    except Exception:
        log.exception(LOST)
        return None


class as_current:  # noqa: N801 - used as a function; a generator would cost three times as much
    """Makes the span the handler's current one."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = otel_context.attach(sites.under(self._span))

    def __exit__(self, *_: object) -> None:
        otel_context.detach(self._token)


def ack(span: Span, op_code: int, org_id: int, request_id: int, status: int) -> None:
    """The short span at the answer's sending, under the handler's."""
    try:
        _ack(op_code, org_id, status).point(span, {names.MESH_REQUEST_ID: request_id})
    except Exception:
        log.exception(LOST)


def unsupported_tag(header: bytes, tag: int, length: int, peer: str) -> None:
    try:
        attributes: dict[str, str | int] = {names.MESH_TAG: tag, names.MESH_FRAME_BYTES: length, names.MESH_PEER: peer}
        parent = context_of(header)
        context = sites.under(NonRecordingSpan(parent)) if parent.is_valid else None
        _scope.tracer.start_span(names.UNSUPPORTED_TAG, context, SpanKind.SERVER, attributes).end()
    except Exception:
        log.exception(LOST)
