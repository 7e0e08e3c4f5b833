"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the controller keeps the configs of topics and brokers."""

import logging
from typing import Any

from nodes import ops
from nodes.gateway.errors import kafka_code, read_failure, write_failure
from nodes.gateway.handlers.cluster import NO_THROTTLE
from nodes.gateway.session import Exchange
from nodes.kafka import ErrorCode
from nodes.mesh import MeshError, OpCode

log = logging.getLogger(__name__)

_SET, _DELETE = 0, 1
_OPERATIONS = range(4)  # append and subtract are the other two
_UNAVAILABLE = ErrorCode.not_controller


async def describe_configs(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    resources = [
        ops.ConfigResource(item.resource_type, item.resource_name, _keys(item.configuration_keys))
        for item in body.resources
    ]
    try:
        answer = await exchange.brokers.controller_call(
            OpCode.DESCRIBE_CONFIGS,
            ops.DescribeConfigs(resources),
            ops.DescribeConfigsAnswer,
            timeout=exchange.settings.answer_time,
            trace=exchange.trace,
        )
        results = answer.results
    except MeshError as error:
        code = read_failure(error, _UNAVAILABLE)
        results = [ops.ConfigResult(item.kind, item.name, code, str(error)) for item in resources]
    return build.DescribeConfigsResponse(
        throttle_time=NO_THROTTLE, results=tuple(_described(exchange, item) for item in results)
    )


def _keys(keys: tuple[str, ...] | None) -> list[str] | None:
    return None if keys is None else list(keys)


def _described(exchange: Exchange, item: ops.ConfigResult) -> Any:
    build, body = exchange.request.build, exchange.request.body
    documented = getattr(body, "include_documentation", False)

    def entry(config: ops.ConfigEntry) -> Any:
        synonym = build.DescribeConfigsSynonym(name=config.name, value=config.value, source=config.source)
        return build.DescribeConfigsResourceResult(
            name=config.name,
            value=config.value,
            read_only=config.read_only,
            config_source=config.source,
            is_sensitive=False,
            synonyms=(synonym,) if body.include_synonyms else (),
            config_type=config.type,
            documentation=config.documentation if documented else None,
        )

    return build.DescribeConfigsResult(
        error_code=kafka_code(item.error),
        error_message=item.message,
        resource_type=item.kind,
        resource_name=item.name,
        configs=tuple(entry(config) for config in item.entries),
    )


async def alter_configs(exchange: Exchange) -> Any:
    resources = [
        ops.AlterResource(
            item.resource_type,
            item.resource_name,
            [
                ops.ConfigChange(config.name, _DELETE if config.value is None else _SET, config.value)
                for config in item.configs
            ],
        )
        for item in exchange.request.body.resources
    ]
    responses = await _alter(exchange, resources, replace=True)
    return exchange.request.build.AlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


async def incremental_alter_configs(exchange: Exchange) -> Any:
    asked = exchange.request.body.resources
    refused = {at: _refuse(exchange, item) for at, item in enumerate(asked) if _has_unknown_operation(item)}
    resources = [
        ops.AlterResource(
            item.resource_type,
            item.resource_name,
            [ops.ConfigChange(config.name, config.config_operation, config.value) for config in item.configs],
        )
        for at, item in enumerate(asked)
        if at not in refused
    ]
    given = iter(await _alter(exchange, resources, replace=False) if resources else ())
    responses = tuple(refused[at] if at in refused else next(given) for at in range(len(asked)))
    return exchange.request.build.IncrementalAlterConfigsResponse(throttle_time=NO_THROTTLE, responses=responses)


def _has_unknown_operation(resource: Any) -> bool:
    return any(config.config_operation not in _OPERATIONS for config in resource.configs)


def _refuse(exchange: Exchange, resource: Any) -> Any:
    message = "a config operation is not one of 0 (set), 1 (delete), 2 (append), 3 (subtract)"
    result = ops.ConfigResult(resource.resource_type, resource.resource_name, ErrorCode.invalid_request, message)
    return _altered(exchange, result)


async def _alter(exchange: Exchange, resources: list[ops.AlterResource], *, replace: bool) -> tuple[Any, ...]:
    payload = ops.AlterConfigs(resources, replace, exchange.request.body.validate_only)
    try:
        answer = await exchange.brokers.controller_call(
            OpCode.ALTER_CONFIGS,
            payload,
            ops.AlterConfigsAnswer,
            timeout=exchange.settings.answer_time,
            trace=exchange.trace,
        )
        results = answer.results
        await exchange.topics.changed(answer.topics, exchange.trace)
    except MeshError as error:
        code = write_failure(error, _UNAVAILABLE)
        results = [ops.ConfigResult(item.kind, item.name, code, str(error)) for item in resources]
    if len(results) != len(resources):
        log.error("the controller answered %d results for %d resources", len(results), len(resources))
        results = [ops.ConfigResult(item.kind, item.name, ErrorCode.unknown_server_error) for item in resources]
    return tuple(_altered(exchange, item) for item in results)


def _altered(exchange: Exchange, item: ops.ConfigResult) -> Any:
    return exchange.request.build.AlterConfigsResourceResponse(
        error_code=kafka_code(item.error),
        error_message=item.message,
        resource_type=item.kind,
        resource_name=item.name,
    )
