"""`JaegerClient`: one client for the embedded store and for a real Jaeger. API v3 first, for its nanoseconds and typed
attributes; v1 where a server has no v3, and for what v3 lacks.
"""

import http.client
import json
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from traces import jaeger_json
from traces.arrival import Arrival
from traces.errors import JaegerError, TraceFormatError, TraceNotFoundError
from traces.model import Trace

# Jaeger needs the range of a search; this is its UI's longest.
DEFAULT_LOOKBACK = timedelta(days=2)
# Clocks of other machines may be ahead of ours.
_CLOCK_SLACK = timedelta(minutes=1)
_ATTEMPT_SECONDS = 10.0
_POLL_SECONDS = 0.05
_ANSWER_LIMIT = 256 * 1024 * 1024
_ERROR_BYTES = 1000

Moment = datetime | float
Length = timedelta | float


class JaegerClient:
    """Asks the query API at `url`. Moments are datetimes or seconds since 1970; durations timedeltas or seconds."""

    def __init__(self, url: str, timeout: float = _ATTEMPT_SECONDS) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._has_v3: bool | None = None

    def services(self) -> list[str]:
        """Names of all services that sent spans."""
        if self._v3():
            return sorted(self._get("/api/v3/services").get("services") or ())
        return sorted(self._data("/api/services"))

    def operations(self, service: str) -> list[str]:
        """Names of a service's spans."""
        if self._v3():
            found = self._get("/api/v3/operations", service=service).get("operations") or ()
            return sorted({operation["name"] for operation in found})
        return sorted(self._data(f"/api/services/{quote(service, safe='')}/operations"))

    def search(
        self,
        service: str,
        operation: str | None = None,
        tags: Mapping[str, Any] | None = None,
        min_duration: Length | None = None,
        max_duration: Length | None = None,
        start: Moment | None = None,
        end: Moment | None = None,
        limit: int = 20,
    ) -> list[Trace]:
        """Traces with a span that fits all that is given, newest first. One that cannot be read is a warning."""
        latest = _moment(end) if end is not None else datetime.now(UTC) + _CLOCK_SLACK
        earliest = _moment(start) if start is not None else latest - DEFAULT_LOOKBACK
        shortest, longest = _duration(min_duration), _duration(max_duration)
        wanted = {key: _tag_text(value) for key, value in (tags or {}).items()}
        # Jaeger's v3 has had no tags until lately, and ignores what it does not know.
        if self._v3() and not wanted:
            found = self._get(
                "/api/v3/traces",
                missing={"result": {}},
                **{
                    "query.service_name": service,
                    "query.operation_name": operation,
                    "query.start_time_min": _rfc3339(earliest),
                    "query.start_time_max": _rfc3339(latest),
                    "query.duration_min": shortest,
                    "query.duration_max": longest,
                    "query.num_traces": limit,
                },
            )
            traces = self._readable_otlp(found.get("result") or {})
        else:
            items = self._data(
                "/api/traces",
                service=service,
                operation=operation,
                tags=json.dumps(wanted) if wanted else None,
                start=_microseconds(earliest),
                end=_microseconds(latest),
                minDuration=shortest,
                maxDuration=longest,
                limit=limit,
            )
            traces = self._readable(((_id_of(item), item) for item in items), jaeger_json.trace_of)
        return sorted(traces, key=lambda trace: trace.start_ns, reverse=True)

    def trace(self, trace_id: str, wait: float = 0.0, spans: int = 1) -> Trace:
        """One trace. With `wait`, seconds are given for at least so many `spans` to arrive; what is there then is
        returned, and TraceNotFoundError raised if it is nothing."""
        return self._wait_for(trace_id, wait, lambda found: len(found) >= spans)

    def whole_trace(self, trace_id: str, wait: float) -> Trace:
        """One trace as soon as all of it is here, as far as that can be known; after `wait` seconds what is there."""
        arrival = Arrival()
        return self._wait_for(trace_id, wait, lambda found: arrival.is_over(found, time.monotonic()))

    def dependencies(
        self, end: Moment | None = None, lookback: Length = DEFAULT_LOOKBACK
    ) -> list[tuple[str, str, int]]:
        """(calling service, called service, calls)."""
        latest = _moment(end) if end is not None else datetime.now(UTC) + _CLOCK_SLACK
        back = lookback if isinstance(lookback, timedelta) else timedelta(seconds=lookback)
        found = self._data(
            "/api/dependencies",
            endTs=_microseconds(latest) // 1000,
            lookback=back // timedelta(milliseconds=1),
        )
        return sorted((item["parent"], item["child"], item["callCount"]) for item in found)

    def lost_spans(self) -> dict[str, int]:
        """How many spans never came to the store, `dropped` by recorders or `rejected`; a real Jaeger does not say."""
        stats = self._get("/api/stats", missing={})
        return {name: int(stats.get(name) or 0) for name in ("dropped", "rejected")}

    def _wait_for(self, trace_id: str, wait: float, enough: Callable[[Trace], bool]) -> Trace:
        deadline = time.monotonic() + wait
        while True:
            found = self._trace(trace_id)
            if time.monotonic() >= deadline or (found is not None and enough(found)):
                break
            time.sleep(_POLL_SECONDS)
        if found is None:
            hint = "spans arrive a moment after they end; ask again, or with wait=2"
            raise TraceNotFoundError(f"{self.url} has no trace {trace_id} ({hint})")
        return found

    def _trace(self, trace_id: str) -> Trace | None:
        try:
            return self._ask_for(trace_id)
        except TraceFormatError as error:
            raise TraceFormatError(f"trace {trace_id} of {self.url} cannot be read: {error}") from None

    def _ask_for(self, trace_id: str) -> Trace | None:
        path = quote(trace_id, safe="")
        if self._v3():
            found = self._get(f"/api/v3/traces/{path}", missing={"result": {}})
            traces = jaeger_json.traces_of_otlp(found.get("result") or {})
        else:
            traces = [jaeger_json.trace_of(item) for item in self._data(f"/api/traces/{path}", missing={"data": []})]
        return traces[0] if traces else None

    def _readable_otlp(self, document: Any) -> list[Trace]:
        try:
            return jaeger_json.traces_of_otlp(document)
        except TraceFormatError:
            parts = jaeger_json.otlp_by_trace(document)
            return self._readable(parts.items(), lambda part: jaeger_json.traces_of_otlp(part)[0])

    def _readable(self, given: Iterable[tuple[str, Any]], read: Callable[[Any], Trace]) -> list[Trace]:
        """Other programs write to a Jaeger too: a trace of theirs that is damaged must not hide all the others."""
        traces = []
        for trace_id, document in given:
            try:
                traces.append(read(document))
            except TraceFormatError as error:
                message = f"trace {trace_id} of {self.url} cannot be read and is left out: {error}"
                warnings.warn(message, stacklevel=4)
        return traces

    def _v3(self) -> bool:
        if self._has_v3 is None:
            found = self._get("/api/v3/services", missing={"absent": True})
            self._has_v3 = "absent" not in found
        return self._has_v3

    def _data(self, path: str, missing: dict[str, Any] | None = None, **given: Any) -> list[Any]:
        """The list in an answer of API v1."""
        data = self._get(path, missing, **given).get("data", False)
        if data is not None and not isinstance(data, list):
            raise JaegerError(f"{self.url}{path} answered no list of data; is {self.url} a Jaeger query API?")
        return data or []

    def _get(self, path: str, missing: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
        """The parsed answer; `missing` instead of a 404."""
        parameters = urlencode({name: value for name, value in given.items() if value is not None})
        url = f"{self.url}{path}{'?' if parameters else ''}{parameters}"
        try:
            with urllib.request.urlopen(url, timeout=self._timeout) as answer:
                body = answer.read(_ANSWER_LIMIT)
        except urllib.error.HTTPError as error:
            if error.code == 404 and missing is not None:
                error.close()
                return missing
            raise JaegerError(f"{url} answered {error.code}: {_said(error)}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise JaegerError(f"no Jaeger API answers at {self.url} ({str(error).strip()}); is it running?") from None
        document = _json_object(body)
        if isinstance(document, dict):
            return document
        # Jaeger's UI answers unknown paths with its page.
        if missing is not None:
            return missing
        raise JaegerError(f"{url} answered no JSON object; is {self.url} a Jaeger query API?")


def _said(error: urllib.error.HTTPError) -> str:
    """The beginning of what came with an error, as far as it came."""
    try:
        with error:
            return error.read(_ERROR_BYTES).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return error.reason


def _json_object(body: bytes) -> Any:
    try:
        return jaeger_json.parse(body) if body.lstrip()[:1] == b"{" else None
    except TraceFormatError:
        return None


def _id_of(item: Any) -> str:
    return str(item.get("traceID", "without an id")) if isinstance(item, dict) else "without an id"


def _moment(given: Moment) -> datetime:
    return given.astimezone(UTC) if isinstance(given, datetime) else datetime.fromtimestamp(given, UTC)


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _microseconds(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def _duration(given: Length | None) -> str | None:
    if given is None:
        return None
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    return f"{round(seconds * 1e9)}ns"


def _tag_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
