"""The payloads of Kafka ops between gateway and broker: version-independent, so that a broker knows one form of each.

The gateway translates every version of a Kafka request into one of these Structs (postcard on the wire) and the answer
back. A topic is named by its name, its id (16 bytes, Kafka's topic UUID), or both; the other one is empty. Errors are
Kafka's numeric codes, since what goes wrong here goes to a Kafka client. Answers keep the order of the request's items.
"""

import msgspec

from nodes.mesh.postcard import I16, I32, I64, U8, U32, Blob

NO_ID = bytes(16)
# The leader epoch of every partition: a partition has one broker for life, and a recreated topic has a new id.
LEADER_EPOCH = 0


class Op(msgspec.Struct, frozen=True, gc=False):
    """Base of all payloads."""


# Produce


class ProducePartition(Op, frozen=True, gc=False):
    topic: str
    topic_id: bytes
    partition: I32
    records: Blob


class Produce(Op, frozen=True, gc=False):
    """`api_version` tells which record formats the client may send (message sets below 3, zstd from 7)."""

    api_version: I16
    acks: I16
    timeout_ms: I32
    partitions: list[ProducePartition]


class ProduceResult(Op, frozen=True, gc=False):
    error: I16 = 0
    base_offset: I64 = -1
    log_append_time: I64 = -1
    log_start_offset: I64 = -1
    message: str | None = None


class ProduceAnswer(Op, frozen=True, gc=False):
    results: list[ProduceResult]


# Fetch


class FetchPartition(Op, frozen=True, gc=False):
    topic: str
    topic_id: bytes
    partition: I32
    offset: I64
    max_bytes: I32
    leader_epoch: I32 = -1


class Fetch(Op, frozen=True, gc=False):
    """`api_version` tells which record format the client can read (magic 0 below 2, magic 1 below 4)."""

    api_version: I16
    max_wait_ms: I32
    min_bytes: I32
    max_bytes: I32
    partitions: list[FetchPartition]


class FetchResult(Op, frozen=True, gc=False):
    error: I16 = 0
    high_watermark: I64 = -1
    log_start_offset: I64 = -1
    records: Blob = b""


class FetchAnswer(Op, frozen=True, gc=False):
    results: list[FetchResult]


# Offsets


class ListOffsetsPartition(Op, frozen=True, gc=False):
    topic: str
    topic_id: bytes
    partition: I32
    timestamp: I64
    leader_epoch: I32 = -1


class ListOffsets(Op, frozen=True, gc=False):
    partitions: list[ListOffsetsPartition]


class ListOffsetsResult(Op, frozen=True, gc=False):
    error: I16 = 0
    timestamp: I64 = -1
    offset: I64 = -1
    leader_epoch: I32 = -1


class ListOffsetsAnswer(Op, frozen=True, gc=False):
    results: list[ListOffsetsResult]


class EpochPartition(Op, frozen=True, gc=False):
    topic: str
    partition: I32
    leader_epoch: I32
    current_leader_epoch: I32 = -1


class EpochEnds(Op, frozen=True, gc=False):
    """OffsetForLeaderEpoch."""

    partitions: list[EpochPartition]


class EpochResult(Op, frozen=True, gc=False):
    error: I16 = 0
    leader_epoch: I32 = -1
    end_offset: I64 = -1


class EpochAnswer(Op, frozen=True, gc=False):
    results: list[EpochResult]


class DeleteRecordsPartition(Op, frozen=True, gc=False):
    """`offset` -1 means the high watermark."""

    topic: str
    partition: I32
    offset: I64


class DeleteRecords(Op, frozen=True, gc=False):
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsResult(Op, frozen=True, gc=False):
    error: I16 = 0
    low_watermark: I64 = -1


class DeleteRecordsAnswer(Op, frozen=True, gc=False):
    results: list[DeleteRecordsResult]


# Topics: the controller (the first broker) decides, the other brokers follow through SyncTopics.


class Topic(Op, frozen=True, gc=False):
    """A topic as the registry has it. `leaders[p]` is the index of the broker that holds partition p."""

    name: str
    topic_id: bytes
    org_id: I64
    ulid: str  # "top_" and a ULID
    slug: str
    rrl: str
    leaders: list[I32]
    configs: dict[str, str]


class Metadata(Op, frozen=True, gc=False):
    """`names` and `ids` ask for those topics, both None for all of them."""

    names: list[str] | None
    ids: list[bytes] | None
    create: bool  # make missing names with the broker's default partition count


class MetadataTopic(Op, frozen=True, gc=False):
    """`name` (or `topic_id`) is what was asked for; `topic` is None exactly when `error` is not 0."""

    error: I16
    name: str
    topic_id: bytes
    topic: Topic | None


class MetadataAnswer(Op, frozen=True, gc=False):
    cluster_id: str
    topics: list[MetadataTopic]


class NewTopic(Op, frozen=True, gc=False):
    """-1 for `partitions` or `replication` is the broker's default; `assignment` is empty or one broker a partition."""

    name: str
    partitions: I32
    replication: I16
    assignment: list[I32]
    configs: dict[str, str | None]


class CreateTopics(Op, frozen=True, gc=False):
    topics: list[NewTopic]
    validate_only: bool


class TopicResult(Op, frozen=True, gc=False):
    """The outcome for one topic of a create, delete, alter or partition change."""

    name: str
    topic_id: bytes = NO_ID
    error: I16 = 0
    message: str | None = None
    topic: Topic | None = None


class TopicsAnswer(Op, frozen=True, gc=False):
    results: list[TopicResult]


class TopicRef(Op, frozen=True, gc=False):
    """By name, or by id where the name is empty."""

    name: str
    topic_id: bytes


class DeleteTopics(Op, frozen=True, gc=False):
    topics: list[TopicRef]


class MorePartitions(Op, frozen=True, gc=False):
    name: str
    count: I32
    assignment: list[I32]


class CreatePartitions(Op, frozen=True, gc=False):
    topics: list[MorePartitions]
    validate_only: bool


class SyncTopics(Op, frozen=True, gc=False):
    """From the gateway to a broker that is not the controller. `complete`: topics that are not listed are gone."""

    topics: list[Topic]
    complete: bool


# Configs


class ConfigResource(Op, frozen=True, gc=False):
    """`kind` as in Kafka: 2 topic, 4 broker. `keys` None asks for all."""

    kind: I16
    name: str
    keys: list[str] | None = None


class DescribeConfigs(Op, frozen=True, gc=False):
    resources: list[ConfigResource]


class ConfigEntry(Op, frozen=True, gc=False):
    """`source` and `type` are Kafka's numbers (source: 1 topic, 4 static broker, 5 default)."""

    name: str
    value: str | None
    source: U8
    type: U8
    read_only: bool
    documentation: str


class ConfigResult(Op, frozen=True, gc=False):
    kind: I16
    name: str
    error: I16 = 0
    message: str | None = None
    entries: list[ConfigEntry] = []


class DescribeConfigsAnswer(Op, frozen=True, gc=False):
    results: list[ConfigResult]


class ConfigChange(Op, frozen=True, gc=False):
    """`operation`: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str
    operation: U8
    value: str | None


class AlterResource(Op, frozen=True, gc=False):
    kind: I16
    name: str
    changes: list[ConfigChange]


class AlterConfigs(Op, frozen=True, gc=False):
    """`replace`: settings that are not named go back to their default (AlterConfigs; else IncrementalAlterConfigs)."""

    resources: list[AlterResource]
    replace: bool
    validate_only: bool


class AlterConfigsAnswer(Op, frozen=True, gc=False):
    """`topics` are the changed ones, for the other brokers."""

    results: list[ConfigResult]
    topics: list[Topic]


# Producers


class InitProducerId(Op, frozen=True, gc=False):
    """`producer_id` -1 asks for a new one; otherwise the epoch of that one is raised."""

    producer_id: I64
    producer_epoch: I16


class InitProducerIdAnswer(Op, frozen=True, gc=False):
    error: I16
    producer_id: I64
    producer_epoch: I16


class BrokerStatus(Op, frozen=True, gc=False):
    """What the lab shows of a broker; answered by op STATUS with an empty payload."""

    index: I32
    topics: U32
    partitions: U32
    log_bytes: I64
    log_end: str  # segment:position
    produced_records: I64
    produced_bytes: I64
    fetched_bytes: I64
    unsynced_bytes: I64
