"""Finds what a pipeline reads: the logs of all brokers of a data folder, and the collector's trace store."""

from pathlib import Path
from typing import NamedTuple

from wal.segment import segment_numbers

# As `Lab` lays out its data folder.
_LOG_OF_BROKER = "data"
_TRACE_STORE = Path("collector") / "traces.sqlite"
ONLY_LOG = "log"


class PipelineError(Exception):
    """The pipeline cannot run; the message says what to do."""


class Log(NamedTuple):
    """A broker's log. `name` is what the tables call it."""

    name: str
    path: Path


def find_logs(data: Path) -> list[Log]:
    """The logs below a lab's data folder, or the one log that the folder itself is."""
    if not data.is_dir():
        raise PipelineError(f"there is no folder {data}: give a lab's data folder, or the folder with the .log files")
    if segment_numbers(data):
        return [Log(ONLY_LOG, data)]
    found = [
        Log(node.name, node / _LOG_OF_BROKER)
        for node in sorted(data.iterdir())
        if (node / _LOG_OF_BROKER).is_dir() and segment_numbers(node / _LOG_OF_BROKER)
    ]
    if not found:
        raise PipelineError(
            f"there is no log in {data}: give a lab's data folder (with broker-0/data), or a folder with .log files"
        )
    return found


def find_trace_store(data: Path) -> Path | None:
    """The trace store of a lab's data folder, if it has one."""
    store = data / _TRACE_STORE
    return store if store.is_file() else None
