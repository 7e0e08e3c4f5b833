"""Consuming as kcat does: with or without a group, to the end, up to a count, up to a time, or for ever."""

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lab.errors import KcatError
from lab.kcat_flags import Invocation
from lab.kcat_format import Printed
from rafka_lab.client import Kafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

_POLL_SECONDS = 0.1
_BATCH = 1000
_SETTINGS = {
    "enable.partition.eof": "true",
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": "50",
    "group.id": "rafka-lab-kcat",
}


def consume(kafka: Kafka, asked: Invocation, stopped: threading.Event | None = None) -> Iterator[list[Printed]]:
    """Lists of records as they come; ends as the flags say, or when `stopped` is set."""
    from confluent_kafka import Consumer, KafkaException

    own = {"group.id": asked.group} if asked.group else {"enable.auto.commit": "false"}
    try:
        consumer = Consumer(kafka.config(_SETTINGS | own | asked.settings))
    except KafkaException as error:
        raise KcatError(error.args[0].str()) from None
    try:
        yield from _Reading(consumer, asked, stopped or threading.Event()).run()
    except KafkaException as error:
        raise KcatError(error.args[0].str()) from None
    finally:
        consumer.close()


class _Reading:
    def __init__(self, consumer: "Consumer", asked: Invocation, stopped: threading.Event) -> None:
        self._consumer = consumer
        self._asked = asked
        self._stopped = stopped
        self._open: set[tuple[str, int]] = set()  # partitions whose end was not seen
        self._left = asked.count

    def run(self) -> Iterator[list[Printed]]:
        if self._asked.mode == "G":
            self._consumer.subscribe(list(self._asked.topics), on_assign=self._assigned)
        else:
            places = self._places()
            self._open = {(place.topic, place.partition) for place in places}
            self._consumer.assign(places)
        while not self._stopped.is_set() and self._left != 0:
            room = _BATCH if self._left is None else min(_BATCH, self._left)
            found = [
                record for message in self._consumer.consume(room, _POLL_SECONDS) for record in self._take(message)
            ]
            if found:
                yield found
            if not self._open and (self._asked.exit_at_end or self._asked.until_ms) and self._has_partitions():
                return

    def _take(self, message: "Message") -> list[Printed]:
        from confluent_kafka import KafkaError

        error = message.error()
        place = (str(message.topic()), int(message.partition() or 0))
        if error is not None:
            if error.code() == KafkaError._UNSUPPORTED_FEATURE and self._asked.group:
                raise KcatError(f"this broker has no consumer groups ({error.str()}): -C -t TOPIC reads without one")
            if error.code() != KafkaError._PARTITION_EOF:
                raise KcatError(error.str())
            if self._asked.exit_at_end:
                self._open.discard(place)
            return []
        kind, stamp = message.timestamp()
        if self._asked.until_ms is not None and stamp >= self._asked.until_ms:
            self._open.discard(place)
            return []
        if self._left is not None:
            self._left -= 1
        headers: Any = message.headers() or []
        value: Any = message.value()
        key: Any = message.key()
        return [Printed(*place, int(message.offset() or 0), kind, stamp, key, value, headers)]

    def _has_partitions(self) -> bool:
        return self._asked.mode != "G" or bool(self._consumer.assignment())

    def _assigned(self, consumer: "Consumer", places: "list[TopicPartition]") -> None:
        self._open = {(place.topic, place.partition) for place in places}

    def _places(self) -> "list[TopicPartition]":
        """Where to start in each partition."""
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED, TopicPartition

        topic = self._asked.topics[0]
        partitions = self._partitions(topic)
        offset = self._asked.offset or "beginning"
        named = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END, "stored": OFFSET_STORED}
        if offset in named:
            return [TopicPartition(topic, number, named[offset]) for number in partitions]
        if offset.startswith("s@"):
            asked = [TopicPartition(topic, number, int(offset[2:])) for number in partitions]
            return self._consumer.offsets_for_times(asked, timeout=self._asked.metadata_seconds)
        if offset.startswith("-"):
            return [TopicPartition(topic, number, self._from_end(topic, number, -int(offset))) for number in partitions]
        return [TopicPartition(topic, number, int(offset)) for number in partitions]

    def _from_end(self, topic: str, number: int, count: int) -> int:
        from confluent_kafka import TopicPartition

        low, high = self._consumer.get_watermark_offsets(
            TopicPartition(topic, number), timeout=self._asked.metadata_seconds
        )
        return max(low, high - count)

    def _partitions(self, topic: str) -> list[int]:
        found = self._consumer.list_topics(topic, timeout=self._asked.metadata_seconds).topics[topic]
        if found.error is not None:
            raise KcatError(f"Topic {topic} error: {found.error.str()}; %kcat -L lists the topics")
        known = sorted(found.partitions)
        wanted = self._asked.partition
        if wanted is None or wanted < 0:
            return known
        if wanted not in known:
            raise KcatError(f"Topic {topic} (with partitions 0..{len(known) - 1}): partition {wanted} does not exist")
        return [wanted]
