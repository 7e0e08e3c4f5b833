"""Fills a disk that is too small, and goes on when there is room: `full_disk_writer.py KIND FOLDER SEGMENT_BYTES`.

KIND says what makes the disk small: `limit` is a limit on the size of one file (RLIMIT_FSIZE), `mount` a small file
system with a file `ballast` in it. Prints what happened as JSON.
"""

import json
import resource
import signal
import sys
from pathlib import Path

from tests.wal.logs import batch, new, partition_of, topic
from wal.batch import with_base_offset
from wal.errors import DiskFullError
from wal.log import Durability, SingleWal
from wal.settings import WalSettings

TOPIC = topic(1, partitions=2)
LIMIT = 300_000
VALUE = 3_000


def give_room(kind: str, folder: Path) -> None:
    if kind == "limit":
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    else:
        (folder.parent / "ballast").unlink()


def append(log: SingleWal, partition: int, number: int, durability: Durability) -> tuple[int, bytes]:
    data = batch(b"%06d" % number + bytes(VALUE))
    (result,) = log.append([new(TOPIC, partition, data)], durability)
    assert result.error is None
    if durability is Durability.SYNCED:
        assert log.wait_synced(log.sequence, 30)
    return result.base_offset, with_base_offset(data, result.base_offset, 0)


def main(kind: str, folder: Path, segment_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    settings = WalSettings(segment_bytes=segment_bytes, checkpoint_bytes=50_000)
    log = SingleWal.open(folder, settings)
    log.create_topic(TOPIC)
    acked: list[dict[int, bytes]] = [{}, {}]
    if kind == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    number = 0
    refused: list[str] = []
    while len(refused) < 20:
        try:
            offset, stored = append(log, number % 2, number, Durability(1 + number % 2))
            assert offset not in acked[number % 2]
            acked[number % 2][offset] = stored
        except DiskFullError as error:
            refused.append(str(error))
            assert [partition_of(log, TOPIC, partition) for partition in (0, 1)] == acked, "reads go on"
        number += 1
        assert number < 100_000, "the disk never got full"
    before = sum(map(len, acked))
    give_room(kind, folder)
    for _ in range(50):
        offset, stored = append(log, number % 2, number, Durability.SYNCED)
        acked[number % 2][offset] = stored
        number += 1
    assert [partition_of(log, TOPIC, partition) for partition in (0, 1)] == acked
    log.close()
    with SingleWal.open(folder, settings) as log:
        assert log.report.clean
        assert [partition_of(log, TOPIC, partition) for partition in (0, 1)] == acked, "after a restart"
        segments = len(log.segments)
    print(json.dumps({"stored": before, "refused": refused[0], "segments": segments}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
