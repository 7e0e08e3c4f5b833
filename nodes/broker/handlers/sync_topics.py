"""SyncTopics, on the brokers that are not the controller: they follow what it has decided."""

import logging

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.errors import Code
from nodes.broker.handlers.delete_topics import end_waits

log = logging.getLogger(__name__)


async def sync_topics(broker: Broker, org_id: int, request: ops.SyncTopics) -> ops.TopicsAnswer:
    if broker.settings.is_controller:
        return ops.TopicsAnswer(
            [
                ops.TopicResult(topic.name, error=Code.INVALID_REQUEST, message="the controller follows nobody")
                for topic in request.topics
            ]
        )
    before = broker.wal.sequence
    for record in broker.registry.follow(org_id, request.topics, complete=request.complete):
        log.info("topic %s (%s) is gone", record.name, record.ulid)
        end_waits(broker, record)
    if broker.wal.sequence != before:
        await broker.syncs.synced()
    return ops.TopicsAnswer([ops.TopicResult(topic.name, topic.topic_id) for topic in request.topics])
