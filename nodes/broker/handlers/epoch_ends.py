"""OffsetForLeaderEpoch: there is one epoch, and it ends where the partition ends."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.errors import RefusedError
from nodes.broker.handlers.fetch import check_epoch


async def epoch_ends(broker: Broker, org_id: int, request: ops.EpochEnds) -> ops.EpochAnswer:
    return ops.EpochAnswer([_one(broker, org_id, item) for item in request.partitions])


def _one(broker: Broker, org_id: int, item: ops.EpochPartition) -> ops.EpochResult:
    try:
        topic = broker.registry.held(org_id, item.topic, ops.NO_ID, item.partition)
        check_epoch(item.current_leader_epoch)
    except RefusedError as error:
        return ops.EpochResult(error.code)
    if item.leader_epoch != ops.LEADER_EPOCH:
        return ops.EpochResult()  # Kafka's answer for an epoch that never was
    end = broker.wal.state.partition(topic.topic_id, item.partition).high_watermark
    return ops.EpochResult(0, ops.LEADER_EPOCH, end)
