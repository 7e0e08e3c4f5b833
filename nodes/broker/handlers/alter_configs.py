"""AlterConfigs and IncrementalAlterConfigs, on the controller."""

from nodes import ops
from nodes.broker import configs
from nodes.broker.broker import Broker
from nodes.broker.errors import RefusedError, kafka_code
from nodes.broker.handlers.describe_configs import BROKER, TOPIC, check_broker_name, unknown_kind
from nodes.broker.handlers.topic_changes import check_controller
from nodes.broker.registry import op_of
from wal.control import TopicRecord
from wal.errors import WalError


async def alter_configs(broker: Broker, org_id: int, request: ops.AlterConfigs) -> ops.AlterConfigsAnswer:
    results: list[ops.ConfigResult] = []
    changed: list[TopicRecord] = []
    for resource in request.resources:
        try:
            check_controller(broker)
            record = _alter(broker, org_id, resource, request)
        except RefusedError as error:
            results.append(ops.ConfigResult(resource.kind, resource.name, error.code, error.message))
        except WalError as error:
            results.append(ops.ConfigResult(resource.kind, resource.name, kafka_code(error), str(error)))
        else:
            results.append(ops.ConfigResult(resource.kind, resource.name))
            if record is not None and not request.validate_only:
                changed.append(record)
    if changed:
        await broker.syncs.synced()
    return ops.AlterConfigsAnswer(results, [op_of(record) for record in changed])


def _alter(broker: Broker, org_id: int, resource: ops.AlterResource, request: ops.AlterConfigs) -> TopicRecord | None:
    if resource.kind == TOPIC:
        return broker.registry.configure(org_id, resource, replace=request.replace, validate_only=request.validate_only)
    if resource.kind == BROKER:
        check_broker_name(broker, resource.name)
        # Every setting of a broker is given at its start: only what is so already can be "set".
        configs.changed(broker.broker_configs, {}, resource.changes, replace=request.replace)
        return None
    raise unknown_kind(resource.kind)
