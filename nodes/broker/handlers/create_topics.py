"""CreateTopics, on the controller."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.handlers.topic_changes import change_each, once
from wal.control import TopicRecord


async def create_topics(broker: Broker, org_id: int, request: ops.CreateTopics) -> ops.TopicsAnswer:
    check_once = once(request.topics)

    def create(wish: ops.NewTopic) -> TopicRecord:
        check_once(wish)
        return broker.registry.create(org_id, wish, validate_only=request.validate_only)

    return await change_each(broker, request.topics, create, validate_only=request.validate_only)
