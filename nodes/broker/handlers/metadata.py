"""Metadata: topics from the registry, which is in memory. Missing ones are made where the request asks for that."""

from nodes import ops
from nodes.broker.broker import Broker
from nodes.broker.errors import Code, RefusedError, kafka_code
from nodes.broker.handlers.topic_changes import check_controller
from nodes.broker.names import check_name
from nodes.broker.registry import op_of
from wal.errors import WalError


async def metadata(broker: Broker, org_id: int, request: ops.Metadata) -> ops.MetadataAnswer:
    before = broker.wal.sequence
    cluster_id = broker.registry.cluster_id
    if request.names is None and request.ids is None:
        topics = [
            ops.MetadataTopic(0, record.name, record.topic_id.bytes, op_of(record))
            for record in broker.registry.all_of(org_id)
        ]
    else:
        topics = [_by_name(broker, org_id, name, create=request.create) for name in request.names or ()]
        topics += [_by_id(broker, org_id, topic_id) for topic_id in request.ids or ()]
    if broker.wal.sequence != before:
        await broker.syncs.synced()
    return ops.MetadataAnswer(cluster_id, topics)


def _by_name(broker: Broker, org_id: int, name: str, *, create: bool) -> ops.MetadataTopic:
    topic = broker.registry.find(org_id, name)
    if topic is not None:
        return ops.MetadataTopic(0, name, topic.topic_id, op_of(topic.record))
    try:
        check_name(name)
        if not create or not broker.settings.auto_create:
            return ops.MetadataTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, name, ops.NO_ID, None)
        check_controller(broker)
        record = broker.registry.create(org_id, ops.NewTopic(name, -1, -1, [], {}))
    except RefusedError as error:
        return ops.MetadataTopic(error.code, name, ops.NO_ID, None)
    except WalError as error:
        return ops.MetadataTopic(kafka_code(error), name, ops.NO_ID, None)
    return ops.MetadataTopic(0, name, record.topic_id.bytes, op_of(record))


def _by_id(broker: Broker, org_id: int, topic_id: bytes) -> ops.MetadataTopic:
    topic = broker.registry.find(org_id, "", topic_id)
    if topic is None:
        return ops.MetadataTopic(Code.UNKNOWN_TOPIC_ID, "", topic_id, None)
    return ops.MetadataTopic(0, topic.record.name, topic_id, op_of(topic.record))
