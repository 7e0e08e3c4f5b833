"""DeleteTopics, on the controller."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.handlers.topic_changes import change_each
from wal.control import TopicRecord


async def delete_topics(broker: Broker, org_id: int, request: ops.DeleteTopics) -> ops.TopicsAnswer:
    def delete(ref: ops.TopicRef) -> TopicRecord:
        record = broker.registry.delete(org_id, ref)
        end_waits(broker, record)
        return record

    return await change_each(broker, request.topics, delete)


def end_waits(broker: Broker, record: TopicRecord) -> None:
    """Whoever waits for the topic's records gets to know that it is gone."""
    broker.waits.end((record.topic_id.bytes, partition) for partition in range(len(record.leaders)))
