"""SingleWal: one write-ahead log for all topics of a broker. What other packages use of it."""

from wal.batch import BatchHeader, check_batch, with_log_append_time
from wal.compression import Codec
from wal.control import TopicRecord
from wal.log import Appended, Durability, NewBatch, SingleWal
from wal.reader import WalReader
from wal.records import NewRecord, Record, build_batch, decode_records
from wal.segments import Entry, Position
from wal.settings import WalSettings

__all__ = [
    "Appended",
    "BatchHeader",
    "Codec",
    "Durability",
    "Entry",
    "NewBatch",
    "NewRecord",
    "Position",
    "Record",
    "SingleWal",
    "TopicRecord",
    "WalReader",
    "WalSettings",
    "build_batch",
    "check_batch",
    "decode_records",
    "with_log_append_time",
]
