"""The options of the Spark source `rafka_wal`: names, defaults, and one clear sentence for each wrong one."""

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias, TypeVar

from wal.arrow_columns import BATCH_COLUMNS, EXTRA_BATCH_COLUMNS, EXTRA_RECORD_COLUMNS, RECORD_COLUMNS
from wal.errors import WalError
from wal.settings import MIB

RECORDS, BATCHES = "records", "batches"
EARLIEST, LATEST = "earliest", "latest"
# Kafka's number for the earliest offset, as Spark's Kafka source takes it.
EARLIEST_OFFSET = -2
# A task reads this much of the log: some 100 ms of work, much more than a task costs, and still many tasks a core.
SPLIT_BYTES = 64 * MIB

T = TypeVar("T")
D = TypeVar("D")
Offsets: TypeAlias = tuple[tuple[str, int, int], ...]  # topic, partition, offset


class OptionError(WalError):
    """An option that there is not, or a value that it cannot have."""


@dataclass(frozen=True)
class Options:
    """What a user asked for. `topics`, `partitions` and `org` of None mean all."""

    path: str
    view: str = RECORDS
    org: int | None = None
    topics: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    columns: tuple[str, ...] = tuple(RECORD_COLUMNS)
    start_latest: bool = False
    starting_offsets: Offsets = ()
    start_time: int | None = None
    end_time: int | None = None
    fail_on_data_loss: bool = True
    verify_crc: bool = True
    split_bytes: int = SPLIT_BYTES
    max_rows: int | None = None
    max_bytes: int | None = None
    filter_pushdown: bool = False


NAMES = (
    "path",
    "view",
    "org",
    "topics",
    "partitions",
    "columns",
    "startingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "verifyCrc",
    "splitBytes",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
    "filterPushdown",
)


def parse_options(given: Mapping[str, str]) -> Options:
    """The options as Spark hands them over: names in any case, values as text."""
    values = {name.lower(): value for name, value in given.items()}
    _check_names(values)

    def read(name: str, parse: Callable[[str], T], default: D) -> T | D:
        text = values.get(name.lower())
        if text is None:
            return default
        try:
            return parse(text.strip())
        except (ValueError, TypeError, AttributeError) as error:
            raise OptionError(f"rafka_wal: option {name} is {text!r}: {error}") from None

    if "path" not in values:
        raise OptionError('rafka_wal: option path is missing: give the folder with the .log files, as .load("DIR")')
    view = read("view", _one_of(RECORDS, BATCHES), RECORDS)
    known = (RECORD_COLUMNS, EXTRA_RECORD_COLUMNS) if view == RECORDS else (BATCH_COLUMNS, EXTRA_BATCH_COLUMNS)
    nothing: tuple[bool, Offsets] = (False, ())
    latest, offsets = read("startingOffsets", _starting_offsets, nothing)
    return Options(
        path=values["path"],
        view=view,
        org=read("org", _at_least(0), None),
        topics=read("topics", _names, None),
        partitions=read("partitions", _partitions, None),
        columns=read("columns", _columns(*known), tuple(known[0])),
        start_latest=latest,
        starting_offsets=offsets,
        start_time=read("startingTimestamp", _time, None),
        end_time=read("endingTimestamp", _time, None),
        fail_on_data_loss=read("failOnDataLoss", _boolean, True),
        verify_crc=read("verifyCrc", _boolean, True),
        split_bytes=read("splitBytes", _at_least(1), SPLIT_BYTES),
        max_rows=read("maxRowsPerTrigger", _at_least(1), None),
        max_bytes=read("maxBytesPerTrigger", _at_least(1), None),
        filter_pushdown=read("filterPushdown", _boolean, False),
    )


def _check_names(values: Mapping[str, str]) -> None:
    right = {name.lower(): name for name in NAMES}
    wrong = sorted(set(values) - set(right))
    if wrong:
        near = [right[found] for name in wrong for found in difflib.get_close_matches(name, right, 1)]
        hint = f" (did you mean {', '.join(near)}?)" if near else ""
        raise OptionError(f"rafka_wal has no option {', '.join(wrong)}{hint}; the options are: {', '.join(NAMES)}")


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"choose one of {', '.join(choices)}")
        return text.lower()

    return parse


def _at_least(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if text.isdigit() else minimum - 1
        if number < minimum:
            raise ValueError(f"give a whole number of at least {minimum}")
        return number

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.lower() == "true"


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ValueError("give names with commas between them")
    return names


def _partitions(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in _names(text):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            raise ValueError("give partition numbers with commas between them, such as 0,2 or 0-3")
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def _columns(default: Mapping[str, object], extra: Mapping[str, object]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = _names(text)
        wrong = [name for name in names if name not in default and name not in extra]
        if wrong:
            raise ValueError(f"there is no {', '.join(wrong)}; the columns are: {', '.join((*default, *extra))}")
        if len(set(names)) < len(names):
            raise ValueError("a column is named twice")
        return names

    return parse


def _starting_offsets(text: str) -> tuple[bool, Offsets]:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower() == LATEST, ()
    how = 'give earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}}, where -2 is the earliest'
    try:
        offsets = tuple(
            (topic, int(partition), int(offset))
            for topic, partitions in json.loads(text).items()
            for partition, offset in partitions.items()
        )
    except ValueError:
        raise ValueError(how) from None
    if any(offset < EARLIEST_OFFSET or offset == -1 for _, _, offset in offsets):
        raise ValueError(f"an offset is at least 0: {how}")
    return False, tuple((topic, partition, max(offset, 0)) for topic, partition, offset in offsets)


def _time(text: str) -> int | None:
    """Milliseconds since 1970, or ISO 8601; a time without a zone is UTC."""
    if text.lstrip("-").isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("give milliseconds since 1970 or a time such as 2026-01-31T12:00:00Z") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
