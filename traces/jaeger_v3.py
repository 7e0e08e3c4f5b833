"""Jaeger's API v3 answers: traces as OTLP's JSON, and summaries."""

from collections.abc import Iterable
from typing import Any

from traces.otlp_json import resource_spans_json
from traces.reader import StoredTrace, TraceSummary


def traces_json(traces: Iterable[StoredTrace]) -> dict[str, Any]:
    """All spans of all traces in one document, as Jaeger's gateway sends them."""
    spans = [
        resource_spans_json(source.resource, source.scope, group, source.resource_schema_url, source.scope_schema_url)
        for trace in traces
        for source, group in trace.groups
    ]
    return {"result": {"resourceSpans": spans}}


def summary_json(summary: TraceSummary) -> dict[str, Any]:
    """One trace of a list. Jaeger's UI up to 2.19 reads `traceID`, later ones `traceId`."""
    trace_id = summary.trace_id.hex()
    return {
        "traceID": trace_id,
        "traceId": trace_id,
        "rootServiceName": summary.root_service,
        "rootOperationName": summary.root_operation,
        "minStartTimeUnixNano": str(summary.start),
        "maxEndTimeUnixNano": str(summary.end),
        "spanCount": summary.spans,
        "errorSpanCount": summary.errors,
        "orphanSpanCount": summary.orphans,
        "services": [
            {"name": name, "spanCount": spans, "errorSpanCount": errors} for name, spans, errors in summary.services
        ],
    }


def error_json(code: int, message: str) -> dict[str, Any]:
    """The gateway's error body."""
    return {"error": {"httpCode": code, "message": message}}
