"""Metadata: topics from the controller's registry, with the gateway as the one broker and leader of every partition."""

import uuid
from typing import Any

from nodes import ops
from nodes.gateway.errors import CloseConnectionError, kafka_code, read_failure
from nodes.gateway.handlers.cluster import CLUSTER_OPERATIONS, NO_THROTTLE, NOT_ASKED, known_cluster_id
from nodes.gateway.session import NODE_ID, Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError

# read, write, create, delete, alter, describe, describe configs, alter configs
_TOPIC_OPERATIONS = sum(1 << number for number in (3, 4, 5, 6, 7, 8, 10, 11))
# Below this version a client cannot say that a topic must not be created.
_CREATE_FLAG_FROM = 4


async def metadata(exchange: Exchange) -> Any:
    names, ids = _asked_for(exchange)
    if names is None and ids is None:
        topics = await _all_topics(exchange)
    else:
        topics = await _topics(exchange, names or [], ids or [])
    request, build, advertised = exchange.request, exchange.request.build, exchange.advertised
    asked = getattr(request.body, "include_cluster_authorized_operations", False)
    broker = build.MetadataResponseBroker(node_id=NODE_ID, host=advertised.host, port=advertised.port, rack=None)
    return build.MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=(broker,),
        cluster_id=await known_cluster_id(exchange),
        controller_id=NODE_ID,
        topics=tuple(_topic(exchange, item) for item in topics),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
        error_code=ErrorCode.none,
    )


def _asked_for(exchange: Exchange) -> tuple[list[str] | None, list[bytes] | None]:
    """Names and ids; both None for all topics. Version 0 asks for all with an empty list, later ones with null."""
    request = exchange.request
    asked = request.body.topics
    if asked is None or (request.version == 0 and not asked):
        return None, None
    ids = [item.topic_id.bytes for item in asked if getattr(item, "topic_id", None) is not None]
    return [item.name for item in asked if getattr(item, "topic_id", None) is None and item.name is not None], ids


async def _all_topics(exchange: Exchange) -> list[ops.MetadataTopic]:
    await exchange.brokers.wait_for_controller(exchange.settings.controller_wait)
    try:
        return (await exchange.topics.metadata(None, None, trace=exchange.trace)).topics
    except MeshError as error:
        # An empty list would say that there are no topics; all clients connect again and ask once more.
        raise CloseConnectionError(f"all topics were asked for and the controller cannot be: {error}") from error


async def _topics(exchange: Exchange, names: list[str], ids: list[bytes]) -> list[ops.MetadataTopic]:
    """Brokers without topics are answered without the controller: it may be down while a client starts."""
    if not names and not ids:
        return []
    request = exchange.request
    create = request.version < _CREATE_FLAG_FROM or request.body.allow_auto_topic_creation
    await exchange.brokers.wait_for_controller(exchange.settings.controller_wait)
    try:
        found: list[ops.MetadataTopic] = []
        if names:
            found += (await exchange.topics.metadata(names, None, create=create, trace=exchange.trace)).topics
        if ids:
            found += (await exchange.topics.metadata(None, ids, trace=exchange.trace)).topics
        return found
    except MeshError as error:
        code = read_failure(error, ErrorCode.leader_not_available)
        return [ops.MetadataTopic(code, name, ops.NO_ID, None) for name in names] + [
            ops.MetadataTopic(code, "", topic_id, None) for topic_id in ids
        ]


def _topic(exchange: Exchange, item: ops.MetadataTopic) -> Any:
    request, build = exchange.request, exchange.request.build
    topic = item.topic
    topic_id = item.topic_id if topic is None else topic.topic_id
    name: str | None = item.name if topic is None else topic.name
    if not name and request.version >= 12:
        name = None
    asked = getattr(request.body, "include_topic_authorized_operations", False)
    return build.MetadataResponseTopic(
        error_code=kafka_code(item.error),
        name=name,
        topic_id=None if topic_id == ops.NO_ID else uuid.UUID(bytes=bytes(topic_id)),
        is_internal=False,
        partitions=() if topic is None else tuple(_partition(build, index) for index in range(len(topic.leaders))),
        topic_authorized_operations=_TOPIC_OPERATIONS if asked else NOT_ASKED,
    )


def _partition(build: Any, index: int) -> Any:
    return build.MetadataResponsePartition(
        error_code=ErrorCode.none,
        partition_index=index,
        leader_id=NODE_ID,
        leader_epoch=ops.LEADER_EPOCH,
        replica_nodes=(NODE_ID,),
        isr_nodes=(NODE_ID,),
        offline_replicas=(),
    )
