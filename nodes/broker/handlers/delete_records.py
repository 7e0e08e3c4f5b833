"""DeleteRecords: moves the start of a partition, for good once the answer is sent."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.errors import Code, RefusedError, kafka_code
from wal.errors import WalError

_HIGH_WATERMARK = -1


async def delete_records(broker: Broker, org_id: int, request: ops.DeleteRecords) -> ops.DeleteRecordsAnswer:
    results = [_one(broker, org_id, item) for item in request.partitions]
    if any(not result.error for result in results):
        await broker.syncs.synced()
    return ops.DeleteRecordsAnswer(results)


def _one(broker: Broker, org_id: int, item: ops.DeleteRecordsPartition) -> ops.DeleteRecordsResult:
    try:
        topic = broker.registry.held(org_id, item.topic, ops.NO_ID, item.partition)
        state = broker.wal.state.partition(topic.topic_id, item.partition)
        offset = state.high_watermark if item.offset == _HIGH_WATERMARK else item.offset
        if offset < 0 or offset > state.high_watermark:
            raise RefusedError(Code.OFFSET_OUT_OF_RANGE, f"the partition ends at {state.high_watermark}")
        if offset > state.log_start:
            broker.wal.move_log_start(topic.topic_id, item.partition, offset)
    except RefusedError as error:
        return ops.DeleteRecordsResult(error.code)
    except WalError as error:
        return ops.DeleteRecordsResult(kafka_code(error))
    return ops.DeleteRecordsResult(0, state.log_start)
