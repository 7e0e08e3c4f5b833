"""How far Spark is: a bar for a running query, and a table for a stream. Plain text, so a notebook shows it as well."""

import json
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Often enough to look alive, seldom enough to cost nothing.
POLL_SECONDS = 0.2
_BAR_WIDTH = 30


class progress:  # noqa: N801 (used as `with progress(spark):`)
    """Draws a bar of finished tasks while the block runs, and removes it at the end."""

    def __init__(self, spark: "SparkSession", out: TextIO | None = None) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._out = out or sys.stdout
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="spark-progress", daemon=True)

    def __enter__(self) -> "progress":
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._out.write("\r" + " " * (_BAR_WIDTH + 40) + "\r")
        self._out.flush()

    def _draw(self) -> None:
        drawn = (0, 0)  # only what changes is drawn: a saved notebook keeps every line
        while not self._done.wait(POLL_SECONDS):
            done, total = self._tasks()
            if total and drawn != (done, total):
                self._out.write(f"\r{bar(done, total)}")
                self._out.flush()
                drawn = (done, total)

    def _tasks(self) -> tuple[int, int]:
        infos = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
        known = [info for info in infos if info is not None]
        return sum(info.numCompletedTasks for info in known), sum(info.numTasks for info in known)


def bar(done: int, total: int) -> str:
    """`[#####.....] 5 of 10 tasks`, as long whatever the numbers are."""
    filled = _BAR_WIDTH * done // total
    return f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}] {done:,} of {total:,} tasks".ljust(_BAR_WIDTH + 36)


def stream_progress(query: "StreamingQuery") -> "pd.DataFrame":
    """One row a batch of a stream: how many records, how long it took, and where in the log it ended."""
    import pandas as pd

    rows = []
    for one in query.recentProgress:
        end = one["sources"][0]["endOffset"]
        place = json.loads(end) if isinstance(end, str) else end
        durations = one["durationMs"]
        rows.append(
            {
                "batch": one["batchId"],
                "records": one["numInputRows"],
                "seconds": durations.get("triggerExecution", 0) / 1000,
                "records_per_second": one.get("processedRowsPerSecond", 0.0),
                "segment": place["segment"],
                "row": place["row"],
            }
        )
    return pd.DataFrame(rows, columns=["batch", "records", "seconds", "records_per_second", "segment", "row"])
