"""InitProducerId: the controller gives out producer ids. Transactional ids are not served."""

from typing import Any

from nodes import ops
from nodes.gateway.errors import kafka_code, write_failure
from nodes.gateway.handlers.cluster import NO_THROTTLE
from nodes.gateway.session import Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError, OpCode

_NONE = -1


async def init_producer_id(exchange: Exchange) -> Any:
    body = exchange.request.body
    if body.transactional_id is not None:
        return _response(exchange, ErrorCode.transactional_id_authorization_failed, _NONE, _NONE)
    payload = ops.InitProducerId(getattr(body, "producer_id", _NONE), getattr(body, "producer_epoch", _NONE))
    timeout = exchange.settings.answer_time
    try:
        answer = await exchange.brokers.controller_call(
            OpCode.INIT_PRODUCER_ID, payload, ops.InitProducerIdAnswer, timeout=timeout, trace=exchange.trace
        )
    except MeshError as error:
        return _response(exchange, write_failure(error, ErrorCode.coordinator_not_available), _NONE, _NONE)
    return _response(exchange, kafka_code(answer.error), answer.producer_id, answer.producer_epoch)


def _response(exchange: Exchange, error: ErrorCode, producer_id: int, epoch: int) -> Any:
    return exchange.request.build.InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=error, producer_id=producer_id, producer_epoch=epoch
    )
