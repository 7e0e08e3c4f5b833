"""Requests as senders make them, for the tests of the collector."""

import gzip
import http.client
import random
import secrets
import time
from urllib.parse import urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from traces import names, protobuf

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def request_of(*spans: Span, service: str = "sample", scope: str = "tests") -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    attribute = group.resource.attributes.add()
    attribute.key, attribute.value.string_value = "service.name", service
    scoped = group.scope_spans.add()
    scoped.scope.name = scope
    scoped.spans.extend(spans)
    return request


def new_span(
    name: str = "work", trace_id: bytes = b"", parent: bytes = b"", start: int = 0, length: int = 1000
) -> Span:
    begin = start or time.time_ns()
    return Span(
        trace_id=trace_id or secrets.token_bytes(16),
        span_id=secrets.token_bytes(8),
        parent_span_id=parent,
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=begin,
        end_time_unix_nano=begin + length,
    )


def post(
    url: str, body: bytes, kind: str = PROTOBUF, encoding: str = "", path: str = "/v1/traces"
) -> tuple[int, bytes, str]:
    """(status, body, content type) of an OTLP/HTTP request."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    headers = {"content-type": kind}
    if encoding:
        headers["content-encoding"] = encoding
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get("content-type", "")
    finally:
        connection.close()


def send(url: str, *spans: Span, service: str = "sample") -> None:
    status, said, _ = post(url, request_of(*spans, service=service).SerializeToString())
    assert status == 200, said
    assert ExportTraceServiceResponse.FromString(said).partial_success.rejected_spans == 0


def produce_requests(traces: int, rng: random.Random, start: int) -> list[bytes]:
    """Two requests, gateway's and broker's, with the seven spans of each of so many produces."""
    gateway: list[bytes] = []
    broker: list[bytes] = []
    for number in range(traces):
        trace_id, request_id = rng.getrandbits(128), rng.getrandbits(40)
        begin, parent = start + number * 300_000, 0
        for at, name in enumerate(names.PRODUCE_CHAIN):
            span_id = rng.getrandbits(64) or 1
            attributes = {
                names.MESH_OP_CODE: 2,
                names.MESH_REQUEST_ID: request_id,
                names.MESH_ORG_ID: 1,
                names.KAFKA_TOPIC: f"topic-{request_id % 50}",
                names.KAFKA_PARTITION: request_id % 8,
                names.MESSAGING_SYSTEM: names.MESSAGING_SYSTEM_KAFKA,
            }
            end = begin + at * 1000 + rng.randrange(1000, 1_000_000)
            ids = (trace_id, span_id, parent, "", 0x101)
            message = protobuf.span(*ids, name, at % 3 + 1, begin + at * 1000, end, attributes, (), (), b"")
            (broker if name in names.PRODUCE_CHAIN[3:6] else gateway).append(message)
            parent = span_id
    scope = protobuf.scope("rafka", "", None)
    return [
        protobuf.export_request(protobuf.resource({"service.name": service}), [(scope, "", spans)])
        for service, spans in (("gateway", gateway), ("broker", broker))
    ]


def bomb(size: int) -> bytes:
    """Gzip that stands for `size` zero bytes."""
    return gzip.compress(bytes(size), 9)
