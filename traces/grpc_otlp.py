"""OTLP/gRPC: the TraceService's Export, with raw bytes so that both protocols share one check."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from traces.errors import BusyError, MalformedError, StoreError, TooLargeError, TracesError
from traces.receiver import PROTOBUF, Receiver, Told

_SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
# Senders keep one or two requests under way.
_THREADS = 8
_CODES = {
    MalformedError: grpc.StatusCode.INVALID_ARGUMENT,
    TooLargeError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    BusyError: grpc.StatusCode.UNAVAILABLE,
    StoreError: grpc.StatusCode.UNAVAILABLE,
}


class GrpcServer:
    """Listens on loopback. gRPC itself undoes gzip and refuses messages over the limit, compressed or not."""

    def __init__(self, receiver: Receiver, host: str, port: int) -> None:
        self._receiver = receiver
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="traces-grpc"),
            options=[
                ("grpc.max_receive_message_length", receiver.limits.body_bytes),
                # Two collectors on one port would share the spans between them.
                ("grpc.so_reuseport", 0),
            ],
        )
        export = grpc.unary_unary_rpc_method_handler(self._export)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Export": export}),))
        try:
            self.port: int = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise StoreError(
                f"cannot listen for OTLP/gRPC on {host}:{port}: {error}; choose another --grpc-port"
            ) from None

    def start(self) -> None:
        self._server.start()

    def stop(self, grace: float) -> None:
        """Refuses new requests and waits for those under way."""
        self._server.stop(grace).wait()

    def _export(self, body: bytes, context: Any) -> bytes:
        try:
            said = dict(context.invocation_metadata())
            checked = self._receiver.take(body, PROTOBUF, told=Told.by(said.get))
        except TracesError as error:
            context.abort(_CODES[type(error)], str(error))
        response = ExportTraceServiceResponse()
        if checked.rejected:
            response.partial_success.rejected_spans = checked.rejected
            response.partial_success.error_message = checked.message
        return bytes(response.SerializeToString())
