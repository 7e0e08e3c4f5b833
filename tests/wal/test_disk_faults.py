"""A full disk, a broken disk, a slow disk: no false ack, no lost ack, and a clear word on what to do."""

import errno
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.wal.faulty_disk import FaultyDisk
from tests.wal.logs import SMALL, FastDisk, batch, kill, log_files, new, partition_of, put, topic
from wal.batch import with_base_offset
from wal.errors import DiskFullError, LogClosedError, LogPoisonedError, WalError
from wal.log import Durability, SingleWal
from wal.settings import WalSettings

ROOT = Path(__file__).parents[2]
TOPIC, OTHER = topic(1, partitions=2), topic(2)
MIB = 1024 * 1024


def opened(folder: Path, disk: FaultyDisk, settings: WalSettings = SMALL) -> SingleWal:
    log = SingleWal.open(folder, settings, disk)
    for record in (TOPIC, OTHER):
        if record.topic_id.bytes not in log.state.topics:
            log.create_topic(record)
    assert log.wait_synced(timeout=30)
    return log


def put_until_it_fails(log: SingleWal, acked: dict[int, bytes]) -> None:
    for number in range(100):
        data = batch(b"%d" % number)
        result = put(log, TOPIC, data)
        acked[result.base_offset] = with_base_offset(data, result.base_offset, 0)


def stored_after_restart(folder: Path, partition: int = 0) -> dict[int, bytes]:
    with SingleWal.open(folder, SMALL, FastDisk()) as log:
        assert len(list(log.entries())) > 0
        return partition_of(log, TOPIC, partition)


# A full disk


def fill(kind: str, folder: Path, segment_bytes: int) -> dict[str, object]:
    command = [sys.executable, str(Path(__file__).with_name("full_disk_writer.py")), kind, str(folder)]
    done = subprocess.run(
        [*command, str(segment_bytes)], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}, timeout=50
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, object] = json.loads(done.stdout)
    assert int(str(said["stored"])) > 0
    assert "free some space" in str(said["refused"])
    return said


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path: Path) -> None:
    said = fill("limit", tmp_path / "log", 100 * MIB)
    assert "position" in str(said["refused"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB with 256 KiB of ballast."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    (place / "ballast").write_bytes(bytes(MIB // 4))
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("segment_bytes", [100 * MIB, 100_000, 20_000])
def test_a_full_disk_refuses_and_goes_on_when_there_is_room(small_disk: Path, segment_bytes: int) -> None:
    """The smaller the segments, the likelier it is a roll that finds the disk full."""
    fill("mount", small_disk / "log", segment_bytes)


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("write", ".log"), ("write", ".oidx"), ("write", ".log.new"), ("write", ".oidx.new"), ("create", ".new")],
)
def test_whatever_finds_no_room_the_append_is_refused_whole(
    tmp_path: Path, kind: str, suffix: str, durability: Durability
) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk, WalSettings(segment_bytes=6_000, checkpoint_bytes=2_000, buffer_seconds=3_600))
    expected: dict[int, bytes] = {}
    refused: list[DiskFullError] = []
    full = False
    descriptors = 0
    for number in range(400):
        if number % 40 == 20:
            disk.fail(kind, lambda _, name: name.endswith(suffix), errno.ENOSPC)
            full = True
            descriptors = len(list(Path("/proc/self/fd").iterdir()))
        elif number % 40 == 39:
            disk.heal()
            full = False
            assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 3, "a retry must not keep files open"
        data = batch(b"%d" % number + bytes(120))
        before = log.state.partition(TOPIC.topic_id.bytes, 0).next_offset
        try:
            result = put(log, TOPIC, data, durability=durability)
        except DiskFullError as error:
            refused.append(error)
            assert full
            assert log.state.partition(TOPIC.topic_id.bytes, 0).next_offset == before
        else:
            expected[result.base_offset] = with_base_offset(data, result.base_offset, 0)
        visible = partition_of(log, TOPIC)
        assert visible == {offset: expected[offset] for offset in visible}
    log.flush()
    assert partition_of(log, TOPIC) == expected
    assert refused
    assert all(error.path is not None and error.position is not None for error in refused)
    kill(log)
    assert stored_after_restart(tmp_path) == expected


def test_closing_on_a_full_disk_says_so_and_lets_go(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk)
    put(log, TOPIC, batch())
    disk.fail("write", lambda *_: True, errno.ENOSPC)
    with pytest.raises(DiskFullError):
        log.close()
    assert not log._syncer._thread.is_alive()
    told: list[WalError | None] = []
    log.when_synced(log.sequence + 1, told.append)
    assert isinstance(told[0], LogClosedError)
    assert list(stored_after_restart(tmp_path)) == [0]


def test_a_full_disk_at_the_start_is_a_clear_error(tmp_path: Path) -> None:
    opened(tmp_path, FaultyDisk()).close()
    disk = FaultyDisk()
    disk.fail("write", lambda *_: True, errno.ENOSPC)
    with pytest.raises(WalError, match=r"No space left"):
        SingleWal.open(tmp_path, SMALL, disk)
    opened(tmp_path, FaultyDisk()).close()
    empty = FaultyDisk()
    empty.fail("write", lambda *_: True, errno.ENOSPC)
    with pytest.raises(DiskFullError, match="free some space"):
        SingleWal.open(tmp_path / "new", SMALL, empty)
    SingleWal.open(tmp_path / "new", SMALL, FaultyDisk()).close()


# A broken disk


def _note(told: list[tuple[int, WalError | None]], number: int, error: WalError | None) -> None:
    told.append((number, error))


@pytest.mark.parametrize("k", range(1, 8))
def test_the_first_failed_sync_ends_the_log(tmp_path: Path, k: int) -> None:
    """No ack of that group, no append after it, never a second try."""
    disk = FaultyDisk()
    log = opened(tmp_path, disk)
    disk.fail("sync", lambda number, _: number == k)
    told: list[tuple[int, WalError | None]] = []
    acked: dict[int, bytes] = {}
    failure = None
    for number in range(100):
        data = batch(b"%d" % number)
        try:
            (result,) = log.append([new(TOPIC, 0, data)], Durability.SYNCED)
            log.when_synced(log.sequence, partial(_note, told, number))
            assert log.wait_synced(log.sequence, 30)
            acked[result.base_offset] = with_base_offset(data, result.base_offset, 0)
        except LogPoisonedError as error:
            failure, failed_at = error, number
            break
    assert failure is not None
    assert "sync failed" in str(failure)
    assert failure.path == str(log_files(tmp_path)[-1])
    log._syncer._thread.join(0.2)
    assert {number for number, error in told if error is None} == set(range(len(acked)))
    assert all(isinstance(error, LogPoisonedError) for number, error in told if number >= failed_at)
    syncs = disk.counts["sync"]
    for durability in Durability:
        with pytest.raises(LogPoisonedError):
            put(log, TOPIC, batch(), durability=durability)
    with pytest.raises(LogPoisonedError):
        log.set_values({"a": "b"})
    with pytest.raises(LogPoisonedError):
        log.wait_synced(timeout=5)
    assert {offset: data for offset, data in partition_of(log, TOPIC).items() if offset in acked} == acked
    writes = disk.counts.get("write")
    log.close()
    assert (disk.counts["sync"], disk.counts.get("write")) == (syncs, writes), "a poisoned log touches nothing"
    found = stored_after_restart(tmp_path)
    assert {offset: found[offset] for offset in acked} == acked


@pytest.mark.parametrize("suffix", [".log", ".oidx"])
@pytest.mark.parametrize("k", [1, 2, 5, 30])
def test_a_failed_write_ends_the_log(tmp_path: Path, k: int, suffix: str) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk)
    written = 0

    def nth(_: int, name: str) -> bool:
        nonlocal written
        written += name.endswith(suffix)
        return written >= k and name.endswith(suffix)

    disk.fail("write", nth)
    acked: dict[int, bytes] = {}
    with pytest.raises(LogPoisonedError) as caught:
        put_until_it_fails(log, acked)
    assert "Input/output error" in str(caught.value)
    disk.heal()
    for durability in Durability:
        with pytest.raises(LogPoisonedError):
            put(log, TOPIC, batch(), durability=durability)
    assert partition_of(log, TOPIC) == acked
    log.close()
    assert stored_after_restart(tmp_path) == acked


def test_a_write_that_cannot_be_taken_back_ends_the_log(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk)
    put(log, TOPIC, batch(b"kept"))
    disk.fail("write", lambda *_: True, errno.ENOSPC)
    disk.fail("truncate", lambda *_: True)
    with pytest.raises(LogPoisonedError, match="cutting it back failed too"):
        put(log, TOPIC, batch())
    disk.heal()
    with pytest.raises(LogPoisonedError):
        put(log, TOPIC, batch())
    log.close()
    assert stored_after_restart(tmp_path) == {0: with_base_offset(batch(b"kept"), 0, 0)}


def test_what_a_poisoned_log_has_buffered_is_not_written_any_more(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk, WalSettings(buffer_seconds=0.05))
    disk.fail("sync", lambda *_: True)
    log.append([new(TOPIC, 0, batch())], Durability.SYNCED)
    with pytest.raises(LogPoisonedError):
        log.wait_synced(log.sequence, 30)
    size = log_files(tmp_path)[-1].stat().st_size
    with pytest.raises(LogPoisonedError):
        put(log, TOPIC, batch(), durability=Durability.NONE)
    time.sleep(0.2)
    assert log_files(tmp_path)[-1].stat().st_size == size
    log.close()


@pytest.mark.parametrize("kind", ["sync", "sync_folder", "rename", "create"])
def test_a_roll_on_a_broken_disk_ends_the_log(tmp_path: Path, kind: str) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk, WalSettings(segment_bytes=6_000))
    acked: dict[int, bytes] = {}
    disk.fail(kind, lambda *_: True)
    with pytest.raises(LogPoisonedError):
        put_until_it_fails(log, acked)
    with pytest.raises(LogPoisonedError):
        put(log, TOPIC, batch())
    log.close()
    assert stored_after_restart(tmp_path) == acked


# A slow disk


def test_no_ack_before_the_sync_is_over_and_others_go_on_meanwhile(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk)
    put(log, OTHER, batch(b"other"))
    disk.gate.clear()
    acks: list[WalError | None] = []
    log.append([new(TOPIC, 0, batch(b"slow"))], Durability.SYNCED)
    log.when_synced(log.sequence, acks.append)
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        put(log, OTHER, batch(b"written"))
        assert log.read(OTHER.topic_id.bytes, 0, 0, 1) == [with_base_offset(batch(b"other"), 0, 0)]
        assert not acks
        assert not log.wait_synced(log.sequence, 0.01)
        if len(log_files(tmp_path)) > 1 or log.segments.last.end > 5_000:
            break  # a roll waits for the disk
    assert not acks
    disk.gate.set()
    assert log.wait_synced(timeout=30)
    for _ in range(1_000):
        if acks:
            break
        time.sleep(0.01)
    assert acks == [None]
    log.close()


def test_a_sync_of_300_ms_acks_each_group_once_and_not_early(tmp_path: Path) -> None:
    class Slow(FaultyDisk):
        def sync(self, fd: int) -> None:
            time.sleep(0.3)

    log = opened(tmp_path, Slow(), WalSettings())
    done: list[tuple[float, float]] = []

    def write(number: int) -> None:
        started = time.monotonic()
        put(log, TOPIC, batch(b"%d" % number), number % 2, Durability.SYNCED)
        done.append((started, time.monotonic()))

    began = time.monotonic()
    threads = [threading.Thread(target=write, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 32
    assert all(end - start >= 0.3 for start, end in done)
    assert time.monotonic() - began < 32 * 0.3, "one sync must serve many"
    log.close()


def test_writers_wait_when_too_much_is_unsynced(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk, WalSettings(max_unsynced_bytes=20_000))
    disk.gate.clear()
    appended = 0
    blocked = threading.Event()

    def write() -> None:
        nonlocal appended
        for _ in range(60):
            log.append([new(TOPIC, 0, batch(bytes(1_000)))], Durability.SYNCED)
            appended += 1
        blocked.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not blocked.wait(0.5), "nothing held the writer back"
    assert 15 <= appended <= 25
    assert not log.has_room
    assert log.unsynced_bytes >= 20_000
    put(log, OTHER, batch())  # who needs no sync does not wait
    disk.gate.set()
    thread.join(30)
    assert appended == 60
    assert log.wait_synced(timeout=30)
    assert log.has_room
    assert len(partition_of(log, TOPIC)) == 60
    log.close()


def test_a_blocked_writer_is_told_when_the_sync_fails(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk, WalSettings(max_unsynced_bytes=1_000))
    disk.gate.clear()
    log.append([new(TOPIC, 0, batch(bytes(5_000)))], Durability.SYNCED)
    errors: list[WalError] = []

    def write() -> None:
        try:
            log.append([new(TOPIC, 0, batch())], Durability.SYNCED)
        except WalError as error:
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    disk.fail("sync", lambda *_: True)
    time.sleep(0.05)
    disk.gate.set()
    with pytest.raises(LogPoisonedError):
        log.wait_synced(log.sequence + 1, 30)
    thread.join(30)
    log.close()
    assert not thread.is_alive()
    assert all(isinstance(error, LogPoisonedError) for error in errors)


def test_one_sync_serves_all_who_wait(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = opened(tmp_path, disk, WalSettings())
    disk.gate.clear()
    disk.fail("sync", lambda *_: False)  # counts from here
    acks: list[WalError | None] = []
    for _ in range(200):
        log.append([new(TOPIC, 0, batch())], Durability.SYNCED)
        log.when_synced(log.sequence, acks.append)
    disk.gate.set()
    assert log.wait_synced(timeout=30)
    log.close()
    assert acks == [None] * 200
    assert disk.counts["sync"] <= 5


def test_a_new_folder_has_a_name_that_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder that was made is synced into the one above it."""
    synced: list[Path] = []

    class Noting(FastDisk):
        def sync_folder(self, folder: Path) -> None:
            synced.append(folder)

    SingleWal.open(tmp_path / "a" / "b" / "log", disk=Noting()).close()
    assert synced[:3] == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    synced.clear()
    monkeypatch.chdir(tmp_path)
    SingleWal.open("relative", disk=Noting()).close()
    assert synced[0] == Path()
