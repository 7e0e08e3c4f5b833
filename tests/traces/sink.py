"""A collector that keeps what recorders send, and answers as a test wants."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Sink:
    """A collector that keeps what it gets, and answers as the test wants."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[], tuple[int, bytes]] = lambda: (200, b"")
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status, said = sink.answer()
                if status == 200:
                    sink.headers.append({key.lower(): value for key, value in self.headers.items()})
                    sink.requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(status)
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    @property
    def spans(self) -> list[Any]:
        groups = (group for request in self.requests for group in request.resource_spans)
        return [span for group in groups for scoped in group.scope_spans for span in scoped.spans]
