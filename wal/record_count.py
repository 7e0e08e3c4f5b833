"""How many records a batch really holds, without decoding them: what a broker checks before it stores a batch.

A record opens with its length, so counting is a walk from length to length. In Python that is 0.1 us a record, too much
for a batch of ten thousand. But records of one batch are mostly of equal length, and where one record follows another
of the same length, the opening bytes of a whole run of them are compared at once.
"""

import functools

from wal.batch import HEADER_SIZE, BatchHeader, Buffer
from wal.compression import decompress
from wal.errors import CorruptBatchError

# Length, attributes, both deltas, key, value and header count take at least a byte each.
SMALLEST_STEP = 7
# A length has 32 bits, which is five bytes of seven.
_LENGTH_BYTES = 5
_PADDING = bytes(_LENGTH_BYTES)  # behind the records, so that looking at a length needs no look at the end
# Records that are walked one by one before the next look for a run of equal ones.
_WALK = 32
# Records that are compared at once: few at first, since a guess that fails is wasted, and twice as many after each
# guess that holds.
_FIRST_RUN = 32


def counted_records(batch: Buffer, header: BatchHeader) -> bytes:
    """The plain bytes of the records, and a few zero bytes behind them.

    Raises CorruptBatchError if they are not as many as the header states, or do not fill the batch.
    """
    records = decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
    data = b"".join((records, _PADDING))  # bytes, which are faster to look into than a view
    found = _count(data, len(records), header.record_count)
    if found != header.record_count:
        raise CorruptBatchError(f"the batch states {header.record_count} records and holds {found}")
    return data


@functools.cache
def _steps() -> list[int]:
    """From a record to the next, by the record's first two bytes; 0 where two bytes do not tell."""
    steps = []
    for first in range(256):
        for second in range(256):
            length, size = (first, 1) if first < 0x80 else (first & 0x7F | second << 7, 2)
            step = size + (length >> 1)
            told = (first < 0x80 or second < 0x80) and not length & 1 and step >= SMALLEST_STEP
            steps.append(step if told else 0)
    return steps


def _count(data: bytes, end: int, stated: int) -> int:
    """The records in `data`, which end before its padding; not many more than stated, since that is wrong anyway."""
    steps = _steps()
    count = position = 0
    while position < end and count <= stated:
        step = 0
        for _ in range(_WALK):
            before = step
            step = steps[data[position] << 8 | data[position + 1]] or _long_step(data, position)
            position += step
            count += 1
            if position >= end:
                break
        if step == before:
            run = _equal_records(data, position, step, end)
            count += run
            position += run * step
    if position > end:
        raise CorruptBatchError(f"record {count - 1} states {position - end} bytes more than there are")
    return count


def _equal_records(data: bytes, position: int, step: int, end: int) -> int:
    """How many records from `position` on have the length of the one before."""
    total, guess = 0, _FIRST_RUN
    while True:
        most = min(guess, (end - position) // step)
        run = _run(data, position, step, most)
        total += run
        if run < guess:
            return total
        position += run * step
        guess *= 2


def _long_step(data: bytes, position: int) -> int:
    length, size = _long(data, position)
    step = size + (length >> 1)
    if length & 1 or step < SMALLEST_STEP:
        raise CorruptBatchError(f"the record at byte {position} states an impossible length")
    return step


def _long(data: bytes, position: int) -> tuple[int, int]:
    """A length, zigzag as it is, and how many bytes it has."""
    value = 0
    for size, byte in enumerate(data[position : position + _LENGTH_BYTES]):
        value |= (byte & 0x7F) << 7 * size
        if byte < 0x80:
            return value, size + 1
    raise CorruptBatchError(f"the record at byte {position} has no length that ends")


def _run(data: bytes, position: int, step: int, most: int) -> int:
    """How many of the next records, `most` at the most, open with the same bytes as the one before `position`."""
    run, at = most, position - step
    while True:
        byte = data[at : at + 1]
        openings = data[at + step : at + step + run * step : step]
        run = len(openings) - len(openings.lstrip(byte))
        if byte < b"\x80" or not run:
            return run
        at += 1
