"""How the nodes' libraries make spans: by the OpenTelemetry API, and by a shorter way to the same spans where the
program's provider is the light recorder. The API's contexts and proxies cost more than the spans themselves.

`tracer` is the library's own, from the API; `scope` its name.
"""

import logging
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from traces.fixed import Fixed
from traces.recorder import LightTracer, LightTracerProvider, RecordedSpan

log = logging.getLogger("traces.sites")

_EMPTY = Context()
# What sites say when a span of theirs fails: telemetry never raises into the caller.
LOST = "a span could not be recorded"


def light_tracer(scope: str) -> LightTracer | None:
    """The recorder's tracer; None with any other provider."""
    provider = trace.get_tracer_provider()
    return provider.scope(scope) if type(provider) is LightTracerProvider else None


def under(parent: Span) -> Context:
    """A context with nothing but a parent."""
    return trace.set_span_in_context(parent, _EMPTY)


def child(tracer: Tracer, scope: str, name: str, parent: Span, kind: SpanKind, attributes: Fixed) -> Span:
    """A span under one of this process."""
    if type(parent) is RecordedSpan:
        return parent.child(scope, name, kind, attributes)
    return tracer.start_span(name, under(parent), kind, attributes)


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


def point(tracer: Tracer, scope: str, name: str, parent: Span, attributes: Fixed, own: Mapping[str, Any]) -> None:
    """A span that is over when it has begun."""
    span = child(tracer, scope, name, parent, SpanKind.INTERNAL, attributes)
    span.set_attributes(own)
    span.end()
