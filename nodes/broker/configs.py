"""The settings of topics and brokers as Kafka names them: what they are, what they may be, and how they change.

A setting that the broker does not act on is not in the table: accepting it would be a lie. One with a single possible
value is there, so that tools which write back what they read find it, and any other value is refused with the reason.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nodes import ops
from nodes.broker.errors import Code, RefusedError
from nodes.broker.settings import BrokerSettings

# Kafka's numbers for types and sources.
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7
FROM_TOPIC, FROM_BROKER, DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
MAX_MESSAGE_BYTES = "max.message.bytes"
TIMESTAMP_TYPE = "message.timestamp.type"
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class Config(NamedTuple):
    """One setting. `problem` says what is wrong with a value, None if nothing is."""

    name: str
    type: int
    default: str
    documentation: str
    problem: Callable[[str], str | None]
    source: int = DEFAULT
    read_only: bool = False


def _number(low: int, high: int) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        text = value.strip()
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or not low <= int(text) <= high:
            return f"it must be a whole number from {low} to {high}"
        return None

    return problem


def _one_of(*values: str) -> Callable[[str], str | None]:
    return lambda value: None if value in values else f"it must be one of: {', '.join(values)}"


def _only(expected: str, reason: str) -> Callable[[str], str | None]:
    return lambda value: None if value == expected else f"it can only be {expected}: {reason}"


def topic_configs(settings: BrokerSettings) -> dict[str, Config]:
    """Every setting of a topic by name, with this broker's defaults."""
    wal = settings.wal
    segment_bytes = str(wal.segment_bytes)
    return _by_name(
        Config(
            "cleanup.policy",
            LIST,
            "delete",
            "Old records are deleted; there is no compaction.",
            _only("delete", "this broker deletes old records and does not compact (compact is not supported)"),
        ),
        Config(
            "compression.type",
            STRING,
            "producer",
            "Batches are kept as the producer compressed them.",
            _only("producer", "batches are stored as they come, never compressed anew"),
        ),
        Config(
            MAX_MESSAGE_BYTES,
            INT,
            str(settings.max_message_bytes),
            "The largest batch, compressed as it comes, that a producer may send.",
            _number(0, _INT_MAX),
        ),
        Config(
            TIMESTAMP_TYPE,
            STRING,
            CREATE_TIME,
            "Whose clock a record's timestamp is of: the producer's (CreateTime) or the broker's (LogAppendTime).",
            _one_of(CREATE_TIME, LOG_APPEND_TIME),
        ),
        Config(
            "min.insync.replicas",
            INT,
            "1",
            "Every partition has one copy.",
            _only("1", "every partition has one copy"),
        ),
        Config(
            RETENTION_BYTES,
            LONG,
            str(wal.default_retention_bytes),
            "How many bytes of a partition are kept; -1 keeps all.",
            _number(-1, _LONG_MAX),
        ),
        Config(
            RETENTION_MS,
            LONG,
            str(wal.default_retention_ms),
            "How long records are kept, in milliseconds; -1 keeps them for ever.",
            _number(-1, _LONG_MAX),
        ),
        Config(
            "segment.bytes",
            INT,
            segment_bytes,
            "The size of a segment file. One log holds all topics, so it is a setting of the broker.",
            _only(segment_bytes, "one log holds all topics, so start the broker with --segment-bytes instead"),
            source=FROM_BROKER,
            read_only=True,
        ),
    )


def broker_configs(settings: BrokerSettings, data: str) -> dict[str, Config]:
    """Every setting of the broker by name. They are given at its start and do not change."""
    wal = settings.wal
    defaults = BrokerSettings(wal=type(wal)())

    def fixed(name: str, kind: int, value: object, documentation: str, default: object = None) -> Config:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        source = DEFAULT if value == default else FROM_BROKER
        return Config(name, kind, text, documentation, _only(text, "give it at the broker's start"), source, True)

    return _by_name(
        fixed("auto.create.topics.enable", BOOLEAN, settings.auto_create, "Whether unknown topics are made.", True),
        fixed("broker.id", INT, settings.index, "The broker's number in its cluster."),
        fixed("compression.type", STRING, "producer", "Batches are kept as they come.", "producer"),
        fixed("default.replication.factor", INT, 1, "Every partition has one copy.", 1),
        fixed("log.cleanup.policy", LIST, "delete", "Old records are deleted.", "delete"),
        fixed("log.dirs", STRING, data, "The folder of the log."),
        fixed("log.message.timestamp.type", STRING, CREATE_TIME, "A new topic's timestamp type.", CREATE_TIME),
        fixed(
            "log.retention.bytes",
            LONG,
            wal.default_retention_bytes,
            "How many bytes of a partition are kept where its topic does not say.",
            defaults.wal.default_retention_bytes,
        ),
        fixed(
            "log.retention.check.interval.ms",
            LONG,
            int(settings.retention_interval * 1000),
            "How often old records are looked for.",
            int(defaults.retention_interval * 1000),
        ),
        fixed(
            "log.retention.ms",
            LONG,
            wal.default_retention_ms,
            "How long records are kept where their topic does not say.",
            defaults.wal.default_retention_ms,
        ),
        fixed("log.segment.bytes", INT, wal.segment_bytes, "The size of a segment file.", defaults.wal.segment_bytes),
        fixed(
            "message.max.bytes",
            INT,
            settings.max_message_bytes,
            "The largest batch where its topic does not say.",
            defaults.max_message_bytes,
        ),
        fixed("min.insync.replicas", INT, 1, "Every partition has one copy.", 1),
        fixed("num.partitions", INT, settings.default_partitions, "Partitions of a topic that does not say.", 1),
    )


def _by_name(*configs: Config) -> dict[str, Config]:
    return {config.name: config for config in configs}


def check(known: Mapping[str, Config], name: str, value: str | None) -> str:
    """The value as it is kept; raises for one that cannot be set."""
    config = known.get(name)
    if config is None:
        raise RefusedError(Code.INVALID_CONFIG, f"there is no setting {name!r}; known are: {', '.join(sorted(known))}")
    if value is None:
        raise RefusedError(Code.INVALID_CONFIG, f"{name} has no value")
    problem = config.problem(value)
    if problem is not None:
        raise RefusedError(Code.INVALID_CONFIG, f"{name} cannot be {value!r}: {problem}")
    return value.strip()


def check_all(known: Mapping[str, Config], configs: Mapping[str, str | None]) -> dict[str, str]:
    """What a new topic keeps of the settings it is given."""
    return {name: check(known, name, value) for name, value in configs.items()}


def changed(
    known: Mapping[str, Config], current: Mapping[str, str], changes: Iterable[ops.ConfigChange], *, replace: bool
) -> dict[str, str]:
    """A topic's settings after the changes; with `replace`, those that are not named go back to their defaults."""
    result = {} if replace else dict(current)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise RefusedError(Code.INVALID_REQUEST, f"{change.name} is changed twice in one request")
        seen.add(change.name)
        if change.operation == DELETE:
            if change.name not in known:
                check(known, change.name, None)
            result.pop(change.name, None)
        else:
            result[change.name] = check(known, change.name, _new_value(known, current, change))
    return result


def _new_value(known: Mapping[str, Config], current: Mapping[str, str], change: ops.ConfigChange) -> str | None:
    config = known.get(change.name)
    if change.operation == SET or config is None:
        return change.value
    if change.operation not in (APPEND, SUBTRACT):
        raise RefusedError(Code.INVALID_REQUEST, f"operation {change.operation} on {change.name} is not known")
    if config.type != LIST:
        raise RefusedError(Code.INVALID_CONFIG, f"{change.name} is not a list: it can only be set")
    items = [item for item in current.get(change.name, config.default).split(",") if item]
    named = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.operation == APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)


def entries(known: Mapping[str, Config], given: Mapping[str, str], keys: Iterable[str] | None) -> list[ops.ConfigEntry]:
    """The settings as DescribeConfigs lists them; unknown keys are left out, as Kafka does."""
    wanted = None if keys is None else set(keys)
    return [
        ops.ConfigEntry(
            config.name,
            given.get(config.name, config.default),
            FROM_TOPIC if config.name in given else config.source,
            config.type,
            config.read_only,
            config.documentation,
        )
        for config in known.values()
        if wanted is None or config.name in wanted
    ]
