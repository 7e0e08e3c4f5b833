"""ApiVersions, DescribeCluster and FindCoordinator: answered here, since the gateway is the broker that clients see."""

import datetime
from typing import Any

from nodes.gateway.session import NODE_ID, Exchange
from nodes.kafka import APIS, ErrorCode
from nodes.mesh import MeshError

NO_THROTTLE = datetime.timedelta()
# What Kafka says where authorized operations were not asked for.
NOT_ASKED = -(2**31)
_BROKER_ENDPOINTS = 1
_GROUP, _TRANSACTION = 0, 1
# create, alter, describe, cluster action, describe configs, alter configs, idempotent write
CLUSTER_OPERATIONS = sum(1 << number for number in (5, 7, 8, 9, 10, 11, 12))


async def api_versions(exchange: Exchange) -> Any:
    request, build = exchange.request, exchange.request.build
    if request.version >= 3:
        exchange.session.software = request.body.client_software_name
        exchange.session.software_version = request.body.client_software_version
    keys = tuple(
        build.ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest) for api in APIS.values()
    )
    return build.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys, throttle_time=NO_THROTTLE)


async def known_cluster_id(exchange: Exchange) -> str | None:
    """The cluster's id, asked for once; None as long as the controller cannot be asked."""
    topics = exchange.topics
    if topics.cluster_id is None:
        try:
            await topics.metadata([], None, trace=exchange.trace)
        except MeshError:
            return None
    return topics.cluster_id


async def describe_cluster(exchange: Exchange) -> Any:
    body, build = exchange.request.body, exchange.request.build
    cluster_id = await known_cluster_id(exchange)
    error, message = ErrorCode.none, None
    if getattr(body, "endpoint_type", _BROKER_ENDPOINTS) != _BROKER_ENDPOINTS:
        error, message = ErrorCode.unsupported_endpoint_type, "only broker endpoints can be described here"
    elif cluster_id is None:
        error, message = ErrorCode.broker_not_available, "the controller is down; try again"
    broker = build.DescribeClusterBroker(
        broker_id=NODE_ID,
        host=exchange.advertised.host,
        port=exchange.advertised.port,
        rack=None,
        is_fenced=False,
    )
    asked = body.include_cluster_authorized_operations
    return build.DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        endpoint_type=_BROKER_ENDPOINTS,
        cluster_id=cluster_id or "",
        controller_id=NODE_ID,
        brokers=(broker,) if error is ErrorCode.none else (),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
    )


async def find_coordinator(exchange: Exchange) -> Any:
    """The gateway coordinates groups. Transactions are not served, and "not authorized" is the one error that all
    clients take as final: on others librdkafka asks again until the application's time is over."""
    request, build = exchange.request, exchange.request.build
    key_type = getattr(request.body, "key_type", _GROUP)
    error, message = ErrorCode.none, None
    if key_type != _GROUP:
        final = key_type == _TRANSACTION
        error = ErrorCode.transactional_id_authorization_failed if final else ErrorCode.invalid_request
        message = f"coordinators of type {key_type} are not served, only those of groups (0)"
    found = error is ErrorCode.none
    where: dict[str, Any] = {
        "node_id": NODE_ID if found else -1,
        "host": exchange.advertised.host if found else "",
        "port": exchange.advertised.port if found else -1,
        "error_code": error,
        "error_message": message,
    }
    if request.version < 4:
        return build.FindCoordinatorResponse(throttle_time=NO_THROTTLE, **where)
    coordinators = tuple(build.Coordinator(key=key, **where) for key in request.body.coordinator_keys)
    return build.FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=coordinators)
