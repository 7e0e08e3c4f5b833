"""Damaged files: a torn end is cut off and kept, anything else is refused; a wrong record is never served."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.wal.crash_workload import boot
from tests.wal.logs import SMALL, FastDisk, batch, index_files, kill, log_files, noise, partition_of, put, topic
from wal.entry import Kind
from wal.errors import LogDamagedError
from wal.index import ROW_SIZE
from wal.log import SingleWal
from wal.segment import FILE_HEADER_SIZE
from wal.settings import KIB, WalSettings

TOPICS = [topic(n, partitions=2) for n in (1, 2)]
SECTOR = 512
TINY = 500
PARTS = 4  # of a long test, so that each stays far below the limit of a test
# Nothing is checked ahead of its use, so that damage has to be found by the read that meets it.
LAZY = WalSettings(verify_tail_bytes=0)
Contents = dict[tuple[bytes, int], dict[int, bytes]]
End = Callable[[SingleWal], None]
ENDS: list[End] = [SingleWal.close, kill]


def make(folder: Path, size: int, end: End, settings: WalSettings = LAZY, value: int = 300) -> Contents:
    """A log of at least `size` bytes and what it holds."""
    random_ = random.Random(size)
    log = SingleWal.open(folder, settings, FastDisk())
    topics = TOPICS if size > TINY else TOPICS[:1]
    for record in topics:
        log.create_topic(record)
    written = 0
    while written < size:
        put(log, random_.choice(topics), batch(noise(random_, random_.randint(1, value))), random_.randrange(2))
        written = sum(path.stat().st_size for path in log_files(folder))
    found = contents(log)
    end(log)
    return found


def contents(log: SingleWal) -> Contents:
    return {
        (record.topic_id.bytes, partition): partition_of(log, record, partition)
        for record in log.state.topics.values()
        for partition in range(2)
    }


def reopened(folder: Path, settings: WalSettings = LAZY) -> Contents:
    with SingleWal.open(folder, settings, FastDisk()) as log:
        list(log.entries())
        return contents(log)


def read_and_kill(folder: Path, settings: WalSettings) -> Contents:
    """As `reopened`, without the work of a clean end: for half a million times."""
    log = SingleWal.open(folder, settings, FastDisk())
    try:
        list(log.entries())
        return contents(log)
    finally:
        kill(log)


def is_prefix(found: Contents, whole: Contents) -> bool:
    return all(list(batches.items()) == list(whole[key].items())[: len(batches)] for key, batches in found.items())


# Torn tails


def last_entries(folder: Path, count: int) -> list[tuple[int, int]]:
    """Start and end of the last entries of the last segment."""
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    with SingleWal.open(copy, LAZY, FastDisk()) as log:
        last = log.segments.last.number
        spans = [(e.header.position, e.header.end) for e in log.entries() if e.segment == last]
    shutil.rmtree(copy)
    size = log_files(folder)[-1].stat().st_size
    return [span for span in spans if span[1] <= size][-count:]


def tails(data: bytes, start: int) -> Iterator[tuple[str, bytes]]:
    """The file torn at every byte from `start` on: cut, zeros behind it, garbage behind it, lost sectors."""
    random_ = random.Random(start)
    for cut in range(start, len(data)):
        yield f"cut at {cut}", data[:cut]
        yield f"zeros from {cut}", data[:cut] + bytes(len(data) - cut)
        yield f"garbage from {cut}", data[:cut] + random_.randbytes(len(data) - cut)
    for sector in range(start // SECTOR * SECTOR, len(data), SECTOR):
        first, last = max(start, sector), min(len(data), sector + SECTOR)
        for filling in (bytes(last - first), random_.randbytes(last - first)):
            yield f"sector at {sector}", data[:first] + filling + data[last:]
    yield "zeros behind the end", data + bytes(5_000)
    yield "garbage behind the end", data + random_.randbytes(5_000)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("power_lost", [False, True])
def test_a_tail_torn_anywhere_is_cut_off_and_all_before_it_is_served(
    memory_path: Path, power_lost: bool, part: int
) -> None:
    """The last three entries are unsynced. A power loss may take any part of them, a kill only an end."""
    folder = memory_path / "log"
    with boot("first"):
        whole = make(folder, 3_000, kill, value=60)
    spans = last_entries(folder, 3)
    log_file = log_files(folder)[-1]
    data, index = log_file.read_bytes(), index_files(folder)[-1].read_bytes()
    tried = 0
    for what, torn in list(tails(data, spans[0][0]))[part::PARTS]:
        in_the_middle = what.startswith("sector") and not power_lost
        if in_the_middle and _valid_behind(torn, data, spans):
            continue  # the kernel had it all: that is damage, and the tests of flipped bits are about it
        log_file.write_bytes(torn)
        index_files(folder)[-1].write_bytes(index)
        with boot("second" if power_lost else "first"), SingleWal.open(folder, LAZY, FastDisk()) as log:
            found = contents(log)
            assert is_prefix(found, whole), what
            lost = sum(map(len, whole.values())) - sum(map(len, found.values()))
            assert lost <= 3, what
            intact = next((at for at in range(len(spans)) if torn[slice(*spans[at])] != data[slice(*spans[at])]), 3)
            assert lost == 3 - intact, what
            kept = log.report.torn_copy
            if torn[: len(data)] != data or len(torn) > len(data):
                cut = len(torn) - (spans[intact][0] if intact < 3 else len(data))
                assert log.report.truncated_bytes == cut, what
                assert kept is None if cut == 0 else Path(kept or "").read_bytes() == torn[len(torn) - cut :], what
        shutil.rmtree(folder / "torn", ignore_errors=True)
        tried += 1
    assert tried >= 3 * (len(data) - spans[0][0]) // PARTS


def _valid_behind(torn: bytes, data: bytes, spans: list[tuple[int, int]]) -> bool:
    good = [torn[slice(*span)] == data[slice(*span)] for span in spans]
    return False in good and True in good[good.index(False) :]


# Flipped bits


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))


class Flipped:
    """A log in which one bit after the other is flipped, and what must come of it."""

    def __init__(self, folder: Path, size: int, end: End, settings: WalSettings = LAZY, value: int = 300) -> None:
        self._folder = folder
        self._settings = settings
        self._clean = end is not kill
        self.whole = make(folder, size, end, settings, value)
        self._sound = {path: path.read_bytes() for path in [*log_files(folder), *index_files(folder)]}
        with SingleWal.open(folder, settings, FastDisk()) as log:
            last = log.segments.last.number
            entries = [e for e in log.entries() if e.segment == last and e.header.end <= len(self._bytes(last))]
        self._last_entry = entries[-1].header.position
        self._last = log_files(folder)[-1]
        self._restore()

    def _bytes(self, number: int) -> bytes:
        return self._sound[log_files(self._folder)[number]]

    def _restore(self) -> None:
        for path in self._folder.iterdir():
            if path.is_file() and path not in self._sound:
                path.unlink()
        for path, data in self._sound.items():
            if not path.exists() or path.read_bytes() != data:
                path.write_bytes(data)
        shutil.rmtree(self._folder / "torn", ignore_errors=True)

    @property
    def bits(self) -> list[tuple[Path, int]]:
        return [(path, bit) for path in log_files(self._folder) for bit in range(8 * len(self._sound[path]))]

    def check(self, path: Path, bit: int) -> bool:
        """Flips the bit, opens and reads everything; whether that was refused."""
        flip(path, bit)
        refused: LogDamagedError | None = None
        where = f"bit {bit % 8} of byte {bit // 8} of {path.name}"
        try:
            found = read_and_kill(self._folder, self._settings)
        except LogDamagedError as error:
            found, refused = {}, error
        at_the_end = path == self._last and bit // 8 >= self._last_entry
        assert is_prefix(found, self.whole), f"a wrong record: {where}"
        assert (refused is None) == at_the_end, where
        if refused is not None:
            assert refused.path == str(path), where
            assert refused.position is not None, where
            assert refused.position <= bit // 8, where
        elif self._clean:
            assert found == self.whole, f"the last entry is no record: {where}"
        self._restore()
        return refused is not None


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("end", ENDS)
def test_every_bit_of_a_tiny_log_is_guarded(memory_path: Path, end: End, part: int) -> None:
    log = Flipped(memory_path / "log", TINY, end, value=5)
    bits = log.bits[part::PARTS]
    assert sum(log.check(path, bit) for path, bit in bits) > len(bits) / 3


@pytest.mark.parametrize("settings", [LAZY, WalSettings(), SMALL])
@pytest.mark.parametrize("end", ENDS)
def test_bits_of_a_64_kb_log_are_guarded(memory_path: Path, end: End, settings: WalSettings) -> None:
    log = Flipped(memory_path / "log", 64 * KIB, end, settings)
    for path, bit in random.Random(settings.segment_bytes).sample(log.bits, 150):
        log.check(path, bit)


@pytest.mark.soak
@pytest.mark.parametrize("end", ENDS)
def test_every_bit_of_a_64_kb_log_is_guarded(memory_path: Path, end: End) -> None:
    log = Flipped(memory_path / "log", 64 * KIB, end, LAZY, value=3_000)
    assert len(log.bits) >= 64 * KIB * 8
    for path, bit in log.bits:
        log.check(path, bit)


def test_damage_that_only_a_read_meets_is_refused_by_every_read_of_it(memory_path: Path) -> None:
    folder = memory_path / "log"
    whole = make(folder, 20_000, SingleWal.close)
    key = (TOPICS[0].topic_id.bytes, 0)
    with SingleWal.open(folder, LAZY, FastDisk()) as log:
        entries = [e.header for e in log.entries() if (e.header.topic_id, e.header.partition) == key]
        bad = entries[len(entries) // 2]
        flip(log_files(folder)[0], 8 * (bad.end - 1))
        for offset in whole[key]:
            if offset < bad.base_offset:
                assert bytes(log.read(*key, offset, 1)[0]) == whole[key][offset]
        for max_bytes in (1, 100_000):
            with pytest.raises(LogDamagedError, match=f"position {bad.position}") as caught:
                log.read(*key, bad.base_offset, max_bytes)
            assert (caught.value.path, caught.value.position) == (str(log_files(folder)[0]), bad.position)
        put(log, TOPICS[1], batch())  # others go on


# The index


def index_damages(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    random_ = random.Random(len(data))
    yield "missing", None
    for size in (0, 1, FILE_HEADER_SIZE - 1, FILE_HEADER_SIZE, FILE_HEADER_SIZE + 1):
        yield f"cut to {size}", data[:size]
    rows = (len(data) - FILE_HEADER_SIZE) // ROW_SIZE
    for row in random_.sample(range(rows), min(rows, 4)):
        start = FILE_HEADER_SIZE + row * ROW_SIZE
        yield f"cut in row {row}", data[: start + ROW_SIZE // 2]
        yield f"row {row} zeroed", data[:start] + bytes(ROW_SIZE) + data[start + ROW_SIZE :]
        yield f"row {row} missing", data[:start] + data[start + ROW_SIZE :]
        yield f"row {row} twice", data[:start] + data[start : start + ROW_SIZE] + data[start:]
    yield "all zeros", bytes(len(data))
    yield "all garbage", random_.randbytes(len(data))
    yield "longer", data + bytes(1_000)
    yield "rows in another order", data[:FILE_HEADER_SIZE] + data[-2 * ROW_SIZE :] + data[FILE_HEADER_SIZE:]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("settings", [LAZY, SMALL])
def test_a_damaged_index_changes_no_read(memory_path: Path, end: End, settings: WalSettings) -> None:
    folder = memory_path / "log"
    whole = make(folder, 15_000, end, settings)
    sound = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    indexes = index_files(folder)
    for index in {indexes[0], indexes[len(indexes) // 2], indexes[-1]}:
        for what, damaged in index_damages(sound[index]):
            index.unlink() if damaged is None else index.write_bytes(damaged)
            assert reopened(folder, settings) == whole, f"{index.name} {what}"
            assert reopened(folder, settings) == whole, f"{index.name} {what}, opened again"
            _restore(folder, sound)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("settings", [LAZY, SMALL])
def test_any_flipped_byte_of_an_index_changes_no_read(memory_path: Path, end: End, settings: WalSettings) -> None:
    folder = memory_path / "log"
    whole = make(folder, 8_000, end, settings)
    sound = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    places = [(path, at) for path in index_files(folder) for at in range(len(sound[path]))]
    for path, at in random.Random(1).sample(places, 250):
        flip(path, 8 * at + at % 8)
        assert reopened(folder, settings) == whole, f"byte {at} of {path.name}"
        _restore(folder, sound)


def test_the_index_is_whole_again_after_an_open(memory_path: Path) -> None:
    folder = memory_path / "log"
    make(folder, 15_000, SingleWal.close, SMALL)
    sealed = index_files(folder)[:-1]
    sound = {path: path.read_bytes() for path in sealed}
    for path in sealed:
        path.unlink()
    with SingleWal.open(folder, SMALL, FastDisk()) as log:
        assert log.report.rebuilt_indexes == [int(path.stem) for path in sealed]
    assert {path: path.read_bytes() for path in sealed} == sound
    with SingleWal.open(folder, SMALL, FastDisk()) as log:
        assert log.report.rebuilt_indexes == []


def _restore(folder: Path, sound: dict[Path, bytes]) -> None:
    for path in folder.iterdir():
        if path not in sound and path.is_file():
            path.unlink()
    for path, data in sound.items():
        path.write_bytes(data)


def test_the_segments_of_two_logs_do_not_mix(memory_path: Path) -> None:
    """Also not when their numbers and sizes fit."""
    for name in ("one", "two"):
        make(memory_path / name, 15_000, SingleWal.close, SMALL)
    for number in (0, -1):
        mine, other = log_files(memory_path / "one")[number], log_files(memory_path / "two")[number]
        kept = mine.read_bytes()
        os.replace(other, mine)
        with pytest.raises(LogDamagedError, match="belongs to log"):
            reopened(memory_path / "one", SMALL)
        with suppress(FileNotFoundError):
            shutil.rmtree(memory_path / "one" / "torn")
        mine.write_bytes(kept)
    reopened(memory_path / "one", SMALL)


def test_damage_of_the_first_checkpoint_of_a_boot_is_not_a_power_loss(memory_path: Path) -> None:
    """The checkpoint before it is of an older boot, but what follows was written in this one, and is all there."""
    folder = memory_path / "log"
    with boot("first"):
        make(folder, 3_000, kill)
    with boot("second"):
        log = SingleWal.open(folder, LAZY, FastDisk())
        checkpoint = list(log.entries())[-1].header
        assert checkpoint.kind == Kind.CHECKPOINT
        put(log, TOPICS[0], batch(b"written"))
        kill(log)
        for at in (checkpoint.position + 2, checkpoint.position + 9, checkpoint.end - 1):
            flip(log_files(folder)[-1], 8 * at)
            with pytest.raises(LogDamagedError, match="a valid entry follows"):
                SingleWal.open(folder, LAZY, FastDisk())
            flip(log_files(folder)[-1], 8 * at)
        assert reopened(folder)[TOPICS[0].topic_id.bytes, 0]
