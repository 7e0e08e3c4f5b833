"""Runs the pipeline: new records first, then the tables over all of them, then the report."""

import html
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from rafka_lab.pipeline import tables
from rafka_lab.pipeline.report import write_report
from rafka_lab.pipeline.sources import Log, PipelineError, find_logs, find_trace_store
from rafka_lab.pipeline.spans import spans_frame
from rafka_lab.pipeline.stream import RECORDS, Folders, start_records_stream

# Spark gives the Python process of a stream 10 s to start, which cannot be set and is short on a busy machine. The
# checkpoint makes another attempt safe.
START_ATTEMPTS = 3
FRAME_HEIGHT = 620  # of the report in a notebook: a screen's worth, the rest scrolls
_SLOW_WORKER = "Python worker failed to connect back"


@dataclass(frozen=True)
class PipelineResult:
    """What a run did. `added` are the records that no run before had."""

    out: Path
    added: int
    tables: dict[str, pa.Table] = field(repr=False, default_factory=dict)

    @property
    def report(self) -> Path:
        return Folders(self.out).report

    @property
    def unchanged(self) -> bool:
        return self.added == 0 and not self.tables

    def _repr_html_(self) -> str:
        """The report, in a frame of its own: its styles are not the notebook's."""
        page = html.escape(self.report.read_text(encoding="utf-8"))
        style = f"width:100%;height:{FRAME_HEIGHT}px;border:1px solid #8884"
        return f'<p>{self.added:,} new records in {self.out}</p><iframe srcdoc="{page}" style="{style}"></iframe>'


def run_pipeline(
    spark: SparkSession, data: Path | str, out: Path | str, trace_store: Path | str | None = None
) -> PipelineResult:
    """Reads what is new in all logs of `data` and brings the tables in `out` up to date.

    Without anything new the tables stay as they are, file by file. Spans are joined from `trace_store`, or from the
    store of the data folder if it has one.
    """
    folders = Folders(out)
    added = sum(_add_records(spark, data, folders))
    if not any(folders.parquet(RECORDS).glob("log=*/batch=*")):
        raise PipelineError(f"the logs in {data} hold no records yet: produce some and run the pipeline again")
    if added == 0 and folders.report.exists():
        return PipelineResult(folders.out, 0)
    records = spark.read.parquet(str(folders.parquet(RECORDS))).cache()
    try:
        made = {name: make(records) for name, make in tables.OF_RECORDS.items()}
        store = Path(trace_store) if trace_store is not None else find_trace_store(Path(data))
        if store is not None:
            made[tables.HOPS] = tables.hops(records, spans_frame(spark, store))
        written = {name: _write_table(frame, name, folders) for name, frame in made.items()}
    finally:
        records.unpersist()
    write_report(folders.report, written)
    return PipelineResult(folders.out, added, written)


def _add_records(spark: SparkSession, data: Path | str, folders: Folders) -> list[int]:
    return [_add_records_of(spark, log, folders) for log in find_logs(Path(data))]


def _add_records_of(spark: SparkSession, log: Log, folders: Folders) -> int:
    added = 0
    for attempt in range(1, START_ATTEMPTS + 1):
        query = start_records_stream(spark, log, folders.out)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if _SLOW_WORKER not in str(error) or attempt == START_ATTEMPTS:
                raise
        added += sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        if query.exception() is None:
            break
    return added


def _write_table(frame: DataFrame, name: str, folders: Folders) -> pa.Table:
    """A small table, whole: it replaces the one of the run before."""
    table = frame.toArrow()
    frame.sparkSession.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(str(folders.parquet(name)))
    write_deltalake(str(folders.delta(name)), table, mode="overwrite", schema_mode="overwrite")
    return table
