"""Traces in Jaeger's v1 JSON form, shaped like the ones our nodes send: input for the viewer's tests."""

from typing import Any

START_US = 1_790_000_000_000_000
GATEWAY, BROKER = "p1", "p2"

PROCESSES = {
    GATEWAY: {
        "serviceName": "rafka-gateway",
        "tags": [
            {"key": "service.instance.id", "type": "string", "value": "gateway-1"},
            {"key": "process.pid", "type": "int64", "value": 4711},
        ],
    },
    BROKER: {
        "serviceName": "rafka-broker",
        "tags": [{"key": "service.instance.id", "type": "string", "value": "broker-1"}],
    },
}

# name, parent, process, start and duration in us, kind: the nesting that DESIGN.md section 6 fixes.
PRODUCE = (
    # Ends as soon as its request has begun, as the gateway's does.
    ("gateway.kafka.connect", None, GATEWAY, 0, 150, "server"),
    ("gateway.kafka.request", 0, GATEWAY, 130, 2_050, "server"),
    ("mesh.kafkaop.sent", 1, GATEWAY, 310, 1_640, "client"),
    ("mesh.kafkaop.handle", 2, BROKER, 520, 1_130, "server"),
    ("broker.produce.store", 3, BROKER, 640, 790, "internal"),
    ("kafkaop.ack", 3, BROKER, 1_450, 160, "producer"),
    ("kafkaop.ack_received", 2, GATEWAY, 1_780, 110, "consumer"),
)


def tag(key: str, value: Any) -> dict[str, Any]:
    kinds = {bool: "bool", int: "int64", float: "float64"}
    return {"key": key, "type": kinds.get(type(value), "string"), "value": value}


def span(
    trace_id: str, span_id: str, name: str, *, parent: str | None, process: str, start: int, duration: int, **more: Any
) -> dict[str, Any]:
    refs = [{"refType": "CHILD_OF", "traceID": trace_id, "spanID": parent}] if parent else []
    return {
        "traceID": trace_id,
        "spanID": span_id,
        "operationName": name,
        "references": refs + more.get("links", []),
        "startTime": START_US + start,
        "duration": duration,
        "tags": more.get("tags", []),
        "logs": more.get("logs", []),
        "processID": process,
        "warnings": None,
    }


def trace(trace_id: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    return {"traceID": trace_id, "spans": spans, "processes": PROCESSES, "warnings": None}


def produce_trace(number: int = 1, *, slowness: float = 1.0, failed: bool = False, extra_hop: bool = False) -> Any:
    """A produce of one record: seven spans in two processes, with the attributes that lead to the log entry."""
    trace_id = f"{number * 0x9E3779B1 & 0xFFFFFFFF:08x}77b34da6a3ce929d0e0e4736"
    span_ids = [f"{0xA1B2C3D4E5F60000 + number * 16 + index:016x}" for index in range(len(PRODUCE) + 1)]
    record = [
        tag("messaging.system", "kafka"),
        tag("messaging.operation.name", "produce"),
        tag("messaging.destination.name", "orders"),
        tag("messaging.destination.partition.id", "3"),
        tag("messaging.kafka.offset", 40_960 + number),
        tag("messaging.batch.message_count", 1),
        tag("kafka.topic", "orders"),
        tag("kafka.partition", 3),
    ]
    op = [tag("mesh.op_code", 2), tag("mesh.request_id", 7_000 + number), tag("mesh.org_id", 1)]
    own: dict[str, list[dict[str, Any]]] = {
        "gateway.kafka.connect": [tag("network.peer.address", "127.0.0.1:53122"), tag("connection.reused", True)],
        "gateway.kafka.request": [
            tag("messaging.operation.name", "produce"),
            tag("messaging.destination.name", "orders"),
            tag("messaging.client.id", "kcat"),
        ],
        "broker.produce.store": record,
        "mesh.kafkaop.sent": op,
        "mesh.kafkaop.handle": op,
    }
    spans = []
    for index, (name, parent, process, start, duration, kind) in enumerate(PRODUCE):
        start = start + number * 1_700_000
        stretched = round(duration * slowness) if name != "kafkaop.ack" else duration
        logs = []
        if name == "broker.produce.store":
            logs = [
                {"timestamp": START_US + start + 90, "fields": [tag("event", "wal.appended"), tag("bytes", 412)]},
                {"timestamp": START_US + start + 700, "fields": [tag("event", "wal.synced"), tag("batches", 3)]},
            ]
        status = [tag("error", True), tag("otel.status_code", "ERROR")] if failed and parent in (2, 3) else []
        description = [tag("otel.status_description", "log is full: 0 bytes free")] if status else []
        links = []
        if name == "gateway.kafka.connect":
            links = [{"refType": "FOLLOWS_FROM", "traceID": "00" * 15 + "07", "spanID": "00f067aa0ba902b7"}]
        spans.append(
            span(
                trace_id,
                span_ids[index],
                name,
                parent=None if parent is None else span_ids[parent],
                process=process,
                start=start,
                duration=stretched,
                tags=[tag("span.kind", kind), *own.get(name, []), *status, *description],
                logs=logs,
                links=links,
            )
        )
    if extra_hop:
        start = 1_660 + number * 1_700_000
        spans.append(
            span(trace_id, span_ids[-1], "mesh.retry", parent=span_ids[2], process=GATEWAY, start=start, duration=90)
        )
    return trace(trace_id, spans)


def large_trace(count: int = 10_000) -> Any:
    """One consumer's long session: `count` spans, fans of twenty below a root."""
    trace_id = f"{0xABCDEF:032x}"
    names = ("broker.fetch.read", "mesh.kafkaop.handle", "wal.read", "kafkaop.ack")
    spans = [
        span(trace_id, f"{1:016x}", "gateway.session", parent=None, process=GATEWAY, start=0, duration=count * 110)
    ]
    for index in range(1, count):
        fan, place = divmod(index, 20)
        head = fan * 20 or 1
        parent = 1 if place == 0 or index < 20 else head + 1
        spans.append(
            span(
                trace_id,
                f"{index + 1:016x}",
                names[index % 4],
                parent=f"{parent:016x}",
                process=BROKER if index % 2 else GATEWAY,
                start=fan * 2_200 + place * 100,
                duration=2_000 if place == 0 else 60 + (index * 37) % 240,
                tags=[tag("kafka.partition", index % 12), tag("index", index), tag("span.kind", "internal")],
            )
        )
    return trace(trace_id, spans)


def skewed_trace() -> Any:
    """A broker whose clock runs 900 us behind, and a span whose parent never arrived."""
    found = produce_trace(9)
    for item in found["spans"]:
        if item["processID"] == BROKER:
            item["startTime"] -= 900
            for log in item["logs"]:
                log["timestamp"] -= 900
    lost = span(
        found["traceID"], "b" * 16, "broker.replicate", parent="c" * 16, process=BROKER, start=15_301_000, duration=240
    )
    found["spans"].append(lost)
    return found


def otlp(traces: list[Any], *, end_us: int) -> dict[str, Any]:
    """The same traces as an OTLP/JSON export request, moved in time so that the last span starts at `end_us`."""
    shift = end_us - max(item["startTime"] for found in traces for item in found["spans"])
    spans: dict[str, list[dict[str, Any]]] = {}
    for found in traces:
        for item in found["spans"]:
            name = found["processes"][item["processID"]]["serviceName"]
            spans.setdefault(name, []).append(_otlp_span(item, shift))
    return {
        "resourceSpans": [
            {"resource": {"attributes": _otlp_attributes([tag("service.name", name)])}, "scopeSpans": [{"spans": own}]}
            for name, own in spans.items()
        ]
    }


_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}


def _otlp_span(item: dict[str, Any], shift: int) -> dict[str, Any]:
    start = (item["startTime"] + shift) * 1_000
    tags = {found["key"]: found["value"] for found in item["tags"]}
    parents = [ref["spanID"] for ref in item["references"] if ref["refType"] == "CHILD_OF"]
    own = [
        found for found in item["tags"] if found["key"] not in ("span.kind", "error") and "otel." not in found["key"]
    ]
    return {
        "traceId": item["traceID"],
        "spanId": item["spanID"],
        "parentSpanId": parents[0] if parents else "",
        "name": item["operationName"],
        "kind": _KINDS.get(str(tags.get("span.kind")), 0),
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + item["duration"] * 1_000),
        "attributes": _otlp_attributes(own),
        "events": [
            {
                "timeUnixNano": str((log["timestamp"] + shift) * 1_000),
                "name": log["fields"][0]["value"],
                "attributes": _otlp_attributes(log["fields"][1:]),
            }
            for log in item["logs"]
        ],
        "status": {"code": 2, "message": tags.get("otel.status_description", "")} if tags.get("error") else {},
    }


def _otlp_attributes(tags: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {"bool": "boolValue", "int64": "intValue", "float64": "doubleValue", "string": "stringValue"}
    return [{"key": found["key"], "value": {names[found["type"]]: found["value"]}} for found in tags]
