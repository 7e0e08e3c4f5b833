"""The parameters of Jaeger's query APIs, v1 and v3, as a `TraceQuery`. No I/O; a value with no meaning is an error."""

import re
import string
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from traces.errors import QueryError
from traces.otlp import MAX_TIME, TRACE_ID_BYTES
from traces.search import TraceQuery

# As Jaeger's.
DEFAULT_LIMIT = 100
DEFAULT_LOOKBACK = 48 * 3600 * 10**9
# A larger answer would hold the page and this process for seconds.
MAX_LIMIT = 10_000
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_UNITS["d"] = 24 * _UNITS["h"]
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h|d)")

Parameters = Mapping[str, Sequence[str]]


class Query:
    """Reads parameters by name; each has its first value, or none."""

    def __init__(self, given: Parameters) -> None:
        self._given = given

    def text(self, *names: str) -> str:
        for name in names:
            values = self._given.get(name)
            if values and values[0]:
                return values[0]
        return ""

    def all(self, name: str) -> Sequence[str]:
        return self._given.get(name, ())

    def number(self, name: str, scale: int = 1) -> int | None:
        value = self.text(name)
        if not value:
            return None
        if not re.fullmatch(r"-?\d{1,19}", value):
            raise QueryError(f"parameter {name!r} is {value[:40]!r}; it should be a whole number")
        return int(value) * scale

    def duration(self, *names: str) -> int | None:
        value = self.text(*names)
        return duration(value, names[0]) if value else None

    def limit(self, default: int, *names: str) -> int:
        for name in names:
            number = self.number(name)
            if number is not None:
                if not 1 <= number <= MAX_LIMIT:
                    raise QueryError(f"parameter {name!r} is {number}; it may be 1 to {MAX_LIMIT}")
                return number
        return default


def duration(value: str, name: str) -> int:
    """Nanoseconds of `1.5ms`, `1m30s`; as Go writes durations, and days besides."""
    at = total = 0
    while match := _PART.match(value, at):
        total += round(float(match[1]) * _UNITS[match[2]])
        at = match.end()
    if at != len(value) or not value or total > MAX_TIME:
        raise QueryError(f"parameter {name!r} is {value[:40]!r}; write a duration like 1.5ms, 200us or 1m30s")
    return total


def trace_id(value: str) -> bytes:
    """The 16 bytes of an id in hexadecimal; leading zeros may be left out, as Jaeger allows."""
    digits = 2 * TRACE_ID_BYTES
    if not 1 <= len(value) <= digits or not set(value) <= set(string.hexdigits):
        raise QueryError(f"trace id {value[:80]!r} is not 1 to {digits} hexadecimal digits")
    return bytes.fromhex(value.zfill(digits))


def v1_query(given: Parameters, now: int | None = None) -> TraceQuery:
    """The parameters of `/api/traces`. Times are microseconds."""
    query = Query(given)
    service = query.text("service")
    if not service:
        raise QueryError("parameter 'service' is required")
    moment = time.time_ns() if now is None else now
    end = query.number("end", 1000)
    start = query.number("start", 1000)
    if start is None:
        lookback = query.text("lookback")
        back = duration(lookback, "lookback") if lookback and lookback != "custom" else DEFAULT_LOOKBACK
        start = (moment if end is None else end) - back
    return _checked(
        service=service,
        operation=query.text("operation"),
        tags={**_pairs(query.all("tag")), **_tags(query.text("tags"), "tags")},
        durations=(query.duration("minDuration"), query.duration("maxDuration")),
        times=(start, end),
        limit=query.limit(DEFAULT_LIMIT, "limit"),
    )


def v3_query(given: Parameters) -> TraceQuery:
    """The parameters of `/api/v3/traces` and `/api/v3/trace-summaries`, in both of Jaeger's spellings."""
    query = Query(given)
    service = query.text("query.serviceName", "query.service_name")
    times = (
        _moment(query.text("query.startTimeMin", "query.start_time_min"), "query.start_time_min"),
        _moment(query.text("query.startTimeMax", "query.start_time_max"), "query.start_time_max"),
    )
    return _checked(
        service=service or None,
        operation=query.text("query.operationName", "query.operation_name"),
        tags=_tags(query.text("query.attributes"), "query.attributes"),
        durations=(
            query.duration("query.durationMin", "query.duration_min"),
            query.duration("query.durationMax", "query.duration_max"),
        ),
        times=times,
        limit=query.limit(DEFAULT_LIMIT, "query.searchDepth", "query.search_depth", "query.num_traces"),
    )


def _checked(
    *,
    service: str | None,
    operation: str,
    tags: dict[str, str],
    durations: tuple[int | None, int | None],
    times: tuple[int | None, int | None],
    limit: int,
) -> TraceQuery:
    shortest, longest = durations
    start, end = times
    if shortest is not None and longest is not None and longest < shortest:
        raise QueryError("'maxDuration' should be greater than 'minDuration'")
    if start is not None and end is not None and end < start:
        raise QueryError("the end of the time range lies before its start")
    return TraceQuery(
        service=service,
        # Jaeger's UI sends `all` when no operation is chosen.
        operation=None if operation in ("", "all") else operation,
        tags=tags,
        min_duration=shortest or 0,
        max_duration=MAX_TIME if longest is None else longest,
        start=_bounded(0 if start is None else start),
        end=_bounded(MAX_TIME if end is None else end),
        limit=limit,
    )


def _bounded(moment: int) -> int:
    return max(0, min(moment, MAX_TIME))


def _moment(value: str, name: str) -> int | None:
    """Nanoseconds of RFC 3339, with its nine digits of a second."""
    if not value:
        return None
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)", value)
    try:
        if match is None:
            raise ValueError
        zone = "+00:00" if match[3] in "Zz" else match[3]
        seconds = int(datetime.fromisoformat(match[1].upper() + zone).timestamp())
    except (ValueError, OverflowError):
        example = "2026-01-31T12:00:00.5Z"
        raise QueryError(f"malformed parameter {name}: {value[:60]!r} is no time like {example}") from None
    return seconds * 10**9 + int((match[2] or "0").ljust(9, "0"))


def _tags(value: str, name: str) -> dict[str, str]:
    """A JSON object of strings."""
    if not value:
        return {}
    try:
        tags: Any = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        tags = None
    if not isinstance(tags, dict) or not all(isinstance(item, str | int | float | bool) for item in tags.values()):
        raise QueryError(f'malformed parameter {name}: {value[:60]!r} is no JSON object like {{"error":"true"}}')
    return {key: item if isinstance(item, str) else msgspec.json.encode(item).decode() for key, item in tags.items()}


def _pairs(values: Sequence[str]) -> dict[str, str]:
    found = {}
    for value in values:
        key, colon, rest = value.partition(":")
        if not colon or not key:
            raise QueryError(f"malformed 'tag' parameter {value[:60]!r}; write it as key:value")
        found[key] = rest
    return found
