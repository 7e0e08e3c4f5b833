"""What a person hands to `produce`, as records: text, bytes, pairs, dictionaries, DataFrames. No I/O."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rafka_lab.errors import LabError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

# A dictionary with these keys only is a record; any other dictionary is a value, sent as JSON.
RECORD_FIELDS = frozenset({"key", "value", "headers", "partition", "timestamp"})
# What a fetched DataFrame has besides; left out when it is produced again.
_FETCHED_FIELDS = frozenset({"offset", "trace_id", "topic"})
_PAIR = 2

Headers = list[tuple[str, bytes | None]]


class NewRow(NamedTuple):
    """One record to produce. A partition of -1 is chosen by the key; a timestamp of 0 is now."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1
    timestamp: int = 0


def rows_of(given: "Iterable[object] | pd.DataFrame | str | bytes") -> Iterator[NewRow]:
    """The records of `rows`. A single text is one record."""
    if isinstance(given, str | bytes | Mapping):
        given = [given]
    elif hasattr(given, "to_dict") and hasattr(given, "columns"):
        given = _frame_rows(given)
    for number, row in enumerate(given):
        try:
            yield _row_of(row)
        except (TypeError, ValueError, AttributeError) as error:
            raise LabError(
                f"row {number} cannot be a record ({error}): give text, bytes, (key, value), or a dictionary with "
                f"some of {', '.join(sorted(RECORD_FIELDS))}; any other dictionary is sent as JSON"
            ) from None


def _frame_rows(frame: Any) -> list[dict[str, object]]:
    if "value" not in frame.columns:
        return [dict(row) for row in frame.to_dict("records")]
    unknown = set(frame.columns) - RECORD_FIELDS - _FETCHED_FIELDS
    if unknown:
        raise LabError(
            f"the DataFrame has a column 'value', so each row is a record, and the columns "
            f"{', '.join(sorted(map(str, unknown)))} are not part of one: drop or rename them"
        )
    wanted = [name for name in frame.columns if name in RECORD_FIELDS]
    return [dict(row) for row in frame[wanted].to_dict("records")]


def _row_of(row: object) -> NewRow:
    if isinstance(row, str | bytes) or row is None:
        return NewRow(None, as_bytes(row), [])
    if isinstance(row, tuple | list):
        if len(row) != _PAIR:
            raise ValueError(f"a pair is (key, value), and this has {len(row)} parts")
        return NewRow(as_bytes(row[0]), as_bytes(row[1]), [])
    if isinstance(row, Mapping) and row and set(row) <= RECORD_FIELDS:
        return NewRow(
            as_bytes(row.get("key")),
            as_bytes(row.get("value")),
            _headers_of(row.get("headers")),
            int(row.get("partition", -1)),
            _milliseconds(row.get("timestamp")),
        )
    return NewRow(None, as_bytes(row), [])


def as_bytes(value: object) -> bytes | None:
    """Text as UTF-8, bytes as they are, None and NaN as null, all else as JSON."""
    match value:
        case None:
            return None
        case bytes():
            return value
        case str():
            return value.encode()
        case bytearray() | memoryview():
            return bytes(value)
        case float() if value != value:  # what pandas makes of a missing value
            return None
    item = getattr(value, "item", None)  # a number of numpy's
    return json.dumps(item() if callable(item) else value, separators=(",", ":"), ensure_ascii=False).encode()


def _headers_of(headers: Any) -> Headers:
    if headers is None or (isinstance(headers, float) and headers != headers):
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(str(name), as_bytes(value)) for name, value in pairs]


def _milliseconds(moment: Any) -> int:
    if moment is None or moment != moment:  # NaT is not itself
        return 0
    if hasattr(moment, "timestamp"):
        return round(float(moment.timestamp()) * 1000)
    return int(moment)
