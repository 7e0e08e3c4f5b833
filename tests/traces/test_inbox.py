"""The inbox: what was acknowledged outlives the process and is indexed once; what was half written is not."""

import os
import random
import resource
import signal
import time
from pathlib import Path

import pytest
from otlp_samples import new_span, produce_requests, request_of

from traces import inbox, otlp
from traces.errors import StoreError
from traces.inbox import Inbox, Position
from traces.reader import Reader
from traces.search import TraceQuery
from traces.spare_time import SpareTime
from traces.store import Store, StoreSettings

START = Position(0, 0)


def files(store: Path) -> list[Path]:
    return sorted(store.parent.glob(f"{store.name}-inbox-*"))


@pytest.fixture
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpareTime, "is_there", lambda self: False)


def test_entries_come_back_in_order_and_wait_until_they_are_forgotten(tmp_path: Path) -> None:
    box = Inbox(tmp_path / "traces.db", START)
    for number in range(5):
        box.append(bytes([number]) * 10, 2, number)
    first = box.read(4)
    assert [(entry.body[0], entry.received) for entry in first] == [(0, 0), (1, 1)]
    assert box.read(4) == first
    box.forget(first)
    assert [entry.body[0] for entry in box.read(100)] == [2, 3, 4]
    assert box.spans == 6
    box.close()


def test_a_request_larger_than_one_transaction_is_read_alone(tmp_path: Path) -> None:
    box = Inbox(tmp_path / "traces.db", START)
    box.append(b"large", 1000, 0)
    box.append(b"small", 1, 0)
    assert [entry.body for entry in box.read(10)] == [b"large"]
    box.close()


def test_what_waits_is_there_after_a_restart_from_the_position_of_the_tables(tmp_path: Path) -> None:
    store = tmp_path / "traces.db"
    box = Inbox(store, START)
    for number in range(4):
        box.append(bytes([number]) * 10, 1, number)
    done = box.read(2)[-1].end
    box.close()
    again = Inbox(store, done)
    assert [entry.body[0] for entry in again.read(100)] == [2, 3]
    again.append(b"new", 1, 9)
    rest = again.read(100)
    assert [entry.body for entry in rest][-1] == b"new"
    again.forget(rest)
    again.close()
    assert files(store) == []


@pytest.mark.parametrize("left", range(1, 33))
def test_an_entry_that_is_not_whole_is_left_out(tmp_path: Path, left: int) -> None:
    store = tmp_path / "traces.db"
    box = Inbox(store, START)
    box.append(b"whole", 1, 0)
    size = files(store)[0].stat().st_size
    box.append(b"torn entry..", 1, 0)
    box.close()
    path = files(store)[0]
    assert path.stat().st_size == size + 33
    os.truncate(path, size + left)
    assert [entry.body for entry in Inbox(store, START).read(100)] == [b"whole"]


def test_damaged_bytes_are_not_taken_for_a_request(tmp_path: Path) -> None:
    store = tmp_path / "traces.db"
    box = Inbox(store, START)
    box.append(b"whole", 1, 0)
    box.append(b"damaged", 1, 0)
    box.close()
    path = files(store)[0]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert [entry.body for entry in Inbox(store, START).read(100)] == [b"whole"]


def test_files_go_when_all_of_them_is_in_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "_FILE_BYTES", 100)
    store = tmp_path / "traces.db"
    box = Inbox(store, START)
    for number in range(10):
        box.append(bytes([number]) * 90, 1, 0)
    assert len(files(store)) == 10
    box.forget(box.read(7))
    assert len(files(store)) == 3
    box.forget(box.read(7))
    assert len(files(store)) == 1
    box.close()
    assert files(store) == []


def test_a_full_disk_is_said_and_leaves_no_half_entry(tmp_path: Path) -> None:
    store = tmp_path / "traces.db"
    box = Inbox(store, START)
    box.append(b"whole", 1, 0)
    size = files(store)[0].stat().st_size
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match="free space"):
                box.append(bytes(1000), 1, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert files(store)[0].stat().st_size == size
    box.append(b"again", 1, 0)
    assert [entry.body for entry in box.read(100)] == [b"whole", b"again"]
    box.close()


@pytest.mark.usefixtures("busy_machine")
def test_acknowledged_spans_that_were_never_indexed_are_indexed_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db", StoreSettings(close_seconds=0))
    for _ in range(20):
        store.add(otlp.check_request(request_of(new_span())))
    store.close()
    assert files(store.path)
    again = Store(tmp_path / "traces.db")
    again.catch_up()
    reader = Reader(again.path)
    assert len(reader.find(TraceQuery(service="sample", limit=100))) == 20
    assert again.stats()["duplicates"] == 0
    reader.close()
    again.close()
    assert files(store.path) == []


@pytest.mark.usefixtures("busy_machine")
def test_who_asks_sees_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db")
    for body in produce_requests(100, random.Random(1), time.time_ns()):
        store.add(otlp.check(body))
    time.sleep(0.3)
    assert (store.stats()["spans"], store.stats()["pending"]) == (0, 700)  # nobody asked, and there was no time
    store.catch_up()
    assert (store.stats()["spans"], store.stats()["pending"]) == (700, 0)
    store.close()


@pytest.mark.usefixtures("busy_machine")
def test_much_that_waits_does_not_wait_for_spare_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db", StoreSettings(eager_spans=500))
    for body in produce_requests(100, random.Random(1), time.time_ns()):
        store.add(otlp.check(body))
    deadline = time.monotonic() + 20
    while store.stats()["pending"] > 500 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert store.stats()["pending"] <= 500
    store.close()
