"""A light span recorder behind the OpenTelemetry API: starting and ending a span costs about 1 us, the rest is done by
the exporting thread (`exporter.py`). Never raises into the caller.

A span is its own record: `end()` puts it on the exporter's queue as it is, and it is encoded there. Libraries of the
nodes reach the short ways (`child`, `point`, `root`, `remote_child`) by `sites.py`; all others speak the API.
"""

import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TracerProvider,
    get_current_span,
    use_span,
)
from opentelemetry.trace.span import DEFAULT_TRACE_STATE, TraceState
from opentelemetry.util._decorator import _agnosticcontextmanager
from opentelemetry.util.types import Attributes

from traces import protobuf
from traces.exporter import Exporter, RecorderStats
from traces.settings import RecorderSettings
from traces.shape import Fixed, Shape

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED = TraceFlags(TraceFlags.DEFAULT)
# OTLP's span flags: whether the parent lives in another process is known, and it does.
_KNOWS_REMOTE, _REMOTE = 0x100, 0x200
_LOCAL_FLAGS, _REMOTE_FLAGS = 1 | _KNOWS_REMOTE, 1 | _KNOWS_REMOTE | _REMOTE
# The tag and length of a parent's id.
_PARENT = b"\x22\x08"
_NO_ATTRIBUTES = Fixed()
_RATIO_BITS = 64
_ID_BYTES = 8
# Ids made at once: a call of the system for each would cost as much as the rest of a span.
_IDS_AT_ONCE = 1024
_spare_ids: list[bytes] = []
# A forked child would go on with its parent's ids.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spare_ids.clear)
_time_ns = time.time_ns


def _new_id() -> bytes:
    try:
        return _spare_ids.pop()
    except IndexError:
        some = os.urandom(_ID_BYTES * _IDS_AT_ONCE)
        ids = (some[at : at + _ID_BYTES] for at in range(0, len(some), _ID_BYTES))
        _spare_ids.extend(one for one in ids if any(one))  # all zero means none
        return _new_id()


class RecordedSpan(Span):
    """A sampled span. Ids are kept as bytes; the API's context object is made when somebody asks for it."""

    # Most spans have no more than these; then nothing need be set.
    _flags = _LOCAL_FLAGS
    _trace_state: TraceState = DEFAULT_TRACE_STATE
    _attributes: dict[str, Any] | None = None
    _more: tuple[Fixed, ...] = ()
    _events: list[tuple[int, str, Mapping[str, Any] | None]] | None = None
    _links: Sequence[Link] = ()
    _points: tuple[tuple[Shape, int, Mapping[str, Any]], ...] = ()
    _status: tuple[int, str] | None = None
    _context: SpanContext | None = None
    _end = 0

    def __init__(
        self,
        scope: "LightTracer",
        shape: Shape,
        trace_id: bytes,
        parent_id: bytes,
        start: int,
        own: dict[str, Any] | None = None,
    ) -> None:
        self.scope = scope  # spans of one scope travel together
        self._shape = shape
        self._trace_id = trace_id
        self._span_id = _new_id()
        self._parent_id = parent_id
        self._start = start
        if own is not None:
            self._attributes = own

    def child(self, scope: str, shape: Shape, own: dict[str, Any] | None = None) -> "RecordedSpan":
        """A span under this one, in the same process: sampled as this one is, by its parent or by the same trace id.
        `own` are its attributes besides the shape's; the span keeps the object."""
        ours = self.scope
        tracer = ours if scope == ours.name else ours.scopes.get(scope) or ours.provider.scope(scope)
        span = RecordedSpan(tracer, shape, self._trace_id, self._span_id, _time_ns(), own)
        if self._trace_state is not DEFAULT_TRACE_STATE:  # whose truth would be asked in Python
            span._trace_state = self._trace_state
        return span

    def point(self, scope: str, shape: Shape, own: Mapping[str, Any]) -> None:
        """A span under this one that is over when it has begun. One of the same scope goes with this one and needs no
        object of its own."""
        if self._end or scope != self.scope.name or self._trace_state is not DEFAULT_TRACE_STATE:
            self.child(scope, shape, dict(own)).end()
        else:
            self._points += ((shape, _time_ns(), own),)

    @property
    def count(self) -> int:
        """How many spans it is, with its points."""
        return 1 + len(self._points)

    @property
    def ids(self) -> bytes:
        """Trace id and span id, 24 bytes."""
        return self._trace_id + self._span_id

    def get_span_context(self) -> SpanContext:
        context = self._context
        if context is None:
            trace_id, span_id = int.from_bytes(self._trace_id, "big"), int.from_bytes(self._span_id, "big")
            context = self._context = SpanContext(trace_id, span_id, False, _SAMPLED, self._trace_state)
        return context

    def is_recording(self) -> bool:
        return self._end == 0

    def set_attribute(self, key: str, value: Any) -> None:
        if self._end == 0:
            if self._attributes is None:
                self._attributes = {}
            self._attributes[key] = value

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        if self._end == 0:
            if type(attributes) is Fixed and self._is_new(attributes):
                self._more += (attributes,)
            elif self._attributes is None:
                self._attributes = dict(attributes)
            else:
                self._attributes.update(attributes)

    def _is_new(self, attributes: Fixed) -> bool:
        """Whether the span has none of these names yet, so that none is overwritten."""
        return not self._more and self._attributes is None and self._shape.attributes.keys().isdisjoint(attributes)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        if self._end == 0:
            if self._events is None:
                self._events = []
            self._events.append((timestamp or _time_ns(), name, dict(attributes) if attributes else None))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        if self._end == 0 and context.is_valid:
            self._links = (*self._links, Link(context, dict(attributes) if attributes else None))

    def update_name(self, name: str) -> None:
        if self._end == 0:
            self._shape = Shape(name, self._shape.kind, self._shape.attributes)

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        if isinstance(status, Status):
            code, description = status.status_code, status.description
        else:
            code = status
        # The API's rules: unset never overwrites, and OK is final.
        if self._end or code is StatusCode.UNSET or (self._status and self._status[0] == StatusCode.OK.value):
            return
        self._status = (code.value, (description or "") if code is StatusCode.ERROR else "")

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        kind = type(exception)
        said = {
            "exception.type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
            "exception.message": _message(exception),
            "exception.stacktrace": "".join(traceback.format_exception(exception)),
            "exception.escaped": str(escaped),
        }
        self.add_event("exception", {**said, **(attributes or {})}, timestamp)

    def end(self, end_time: int | None = None) -> None:
        if self._end == 0:
            self._end = end_time or _time_ns()
            self.scope.put(self)

    def finish(self, shared: Fixed, own: dict[str, Any]) -> None:
        """Ends the span with attributes that are known only now; it keeps both objects."""
        if self._end == 0:
            if self._attributes is None and self._is_new(shared):
                self._more, self._attributes = (shared,), own
            else:
                self.set_attributes(shared)
                self.set_attributes(own)
            self._end = _time_ns()
            self.scope.put(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None and self._end == 0:
            self.record_exception(error)
            self.set_status(StatusCode.ERROR, f"{type(error).__name__}: {_message(error)}")
        self.end()

    def encode(self) -> list[bytes]:
        """OTLP's messages of the span and its points; called by the exporting thread."""
        trace_id, span_id, parent_id, shape = self._trace_id, self._span_id, self._parent_id, self._shape
        parent = _PARENT + parent_id if parent_id else b""
        if self._trace_state is not DEFAULT_TRACE_STATE:
            parent = protobuf.trace_state(self._trace_state.to_header()) + parent
        own, tail = self._own_and_tail()
        messages = [protobuf.short_span(trace_id, span_id, parent, shape, self._start, self._end, own, tail)]
        for shape, at, attributes in self._points:
            own = protobuf.own_attributes(attributes)
            tail = shape.tails.get(_LOCAL_FLAGS) or _tail(shape, _LOCAL_FLAGS)
            messages.append(protobuf.short_span(trace_id, _new_id(), _PARENT + span_id, shape, at, at, own, tail))
        return messages

    def _own_and_tail(self) -> tuple[bytes, bytes]:
        """What this span has besides its shape, and what its shape and all else amount to."""
        shape, own, more = self._shape, self._attributes, self._more
        encoded = b"".join([one.encoded or protobuf.fixed_attributes(one) for one in more]) if more else b""
        if own is not None:
            if not shape.attributes.keys().isdisjoint(own) or (more and _repeat(more, own)):
                everything = {key: value for one in (shape.attributes, *more, own) for key, value in one.items()}
                return protobuf.own_attributes(everything), self._rest()
            encoded += protobuf.own_attributes(own)
        if self._events or self._links or self._status:
            return encoded, protobuf.fixed_attributes(shape.attributes) + self._rest()
        return encoded, shape.tails.get(self._flags) or _tail(shape, self._flags)

    def _rest(self) -> bytes:
        return protobuf.rest(
            [protobuf.event(*event) for event in self._events] if self._events else (),
            [_encode_link(link) for link in (*self._shape.links, *self._links)],
            protobuf.status(*self._status) if self._status else b"",
            self._flags,
        )


def _repeat(shared: tuple[Fixed, ...], own: Mapping[str, Any]) -> bool:
    """Whether a name of a span's own is among shared attributes too, which it then overrides."""
    return any(not one.keys().isdisjoint(own) for one in shared)


def _tail(shape: Shape, flags: int) -> bytes:
    """What follows the own attributes of a span that has no events, links or status of its own; kept by the shape."""
    rest = protobuf.rest((), [_encode_link(link) for link in shape.links], b"", flags)
    tail = shape.tails[flags] = protobuf.fixed_attributes(shape.attributes) + rest
    return tail


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    except Exception:  # noqa: BLE001 - a broken __str__ of the caller's error must not hide that error
        return f"<{type(exception).__name__} without a readable message>"


def _encode_link(link: Link) -> bytes:
    context = link.context
    flags = (context.trace_flags & 0xFF) | _KNOWS_REMOTE | (_REMOTE if context.is_remote else 0)
    state = context.trace_state.to_header() if context.trace_state else ""
    return protobuf.link(context.trace_id, context.span_id, state, flags, link.attributes)


class LightTracer(Tracer):
    """One instrumentation scope."""

    def __init__(
        self, provider: "LightTracerProvider", name: str, version: str, schema: str, attributes: Attributes
    ) -> None:
        self.name = name
        self.put = provider.exporter.put
        self.schema_url = schema
        self.message = protobuf.scope(name, version, attributes)
        self.provider = provider
        self.scopes = provider.scopes
        self._parent_based = provider.settings.parent_based
        self._bound = round(provider.settings.ratio * (1 << _RATIO_BITS))

    def root(self, shape: Shape, start: int, own: dict[str, Any] | None = None) -> RecordedSpan | None:
        """The first span of a trace; None if the trace is not sampled. Most traces of a small ratio are not, and cost
        no more than this."""
        low = _new_id()
        if int.from_bytes(low, "big") >= self._bound:
            return None
        return RecordedSpan(self, shape, _new_id() + low, b"", start, own)

    def remote_child(
        self, shape: Shape, trace_id: bytes, parent_id: bytes, own: dict[str, Any] | None = None
    ) -> RecordedSpan | None:
        """A span under one of another process that is sampled there; None if it is not to be here."""
        if not self._parent_based and not self._chosen(int.from_bytes(trace_id, "big")):
            return None
        span = RecordedSpan(self, shape, trace_id, parent_id, _time_ns(), own)
        span._flags = _REMOTE_FLAGS
        return span

    def start_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
    ) -> Span:
        parent = get_current_span(context)
        start = start_time or _time_ns()
        shape = Shape(name, kind, attributes if type(attributes) is Fixed else _NO_ATTRIBUTES)
        if type(parent) is RecordedSpan:
            span = RecordedSpan(self, shape, parent._trace_id, parent._span_id, start)
            span._trace_state = parent._trace_state
        elif not (known := parent.get_span_context()).is_valid:
            root = self.root(shape, start)
            if root is None:
                return _unsampled(_new_id() + _new_id(), DEFAULT_TRACE_STATE)
            span = root
        else:
            trace_id = known.trace_id.to_bytes(16, "big")
            sampled = known.trace_flags & 1 if self._parent_based else self._chosen(known.trace_id)
            if not sampled:
                return _unsampled(trace_id, known.trace_state)
            span = RecordedSpan(self, shape, trace_id, known.span_id.to_bytes(_ID_BYTES, "big"), start)
            span._trace_state = known.trace_state
            if known.is_remote:
                span._flags = _REMOTE_FLAGS
        if attributes and attributes is not shape.attributes:
            span._attributes = dict(attributes)
        if links:
            span._links = tuple(link for link in links if link.context.is_valid)
        return span

    @_agnosticcontextmanager
    def start_as_current_span(
        self,
        name: str,
        context: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        start_time: int | None = None,
        record_exception: bool = True,
        set_status_on_exception: bool = True,
        end_on_exit: bool = True,
    ) -> Iterator[Span]:
        span = self.start_span(name, context, kind, attributes, links, start_time)
        with use_span(span, end_on_exit, record_exception, set_status_on_exception) as current:
            yield current

    def _chosen(self, trace_id: int) -> bool:
        # As OpenTelemetry's TraceIdRatioBased does, so that all processes decide alike.
        return trace_id & ((1 << _RATIO_BITS) - 1) < self._bound


def _unsampled(trace_id: bytes, state: TraceState) -> Span:
    ids = int.from_bytes(trace_id, "big"), int.from_bytes(_new_id(), "big")
    return NonRecordingSpan(SpanContext(*ids, False, _NOT_SAMPLED, state))


class LightTracerProvider(TracerProvider):
    """What a node's program installs once; see `wiring.configure`."""

    def __init__(self, settings: RecorderSettings) -> None:
        self.settings = settings
        self.exporter = Exporter(settings)
        self.scopes: dict[str, LightTracer] = {}  # those that are nothing but a name

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> LightTracer:
        version, schema = instrumenting_library_version or "", schema_url or ""
        return LightTracer(self, instrumenting_module_name, version, schema, attributes)

    def scope(self, name: str) -> LightTracer:
        """The one tracer of a scope that is nothing but a name."""
        tracer = self.scopes.get(name)
        if tracer is None:
            tracer = self.scopes[name] = self.get_tracer(name)
        return tracer

    def stats(self) -> RecorderStats:
        """What became of the spans so far."""
        return self.exporter.stats()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Sends what has ended; False if the collector did not take it in time."""
        return self.exporter.flush(timeout_millis / 1000)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Sends what has ended, within the time limit, and stops. Spans that end later are counted as dropped."""
        return self.exporter.shutdown(self.settings.shutdown_timeout if timeout is None else timeout)
