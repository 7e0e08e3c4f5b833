"""Spark's pushed-down filters as predicates over index rows. What cannot be judged there is given back to Spark."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from wal.spark_options import BATCHES
from wal.spark_selection import Predicate, known_column

_COMPARE: dict[type[Filter], str] = {
    EqualTo: "=",
    In: "in",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
}
# Columns that never hold a null, which Spark asks about with every other filter.
_NEVER_NULL = frozenset(
    {
        *("topic", "partition", "offset", "timestampType", "org_id", "segment", "position", "producer_id", "codec"),
        *("base_offset", "record_count", "live_records", "size", "producer_epoch", "base_sequence", "topic_id"),
    }
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class TopicFilter:
    """A filter on the topic's name: decided once, over the log's few topics."""

    filter: Filter

    def keeps(self, name: str) -> bool:
        match self.filter:
            case EqualTo(value=value):
                return bool(name == value)
            case In(value=values):
                return name in values
            case StringStartsWith(value=prefix):
                return name.startswith(prefix)
        raise AssertionError(f"no filter for topics: {self.filter}")


def push(filters: Iterable[Filter], view: str) -> Iterator[tuple[Filter, Predicate | TopicFilter | None, bool]]:
    """Each filter with its predicate, if it has one, and whether Spark must still look at it."""
    for one in filters:
        if isinstance(one, IsNotNull):
            yield one, None, one.attribute[0] not in _NEVER_NULL
        elif isinstance(one, EqualTo | In | StringStartsWith) and one.attribute == ("topic",):
            yield one, TopicFilter(one), False
        else:
            predicate = _predicate(one, view)
            yield one, predicate, predicate is None or not predicate.exact


def _predicate(one: Filter, view: str) -> Predicate | None:
    compare = _COMPARE.get(type(one))
    if compare is None or not isinstance(
        one, EqualTo | In | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual
    ):
        return None
    column, value = one.attribute[0], one.value
    if len(one.attribute) > 1 or not known_column(column, compare):
        return None
    if column in ("offset", "timestamp") and view == BATCHES:
        return None
    if isinstance(value, datetime):
        return _time_predicate(column, compare, value)
    return Predicate(column, compare, list(value) if compare == "in" else value)


def _time_predicate(column: str, compare: str, value: Any) -> Predicate | None:
    """In whole milliseconds, and never stricter than asked: what is left over, Spark filters."""
    if value.tzinfo is None:
        return None
    down, rest = divmod(value - _EPOCH, _MILLISECOND)
    if compare in ("<", "<="):
        return Predicate(column, "<=", down)
    if compare == "=" and not rest:
        return Predicate(column, "=", down)
    return Predicate(column, ">=", down)
