"""The broker's own errors, and the one place where errors of the log become Kafka's numbers."""

from enum import IntEnum

from wal.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    DiskFullError,
    LogClosedError,
    LogDamagedError,
    LogPoisonedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedBatchError,
    WalError,
)


class Code(IntEnum):
    """Kafka's error numbers, those that a broker gives. `nodes.kafka` has all of them, and a slow import."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC = 17
    INVALID_REQUIRED_ACKS = 21
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE = 45
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87
    UNKNOWN_TOPIC_ID = 100


class BrokerError(Exception):
    """Base of the broker's own errors."""


class SettingsError(BrokerError):
    """The program's flags or its settings file ask for something that cannot be."""


class RefusedError(BrokerError):
    """A request, or one item of it, that is answered with a Kafka error. The message goes to the client."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message


_CODES: dict[type[WalError], Code] = {
    OffsetOutOfRangeError: Code.OFFSET_OUT_OF_RANGE,
    CorruptBatchError: Code.CORRUPT_MESSAGE,
    UnknownTopicError: Code.UNKNOWN_TOPIC_OR_PARTITION,
    TopicExistsError: Code.TOPIC_ALREADY_EXISTS,
    BatchTooLargeError: Code.MESSAGE_TOO_LARGE,
    OutOfOrderSequenceError: Code.OUT_OF_ORDER_SEQUENCE,
    ProducerFencedError: Code.INVALID_PRODUCER_EPOCH,
    UnsupportedBatchError: Code.INVALID_RECORD,
    DiskFullError: Code.KAFKA_STORAGE_ERROR,
    LogPoisonedError: Code.KAFKA_STORAGE_ERROR,
    LogClosedError: Code.KAFKA_STORAGE_ERROR,
    LogDamagedError: Code.KAFKA_STORAGE_ERROR,
}


def kafka_code(error: WalError) -> Code:
    """Kafka's number for what the log says."""
    return _CODES.get(type(error), Code.UNKNOWN_SERVER_ERROR)
