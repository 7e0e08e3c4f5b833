"""InitProducerId: a new producer id, or the next epoch of one."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.errors import RefusedError, kafka_code
from wal.errors import WalError

_NEW = -1


async def init_producer_id(broker: Broker, _org_id: int, request: ops.InitProducerId) -> ops.InitProducerIdAnswer:
    ids = broker.producer_ids
    try:
        if request.producer_id == _NEW:
            return ops.InitProducerIdAnswer(0, await ids.new(), 0)
        return ops.InitProducerIdAnswer(0, *await ids.renew(request.producer_id, request.producer_epoch))
    except RefusedError as error:
        return ops.InitProducerIdAnswer(error.code, -1, -1)
    except WalError as error:
        return ops.InitProducerIdAnswer(kafka_code(error), -1, -1)
