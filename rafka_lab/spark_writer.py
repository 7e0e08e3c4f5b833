"""The Spark sink `rafka`: rows of a DataFrame as records of a topic, through the gateway as any Kafka client does it.

    df.write.format("rafka").option("bootstrapServers", lab.bootstrap).option("topic", "orders").mode("append").save()
    stream.writeStream.foreachBatch(produce_batches(lab.bootstrap, "orders")).start()

A row's columns are those of Spark's Kafka sink: `value`, and if they are there `key`, `headers`, `partition`,
`timestamp`, and `topic` without the option. Other columns are refused. A task that Spark runs again produces its rows
again: delivery is at least once.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, WriterCommitMessage
from pyspark.sql.types import StructType

BOOTSTRAP, TOPIC, CLIENT_PREFIX = "bootstrapServers", "topic", "kafka."
_TEXT_OR_BYTES = ("string", "binary")
_COLUMNS: dict[str, tuple[str, ...]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
# A task waits this long for the last acknowledgements before it fails.
FLUSH_SECONDS = 120.0
# Rows between two looks at the acknowledgements: the client's queue holds 100,000.
_POLL_ROWS = 1_000


class ProduceError(Exception):
    """Rows that cannot be produced, or were not acknowledged."""


@dataclass
class Produced(WriterCommitMessage):
    """What a task has produced."""

    records: int


class Rafka(DataSource):
    """Registered as `rafka`."""

    @classmethod
    def name(cls) -> str:
        return "rafka"

    def reader(self, schema: StructType) -> DataSourceReader:
        raise self._writes_only()

    def schema(self) -> NoReturn:
        raise self._writes_only()

    def _writes_only(self) -> ProduceError:
        return ProduceError('rafka only writes: read a log with spark.read.format("rafka_wal").load(DIR)')

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise ProduceError('rafka: a topic cannot be overwritten; use .mode("append")')
        _check_columns(schema, self.options)
        return RafkaWriter(_client_settings(self.options), self.options.get(TOPIC))


def _client_settings(options: Mapping[str, str]) -> dict[str, str]:
    known = (BOOTSTRAP.lower(), TOPIC)
    wrong = [name for name in options if name.lower() not in known and not name.lower().startswith(CLIENT_PREFIX)]
    if wrong:
        near = difflib.get_close_matches(wrong[0].lower(), known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ProduceError(
            f"rafka has no option {', '.join(wrong)}{hint}; the options are: {BOOTSTRAP}, {TOPIC}, and "
            f"{CLIENT_PREFIX}* for the Kafka client's own settings"
        )
    if options.get(BOOTSTRAP) is None:
        raise ProduceError(
            f"rafka: option {BOOTSTRAP} is missing: give the gateway's host:port, as lab.bootstrap has it"
        )
    own = {
        name[len(CLIENT_PREFIX) :]: value for name, value in options.items() if name.lower().startswith(CLIENT_PREFIX)
    }
    return {"enable.idempotence": "true", "linger.ms": "5", **own, "bootstrap.servers": str(options[BOOTSTRAP])}


def _check_columns(schema: StructType, options: Mapping[str, str]) -> None:
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in found.items():
        if name not in _COLUMNS:
            raise ProduceError(f"rafka: no column {name}; a row may have: {', '.join(_COLUMNS)}")
        if kind not in _COLUMNS[name]:
            raise ProduceError(f"rafka: column {name} is {kind}; cast it to {' or '.join(_COLUMNS[name])}")
    if "value" not in found:
        raise ProduceError("rafka: there is no column value")
    if ("topic" in found) == (options.get(TOPIC) is not None):
        raise ProduceError(f"rafka: give either option {TOPIC} or a column topic")


class RafkaWriter(DataSourceArrowWriter):
    """Produces the rows of one partition of a DataFrame."""

    def __init__(self, settings: dict[str, str], topic: str | None) -> None:
        self._settings = settings
        self._topic = topic

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from confluent_kafka import Producer

        failures: list[str] = []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(str(error))

        producer = Producer(self._settings)
        count = 0
        for batch in iterator:
            for row in batch.to_pylist():
                self._produce(producer, row, delivered)
                count += 1
                if count % _POLL_ROWS == 0:
                    producer.poll(0)
                    _raise(failures, count)
        left = producer.flush(FLUSH_SECONDS)
        _raise(failures + ([f"no answer within {FLUSH_SECONDS:.0f} s"] * left), count)
        return Produced(count)

    def _produce(self, producer: Any, row: dict[str, Any], delivered: Callable[[Any, Any], None]) -> None:
        optional: dict[str, Any] = {}
        if row.get("partition") is not None:
            optional["partition"] = row["partition"]
        if row.get("timestamp") is not None:
            optional["timestamp"] = round(row["timestamp"].timestamp() * 1000)
        if row.get("headers"):
            optional["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
        topic = self._topic or row["topic"]
        while True:
            try:
                producer.produce(topic, row["value"], row.get("key"), on_delivery=delivered, **optional)
            except BufferError:  # the client's queue is full: wait for acknowledgements
                producer.poll(0.1)
            else:
                return


def _raise(failures: list[str], count: int) -> None:
    if failures:
        raise ProduceError(f"{len(failures)} of {count} records were not acknowledged; the first: {failures[0]}")


def produce_batches(bootstrap: str, topic: str | None = None, **settings: str) -> Callable[[DataFrame, int], None]:
    """A function for `foreachBatch` that produces each batch. `settings` are the Kafka client's, as `linger_ms="0"`."""

    def produce(frame: DataFrame, _batch: int) -> None:
        writer = frame.write.format("rafka").mode("append").option(BOOTSTRAP, bootstrap)
        if topic is not None:
            writer = writer.option(TOPIC, topic)
        for name, value in settings.items():
            writer = writer.option(f"{CLIENT_PREFIX}{name.replace('_', '.')}", value)
        writer.save()

    return produce
