"""What a broker asks of a produced batch before it stores it, and the batch as it will be stored."""

import time
from typing import NamedTuple

from crc32c import crc32c

from nodes import ops
from nodes.broker.errors import Code, RefusedError
from nodes.broker.registry import Topic
from wal.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Buffer,
    check_batch,
    parse_header,
    with_log_append_time,
)
from wal.compression import Codec
from wal.errors import BatchError, BatchTooLargeError, CorruptBatchError, UnsupportedBatchError
from wal.log import NewBatch
from wal.message_set import upconvert
from wal.record_count import counted_records

# Older clients send message sets of magic 0 and 1.
FIRST_BATCH_VERSION = 3
# Older clients cannot read zstd, so older producers must not send it.
FIRST_ZSTD_VERSION = 7
_CRC_FROM = 21  # of a v2 batch: what its CRC covers


class Checked(NamedTuple):
    """A batch that may be stored. `log_append_time` is -1 where the producer's timestamps count.

    `records` are its plain bytes, for those who look for something in them; none for old formats.
    """

    new: NewBatch
    log_append_time: int
    records: bytes


def check_produced(topic: Topic, item: ops.ProducePartition, api_version: int, trace_id: bytes) -> Checked:
    records = item.records
    assert not isinstance(records, list)
    now = time.time_ns() // 1_000_000 if topic.log_append_time else -1
    plain = b""
    try:
        if api_version < FIRST_BATCH_VERSION:
            batch: Buffer = upconvert(records, log_append_time=now if topic.log_append_time else None)
            header = parse_header(batch)
        else:
            batch, header = records, check_batch(records)
            _check_as_sent(header, api_version, topic)
            plain = counted_records(batch, header)
            if topic.log_append_time:
                batch = with_log_append_time(batch, now)
                header = parse_header(batch)
    except BatchError as error:
        raise RefusedError(_batch_code(error, records), str(error)) from error
    if len(batch) > topic.max_message_bytes:
        raise RefusedError(
            Code.MESSAGE_TOO_LARGE,
            f"a batch of {len(batch)} bytes; max.message.bytes of {topic.record.name} is {topic.max_message_bytes}",
        )
    return Checked(NewBatch(topic.topic_id, item.partition, batch, header, trace_id), now, plain)


def _check_as_sent(header: BatchHeader, api_version: int, topic: Topic) -> None:
    attributes = header.attributes
    if attributes & CODEC_MASK == Codec.ZSTD and api_version < FIRST_ZSTD_VERSION:
        raise RefusedError(
            Code.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {FIRST_ZSTD_VERSION} or later, not {api_version}"
        )
    if attributes & LOG_APPEND_TIME_BIT and not topic.log_append_time:
        raise RefusedError(Code.INVALID_TIMESTAMP, "producers set create times; log append time is the broker's")


def _batch_code(error: BatchError, records: Buffer) -> Code:
    """What is damaged can be sent again (2); what is whole and still wrong cannot (87)."""
    if isinstance(error, BatchTooLargeError):
        return Code.MESSAGE_TOO_LARGE
    try:
        header = parse_header(records)
    except CorruptBatchError:
        return Code.CORRUPT_MESSAGE
    except UnsupportedBatchError:  # a message set, or a magic of the future
        return Code.INVALID_RECORD if isinstance(error, UnsupportedBatchError) else Code.CORRUPT_MESSAGE
    if header.attributes & CODEC_MASK > Codec.ZSTD:
        return Code.UNSUPPORTED_COMPRESSION_TYPE
    whole = header.size <= len(records) and crc32c(memoryview(records)[_CRC_FROM : header.size]) == header.crc
    return Code.INVALID_RECORD if whole else Code.CORRUPT_MESSAGE
