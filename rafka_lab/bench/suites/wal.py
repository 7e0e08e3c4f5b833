"""The log against the plain file calls it is made of: appends, group commit, recovery, reads, memory.

All files lie in one temporary folder that is removed at the end.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from uuid import UUID

import psutil

from rafka_lab.bench.bench import Bench
from rafka_lab.bench.report import Report
from rafka_lab.bench.sides import folder_for
from rafka_lab.errors import LabError
from rafka_lab.node import process_environment
from wal.batch import check_batch
from wal.control import TopicRecord
from wal.disk import Disk
from wal.log import Durability, NewBatch, SingleWal
from wal.records import build_batch
from wal.settings import GIB, KIB, MIB, WalSettings

TOPIC = TopicRecord(
    topic_id=UUID(int=1), org_id=1, name="bench", ulid="top_bench", slug="bench", rrl="bench", leaders=[1]
)
ROUNDS = 5
# Written per round, in 1 MB batches; small enough to stay in the page cache, which is what is measured.
ROUND_BYTES = 256 * MIB
WRITERS = 64
SYNCED_SECONDS = 0.7
SMALL_LOG = 400 * MIB
LARGE_LOG = 4 * GIB
ENTRIES = 1_000_000
MEMORY_TARGET_MB = 150


def batch_of(size: int) -> NewBatch:
    data = build_batch([(None, os.urandom(size - 100))])
    return NewBatch(TOPIC.topic_id.bytes, 0, data, check_batch(data))


def opened(folder: Path, settings: WalSettings | None = None) -> SingleWal:
    log = SingleWal.open(folder, settings)
    if TOPIC.topic_id.bytes not in log.state.topics:
        log.create_topic(TOPIC)
    return log


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    started = clock()
    work()
    return clock() - started


def settle() -> None:
    """What an earlier part left for the device must not slow the next one down."""
    os.sync()


def plain_write(path: Path, data: bytes, count: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(count):
        os.write(fd, data)
    os.close(fd)


def append_written(report: Report, folder: Path) -> None:
    """Both write into new files, in turn, so that the machine's moods hit both."""
    new = batch_of(MIB)
    count = ROUND_BYTES // MIB
    plain: list[float] = []
    log_times: list[float] = []
    for number in range(ROUNDS):
        path = folder / "plain"
        settle()
        plain.append(timed(lambda path=path: plain_write(path, bytes(new.batch), count)))  # type: ignore[misc]
        path.unlink()
        settle()
        log = opened(folder / f"append-{number}")
        log_times.append(timed(lambda log=log: [log.append([new]) for _ in range(count)]))  # type: ignore[misc]
        log.close()
        remove(folder / f"append-{number}")
    rate = ROUND_BYTES / MIB / min(log_times)
    note = f"{rate:,.0f} MB/s against {ROUND_BYTES / MIB / min(plain):,.0f} MB/s, best of {ROUNDS}"
    report.at_least("append of 1 MB, written, against os.write", min(plain) / min(log_times), 0.6, note=note)


def remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink() if path.is_file() else remove(path)
    folder.rmdir()


def append_synced(report: Report, folder: Path) -> None:
    """A loop that syncs each append and 64 writers in turn, since the device's own speed changes from second to second.

    The writers are those of a broker: each appends again when its ack has come. Writers that are threads of their own
    are shown beside them; they also pay for the threads.
    """
    new = batch_of(16 * KIB)
    ratios: list[tuple[float, float, float]] = []
    by_threads: list[float] = []
    settle()
    with opened(folder / "synced") as log:
        for _ in range(ROUNDS):
            each = synced_loop(folder / "each", bytes(new.batch))
            grouped = synced_group(log, new)
            ratios.append((grouped / each, grouped, each))
            by_threads.append(synced_threads(log, new) / each)
    ratio, grouped, each = sorted(ratios)[len(ratios) // 2]
    note = f"{grouped:,.0f}/s against {each:,.0f}/s, median of {ROUNDS}; as 64 threads {median(by_threads):.1f} x"
    report.at_least("16 KB, synced, 64 writers, against a sync for each", ratio, 4, note=note)
    remove(folder / "synced")


def synced_loop(path: Path, data: bytes) -> float:
    """Appends a second of a loop that writes and syncs each."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < SYNCED_SECONDS:
        os.write(fd, data)
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    return count / (time.perf_counter() - started)


def synced_group(log: SingleWal, new: NewBatch) -> float:
    """Acks a second, with 64 appends waiting for theirs at any time."""
    acks: SimpleQueue[object] = SimpleQueue()
    for _ in range(WRITERS):
        acks.put(None)
    count = 0
    started = time.perf_counter()
    while time.perf_counter() - started < SYNCED_SECONDS:
        assert acks.get() is None
        log.append([new], Durability.SYNCED)
        log.when_synced(log.sequence, acks.put)
        count += 1
    for _ in range(WRITERS):
        assert acks.get() is None
    return count / (time.perf_counter() - started)


def synced_threads(log: SingleWal, new: NewBatch) -> float:
    """The same with 64 threads, each of which waits for its own ack."""
    counts = [0] * WRITERS
    end = time.perf_counter() + SYNCED_SECONDS

    def write(number: int) -> None:
        while time.perf_counter() < end:
            log.append([new], Durability.SYNCED)
            log.wait_synced(log.sequence)
            counts[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


def fill(folder: Path, size: int, batch_bytes: int, settings: WalSettings | None = None) -> None:
    with opened(folder, settings) as log:
        new = batch_of(batch_bytes)
        for _ in range(size // batch_bytes):
            log.append([new])


def recovery(report: Report, folder: Path) -> None:
    """After a clean stop: each log is opened several times, in turn."""
    sizes = {"small": SMALL_LOG, "large": LARGE_LOG}
    for name, size in sizes.items():
        fill(folder / name, size, 64 * KIB)
    settle()
    times: dict[str, list[float]] = {name: [] for name in sizes}
    for _ in range(ROUNDS):
        for name in sizes:
            log = None
            started = time.perf_counter()
            log = SingleWal.open(folder / name)
            times[name].append(time.perf_counter() - started)
            assert log.report.clean
            log.close()
    small, large = median(times["small"]), median(times["large"])
    note = f"{large * 1e3:.1f} ms against {small * 1e3:.1f} ms"
    report.at_most("open after a clean stop, 4 GB against 400 MB", large / small, 2, note=note)
    for name in sizes:
        remove(folder / name)


KILLED = """
import os, sys
from pathlib import Path
from rafka_lab.bench.suites.wal import batch_of, opened
from wal.settings import KIB, MIB, WalSettings
log = opened(Path(sys.argv[1]), WalSettings(checkpoint_bytes=16 * MIB))
new = batch_of(64 * KIB)
for _ in range(int(sys.argv[2])):
    log.append([new])
print(log._active.segment.end - log._active.checkpoint_end, flush=True)
os.kill(os.getpid(), 9)
"""


def after_kill(report: Report, folder: Path) -> None:
    """300 MB, a checkpoint every 16 MB, then kill -9: what recovery reads is what lies behind the last one."""
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder / "killed"), str(300 * MIB // (64 * KIB))],
        env=process_environment(),
        stdout=subprocess.PIPE,
        check=False,
    )
    behind = int(killed.stdout)
    log = SingleWal.open(folder / "killed")
    note = f"{log.report.seconds * 1e3:.1f} ms; {behind / MIB:.1f} MB behind the last checkpoint of 300 MB"
    checkpoint = log.report.scanned_bytes - behind  # the checkpoint itself is read too
    report.at_most("bytes that recovery reads after kill -9", log.report.scanned_bytes / MIB, 17, "MB", note)
    report.at_most("of them not behind the last checkpoint", checkpoint / KIB, 64, "KB")
    log.close()
    remove(folder / "killed")


def sequential_read(report: Report, folder: Path) -> None:
    """The same file with plain reads of 1 MB and batch by batch through the log, in turn.

    All of it is in the page cache, so the time that counts is the thread's own, whatever else runs on the machine.
    The first read checks every CRC; later ones need not.
    """
    settings = WalSettings(segment_bytes=2 * GIB)
    size = 512 * MIB
    for batch_bytes in (64 * KIB, MIB):
        place = folder / f"read-{batch_bytes}"
        fill(place, size, batch_bytes, settings)
        path = next(place.glob("*.log"))
        plain, through = [], []
        with SingleWal.open(place, settings) as log:
            for _ in range(1 + ROUNDS):
                plain.append(timed(lambda path=path: read_plain(path), time.thread_time))  # type: ignore[misc]
                through.append(timed(lambda log=log: read_log(log), time.thread_time))  # type: ignore[misc]
        best, again = min(plain), min(through[1:])
        note = (
            f"{size / MIB / again:,.0f} MB/s against {size / MIB / best:,.0f} MB/s; "
            f"the first read, which checks each CRC: {best / through[0]:.2f} x"
        )
        name = f"sequential read, batches of {batch_bytes // KIB} KB, against a plain read"
        report.at_least(name, best / again, 0.6, note=note)
        remove(place)


def read_plain(path: Path) -> int:
    fd = os.open(path, os.O_RDONLY)
    total = 0
    while data := os.read(fd, MIB):
        total += len(data)
    os.close(fd)
    return total


def read_log(log: SingleWal) -> int:
    offset = total = 0
    end = log.state.partition(TOPIC.topic_id.bytes, 0).high_watermark
    while offset < end:
        batches = log.read(TOPIC.topic_id.bytes, 0, offset, MIB)
        total += sum(map(len, batches))
        offset += len(batches)  # one record each
    return total


MEMORY = """
import sys
from pathlib import Path
import psutil
from wal.log import SingleWal
log = SingleWal.open(Path(sys.argv[1]))
rss = psutil.Process().memory_info().rss
read = log.read(bytes(15) + b"\\x01", 0, 500_000, 1000)
assert len(read) > 0
import resource, json
print(json.dumps({"rss": rss, "read": psutil.Process().memory_info().rss,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "entries": sum(
    s.summaries[bytes(15) + b"\\x01", 0].entries for s in log.segments)}))
log.close()
"""


def memory(report: Report, folder: Path) -> None:
    """A log of 1,000,000 small entries, opened in a process of its own; also without its index."""
    place = folder / "million"

    class Unsynced(Disk):
        def sync(self, fd: int) -> None:
            pass

    log = SingleWal.open(place, disk=Unsynced())
    log.create_topic(TOPIC)
    new = batch_of(200)
    elapsed = timed(lambda: [log.append([new]) for _ in range(ENTRIES)])
    log.close()
    report.figure("appends of 200 B, one by one, written", ENTRIES / elapsed, "1/s")
    for name in ("1,000,000 entries, open", "1,000,000 entries, open without the index"):
        said = json.loads(
            subprocess.run(
                [sys.executable, "-c", MEMORY, str(place)],
                env=process_environment(),
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
        assert said["entries"] == ENTRIES
        note = f"{said['read'] / 1e6:.0f} MB after a read, peak {said['peak'] / 1e6:.0f} MB"
        report.at_most(name, said["rss"] / 1e6, MEMORY_TARGET_MB, "MB", note)
        for index in place.glob("*.oidx"):
            index.unlink()
    remove(place)


# Small enough for a few seconds each; the others write gigabytes.
QUICK = (append_written, append_synced, sequential_read, after_kill)
FULL = (*QUICK, recovery, memory)


def run(bench: Bench) -> None:
    with folder_for("wal") as folder:
        free = psutil.disk_usage(str(folder)).free
        if free < 2 * LARGE_LOG:
            raise LabError(
                f"the log's benchmarks need {2 * LARGE_LOG // GIB} GB free in {folder}, there are {free // GIB}: "
                "set RAFKA_LAB_BENCH_DIR to a folder on a larger disk"
            )
        for part in QUICK if bench.quick else FULL:
            part(bench.report, folder)
