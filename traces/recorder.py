"""A light span recorder behind the OpenTelemetry API: starting and ending a span costs about 2 us, the rest is done by
the exporting thread (`exporter.py`). Never raises into the caller.

A span is its own record: `end()` puts it on the exporter's queue as it is, and it is encoded there.
"""

import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from random import Random
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
from traces.fixed import Fixed
from traces.settings import RecorderSettings

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED = TraceFlags(TraceFlags.DEFAULT)
# OTLP's span flags: whether the parent lives in another process is known, and it does.
_KNOWS_REMOTE, _REMOTE = 0x100, 0x200
# OTLP numbers kinds from 1 (internal), the API from 0.
_OTLP_KIND = {kind: kind.value + 1 for kind in SpanKind}
_RATIO_BITS = 64
_random = Random()
_random_bits = _random.getrandbits
# A forked child would go on with its parent's numbers, and make the same ids.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)
_time_ns = time.time_ns


class RecordedSpan(Span):
    """A sampled span. Ids are kept as numbers; the API's context object is made when somebody asks for it."""

    __slots__ = (
        "_attributes",
        "_context",
        "_end",
        "_events",
        "_fixed",
        "_flags",
        "_kind",
        "_links",
        "_name",
        "_parent_id",
        "_span_id",
        "_start",
        "_status",
        "_trace_id",
        "_trace_state",
        "_tracer",
    )

    def __init__(
        self,
        tracer: "LightTracer",
        name: str,
        kind: SpanKind,
        trace_id: int,
        parent_id: int,
        flags: int,
        trace_state: TraceState,
        attributes: Attributes,
        start: int,
    ) -> None:
        self._tracer = tracer
        self._name = name
        self._kind = kind
        self._trace_id = trace_id
        self._span_id = _random_bits(64) or 1
        self._parent_id = parent_id
        self._flags = flags
        self._trace_state = trace_state
        if type(attributes) is Fixed:
            self._fixed: tuple[Fixed, ...] = (attributes,)
            self._attributes: dict[str, Any] | None = None
        else:
            self._fixed = ()
            self._attributes = dict(attributes) if attributes else None
        self._start = start
        self._end = 0
        self._events: list[tuple[int, str, Mapping[str, Any] | None]] | None = None
        self._links: list[tuple[SpanContext, Mapping[str, Any] | None]] | None = None
        self._status: tuple[int, str] | None = None
        self._context: SpanContext | None = None

    def get_span_context(self) -> SpanContext:
        context = self._context
        if context is None:
            context = self._context = SpanContext(self._trace_id, self._span_id, False, _SAMPLED, self._trace_state)
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
            if type(attributes) is Fixed and all(fixed.keys().isdisjoint(attributes) for fixed in self._fixed):
                self._fixed += (attributes,)
            elif self._attributes is None:
                self._attributes = dict(attributes)
            else:
                self._attributes.update(attributes)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        if self._end == 0:
            if self._events is None:
                self._events = []
            self._events.append((timestamp or _time_ns(), name, dict(attributes) if attributes else None))

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        if self._end == 0 and context.is_valid:
            if self._links is None:
                self._links = []
            self._links.append((context, dict(attributes) if attributes else None))

    def update_name(self, name: str) -> None:
        if self._end == 0:
            self._name = name

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
            self._tracer.exporter.put(self)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is not None and self._end == 0:
            self.record_exception(error)
            self.set_status(StatusCode.ERROR, f"{type(error).__name__}: {_message(error)}")
        self.end()

    def encode(self) -> bytes:
        """OTLP's message of the span; called by the exporting thread."""
        fixed, own = self._fixed, self._attributes
        if own is not None:
            for one in fixed:
                if not one.keys().isdisjoint(own):
                    own, fixed = {**{key: value for one in fixed for key, value in one.items()}, **own}, ()
                    break
        return protobuf.span(
            self._trace_id,
            self._span_id,
            self._parent_id,
            self._trace_state.to_header() if self._trace_state else "",
            self._flags,
            self._name,
            _OTLP_KIND[self._kind],
            self._start,
            self._end,
            own,
            [protobuf.event(*event) for event in self._events] if self._events else (),
            [_encode_link(context, attributes) for context, attributes in self._links] if self._links else (),
            protobuf.status(*self._status) if self._status else b"",
            fixed,
        )

    @property
    def scope(self) -> "LightTracer":
        """The tracer that made it: spans of one tracer travel together."""
        return self._tracer


def _message(exception: BaseException) -> str:
    try:
        return str(exception)
    except Exception:  # noqa: BLE001 - a broken __str__ of the caller's error must not hide that error
        return f"<{type(exception).__name__} without a readable message>"


def _encode_link(context: SpanContext, attributes: Mapping[str, Any] | None) -> bytes:
    flags = (context.trace_flags & 0xFF) | _KNOWS_REMOTE | (_REMOTE if context.is_remote else 0)
    state = context.trace_state.to_header() if context.trace_state else ""
    return protobuf.link(context.trace_id, context.span_id, state, flags, attributes)


class LightTracer(Tracer):
    """One instrumentation scope."""

    def __init__(
        self,
        exporter: Exporter,
        settings: RecorderSettings,
        name: str,
        version: str,
        schema: str,
        attributes: Attributes,
    ) -> None:
        self.exporter = exporter
        self.schema_url = schema
        self.message = protobuf.scope(name, version, attributes)
        self._parent_based = settings.parent_based
        self._bound = round(settings.ratio * (1 << _RATIO_BITS))

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
        if type(parent) is RecordedSpan and self._parent_based:
            trace_state, flags = parent._trace_state, 1 | _KNOWS_REMOTE
            span = RecordedSpan(
                self, name, kind, parent._trace_id, parent._span_id, flags, trace_state, attributes, start
            )
        else:
            known = parent.get_span_context()
            if not known.is_valid:
                trace_id = _random_bits(128) or 1
                if not self._chosen(trace_id):
                    return _unsampled(trace_id, DEFAULT_TRACE_STATE)
                span = RecordedSpan(
                    self, name, kind, trace_id, 0, 1 | _KNOWS_REMOTE, DEFAULT_TRACE_STATE, attributes, start
                )
            else:
                sampled = known.trace_flags & 1 if self._parent_based else self._chosen(known.trace_id)
                if not sampled:
                    return _unsampled(known.trace_id, known.trace_state)
                flags = 1 | _KNOWS_REMOTE | (_REMOTE if known.is_remote else 0)
                span = RecordedSpan(
                    self, name, kind, known.trace_id, known.span_id, flags, known.trace_state, attributes, start
                )
        if links:
            for link in links:
                span.add_link(link.context, link.attributes)
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


def _unsampled(trace_id: int, state: TraceState) -> Span:
    return NonRecordingSpan(SpanContext(trace_id, _random_bits(64) or 1, False, _NOT_SAMPLED, state))


class LightTracerProvider(TracerProvider):
    """What a node's program installs once; see `wiring.configure`."""

    def __init__(self, settings: RecorderSettings) -> None:
        self._settings = settings
        self._exporter = Exporter(settings)

    def get_tracer(
        self,
        instrumenting_module_name: str,
        instrumenting_library_version: str | None = None,
        schema_url: str | None = None,
        attributes: Attributes = None,
    ) -> LightTracer:
        version, schema = instrumenting_library_version or "", schema_url or ""
        return LightTracer(self._exporter, self._settings, instrumenting_module_name, version, schema, attributes)

    def stats(self) -> RecorderStats:
        """What became of the spans so far."""
        return self._exporter.stats()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Sends what has ended; False if the collector did not take it in time."""
        return self._exporter.flush(timeout_millis / 1000)

    def shutdown(self, timeout: float | None = None) -> bool:
        """Sends what has ended, within the time limit, and stops. Spans that end later are counted as dropped."""
        return self._exporter.shutdown(self._settings.shutdown_timeout if timeout is None else timeout)
