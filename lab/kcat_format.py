"""Records as kcat prints them: format strings, JSON envelopes, delimiters. Talks to nobody."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from lab.errors import KcatError
from lab.kcat_flags import Invocation, unescape

_TOKEN = re.compile(r"%(.)|(\\(?:x[0-9a-fA-F]{1,2}|.))")
_TIMESTAMP_TYPES = {0: "unknown", 1: "create", 2: "logappend"}


class Printed(NamedTuple):
    """One record, as it is printed."""

    topic: str
    partition: int
    offset: int
    timestamp_type: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def text_of(records: Iterable[Printed], asked: Invocation) -> str:
    """All records, as kcat would write them to stdout."""
    return "".join(one_text(record, asked) for record in records)


def one_text(record: Printed, asked: Invocation) -> str:
    if asked.format is not None:
        return formatted(record, asked.format, null=asked.null)
    if asked.json:
        return envelope(record) + "\n"
    parts = []
    if asked.key_delimiter is not None:
        parts.append(_shown(record.key, null=asked.null))
    parts.append(_shown(record.value, null=asked.null))
    return (asked.key_delimiter or "").join(parts) + ("\n" if asked.delimiter is None else asked.delimiter)


def formatted(record: Printed, template: str, *, null: bool = False) -> str:
    """kcat's -f."""

    def token(found: re.Match[str]) -> str:
        if found[2]:
            return unescape(found[2])
        return _token(record, found[1], null=null)

    return _TOKEN.sub(token, template)


def _token(record: Printed, letter: str, *, null: bool) -> str:
    match letter:
        case "s":
            return _shown(record.value, null=null)
        case "S":
            return str(_length(record.value))
        case "R":
            return _length(record.value).to_bytes(4, "big", signed=True).decode("latin-1")
        case "k":
            return _shown(record.key, null=null)
        case "K":
            return str(_length(record.key))
        case "T":
            return str(record.timestamp)
        case "h":
            return ",".join(
                f"{name}={'NULL' if value is None else value.decode('utf-8', 'replace')}"
                for name, value in record.headers
            )
        case "t":
            return record.topic
        case "p":
            return str(record.partition)
        case "o":
            return str(record.offset)
        case "%":
            return "%"
    raise KcatError(f"-f: unsupported formatter %{letter}; %kcat -h lists them")


def envelope(record: Printed) -> str:
    """kcat's -J, on one line."""
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": _TIMESTAMP_TYPES.get(record.timestamp_type, "unknown"),
        "ts": record.timestamp,
        "broker": 0,
    }
    if record.headers:
        found["headers"] = [part for name, value in record.headers for part in (name, _json_text(value))]
    found |= {"key": _json_text(record.key), "payload": _json_text(record.value)}
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False)


def _json_text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _shown(data: bytes | None, *, null: bool) -> str:
    """With -Z kcat writes NULL for what is empty, too."""
    if not data:
        return "NULL" if null else ""
    return data.decode("utf-8", "replace")


def _length(data: bytes | None) -> int:
    return -1 if data is None else len(data)
