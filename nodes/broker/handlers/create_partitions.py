"""CreatePartitions, on the controller."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.handlers.topic_changes import change_each, once
from wal.control import TopicRecord


async def create_partitions(broker: Broker, org_id: int, request: ops.CreatePartitions) -> ops.TopicsAnswer:
    check_once = once(request.topics)

    def grow(wish: ops.MorePartitions) -> TopicRecord:
        check_once(wish)
        return broker.registry.grow(org_id, wish, validate_only=request.validate_only)

    return await change_each(broker, request.topics, grow, validate_only=request.validate_only)
