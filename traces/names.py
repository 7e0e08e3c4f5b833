"""The names of spans and attributes, and the chains that a request leaves. Nothing else may spell them out.

A chain lists the spans of one request in the order they start; `PARENTS` says how they nest.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

GATEWAY_CONNECT: Final = "gateway.kafka.connect"
GATEWAY_REQUEST: Final = "gateway.kafka.request"
MESH_SENT: Final = "mesh.kafkaop.sent"
MESH_HANDLE: Final = "mesh.kafkaop.handle"
ACK: Final = "kafkaop.ack"
ACK_RECEIVED: Final = "kafkaop.ack_received"
UNSUPPORTED_TAG: Final = "unsupported_tag"

PRODUCE_STORE: Final = "broker.produce.store"
FETCH_READ: Final = "broker.fetch.read"
LIST_OFFSETS_READ: Final = "broker.list_offsets.read"
METADATA_READ: Final = "broker.metadata.read"
CREATE_TOPICS_STORE: Final = "broker.create_topics.store"
DELETE_TOPICS_STORE: Final = "broker.delete_topics.store"
CREATE_PARTITIONS_STORE: Final = "broker.create_partitions.store"
SYNC_TOPICS_STORE: Final = "broker.sync_topics.store"
DESCRIBE_CONFIGS_READ: Final = "broker.describe_configs.read"
ALTER_CONFIGS_STORE: Final = "broker.alter_configs.store"
INIT_PRODUCER_ID_STORE: Final = "broker.init_producer_id.store"
EPOCH_ENDS_READ: Final = "broker.epoch_ends.read"
DELETE_RECORDS_STORE: Final = "broker.delete_records.store"
STATUS_READ: Final = "broker.status.read"


def op_chain(broker_span: str) -> tuple[str, ...]:
    """The chain of any request that reaches a broker: all ops share it, but for the broker's own span."""
    return (GATEWAY_CONNECT, GATEWAY_REQUEST, MESH_SENT, MESH_HANDLE, broker_span, ACK, ACK_RECEIVED)


PRODUCE_CHAIN: Final = op_chain(PRODUCE_STORE)
FETCH_CHAIN: Final = op_chain(FETCH_READ)
LIST_OFFSETS_CHAIN: Final = op_chain(LIST_OFFSETS_READ)
METADATA_CHAIN: Final = op_chain(METADATA_READ)
CREATE_TOPICS_CHAIN: Final = op_chain(CREATE_TOPICS_STORE)
DELETE_TOPICS_CHAIN: Final = op_chain(DELETE_TOPICS_STORE)
# Answered at the gateway, no mesh hop: ApiVersions, FindCoordinator, DescribeCluster.
LOCAL_CHAIN: Final = (GATEWAY_CONNECT, GATEWAY_REQUEST)


def parents_of(broker_span: str) -> Mapping[str, str]:
    """Which span each span of `op_chain(broker_span)` lies under; the root is not a key."""
    return MappingProxyType(
        {
            GATEWAY_REQUEST: GATEWAY_CONNECT,
            MESH_SENT: GATEWAY_REQUEST,
            MESH_HANDLE: MESH_SENT,
            broker_span: MESH_HANDLE,
            ACK: MESH_HANDLE,
            ACK_RECEIVED: MESH_SENT,
        }
    )


PRODUCE_PARENTS: Final = parents_of(PRODUCE_STORE)
FETCH_PARENTS: Final = parents_of(FETCH_READ)

# The lab's own attributes.
KAFKA_TOPIC: Final = "kafka.topic"
KAFKA_PARTITION: Final = "kafka.partition"
KAFKA_PARTITION_COUNT: Final = "kafka.partition_count"
KAFKA_REQUEST_BYTES: Final = "kafka.request_bytes"
KAFKA_API_KEY: Final = "kafka.api_key"
KAFKA_API_VERSION: Final = "kafka.api_version"
KAFKA_CORRELATION_ID: Final = "kafka.correlation_id"
KAFKA_ERROR_CODE: Final = "kafka.error_code"
KAFKA_FETCH_WAITED_MS: Final = "kafka.fetch.waited_ms"
MESH_OP_CODE: Final = "mesh.op_code"
MESH_REQUEST_ID: Final = "mesh.request_id"
MESH_ORG_ID: Final = "mesh.org_id"
MESH_STATUS: Final = "mesh.status"
MESH_PEER: Final = "mesh.peer"
MESH_TAG: Final = "mesh.tag"
MESH_FRAME_BYTES: Final = "mesh.frame_bytes"
CONNECTION_ID: Final = "connection.id"
CONNECTION_PEER: Final = "connection.peer"
CONNECTION_AGE_MS: Final = "connection.age_ms"
CONNECTION_REQUEST_NUMBER: Final = "connection.request_number"
CONNECTION_REUSED: Final = "connection.reused"
CLIENT_SOFTWARE_NAME: Final = "client.software.name"
CLIENT_SOFTWARE_VERSION: Final = "client.software.version"
WAL_SEGMENT: Final = "wal.segment"

# OpenTelemetry's messaging names. The partition id is a string there.
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_SYSTEM_KAFKA: Final = "kafka"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION: Final = "messaging.destination.name"
MESSAGING_PARTITION: Final = "messaging.destination.partition.id"
MESSAGING_OFFSET: Final = "messaging.kafka.offset"
MESSAGING_BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGING_BODY_SIZE: Final = "messaging.message.body.size"
MESSAGING_CLIENT_ID: Final = "messaging.client.id"

# The event for each further partition of a request; the first one's values are the span's own attributes.
PARTITION_EVENT: Final = "partition"
# The event of a call whose caller did not wait for the answer.
ABANDONED_EVENT: Final = "abandoned"

# The record header that links a produce to the trace of whoever made the record.
TRACEPARENT: Final = "traceparent"
