"""Idempotent producers, per partition: which batches were stored already, which come out of order.

The rules are Kafka's: the last five batches are remembered, a repeat of one of them is answered with its first
offset, a gap or an older epoch is refused. The state is derived from data entries, so it survives a restart.
"""

from collections import deque

from wal.batch import BatchHeader
from wal.control import ProducerBatch, ProducerRecord
from wal.errors import OutOfOrderSequenceError, ProducerFencedError

# Kafka clients keep at most five requests in flight when they are idempotent.
REMEMBERED_BATCHES = 5
_SEQUENCES = 2**31  # after the largest i32 comes 0


def last_sequence(base: int, count: int) -> int:
    """The sequence of a batch's last record; sequences wrap around."""
    return (base + count - 1) % _SEQUENCES


class ProducerState:
    """One producer in one partition."""

    __slots__ = ("batches", "epoch", "last_time")

    def __init__(self, epoch: int = -1, last_time: int = 0) -> None:
        self.epoch = epoch
        self.last_time = last_time
        self.batches: deque[ProducerBatch] = deque(maxlen=REMEMBERED_BATCHES)

    def check(self, batch: BatchHeader) -> int | None:
        """The offset of an earlier copy of this batch, or None if it is new; raises if it must not be stored."""
        if batch.producer_epoch < self.epoch:
            raise ProducerFencedError(
                f"producer {batch.producer_id} wrote with epoch {batch.producer_epoch}, and epoch {self.epoch} is "
                "in use: a newer instance has taken over; this one must stop"
            )
        if batch.producer_epoch > self.epoch or not self.batches:
            if batch.base_sequence and self.epoch >= 0 and batch.producer_epoch > self.epoch:
                raise self._out_of_order(batch, 0)
            return None
        last = last_sequence(batch.base_sequence, batch.record_count)
        for known in self.batches:
            if known.base_sequence == batch.base_sequence and known.last_sequence == last:
                return known.base_offset
        expected = (self.batches[-1].last_sequence + 1) % _SEQUENCES
        if batch.base_sequence != expected:
            raise self._out_of_order(batch, expected)
        return None

    def add(self, epoch: int, base_sequence: int, count: int, base_offset: int, time: int) -> None:
        """Remembers a stored batch."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
        self.batches.append(ProducerBatch(base_sequence, last_sequence(base_sequence, count), base_offset))
        self.last_time = time

    def record(self, producer_id: int) -> ProducerRecord:
        """For a checkpoint."""
        return ProducerRecord(
            producer_id=producer_id, epoch=self.epoch, last_time=self.last_time, batches=list(self.batches)
        )

    @classmethod
    def of(cls, record: ProducerRecord) -> "ProducerState":
        """From a checkpoint."""
        state = cls(record.epoch, record.last_time)
        state.batches.extend(record.batches)
        return state

    @staticmethod
    def _out_of_order(batch: BatchHeader, expected: int) -> OutOfOrderSequenceError:
        return OutOfOrderSequenceError(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence} where {expected} comes next: "
            "a batch before it is missing and must be sent first"
        )
