"""Which entries of a log a Spark query wants, judged by their index rows alone. Works in driver and executor alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wal.arrow_columns import first_offsets, topic_codes
from wal.batch import LOG_APPEND_TIME_BIT
from wal.entry import Kind
from wal.index import Rows
from wal.state import Key

Mask = np.ndarray

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda column, value: column == value,
    "in": np.isin,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}
# Columns that are the same for all records of a batch, so that a filter on them is decided by the index row.
_EXACT: dict[str, Callable[[Rows, int], Any]] = {
    "partition": lambda rows, _: rows["partition"],
    "org_id": lambda rows, _: rows["org_id"].astype(np.int64),
    "segment": lambda rows, segment: np.full(len(rows), segment),
    "position": lambda rows, _: rows["position"].astype(np.int64),
    "producer_id": lambda rows, _: rows["producer_id"],
    "timestampType": lambda rows, _: (rows["attributes"] & LOG_APPEND_TIME_BIT) != 0,
    "base_offset": lambda rows, _: rows["base_offset"],
    "record_count": lambda rows, _: rows["record_count"].astype(np.int64),
    "size": lambda rows, _: rows["length"].astype(np.int64),
}
# Columns of which the index row bounds the values: entries are left out, and Spark filters what is left.
_BOUNDS: dict[str, tuple[Callable[[Rows], Any] | None, Callable[[Rows], Any]]] = {
    "offset": (lambda rows: rows["base_offset"], lambda rows: rows["base_offset"] + rows["record_count"] - 1),
    # The base timestamp is the first record's and not the smallest, so there is no lower bound.
    "timestamp": (None, lambda rows: rows["max_timestamp"]),
    "max_timestamp": (lambda rows: rows["max_timestamp"], lambda rows: rows["max_timestamp"]),
    "append_time": (lambda rows: rows["append_time"], lambda rows: rows["append_time"]),
}


@dataclass(frozen=True)
class Predicate:
    """A filter that Spark pushed down. Times are in milliseconds, rounded so that nothing is left out wrongly."""

    column: str
    compare: str
    value: Any

    @property
    def exact(self) -> bool:
        """Whether Spark needs not look at it again."""
        if self.column == "trace_id":
            return self.compare in ("=", "in")
        return self.column == "topic" or self.column in _EXACT

    def chosen(self, rows: Rows, segment: int) -> Mask:
        """The rows of which some record may satisfy it."""
        if self.column in _EXACT:
            found: Mask = _COMPARE[self.compare](_EXACT[self.column](rows, segment), self.value)
            return found
        if self.column == "trace_id":
            return _has_trace(rows, self.value if self.compare == "in" else [self.value])
        least, most = _BOUNDS[self.column]
        chosen = np.ones(len(rows), bool)
        if self.compare in ("=", ">", ">="):
            chosen &= _COMPARE[">" if self.compare == ">" else ">="](most(rows), self.value)
        if self.compare in ("=", "<", "<=") and least is not None:
            chosen &= _COMPARE["<" if self.compare == "<" else "<="](least(rows), self.value)
        return chosen


def known_column(column: str, compare: str) -> bool:
    """Whether a filter on this column can be judged here at all."""
    if column == "trace_id":
        return compare in ("=", "in")
    return column in _EXACT or (column in _BOUNDS and compare != "in")


def _has_trace(rows: Rows, traces: list[str]) -> Mask:
    chosen = np.zeros(len(rows), bool)
    for trace in traces:
        try:
            raw = np.frombuffer(bytes.fromhex(trace), np.uint8)
        except ValueError:
            continue  # no trace id is written so, so none is equal to it
        if len(raw) == rows["trace"].shape[1] and raw.any() and trace == trace.lower():
            chosen |= (rows["trace"] == raw).all(axis=1)
    return chosen


@dataclass(frozen=True)
class Selection:
    """Topics that live and are wanted by id, the first wanted offsets that are not 0, and all other limits."""

    names: Mapping[bytes, str]
    first_offsets: Mapping[Key, int] = field(default_factory=dict)
    partitions: tuple[int, ...] | None = None
    start_time: int | None = None
    predicates: tuple[Predicate, ...] = ()

    def chosen(self, rows: Rows, segment: int) -> Mask:
        """Which rows are of data entries that hold something wanted."""
        chosen: Mask = rows["kind"] == Kind.DATA
        words, codes = topic_codes(rows)
        if len(words):
            chosen &= np.array([word in self.names for word in words])[codes]
        if self.partitions is not None:
            chosen &= np.isin(rows["partition"], self.partitions)
        if self.first_offsets:
            chosen &= rows["base_offset"] + rows["record_count"] > first_offsets(rows, self.first_offsets)
        if self.start_time is not None:
            chosen &= rows["max_timestamp"] >= self.start_time
        for predicate in self.predicates:
            chosen &= predicate.chosen(rows, segment)
        return chosen

    def narrowed(self, rows: Rows) -> "Selection":
        """The same with only the topics of these rows, so that what is sent to a task is small."""
        topics = set(topic_codes(rows)[0])
        return replace(
            self,
            names={topic: name for topic, name in self.names.items() if topic in topics},
            first_offsets={key: offset for key, offset in self.first_offsets.items() if key[0] in topics},
        )
