"""From a log to the table of records, batch by batch: each record once, however often the pipeline stops and starts.

Spark's checkpoint names the entries of each batch before it is written, so a batch that is run again is the same. In
Parquet it replaces its own folder; in Delta its number is part of the commit, and a second commit is left out.
"""

import shutil
from pathlib import Path

import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from rafka_lab.pipeline.sources import Log
from wal.arrow_columns import EXTRA_RECORD_COLUMNS, RECORD_COLUMNS
from wal.settings import MIB

# What one batch holds in memory at a time when it is copied into the Delta table.
BATCH_BYTES = 256 * MIB
RECORDS = "records"


class Folders:
    """Where a pipeline writes."""

    def __init__(self, out: Path | str) -> None:
        self.out = Path(out).absolute()

    def parquet(self, table: str) -> Path:
        return self.out / "parquet" / table

    def delta(self, table: str) -> Path:
        return self.out / "delta" / table

    def checkpoint(self, log: str) -> Path:
        return self.out / "checkpoints" / log

    @property
    def report(self) -> Path:
        return self.out / "report.html"


def start_records_stream(
    spark: SparkSession, log: Log, out: Path | str, *, available_now: bool = True, every: str = "1 second"
) -> StreamingQuery:
    """Copies the log's records into the tables: what is there now, or for ever, a batch every `every`."""
    folders = Folders(out)
    columns = ",".join((*RECORD_COLUMNS, *EXTRA_RECORD_COLUMNS))
    reader = spark.readStream.format("rafka_wal").option("columns", columns).option("maxBytesPerTrigger", BATCH_BYTES)
    writer = reader.load(str(log.path)).writeStream.queryName(f"pipeline {log.name}")
    writer = writer.option("checkpointLocation", str(folders.checkpoint(log.name)))
    writer = writer.foreachBatch(lambda frame, number: write_batch(frame, number, log.name, folders))
    triggered = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=every)
    return triggered.start()


def write_batch(frame: DataFrame, number: int, log: str, folders: Folders) -> None:
    """One batch into both tables; the same batch again changes nothing."""
    target = folders.parquet(RECORDS) / f"log={log}" / f"batch={number:09d}"
    written = frame.withColumn("date", f.to_date("append_time"))
    written.write.mode("overwrite").partitionBy("topic").parquet(str(target))
    if any(target.glob("topic=*")):
        _append_to_delta(target, number, log, folders.delta(RECORDS))
    else:
        shutil.rmtree(target)  # nothing but control entries in this part of the log


def _append_to_delta(batch: Path, number: int, log: str, table: Path) -> None:
    if DeltaTable.is_deltatable(str(table)):
        done = DeltaTable(str(table)).transaction_version(log)
        if done is not None and done >= number:
            return
    rows = ds.dataset(batch, format="parquet", partitioning="hive", exclude_invalid_files=True)
    reader = rows.scanner(columns={**{name: ds.field(name) for name in rows.schema.names}, "log": ds.scalar(log)})
    write_deltalake(
        str(table),
        reader.to_reader(),
        mode="append",
        partition_by=["log", "topic"],
        commit_properties=CommitProperties(app_transactions=[Transaction(log, number)]),
    )
