"""Every error of the log. Each message says what happened, where, and what to do next.

All attributes beside the message are keywords, so that an error survives pickling (Spark workers send it home).
"""

from pathlib import Path


class WalError(Exception):
    """Base of all errors of this package."""

    def __init__(self, message: str, *, path: Path | str | None = None, position: int | None = None) -> None:
        super().__init__(message)
        self.path = None if path is None else str(path)
        self.position = position


class LogDamagedError(WalError):
    """The files hold something else than what was written: never repaired silently."""


class ForeignFileError(LogDamagedError):
    """A file of the log's folder that is not a segment of this log."""


class UnknownFormatError(WalError):
    """A newer version of the format, or an entry kind that this version must not ignore."""


class LogLockedError(WalError):
    """Another process has the log open for writing."""


class LogUnwritableError(WalError):
    """The folder cannot be created or written."""


class DiskFullError(WalError):
    """No space for the append: nothing of it is in the log, and appends work again when there is space."""


class LogPoisonedError(WalError):
    """A write or sync failed in a way that leaves the disk's state unknown: the log takes no more appends."""


class LogClosedError(WalError):
    """The log was closed before or during the call."""


class OffsetOutOfRangeError(WalError):
    """The offset lies before the partition's log start or behind its end."""


class UnknownTopicError(WalError):
    """No such topic or partition in the log's registry."""


class TopicExistsError(WalError):
    """A topic of that organisation and name, or with that id, is there already."""


class OutOfOrderSequenceError(WalError):
    """An idempotent producer's batch leaves a gap behind the last one."""


class ProducerFencedError(WalError):
    """A batch of a producer whose id is in use with a newer epoch."""


class BatchError(WalError):
    """Base of what can be wrong with record bytes, from a client or from disk."""


class CorruptBatchError(BatchError):
    """Bytes that are not a record batch: bad length, bad CRC, bad record."""


class UnsupportedBatchError(BatchError):
    """A well-formed batch that this log does not take: unknown magic, codec, or a control batch."""


class BatchTooLargeError(BatchError):
    """Larger than a stated limit, before or after decompression."""
