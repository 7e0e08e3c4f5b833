"""How many records a batch really holds, without decoding them: what a broker checks before it stores a batch.

A record opens with its length, so counting is a walk from length to length. In Python that is 0.1 us a record, too much
for a batch of ten thousand. But records of one batch are mostly of equal length, and where one record follows another
of the same length, the opening bytes of a whole run of them are compared at once.
"""

from wal.batch import HEADER_SIZE, BatchHeader, Buffer
from wal.compression import decompress
from wal.errors import CorruptBatchError

# Length, attributes, both deltas, key, value and header count take at least a byte each.
SMALLEST_STEP = 7
# A length has 32 bits, which is five bytes of seven.
_LENGTH_BYTES = 5
_PADDING = bytes(_LENGTH_BYTES)  # behind the records, so that looking at a length needs no look at the end
# Records that are compared at once: few at first, since a guess that fails is wasted, and twice as many after each
# guess that holds.
_FIRST_RUN = 16


def check_record_count(batch: Buffer, header: BatchHeader) -> None:
    """Raises CorruptBatchError if the records are not as many as the header states, or do not fill the batch."""
    records = decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
    # bytes, which are faster to look into than a view
    found = _count(b"".join((records, _PADDING)), len(records), header.record_count)
    if found != header.record_count:
        raise CorruptBatchError(f"the batch states {header.record_count} records and holds {found}")


def _count(data: bytes, end: int, stated: int) -> int:
    """The records in `data`, which end before its padding; not many more than stated, since that is wrong anyway."""
    count = position = previous = 0
    guess = _FIRST_RUN
    while position < end and count <= stated:
        # Written out: a call a record would double the time.
        length, size = data[position], 1
        if length > 0x7F:
            length, size = length & 0x7F | data[position + 1] << 7, 2
            if length > 0x3FFF:
                length, size = _long(data, position)
        step = size + (length >> 1)
        if length & 1 or step < SMALLEST_STEP:
            raise CorruptBatchError(f"the record at byte {position} states an impossible length")
        position += step
        count += 1
        if step == previous:
            run = _run(data, position, step, min(guess, (end - position) // step))
            guess = guess * 2 if run == guess else _FIRST_RUN
            count += run
            position += run * step
        previous = step
    if position > end:
        raise CorruptBatchError(f"record {count - 1} states {position - end} bytes more than there are")
    return count


def _long(data: bytes, position: int) -> tuple[int, int]:
    """A length of three bytes or more, zigzag as it is, and how many they are."""
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
