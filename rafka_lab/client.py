"""Producing, fetching and looking at topics of any Kafka cluster, with DataFrames in and out; built on librdkafka.

`Kafka("host:port")` is for any broker; a `Lab` has one that adds the trace id of each record from its log.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rafka_lab.errors import LabError, UnknownTopicError
from rafka_lab.records import Columns, frame_of
from rafka_lab.rows import NewRow, rows_of

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from confluent_kafka import Consumer, Message, Producer
    from confluent_kafka.admin import AdminClient

# A cluster on this machine answers in milliseconds; a paused or restarted node takes a few seconds.
DEFAULT_TIMEOUT = 30.0
# Records a call into librdkafka hands over; larger ones hold the GIL longer.
_CONSUME_BATCH = 10_000
_POLL_SECONDS = 0.1
# librdkafka says what goes on to stderr; a notebook hears of errors by exceptions.
_QUIET = {"log_level": "0"}
_CONSUMER = {
    "group.id": "rafka-lab",
    "enable.auto.commit": "false",
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": "50",
    "queued.min.messages": "1000000",
    "fetch.message.max.bytes": "8388608",
}

TraceIds = Callable[[str, "pd.DataFrame"], "pd.Series | None"]


class Kafka:
    """A cluster at `bootstrap`. `config` is librdkafka's, such as security settings, for all clients made here."""

    def __init__(
        self,
        bootstrap: str,
        config: Mapping[str, str] | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        trace_ids: TraceIds | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.timeout = timeout
        self._config: dict[str, Any] = {"bootstrap.servers": bootstrap, **_QUIET, **(config or {})}
        self._trace_ids = trace_ids
        self._admin: AdminClient | None = None

    def __repr__(self) -> str:
        return f"<Kafka at {self.bootstrap}>"

    def config(self, more: Mapping[str, str] | None = None) -> dict[str, Any]:
        """librdkafka's settings for a client of one's own."""
        return self._config | dict(more or {})

    @property
    def admin(self) -> "AdminClient":
        """confluent-kafka's AdminClient."""
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient(dict(self._config))
        return self._admin

    def produce(
        self,
        topic: str,
        rows: "Iterable[object] | pd.DataFrame | str | bytes",
        *,
        acks: str | int = "all",
        linger_ms: float = 5,
        compression: str = "none",
        config: Mapping[str, str] | None = None,
    ) -> "pd.DataFrame":
        """Sends the rows and waits until each is acknowledged; one line a record with its partition and offset.

        A row is text, bytes, (key, value), a dictionary with some of key, value, headers, partition, timestamp, or any
        other dictionary, which is sent as JSON. A DataFrame is a record a row. With acks=0 offsets are not known (-1).
        """
        from confluent_kafka import KafkaException, Producer

        settings = {"acks": str(acks), "linger.ms": str(linger_ms), "compression.type": compression}
        settings["message.timeout.ms"] = str(round(self.timeout * 1000))
        try:
            producer = Producer(self.config(settings | dict(config or {})))
        except KafkaException as error:
            raise LabError(f"librdkafka does not take these settings: {error.args[0].str()}") from None
        sent = _Sent(topic, self.timeout)
        for row in rows_of(rows):
            sent.send(producer, row)
        sent.finish(producer)
        return self._with_traces(topic, sent.frame())

    def fetch(
        self,
        topic: str,
        *,
        partitions: Iterable[int] | None = None,
        offset: str | int | datetime = "beginning",
        count: int | None = None,
        text: bool = True,
    ) -> "pd.DataFrame":
        """The records that the topic holds now, in the order of partitions and offsets.

        `offset` is where to start: "beginning", an offset, -n for the last n of each partition, or a moment.
        `count` ends earlier. Keys and values are text where they are UTF-8; `text=False` leaves all as bytes.
        """
        from confluent_kafka import Consumer

        if count is not None and count < 0:
            raise LabError(f"count is {count}; ask for 0 or more records")
        consumer = Consumer(self.config(_CONSUMER))
        try:
            wanted = self._ranges(consumer, topic, partitions, offset)
            columns = _collect(consumer, topic, wanted, count, self.timeout)
        finally:
            consumer.close()
        return self._with_traces(topic, frame_of(columns, text=text))

    def topics(self) -> "pd.DataFrame":
        """One line a topic: partitions, records it holds, and which brokers lead its partitions."""
        import pandas as pd
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

        try:
            found = self.admin.list_topics(timeout=self.timeout).topics
        except KafkaException as error:
            raise self._unreachable(error) from None
        places = [TopicPartition(name, number) for name, topic in found.items() for number in topic.partitions]
        held: dict[str, int] = dict.fromkeys(found, 0)
        for spec, sign in ((OffsetSpec.latest(), 1), (OffsetSpec.earliest(), -1)):  # type: ignore[no-untyped-call]
            asked = self.admin.list_offsets(dict.fromkeys(places, spec), request_timeout=self.timeout)
            for place, answer in asked.items():
                held[place.topic] += sign * answer.result().offset
        rows = [
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "records": held[name],
                "leaders": sorted({part.leader for part in topic.partitions.values()}),
            }
            for name, topic in sorted(found.items())
        ]
        return pd.DataFrame(rows, columns=["topic", "partitions", "records", "leaders"])

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that a partition holds, and the one that comes next."""
        from confluent_kafka import Consumer

        consumer = Consumer(self.config(_CONSUMER))
        try:
            return self._ranges(consumer, topic, [partition], "beginning")[partition]
        finally:
            consumer.close()

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Makes a topic; one that is there already is an error."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        try:
            self.admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))])[topic].result()
        except KafkaException as error:
            raise LabError(f"topic {topic!r} was not made: {error.args[0].str()}") from None

    def _ranges(
        self, consumer: "Consumer", topic: str, partitions: Iterable[int] | None, offset: str | int | datetime
    ) -> dict[int, tuple[int, int]]:
        """Partition -> (first offset, end)."""
        known = self._partitions(consumer, topic)
        chosen = sorted(known if partitions is None else set(partitions))
        if unknown := set(chosen) - set(known):
            raise UnknownTopicError(
                f"topic {topic!r} has partitions 0 to {len(known) - 1}, no {', '.join(map(str, sorted(unknown)))}"
            )
        from confluent_kafka import TopicPartition

        found = {}
        for number in chosen:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=self.timeout)
            found[number] = (low, high)
        return {number: (start, high) for number, start, high in self._starts(consumer, topic, found, offset)}

    def _starts(
        self, consumer: "Consumer", topic: str, held: dict[int, tuple[int, int]], offset: str | int | datetime
    ) -> list[tuple[int, int, int]]:
        match offset:
            case "beginning":
                return [(number, low, high) for number, (low, high) in held.items()]
            case "end":
                return [(number, high, high) for number, (_, high) in held.items()]
            case datetime():
                return [
                    (number, first if first >= 0 else held[number][1], held[number][1])
                    for number, first in self._first_at(consumer, topic, list(held), offset)
                ]
            case bool() | str():
                raise LabError(f"offset is {offset!r}; use 'beginning', 'end', a number, -n or a datetime")
            case int() if offset < 0:
                return [(number, max(low, high + offset), high) for number, (low, high) in held.items()]
        return [(number, max(low, offset), high) for number, (low, high) in held.items()]

    def _first_at(
        self, consumer: "Consumer", topic: str, partitions: list[int], moment: datetime
    ) -> list[tuple[int, int]]:
        from confluent_kafka import TopicPartition

        milliseconds = round(moment.timestamp() * 1000)
        asked = [TopicPartition(topic, number, milliseconds) for number in partitions]
        return [(place.partition, place.offset) for place in consumer.offsets_for_times(asked, timeout=self.timeout)]

    def _partitions(self, consumer: "Consumer", topic: str) -> list[int]:
        from confluent_kafka import KafkaException

        try:
            found = consumer.list_topics(topic, timeout=self.timeout).topics.get(topic)
        except KafkaException as error:
            raise self._unreachable(error) from None
        if found is None or found.error is not None or not found.partitions:
            names = sorted(consumer.list_topics(timeout=self.timeout).topics)
            there = f"the topics are {', '.join(names)}" if names else "there are no topics yet"
            raise UnknownTopicError(f"there is no topic {topic!r}: {there}; producing to a topic makes it")
        return sorted(found.partitions)

    def _unreachable(self, error: Any) -> LabError:
        return LabError(
            f"no Kafka answers at {self.bootstrap} ({error.args[0].str()}): is the cluster up, and its gateway running?"
        )

    def _with_traces(self, topic: str, frame: "pd.DataFrame") -> "pd.DataFrame":
        found = self._trace_ids(topic, frame) if self._trace_ids is not None and len(frame) else None
        frame["trace_id"] = None if found is None else found
        return frame


class _Sent:
    """The records of one produce and what became of them."""

    def __init__(self, topic: str, timeout: float) -> None:
        self._topic = topic
        self._timeout = timeout
        self._rows: list[tuple[int, int, int, float]] = []
        self._failures: list[str] = []
        self._count = 0

    def send(self, producer: "Producer", row: NewRow) -> None:
        more: dict[str, Any] = {"headers": row.headers} if row.headers else {}
        deadline = time.monotonic() + self._timeout
        self._count += 1
        while True:
            try:
                producer.produce(
                    self._topic,
                    row.value,
                    row.key,
                    partition=row.partition,
                    timestamp=row.timestamp,
                    on_delivery=self._delivered,
                    **more,
                )
                return
            except BufferError:  # librdkafka's queue is full: let it send
                producer.poll(_POLL_SECONDS)
                if time.monotonic() > deadline:
                    raise LabError(f"nothing was taken by {self._topic!r} for {self._timeout:g} s") from None

    def _delivered(self, error: Any, message: "Message") -> None:
        if error is not None:
            self._failures.append(error.str())
        else:
            offset = message.offset()
            _, stamp = message.timestamp()
            place = (message.partition() or 0, -1 if offset is None else offset)
            self._rows.append((*place, stamp, message.latency() or 0.0))

    def finish(self, producer: "Producer") -> None:
        left = producer.flush(self._timeout)
        if self._failures or left:
            failed = len(self._failures) + left
            why = self._failures[0] if self._failures else f"no answer within {self._timeout:g} s"
            raise LabError(
                f"{failed} of {self._count} records were not acknowledged by {self._topic!r}: {why}; "
                f"{len(self._rows)} were"
            )

    def frame(self) -> "pd.DataFrame":
        import pandas as pd

        frame = pd.DataFrame(self._rows, columns=["partition", "offset", "timestamp", "latency_ms"])
        frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="ms", utc=True)
        frame["latency_ms"] *= 1000
        return frame


def _collect(
    consumer: "Consumer", topic: str, wanted: dict[int, tuple[int, int]], count: int | None, timeout: float
) -> Columns:
    """Reads each partition up to the end it had when it was asked for."""
    from confluent_kafka import TopicPartition

    columns = Columns()
    ends = {number: end for number, (start, end) in wanted.items() if start < end}
    if not ends or count == 0:
        return columns
    consumer.assign([TopicPartition(topic, number, wanted[number][0]) for number in ends])
    deadline = time.monotonic() + timeout
    while ends and (count is None or len(columns) < count):
        room = _CONSUME_BATCH if count is None else min(_CONSUME_BATCH, count - len(columns))
        messages = consumer.consume(room, timeout=_POLL_SECONDS)
        if messages:
            deadline = time.monotonic() + timeout
            columns.add(_within(messages, wanted, topic))
            for number in list(ends):
                at = consumer.position([TopicPartition(topic, number)])[0].offset
                if at >= ends[number]:
                    del ends[number]
        elif time.monotonic() > deadline:
            raise LabError(f"no record of {topic!r} came within {timeout:g} s, and {len(ends)} partitions have more")
    return columns


def _within(messages: "list[Message]", wanted: dict[int, tuple[int, int]], topic: str) -> "list[Message]":
    """Without those that were written after we began, so that a busy topic has an end."""
    kept = []
    for message in messages:
        error = message.error()
        if error is not None:
            raise LabError(f"fetching from {topic!r} failed: {error.str()}")
        if message.offset() < wanted[message.partition()][1]:  # type: ignore[operator,index]
            kept.append(message)
    return kept
