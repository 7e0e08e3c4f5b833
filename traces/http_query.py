"""Jaeger's query API over HTTP, v1 and v3, and the collector's own health and statistics. No CORS: other origins get
nothing.

Questions are answered in threads, so a slow one never holds up spans that arrive.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec
from tornado.web import RequestHandler

from traces import jaeger_v1, jaeger_v3, params
from traces.errors import QueryError, StoreError
from traces.otlp import MAX_TIME
from traces.params import Query
from traces.reader import Reader
from traces.store import Store

log = logging.getLogger("traces.query")
Answer = TypeVar("Answer")
_NO_TRACE = "trace not found"
_DAY_MS = 24 * 3600 * 1000


class QueryHandler(RequestHandler):
    """Runs `answer` in a thread and writes what it returns as JSON. Subclasses say what an error looks like."""

    # An answer holds all that was acknowledged before the question.
    sees_all = True

    def initialize(self, reader: Reader, store: Store, executor: Executor) -> None:
        self.reader = reader
        self.store = store
        self._executor = executor

    async def get(self, *path: str) -> None:
        given = {name: self.get_arguments(name, strip=False) for name in self.request.query_arguments}
        try:
            status, document = await self._in_thread(lambda: self._answer_now(given, *path))
        except QueryError as error:
            status, document = 400, self.error(400, str(error))
        except (StoreError, sqlite3.Error) as error:
            log.error("%s could not be answered: %s", self.request.path, error)
            status, document = 500, self.error(500, str(error))
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(document))

    def _answer_now(self, given: params.Parameters, *path: str) -> tuple[int, Any]:
        if self.sees_all:
            self.store.catch_up()
        with self.reader.snapshot():
            return self.answer(Query(given), given, *path)

    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        raise NotImplementedError

    def error(self, code: int, message: str) -> Any:
        return {"data": None, "total": 0, "limit": 0, "offset": 0, "errors": [{"code": code, "msg": message}]}

    async def _in_thread(self, call: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(self.error(status_code, self._reason)))


def _v1(data: list[Any], missing: Sequence[str] = ()) -> tuple[int, Any]:
    """`missing` are the traces that were asked for and are not there: Jaeger's UI waits for each until it is told."""
    errors = [{"code": 404, "msg": _NO_TRACE, "traceID": trace_id} for trace_id in missing]
    return 200, {"data": data, "total": len(data), "limit": 0, "offset": 0, "errors": errors or None}


class V1Services(QueryHandler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        return _v1(self.reader.services())


class V1ServiceOperations(QueryHandler):
    """`/api/services/{service}/operations`: names only."""

    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        return _v1(sorted({name for name, _ in self.reader.operations(path[0])}))


class V1Operations(QueryHandler):
    """`/api/operations?service=`: names and kinds."""

    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        service = query.text("service")
        if not service:
            raise QueryError("parameter 'service' is required")
        found = self.reader.operations(service, query.text("spanKind"))
        return _v1([{"name": name, "spanKind": kind} for name, kind in found])


class V1Traces(QueryHandler):
    """A search, or the traces whose ids are given as `traceID`."""

    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        ids = [params.trace_id(given_id) for given_id in query.all("traceID")]
        if ids:
            numbers = [self.reader.trace_number(trace_id) for trace_id in ids]
            found = [number for number in numbers if number is not None]
        else:
            found = self.reader.find(params.v1_query(given))
        data = [jaeger_v1.trace_json(trace) for trace in self.reader.traces(found)]
        known = {trace["traceID"] for trace in data}
        return _v1(data, [trace_id.hex() for trace_id in ids if trace_id.hex() not in known])


class V1Trace(QueryHandler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        number = self.reader.trace_number(params.trace_id(path[0]))
        found = [] if number is None else self.reader.traces([number])
        if not found:
            return 404, self.error(404, _NO_TRACE)
        return _v1([jaeger_v1.trace_json(trace) for trace in found])


class V1Dependencies(QueryHandler):
    """Times are milliseconds."""

    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        end = query.number("endTs")
        if end is None:
            end = time.time_ns() // 10**6
        lookback = query.number("lookback")
        start = end - (_DAY_MS if lookback is None else lookback)
        found = self.reader.dependencies(_nanoseconds(start), _nanoseconds(end))
        return _v1([{"parent": parent, "child": child, "callCount": calls} for parent, child, calls in found])


def _nanoseconds(milliseconds: int) -> int:
    return max(0, min(milliseconds * 10**6, MAX_TIME))


class V3Handler(QueryHandler):
    def error(self, code: int, message: str) -> Any:
        return jaeger_v3.error_json(code, message)


class V3Services(V3Handler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        return 200, {"services": self.reader.services()}


class V3Operations(V3Handler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        found = self.reader.operations(query.text("service"), query.text("spanKind", "span_kind"))
        return 200, {"operations": [{"name": name, "spanKind": kind} for name, kind in found]}


class V3Traces(V3Handler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        found = self.reader.traces(self.reader.find(params.v3_query(given)))
        if not found:
            return 404, self.error(404, "No traces found")
        return 200, jaeger_v3.traces_json(found)


class V3Trace(V3Handler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        number = self.reader.trace_number(params.trace_id(path[0]))
        found = [] if number is None else self.reader.traces([number])
        if not found:
            return 404, self.error(404, "No traces found")
        return 200, jaeger_v3.traces_json(found)


class V3Summaries(V3Handler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        found = self.reader.summaries(self.reader.find(params.v3_query(given)))
        return 200, {"summaries": [jaeger_v3.summary_json(summary) for summary in found]}


class Stats(QueryHandler):
    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        return 200, self.store.stats()


class Health(QueryHandler):
    """Ready if the store can be read."""

    sees_all = False

    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        self.reader.services()
        return 200, {"status": "ok"}


class NotFound(QueryHandler):
    sees_all = False

    def answer(self, query: Query, given: params.Parameters, *path: str) -> tuple[int, Any]:
        return 404, self.error(404, f"nothing is at {self.request.path}; see traces/README.md for what is")


ROUTES: list[tuple[str, type[QueryHandler]]] = [
    (r"/api/services", V1Services),
    (r"/api/services/([^/]+)/operations", V1ServiceOperations),
    (r"/api/operations", V1Operations),
    (r"/api/traces", V1Traces),
    (r"/api/traces/([^/]+)", V1Trace),
    (r"/api/dependencies", V1Dependencies),
    (r"/api/v3/services", V3Services),
    (r"/api/v3/operations", V3Operations),
    (r"/api/v3/traces", V3Traces),
    (r"/api/v3/traces/([^/]+)", V3Trace),
    (r"/api/v3/trace-summaries", V3Summaries),
    (r"/api/stats", Stats),
    (r"/healthz", Health),
]
