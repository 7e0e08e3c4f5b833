"""One file an op. `register` gives them all to the mesh."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from nodes import ops
from nodes.broker import spans
from nodes.broker.broker import Broker
from nodes.broker.handlers.alter_configs import alter_configs
from nodes.broker.handlers.create_partitions import create_partitions
from nodes.broker.handlers.create_topics import create_topics
from nodes.broker.handlers.delete_records import delete_records
from nodes.broker.handlers.delete_topics import delete_topics
from nodes.broker.handlers.describe_configs import describe_configs
from nodes.broker.handlers.epoch_ends import epoch_ends
from nodes.broker.handlers.fetch import fetch
from nodes.broker.handlers.init_producer_id import init_producer_id
from nodes.broker.handlers.list_offsets import list_offsets
from nodes.broker.handlers.metadata import metadata
from nodes.broker.handlers.produce import ProduceLine
from nodes.broker.handlers.status import status
from nodes.broker.handlers.sync_topics import sync_topics
from nodes.mesh import KafkaCall, Mesh, OpCode, Payload
from nodes.mesh.postcard import codec

# An op that is not on the hot path: its payload's type, and what answers it.
Answer = Callable[[Broker, int, Any], Awaitable[ops.Op]]
_OPS: dict[OpCode, tuple[type[ops.Op], Answer]] = {
    OpCode.LIST_OFFSETS: (ops.ListOffsets, list_offsets),
    OpCode.DELETE_TOPIC: (ops.DeleteTopics, delete_topics),
    OpCode.METADATA: (ops.Metadata, metadata),
    OpCode.CREATE_TOPICS: (ops.CreateTopics, create_topics),
    OpCode.CREATE_PARTITIONS: (ops.CreatePartitions, create_partitions),
    OpCode.SYNC_TOPICS: (ops.SyncTopics, sync_topics),
    OpCode.DESCRIBE_CONFIGS: (ops.DescribeConfigs, describe_configs),
    OpCode.ALTER_CONFIGS: (ops.AlterConfigs, alter_configs),
    OpCode.INIT_PRODUCER_ID: (ops.InitProducerId, init_producer_id),
    OpCode.EPOCH_ENDS: (ops.EpochEnds, epoch_ends),
    OpCode.DELETE_RECORDS: (ops.DeleteRecords, delete_records),
    OpCode.STATUS: (ops.Op, status),
}


def register(mesh: Mesh, broker: Broker) -> None:
    """Serves every op of the broker on the mesh."""
    mesh.register_kafka_handler(OpCode.PRODUCE, ProduceLine(broker).produce, uses_current=False)
    mesh.register_kafka_handler(OpCode.FETCH, functools.partial(fetch, broker), uses_current=False)
    for op_code, (kind, answer) in _OPS.items():
        mesh.register_kafka_handler(op_code, _serve(broker, kind, answer))


def _serve(broker: Broker, kind: type[ops.Op], answer: Answer) -> Callable[[KafkaCall], Awaitable[Payload]]:
    reader = codec(kind)

    async def handle(call: KafkaCall) -> Payload:
        with spans.around(call) as span:
            request = reader.decode(call.payload)
            result = await answer(broker, call.org_id, request)
            if span is not None:
                spans.describe(span, request, result)
        return codec(type(result)).parts(result)

    return handle
