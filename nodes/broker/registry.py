"""The registry of topics: reads the log's state, and is the only one that changes topics in it.

Finding a topic touches no file. A change is written when a method returns; callers wait for the sync before they
promise anything.
"""

from uuid import UUID

from nodes import ops
from nodes.broker import configs
from nodes.broker.errors import Code, RefusedError
from nodes.broker.names import check_name, metric_name, new_cluster_id, new_identity
from nodes.broker.settings import MAX_PARTITIONS, BrokerSettings
from wal.control import TopicRecord
from wal.log import SingleWal

CLUSTER_ID = "cluster.id"
_DEFAULT = -1


class Topic:
    """A topic with the settings that the hot path asks for, parsed once."""

    __slots__ = ("leaders", "log_append_time", "max_message_bytes", "record", "topic_id")

    def __init__(self, record: TopicRecord, max_message_bytes: int) -> None:
        self.record = record
        self.topic_id = record.topic_id.bytes
        self.leaders = record.leaders
        self.max_message_bytes = int(record.configs.get(configs.MAX_MESSAGE_BYTES, max_message_bytes))
        self.log_append_time = record.configs.get(configs.TIMESTAMP_TYPE) == configs.LOG_APPEND_TIME


class Registry:
    """All topics of a broker, by organisation and name or by id."""

    def __init__(self, wal: SingleWal, settings: BrokerSettings) -> None:
        self._wal = wal
        self._settings = settings
        self._topics: dict[bytes, Topic] = {}
        self._metric_names: dict[tuple[int, str], str] = {}
        self._slugs: dict[int, set[str]] = {}
        self.configs = configs.topic_configs(settings)
        for record in wal.state.topics.values():
            self._remember(record)
        if settings.is_controller and not self.cluster_id:
            self._make_cluster_id()

    @property
    def cluster_id(self) -> str:
        """The cluster's own id, made at the first start of its controller; the other brokers have none."""
        return self._wal.state.values.get(CLUSTER_ID, "")

    def _make_cluster_id(self) -> None:
        self._wal.set_values({CLUSTER_ID: new_cluster_id()})
        self._wal.wait_synced()

    def find(self, org_id: int, name: str, topic_id: bytes = ops.NO_ID) -> Topic | None:
        """The topic with that id, or of that name where there is no id."""
        state = self._wal.state
        if topic_id == ops.NO_ID or not topic_id:
            found_id = state.names.get((org_id, name))
            if found_id is None:
                return None
            topic_id = found_id
        record = state.topics.get(topic_id)
        if record is None or record.org_id != org_id:
            return None
        topic = self._topics.get(topic_id)
        if topic is None or topic.record is not record:
            topic = self._topics[topic_id] = Topic(record, self._settings.max_message_bytes)
        return topic

    def held(self, org_id: int, name: str, topic_id: bytes, partition: int) -> Topic:
        """The topic of a partition that this broker holds; raises with Kafka's code if it does not."""
        topic = self.find(org_id, name, topic_id)
        if topic is None and not name:
            raise RefusedError(Code.UNKNOWN_TOPIC_ID, f"there is no topic with id {UUID(bytes=bytes(topic_id))}")
        if topic is None:
            raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        if not 0 <= partition < len(topic.leaders):
            raise RefusedError(
                Code.UNKNOWN_TOPIC_OR_PARTITION,
                f"{topic.record.name} has partitions 0 to {len(topic.leaders) - 1}, no {partition}",
            )
        if topic.leaders[partition] != self._settings.index:
            raise RefusedError(
                Code.NOT_LEADER_OR_FOLLOWER,
                f"{topic.record.name}-{partition} is held by broker {topic.leaders[partition]}, not by "
                f"{self._settings.index}",
            )
        return topic

    def all_of(self, org_id: int) -> list[TopicRecord]:
        return [record for record in self._wal.state.topics.values() if record.org_id == org_id]

    # Changes

    def create(self, org_id: int, new: ops.NewTopic, *, validate_only: bool = False) -> TopicRecord:
        """Checks the wish, and unless `validate_only` makes the topic. Raises `RefusedError`."""
        check_name(new.name)
        if self.find(org_id, new.name) is not None:
            raise RefusedError(Code.TOPIC_ALREADY_EXISTS, f"topic {new.name!r} exists already")
        twin = self._metric_names.get((org_id, metric_name(new.name)))
        if twin is not None:
            raise RefusedError(
                Code.INVALID_TOPIC, f"topic {new.name!r} collides with {twin!r}: '.' and '_' count as the same"
            )
        if new.replication not in (_DEFAULT, 1):
            raise RefusedError(
                Code.INVALID_REPLICATION_FACTOR,
                f"replication factor {new.replication}: every partition has one copy, so ask for 1 or -1",
            )
        leaders = self._new_leaders(new.partitions, new.assignment)
        kept = configs.check_all(self.configs, new.configs)
        settings = self._settings
        taken = self._slugs.get(org_id, set())
        identity = new_identity(new.name, org_id, settings.environment, settings.cluster, taken)
        record = TopicRecord(
            topic_id=identity.topic_id,
            org_id=org_id,
            name=new.name,
            ulid=identity.ulid,
            slug=identity.slug,
            rrl=identity.rrl,
            leaders=leaders,
            configs=kept,
        )
        if not validate_only:
            self._wal.create_topic(record)
            self._remember(record)
        return record

    def _new_leaders(self, partitions: int, assignment: list[int]) -> list[int]:
        if assignment:
            if partitions not in (_DEFAULT, len(assignment)):
                raise RefusedError(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    f"{partitions} partitions, but an assignment of {len(assignment)}",
                )
            return self._checked_assignment(assignment)
        count = self._settings.default_partitions if partitions == _DEFAULT else partitions
        self._check_count(count)
        # Topics start at different brokers, so that many topics of one partition spread as well.
        return self._spread(len(self._wal.state.topics), count)

    def _spread(self, first: int, count: int) -> list[int]:
        return [(first + number) % self._settings.brokers for number in range(count)]

    def _checked_assignment(self, assignment: list[int]) -> list[int]:
        strangers = sorted({index for index in assignment if not 0 <= index < self._settings.brokers})
        if strangers:
            raise RefusedError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"the assignment names brokers {strangers}; there are 0 to {self._settings.brokers - 1}",
            )
        return list(assignment)

    @staticmethod
    def _check_count(count: int) -> None:
        if not 1 <= count <= MAX_PARTITIONS:
            raise RefusedError(
                Code.INVALID_PARTITIONS, f"a topic cannot have {count} partitions: choose from 1 to {MAX_PARTITIONS}"
            )

    def grow(self, org_id: int, wish: ops.MorePartitions, *, validate_only: bool = False) -> TopicRecord:
        """More partitions, spread on from the last one."""
        record = self._named(org_id, wish.name)
        more = wish.count - len(record.leaders)
        if more <= 0:
            raise RefusedError(
                Code.INVALID_PARTITIONS,
                f"{wish.name} has {len(record.leaders)} partitions already; their number can only grow",
            )
        self._check_count(wish.count)
        if wish.assignment and len(wish.assignment) != more:
            raise RefusedError(
                Code.INVALID_REPLICA_ASSIGNMENT, f"an assignment of {len(wish.assignment)} for {more} new partitions"
            )
        added = self._checked_assignment(wish.assignment) or self._spread(record.leaders[-1] + 1, more)
        changed = _with(record, leaders=[*record.leaders, *added])
        if not validate_only:
            self._wal.change_topic(changed)
        return changed

    def configure(
        self, org_id: int, resource: ops.AlterResource, *, replace: bool, validate_only: bool = False
    ) -> TopicRecord:
        """The topic with changed settings."""
        record = self._named(org_id, resource.name)
        kept = configs.changed(self.configs, record.configs, resource.changes, replace=replace)
        changed = _with(record, configs=kept)
        if not validate_only and kept != record.configs:
            self._wal.change_topic(changed)
        return changed

    def delete(self, org_id: int, ref: ops.TopicRef) -> TopicRecord:
        topic = self.find(org_id, ref.name, ref.topic_id)
        if topic is None and ref.name:
            raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {ref.name!r}")
        if topic is None:
            raise RefusedError(Code.UNKNOWN_TOPIC_ID, f"there is no topic with id {UUID(bytes=bytes(ref.topic_id))}")
        self._wal.delete_topic(topic.topic_id)
        self._forget(topic.record)
        return topic.record

    def follow(self, org_id: int, topics: list[ops.Topic], *, complete: bool) -> list[TopicRecord]:
        """Becomes what the controller says; the topics that are gone by it."""
        gone = []
        listed = {topic.topic_id for topic in topics}
        names = {topic.name: topic.topic_id for topic in topics}
        for record in self.all_of(org_id):
            replaced = names.get(record.name, record.topic_id.bytes) != record.topic_id.bytes
            if replaced or (complete and record.topic_id.bytes not in listed):
                self._wal.delete_topic(record.topic_id.bytes)
                self._forget(record)
                gone.append(record)
        for topic in topics:
            self._follow_one(_record_of(topic))
        return gone

    def _follow_one(self, record: TopicRecord) -> None:
        known = self._wal.state.topics.get(record.topic_id.bytes)
        if known is None:
            self._wal.create_topic(record)
            self._remember(record)
        # An older list may still be on its way when a topic has grown: partitions are never taken back.
        elif known != record and len(record.leaders) >= len(known.leaders):
            self._wal.change_topic(record)

    def _named(self, org_id: int, name: str) -> TopicRecord:
        record = self._wal.state.by_name(org_id, name)
        if record is None:
            raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return record

    def _remember(self, record: TopicRecord) -> None:
        self._metric_names[record.org_id, metric_name(record.name)] = record.name
        self._slugs.setdefault(record.org_id, set()).add(record.slug)

    def _forget(self, record: TopicRecord) -> None:
        self._topics.pop(record.topic_id.bytes, None)
        self._metric_names.pop((record.org_id, metric_name(record.name)), None)
        self._slugs[record.org_id].discard(record.slug)


def op_of(record: TopicRecord) -> ops.Topic:
    """The topic as it travels."""
    return ops.Topic(
        record.name,
        record.topic_id.bytes,
        record.org_id,
        record.ulid,
        record.slug,
        record.rrl,
        record.leaders,
        record.configs,
    )


def _record_of(topic: ops.Topic) -> TopicRecord:
    return TopicRecord(
        topic_id=UUID(bytes=bytes(topic.topic_id)),
        org_id=topic.org_id,
        name=topic.name,
        ulid=topic.ulid,
        slug=topic.slug,
        rrl=topic.rrl,
        leaders=topic.leaders,
        configs=topic.configs,
    )


def _with(
    record: TopicRecord, *, leaders: list[int] | None = None, configs: dict[str, str] | None = None
) -> TopicRecord:
    return TopicRecord(
        topic_id=record.topic_id,
        org_id=record.org_id,
        name=record.name,
        ulid=record.ulid,
        slug=record.slug,
        rrl=record.rrl,
        leaders=record.leaders if leaders is None else leaders,
        configs=record.configs if configs is None else configs,
    )
