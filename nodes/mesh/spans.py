"""The mesh's spans and the trace header of its frames. Speaks the OpenTelemetry API only.

A span that cannot be recorded is logged and never fails the call it belongs to.

A call is traced if its context is sampled, and one flag decides: without it no span is made on either side. Names and
nesting: `mesh.kafkaop.sent` > `mesh.kafkaop.handle` (other process) > `kafkaop.ack`, and `kafkaop.ack_received` under
`sent`.
"""

import contextlib
import logging
from collections.abc import Iterator

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from nodes.mesh.frames import HEADER_BYTES, NO_TRACE, is_sampled

log = logging.getLogger(__name__)

_VERSION = b"\x00"
_RESERVED = bytes(6)
# What a caller may hand over: a context, a frame's 32-byte header (cheapest; NO_TRACE costs nothing), or None for the
# span that is current where the call is made.
Trace = SpanContext | bytes | None
_tracer = trace.get_tracer("rafka.mesh")


class _Harmless:
    """Span processors are the program's: one that raises must not fail a call."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            log.error("a span could not be recorded", exc_info=error)
        return isinstance(error, Exception)


_harmless = _Harmless()


def header_of(context: SpanContext) -> bytes:
    """The 32-byte header of a context; all zero for none."""
    if not context.is_valid:
        return NO_TRACE
    ids = context.trace_id.to_bytes(16, "big") + context.span_id.to_bytes(8, "big")
    return _VERSION + ids + bytes((context.trace_flags & 0xFF,)) + _RESERVED


def context_of(header: bytes) -> SpanContext:
    """The context in a header; an invalid one for a header that holds none. Never raises."""
    return SpanContext(
        int.from_bytes(header[1:17], "big"),
        int.from_bytes(header[17:25], "big"),
        is_remote=True,
        trace_flags=TraceFlags(header[25]),
    )


def start_sent(given: Trace, op_code: int, org_id: int) -> tuple[Span | None, bytes]:
    """Starts the caller's span if the context is sampled; the header for the frame in any case."""
    if isinstance(given, bytes):
        if len(given) != HEADER_BYTES:
            raise ValueError(f"a trace header has {HEADER_BYTES} bytes, not {len(given)}")
        if not is_sampled(given):
            return None, given
        parent = context_of(given)
    else:
        parent = trace.get_current_span().get_span_context() if given is None else given
        if not parent.trace_flags & TraceFlags.SAMPLED:
            return None, header_of(parent)
    with _harmless:
        span = _start("mesh.kafkaop.sent", parent, SpanKind.CLIENT)
        span.set_attributes({"mesh.op_code": op_code, "mesh.org_id": org_id})
        return span, header_of(span.get_span_context())
    return None, header_of(parent)


def request_sent(span: Span, request_id: int) -> None:
    with _harmless:
        span.set_attribute("mesh.request_id", request_id)


def ack_received(span: Span, header: bytes, op_code: int, org_id: int, request_id: int) -> None:
    """The short span at the answer's arrival; links to the peer's span that the answer's header names."""
    with _harmless:
        ack = _start("kafkaop.ack_received", span.get_span_context(), SpanKind.INTERNAL)
        ack.set_attributes({"mesh.op_code": op_code, "mesh.org_id": org_id, "mesh.request_id": request_id})
        remote = context_of(header)
        if remote.is_valid:
            ack.add_link(remote)
        ack.end()


def end(span: Span, error: str = "") -> None:
    with _harmless:
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end()


def start_handle(header: bytes, op_code: int, org_id: int, request_id: int) -> Span | None:
    """The serving side's span; call it only for a sampled header."""
    with _harmless:
        span = _start("mesh.kafkaop.handle", context_of(header), SpanKind.SERVER)
        span.set_attributes({"mesh.op_code": op_code, "mesh.org_id": org_id, "mesh.request_id": request_id})
        return span
    return None


@contextlib.contextmanager
def as_current(span: Span) -> Iterator[None]:
    """Makes the span the handler's current one."""
    token = otel_context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        otel_context.detach(token)


def ack(span: Span, op_code: int, org_id: int, request_id: int, status: int) -> bytes:
    """The short span at the answer's sending, under the handler's; gives the header for the answer."""
    with _harmless:
        answer = _start("kafkaop.ack", span.get_span_context(), SpanKind.INTERNAL)
        attributes = {"mesh.op_code": op_code, "mesh.org_id": org_id, "mesh.request_id": request_id}
        answer.set_attributes(attributes | {"mesh.status": status})
        answer.end()
        return header_of(answer.get_span_context())
    return NO_TRACE


def unsupported_tag(header: bytes, tag: int, length: int, peer: str) -> None:
    with _harmless:
        span = _start("unsupported_tag", context_of(header), SpanKind.SERVER)
        span.set_attributes({"mesh.tag": tag, "mesh.frame_bytes": length, "mesh.peer": peer})
        span.end()


def _start(name: str, parent: SpanContext, kind: SpanKind) -> Span:
    context = trace.set_span_in_context(NonRecordingSpan(parent)) if parent.is_valid else None
    return _tracer.start_span(name, context=context, kind=kind)
