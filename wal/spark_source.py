"""The Spark Data Source `rafka_wal`: a broker's own log as a DataFrame, in batch and as a stream.

    spark.dataSource.register(RafkaWal)     # rafka_lab.spark_session does it
    spark.read.format("rafka_wal").option("topics", "orders").load("data/broker-0/wal")

Options: `spark_options`. A DataFrame shows the log as it was at its first query; load it again to see more.

Conditions on topics, partitions, offsets and times are best given as options. With `filterPushdown=true` they are taken
from `where` too (that needs `spark.sql.python.filterPushdown.enabled=true`), and then each DataFrame is good for one
query: Spark 4.3 keeps what a source planned with one query's filters and uses it for the DataFrame's next query, whose
filters may be others. That would be a wrong answer without a word, so it has to be asked for.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from wal.arrow_columns import arrow_schema
from wal.errors import LogDamagedError, WalError
from wal.spark_filters import TopicFilter, push
from wal.spark_options import OptionError, Options, parse_options
from wal.spark_plan import LogPlan, Place, Split
from wal.spark_selection import Predicate

_LOG = logging.getLogger(__name__)


@dataclass
class SplitPartition(InputPartition):
    """A split as Spark carries it to a task."""

    split: Split


class RafkaWal(DataSource):
    """Registered as `rafka_wal`."""

    @classmethod
    def name(cls) -> str:
        return "rafka_wal"

    def schema(self) -> StructType:
        return from_arrow_schema(arrow_schema(parse_options(self.options).columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = _options(self.options, schema)
        if options.start_latest:
            raise OptionError("rafka_wal: startingOffsets=latest is for streams; a batch query would read nothing")
        if options.max_rows or options.max_bytes:
            raise OptionError("rafka_wal: maxRowsPerTrigger and maxBytesPerTrigger are for streams")
        return PushingBatchReader(options) if options.filter_pushdown else WalBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return WalStreamReader(_options(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise _read_only()

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
        raise _read_only()


def _read_only() -> WalError:
    return WalError(
        "rafka_wal only reads: the broker is the one writer of its log. To write records into a topic, produce them "
        'through the gateway with df.write.format("rafka").option("bootstrapServers", ...).option("topic", ...)'
    )


def _options(given: Mapping[str, str], schema: StructType) -> Options:
    options = parse_options(given)
    if from_arrow_schema(arrow_schema(options.columns)) != schema:
        raise OptionError(
            f"rafka_wal takes no schema of its own: leave .schema(...) out and name the columns with "
            f'.option("columns", "{",".join(schema.fieldNames())}")'
        )
    return options


class WalBatchReader(DataSourceReader):
    """One query over the log as it is when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._predicates: list[Predicate] = []
        self._topics: list[TopicFilter] = []

    def partitions(self) -> list[InputPartition]:
        plan = LogPlan(self._options)
        selection = plan.selection(
            tuple(self._predicates), lambda name: all(topic.keeps(name) for topic in self._topics)
        )
        splits = plan.splits(selection)
        _report_losses(plan)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)


class PushingBatchReader(WalBatchReader):
    """The same with filters that Spark pushes down. It is another class, since Spark goes by the method's existence."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        for one, predicate, rest in push(filters, self._options.view):
            if isinstance(predicate, TopicFilter):
                self._topics.append(predicate)
            elif predicate is not None:
                self._predicates.append(predicate)
            if rest:
                yield one


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, SplitPartition):
        return iter(())  # Spark's own one, where the plan has none at all
    from wal.spark_read import read_split  # the decoder's libraries are for tasks, not for planning

    return read_split(partition.split, options)


def _report_losses(plan: LogPlan) -> None:
    for loss in plan.losses:
        _LOG.warning("rafka_wal leaves out what it cannot read: %s", loss)


class WalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the live log. Its offset is a place in the whole log, `{"log", "segment", "row"}`.

    A place always means the same entries, so a batch that is run again after a crash holds the same records, and a
    sink that remembers batch ids writes each record once.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Place | None = None

    @cached_property
    def _plan(self) -> LogPlan:
        """Opened when it is first used: Spark sends readers to tasks, which have no use for it."""
        return LogPlan(self._options)

    def initialOffset(self) -> dict[str, object]:  # noqa: N802
        if self._options.start_latest:
            return self._offset(self._plan.end())
        return self._offset(Place(self._plan.segments()[0], 0))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._plan.refresh()
        self._target = self._plan.end()

    def reportLatestOffset(self) -> dict[str, object]:  # noqa: N802
        self._plan.refresh()
        return self._offset(self._plan.end())

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        begin = self._place(start)
        if self._target is None:
            self._plan.refresh()
        end = max(begin, self._target or self._plan.end())
        if not isinstance(limit, ReadAllAvailable):
            selection = self._plan.selection()
            end = self._plan.limited(begin, end, selection, self._options.max_rows, self._options.max_bytes)
        return self._offset(end)

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> list[InputPartition]:
        first, last = self._place(start), self._place(end)
        self._check_lost(first, last)
        splits = self._plan.splits(self._plan.selection(), first, last)
        _report_losses(self._plan)
        return [SplitPartition(split) for split in splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._options)

    def _check_lost(self, first: Place, last: Place) -> None:
        lost = self._plan.lost_between(first, last)
        if not lost:
            return
        message = (
            f"segments {', '.join(map(str, lost))} of {self._options.path} were dropped by retention before the stream "
            "had read them"
        )
        if self._options.fail_on_data_loss:
            raise LogDamagedError(
                f"{message}: set failOnDataLoss=false to go on without them, or start with a new checkpoint",
                path=self._options.path,
            )
        _LOG.warning("rafka_wal goes on without lost records: %s", message)

    def _offset(self, place: Place) -> dict[str, object]:
        return {"log": str(self._plan.log_id), "segment": place.segment, "row": place.row}

    def _place(self, offset: dict[str, object]) -> Place:
        if offset["log"] != str(self._plan.log_id):
            raise LogDamagedError(
                f"the checkpoint is of log {offset['log']}, and {self._options.path} holds log {self._plan.log_id}: "
                "it was replaced; start with a new checkpoint",
                path=self._options.path,
            )
        return Place(int(str(offset["segment"])), int(str(offset["row"])))
