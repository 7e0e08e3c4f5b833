"""ListOffsets: the ends of a partition, and the first offset at or after a time."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.errors import Code, RefusedError, kafka_code
from nodes.broker.handlers.fetch import check_epoch
from wal.errors import WalError
from wal.records import Record

_NONE = ops.ListOffsetsResult()


async def list_offsets(broker: Broker, org_id: int, request: ops.ListOffsets) -> ops.ListOffsetsAnswer:
    return ops.ListOffsetsAnswer([_one(broker, org_id, item) for item in request.partitions])


def _one(broker: Broker, org_id: int, item: ops.ListOffsetsPartition) -> ops.ListOffsetsResult:
    try:
        topic = broker.registry.held(org_id, item.topic, item.topic_id, item.partition)
        check_epoch(item.leader_epoch)
        return _find(broker, topic.topic_id, item)
    except RefusedError as error:
        return ops.ListOffsetsResult(error.code)
    except WalError as error:
        return ops.ListOffsetsResult(kafka_code(error))


def _find(broker: Broker, topic_id: bytes, item: ops.ListOffsetsPartition) -> ops.ListOffsetsResult:
    state = broker.wal.state.partition(topic_id, item.partition)
    match item.timestamp:
        case -1:
            return ops.ListOffsetsResult(0, -1, state.high_watermark, ops.LEADER_EPOCH)
        case -2 | -4:  # all of the log is local
            return ops.ListOffsetsResult(0, -1, state.log_start, ops.LEADER_EPOCH)
        case -3:
            return _of(broker.wal.latest_record(topic_id, item.partition))
        case -5:  # nothing is tiered
            return _NONE
        case time if time < 0:
            raise RefusedError(Code.UNSUPPORTED_VERSION, f"timestamp {time} has no meaning here")
        case time:
            return _of(broker.wal.offset_at(topic_id, item.partition, time))


def _of(record: Record | None) -> ops.ListOffsetsResult:
    """None is offset -1 without an error."""
    return _NONE if record is None else ops.ListOffsetsResult(0, record.timestamp, record.offset, ops.LEADER_EPOCH)
