"""What tests ask of a partition with confluent-kafka: its records, its ends."""

import time

from confluent_kafka import Consumer, Message, TopicPartition


def read_all(bootstrap: str, topic: str, count: int, partition: int = 0, start: int = 0) -> list[Message]:
    """The first `count` records of a partition from `start` on; fails if they do not come."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        found: list[Message] = []
        end = time.monotonic() + 30
        while len(found) < count and time.monotonic() < end:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message)
        assert len(found) == count
        return found
    finally:
        consumer.close()


def watermarks(bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
    """Log start and high watermark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
        return int(low), int(high)
    finally:
        consumer.close()


def high_watermark(bootstrap: str, topic: str, partition: int = 0) -> int:
    return watermarks(bootstrap, topic, partition)[1]
