"""OTLP/HTTP: `POST /v1/traces`. Errors have the protocol's own body, a google.rpc.Status in the request's encoding."""

import asyncio
import functools
import time
from concurrent.futures import Executor
from typing import Any

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from tornado.web import RequestHandler, stream_request_body

from traces.errors import BusyError, MalformedError, StoreError, TooLargeError, TracesError, UnsupportedError
from traces.otlp import Checked
from traces.protobuf import rpc_status
from traces.receiver import JSON, PROTOBUF, Receiver, Told

# HTTP status and google.rpc code of each error. Senders try again after 429, 502, 503 and 504 only.
_CODES: dict[type[TracesError], tuple[int, int]] = {
    MalformedError: (400, 3),
    UnsupportedError: (415, 3),
    TooLargeError: (413, 8),
    BusyError: (503, 14),
    StoreError: (503, 14),
}
_RETRY_SECONDS = "1"
# A body over the limit is read on and thrown away up to this many times the limit, so that the sender sees our answer
# instead of a broken connection.
DISCARD_FACTOR = 8


@stream_request_body
class ExportHandler(RequestHandler):
    """Collects the body up to the limit, checks and stores it outside the event loop, then answers."""

    def initialize(self, receiver: Receiver, executor: Executor) -> None:
        self._receiver = receiver
        self._executor = executor
        self._chunks: list[bytes] = []
        self._size = 0

    def check_xsrf_cookie(self) -> None:
        """There are no cookies, and a page of another origin cannot send OTLP's content types without our consent."""

    def prepare(self) -> None:
        limit = self._receiver.limits.body_bytes
        connection: Any = self.request.connection
        connection.set_max_body_size(limit * DISCARD_FACTOR)

    def data_received(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= self._receiver.limits.body_bytes:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    async def post(self) -> None:
        self._receiver.under_way += 1
        try:
            await self._export()
        finally:
            self._receiver.under_way -= 1

    async def _export(self) -> None:
        headers = self.request.headers
        told = Told.by(headers.get, time.monotonic())
        try:
            try:
                self._receiver.check_size(self._size)
            except TooLargeError:
                self._receiver.store.count_refused()
                raise
            body, kind = b"".join(self._chunks), headers.get("content-type", "")
            encoding = headers.get("content-encoding", "")
            take = functools.partial(self._receiver.take, body, kind, encoding, told=told)
            checked = await asyncio.get_running_loop().run_in_executor(self._executor, take)
        except TracesError as error:
            self._refuse(error)
        else:
            self._accept(checked)

    def _accept(self, checked: Checked) -> None:
        if self._wants_json():
            partial = (
                {"rejectedSpans": str(checked.rejected), "errorMessage": checked.message} if checked.rejected else {}
            )
            self._answer(200, JSON, msgspec.json.encode({"partialSuccess": partial} if partial else {}))
            return
        response = ExportTraceServiceResponse()
        if checked.rejected:
            response.partial_success.rejected_spans = checked.rejected
            response.partial_success.error_message = checked.message
        self._answer(200, PROTOBUF, response.SerializeToString())

    def _refuse(self, error: TracesError) -> None:
        status, code = _CODES[type(error)]
        if status == 503:
            self.set_header("Retry-After", _RETRY_SECONDS)
        if self._wants_json():
            self._answer(status, JSON, msgspec.json.encode({"code": code, "message": str(error)}))
        else:
            self._answer(status, PROTOBUF, rpc_status(code, str(error)))

    def _wants_json(self) -> bool:
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower() == JSON

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.set_status(status)
        self.set_header("Content-Type", kind)
        self.finish(body)
