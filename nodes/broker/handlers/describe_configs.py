"""DescribeConfigs: every setting of a topic or of the broker, with its value, source, type and meaning."""

from nodes import ops
from nodes.broker import configs
from nodes.broker.broker import Broker
from nodes.broker.errors import Code, RefusedError

TOPIC, BROKER = 2, 4


async def describe_configs(broker: Broker, org_id: int, request: ops.DescribeConfigs) -> ops.DescribeConfigsAnswer:
    return ops.DescribeConfigsAnswer([_one(broker, org_id, resource) for resource in request.resources])


def _one(broker: Broker, org_id: int, resource: ops.ConfigResource) -> ops.ConfigResult:
    try:
        entries = _entries(broker, org_id, resource)
    except RefusedError as error:
        return ops.ConfigResult(resource.kind, resource.name, error.code, error.message)
    return ops.ConfigResult(resource.kind, resource.name, entries=entries)


def _entries(broker: Broker, org_id: int, resource: ops.ConfigResource) -> list[ops.ConfigEntry]:
    if resource.kind == TOPIC:
        topic = broker.registry.find(org_id, resource.name)
        if topic is None:
            raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {resource.name!r}")
        return configs.entries(broker.registry.configs, topic.record.configs, resource.keys)
    if resource.kind == BROKER:
        check_broker_name(broker, resource.name)
        return configs.entries(broker.broker_configs, {}, resource.keys)
    raise unknown_kind(resource.kind)


def check_broker_name(broker: Broker, name: str) -> None:
    """An empty name is the default of all brokers."""
    if name not in ("", str(broker.settings.index)):
        raise RefusedError(Code.INVALID_REQUEST, f"there is no broker {name!r}; this is {broker.settings.index}")


def unknown_kind(kind: int) -> RefusedError:
    return RefusedError(Code.INVALID_REQUEST, f"resource type {kind} has no settings here; topic (2) and broker (4) do")
