"""kill -9 of a writing process at random points, with a ledger that lives outside of it."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.wal.kill_writer import PRODUCERS, SETTINGS, TOPIC, batch_of
from tests.wal.logs import FastDisk, partition_of
from wal.batch import parse_header, with_base_offset
from wal.log import SingleWal

ROOT = Path(__file__).parents[2]
WRITER = Path(__file__).with_name("kill_writer.py")
# A log grows over this many kills; then a new one starts, so that each check stays small.
KILLS_A_LOG = 25


class Killing:
    """One log, written by one killed process after the other."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._acked: dict[tuple[int, int], int] = {}  # producer and sequence -> offset
        self._value = -1

    def kill_once(self) -> None:
        following = {
            producer: 1 + max((sequence for known, sequence in self._acked if known == producer), default=-1)
            for producer in range(PRODUCERS)
        }
        job = {"seed": self._random.getrandbits(30), "next": following}
        writer = subprocess.Popen(
            [sys.executable, str(WRITER), str(self._folder), json.dumps(job)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(ROOT)},
        )
        assert writer.stdout is not None
        said = b""
        if self._random.random() < 0.9:
            said = writer.stdout.readline()
            assert said == b"open\n", "the writer did not open the log"
            time.sleep(self._random.random() * 0.06)
        else:
            time.sleep(self._random.random() * 0.4)  # also while it opens the log
        os.kill(writer.pid, 9)
        said += writer.stdout.read()
        writer.wait()
        writer.stdout.close()
        self._value = -1
        for line in said.decode().splitlines():
            self._note(line.split())

    def _note(self, words: list[str]) -> None:
        if words[0] == "acked":
            producer, sequence, offset = map(int, words[1:4])
            assert self._acked.setdefault((producer, sequence), offset) == offset, "one record, two offsets"
        elif words[0] == "value":
            self._value = int(words[1])

    def check(self) -> int:
        """How many batches are stored."""
        with SingleWal.open(self._folder, SETTINGS, FastDisk()) as log:
            if TOPIC.topic_id.bytes not in log.state.topics:
                assert not self._acked
                return 0
            stored = [partition_of(log, TOPIC, partition) for partition in range(len(TOPIC.leaders))]
            if self._value >= 0:
                assert int(log.state.values["number"]) in (self._value, self._value + 1)
        for (producer, sequence), offset in self._acked.items():
            expected = with_base_offset(batch_of(producer, sequence), offset, 0)
            assert stored[producer % len(stored)][offset] == expected, f"lost {producer}-{sequence}"
        for producer in range(PRODUCERS):
            headers = [parse_header(data) for data in stored[producer % len(stored)].values()]
            sequences = [header.base_sequence for header in headers if header.producer_id == producer]
            assert sequences == list(range(len(sequences))), f"producer {producer}: lost or doubled"
        return sum(map(len, stored))


def kills(folder: Path, seed: int, count: int) -> int:
    killing = Killing(folder, seed)
    stored = 0
    try:
        for _ in range(count):
            killing.kill_once()
            stored = killing.check()
    except AssertionError as error:
        error.add_note(f"seed {seed}")
        raise
    return stored


def test_ten_kills_lose_nothing_that_was_acked_and_store_nothing_twice(tmp_path: Path) -> None:
    assert kills(tmp_path / "log", seed=1, count=10) > 0


@pytest.mark.soak
def test_500_kills_lose_nothing_that_was_acked_and_store_nothing_twice(tmp_path: Path) -> None:
    random_ = random.Random(os.environ.get("RAFKA_LAB_SEED"))
    for number in range(500 // KILLS_A_LOG):
        assert kills(tmp_path / f"{number}", seed=random_.getrandbits(32), count=KILLS_A_LOG) > 0
