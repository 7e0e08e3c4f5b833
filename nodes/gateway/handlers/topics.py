"""CreateTopics, DeleteTopics and CreatePartitions: the controller decides, the other brokers follow."""

import uuid
from typing import Any

from nodes import ops
from nodes.gateway.errors import kafka_code, write_failure
from nodes.gateway.handlers.cluster import NO_THROTTLE
from nodes.gateway.session import NODE_ID, Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError, OpCode

_DEFAULT = -1
_TOPIC_SOURCE = 1  # where a config comes from: set on the topic
_ONE_COPY = 1
# From this version on the response says what was made.
_CONFIGS_FROM = 5


async def create_topics(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    refused = {at: result for at, topic in enumerate(body.topics) if (result := _bad_assignment(topic)) is not None}
    wanted = [_new_topic(topic) for at, topic in enumerate(body.topics) if at not in refused]
    payload = ops.CreateTopics(wanted, body.validate_only)
    names = [topic.name for topic in wanted]
    given = iter(await _at_controller(exchange, OpCode.CREATE_TOPICS, payload, names))
    results = [refused[at] if at in refused else next(given) for at in range(len(body.topics))]
    if not body.validate_only:
        made = [item.topic for item in results if item.topic is not None and not item.error]
        await exchange.topics.changed(made, exchange.trace)
    return build.CreateTopicsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(_created(exchange, item) for item in results)
    )


def _bad_assignment(topic: Any) -> ops.TopicResult | None:
    """Clients know one broker, so an assignment can only name that one, for partitions 0, 1, 2 and so on."""
    if not topic.assignments:
        return None
    if topic.num_partitions != _DEFAULT or topic.replication_factor != _DEFAULT:
        message = "partitions and replication factor must be -1 where an assignment is given"
        return ops.TopicResult(topic.name, error=ErrorCode.invalid_request, message=message)
    indexes = sorted(item.partition_index for item in topic.assignments)
    if indexes != list(range(len(indexes))) or any(item.broker_ids != (NODE_ID,) for item in topic.assignments):
        message = f"an assignment must give every partition from 0 on to broker {NODE_ID}, and to no other"
        return ops.TopicResult(topic.name, error=ErrorCode.invalid_replica_assignment, message=message)
    return None


def _new_topic(topic: Any) -> ops.NewTopic:
    partitions = len(topic.assignments) or topic.num_partitions
    configs = {config.name: config.value for config in topic.configs}
    return ops.NewTopic(topic.name, partitions, topic.replication_factor, [], configs)


def _created(exchange: Exchange, item: ops.TopicResult) -> Any:
    build = exchange.request.build
    topic = item.topic if not item.error else None
    configs = None
    if topic is not None and exchange.request.version >= _CONFIGS_FROM:
        configs = tuple(
            build.CreatableTopicConfigs(
                name=name, value=value, read_only=False, config_source=_TOPIC_SOURCE, is_sensitive=False
            )
            for name, value in topic.configs.items()
        )
    return build.CreatableTopicResult(
        name=item.name,
        topic_id=_uuid(item.topic_id),
        error_code=kafka_code(item.error),
        error_message=item.message,
        num_partitions=_DEFAULT if topic is None else len(topic.leaders),
        replication_factor=_DEFAULT if topic is None else _ONE_COPY,
        configs=configs,
    )


async def delete_topics(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    if hasattr(body, "topics"):
        asked = [ops.TopicRef(item.name or "", _id(item.topic_id)) for item in body.topics]
    else:
        asked = [ops.TopicRef(name, ops.NO_ID) for name in body.topic_names]
    names = [ref.name for ref in asked]
    results = await _at_controller(exchange, OpCode.DELETE_TOPIC, ops.DeleteTopics(asked), names)
    gone = [(ref, item) for ref, item in zip(asked, results, strict=True) if not item.error]
    for ref, item in gone:
        exchange.topics.forget(ref.name or item.name, item.topic_id)
    if gone:
        await exchange.topics.deleted(exchange.trace)
    return build.DeleteTopicsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            build.DeletableTopicResult(
                name=item.name or ref.name or (None if exchange.request.version >= 6 else ""),
                topic_id=_uuid(item.topic_id if item.topic_id != ops.NO_ID else ref.topic_id),
                error_code=kafka_code(item.error),
                error_message=item.message,
            )
            for ref, item in zip(asked, results, strict=True)
        ),
    )


async def create_partitions(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    refused = {
        at: ops.TopicResult(
            topic.name,
            error=ErrorCode.invalid_replica_assignment,
            message=f"new partitions can only be assigned to broker {NODE_ID}",
        )
        for at, topic in enumerate(body.topics)
        if any(item.broker_ids != (NODE_ID,) for item in topic.assignments or ())
    }
    wanted = [
        ops.MorePartitions(topic.name, topic.count, []) for at, topic in enumerate(body.topics) if at not in refused
    ]
    payload = ops.CreatePartitions(wanted, body.validate_only)
    names = [topic.name for topic in wanted]
    given = iter(await _at_controller(exchange, OpCode.CREATE_PARTITIONS, payload, names))
    results = [refused[at] if at in refused else next(given) for at in range(len(body.topics))]
    if not body.validate_only:
        grown = [item.topic for item in results if item.topic is not None and not item.error]
        await exchange.topics.changed(grown, exchange.trace)
    return build.CreatePartitionsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            build.CreatePartitionsTopicResult(
                name=item.name, error_code=kafka_code(item.error), error_message=item.message
            )
            for item in results
        ),
    )


async def _at_controller(exchange: Exchange, op_code: OpCode, payload: Any, names: list[str]) -> list[ops.TopicResult]:
    """One result a name, also when the controller gave none."""
    if not names:
        return []
    timeout = exchange.settings.answer_time
    try:
        answer = await exchange.brokers.controller_call(
            op_code, payload, ops.TopicsAnswer, timeout=timeout, trace=exchange.trace
        )
        if len(answer.results) != len(names):
            raise MeshError(f"the controller answered {len(answer.results)} results for {len(names)} topics")
        return answer.results
    except MeshError as error:
        code = write_failure(error, ErrorCode.not_controller)
        return [ops.TopicResult(name, error=code, message=str(error)) for name in names]


def _uuid(topic_id: bytes) -> uuid.UUID | None:
    return None if topic_id == ops.NO_ID else uuid.UUID(bytes=bytes(topic_id))


def _id(topic_id: uuid.UUID | None) -> bytes:
    return ops.NO_ID if topic_id is None else topic_id.bytes
