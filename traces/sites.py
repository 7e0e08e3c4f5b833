"""How the nodes' libraries make spans: by the OpenTelemetry API, and by a shorter way to the same spans where the
program's provider is the light recorder. The API's contexts and proxies cost more than the spans themselves.
"""

import logging
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

from traces.recorder import LightTracer, LightTracerProvider, RecordedSpan
from traces.shape import Fixed, Shape

log = logging.getLogger("traces.sites")

_EMPTY = Context()
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_NO_ATTRIBUTES = Fixed()
# What sites say when a span of theirs fails: telemetry never raises into the caller.
LOST = "a span could not be recorded"


def under(parent: Span) -> Context:
    """A context with nothing but a parent."""
    return trace.set_span_in_context(parent, _EMPTY)


# Providers that record nothing: none was installed, or tracing is off.
_NOTHING = (ProxyTracerProvider, NoOpTracerProvider)


def is_recording() -> bool:
    """Whether the program has a provider that makes spans at all."""
    provider = trace.get_tracer_provider()
    return type(provider) is LightTracerProvider or not isinstance(provider, _NOTHING)


class Scope:
    """An instrumented library, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tracer = trace.get_tracer(name)
        self._light: LightTracer | None = None

    def light(self) -> LightTracer | None:
        """The recorder's tracer; None with any other provider."""
        if self._light is None:  # a provider is set once and for good
            provider = trace.get_tracer_provider()
            self._light = provider.scope(self.name) if type(provider) is LightTracerProvider else None
        return self._light


class Site(Shape):
    """A place of a library that makes spans of one name, kind and set of attributes; `links` are for roots. `own` are a
    span's attributes besides; it keeps the object, and their names are not among the site's."""

    __slots__ = ("_scope", "_scope_name")

    def __init__(
        self,
        scope: Scope,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Fixed = _NO_ATTRIBUTES,
        links: tuple[Link, ...] = (),
    ) -> None:
        super().__init__(name, kind, attributes, links)
        self._scope = scope
        self._scope_name = scope.name

    def child(self, parent: Span, own: dict[str, Any] | None = None) -> Span:
        """A span under one of this process."""
        if type(parent) is RecordedSpan:
            return parent.child(self._scope_name, self, own)
        return self._scope.tracer.start_span(self.name, under(parent), self.kind, self._all(own))

    def point(self, parent: Span, own: Mapping[str, Any]) -> None:
        """A span that is over when it has begun."""
        if type(parent) is RecordedSpan:
            parent.point(self._scope_name, self, own)
        else:
            self._scope.tracer.start_span(self.name, under(parent), self.kind, self._all(own)).end()

    def root(self, start: int, own: dict[str, Any]) -> Span | None:
        """The first span of a trace; None if the trace is not sampled."""
        light = self._scope.light()
        if light is not None:
            return light.root(self, start, own)
        span = self._scope.tracer.start_span(self.name, _EMPTY, self.kind, self._all(own), self.links, start)
        return span if span.is_recording() else None

    def remote_child(self, trace_id: bytes, parent_id: bytes, own: dict[str, Any]) -> Span | None:
        """A span under a sampled one of another process; None if it is not to be recorded here."""
        light = self._scope.light()
        if light is not None:
            return light.remote_child(self, trace_id, parent_id, own)
        ids = int.from_bytes(trace_id, "big"), int.from_bytes(parent_id, "big")
        parent = NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=_SAMPLED))
        return self._scope.tracer.start_span(self.name, under(parent), self.kind, self._all(own))

    def _all(self, own: Mapping[str, Any] | None) -> Mapping[str, Any]:
        return {**self.attributes, **own} if own else self.attributes


def finish(span: Span, shared: Fixed, own: dict[str, Any]) -> None:
    """Ends a span with attributes that are known only now; it keeps both objects."""
    if type(span) is RecordedSpan:
        span.finish(shared, own)
    else:
        span.set_attributes(shared)
        span.set_attributes(own)
        span.end()


def end(span: Span | None, error: str = "") -> None:
    """Ends a span if there is one, as failed if there is an error. Never raises."""
    if span is None:
        return
    try:
        if error:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end()
    except Exception:
        log.exception(LOST)
