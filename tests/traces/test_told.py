"""What our own recorder says beside a request: it is believed only as far as it can be true, and counted once."""

import sqlite3
import threading
import time
from pathlib import Path

import pytest
from otlp_samples import PROTOBUF, new_span, request_of

from traces.errors import BusyError, MalformedError
from traces.receiver import Receiver, Told
from traces.store import Store, StoreSettings


def test_a_recorders_spans_are_checked_when_they_are_indexed_and_bad_ones_are_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db")
    good, bad = new_span(), new_span()
    bad.trace_id = b"short"
    body = request_of(good, bad, new_span()).SerializeToString()
    answer = Receiver(store).take(body, PROTOBUF, told=Told(recorded=3))
    assert (answer.accepted, answer.rejected) == (3, 0)
    store.catch_up()
    stats = store.stats()
    assert (stats["spans"], stats["rejected"], stats["duplicates"], stats["pending"]) == (2, 1, 0, 0)
    store.close()


def test_bytes_of_a_recorder_that_cannot_be_read_are_counted_and_the_next_request_is_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "traces.db")
    receiver = Receiver(store)
    receiver.take(b"\xff" * 100, PROTOBUF, told=Told(recorded=3))
    receiver.take(request_of(new_span()).SerializeToString(), PROTOBUF)
    store.catch_up()
    assert (store.stats()["spans"], store.stats()["rejected"]) == (1, 3)
    assert "3 spans of a recorder cannot be read" in caplog.text
    store.close()


@pytest.mark.parametrize("recorded", [0, 5, 10**15])
def test_a_count_that_cannot_be_true_is_not_believed(tmp_path: Path, recorded: int) -> None:
    store = Store(tmp_path / "traces.db")
    with pytest.raises(MalformedError):
        Receiver(store).take(b"\xff" * 100, PROTOBUF, told=Told(recorded=recorded))
    assert (store.stats()["refused_requests"], store.stats()["pending"]) == (1, 0)
    store.close()


@pytest.mark.parametrize("said", ["", "-1", "x", "9" * 5000, "٣", "1.5"])
def test_a_header_that_is_no_number_says_nothing(said: str) -> None:
    assert Told.by(lambda _: said) == Told()


def test_dropped_spans_are_counted_when_the_request_is_taken_not_at_each_attempt(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db", StoreSettings(pending_spans=1, room_seconds=0.05))
    receiver, told = Receiver(store), Told(recorded=1, dropped=7)
    body = request_of(new_span()).SerializeToString()
    lock = sqlite3.connect(store.path)
    lock.execute("BEGIN IMMEDIATE")
    receiver.take(request_of(new_span()).SerializeToString(), PROTOBUF)
    for _ in range(3):
        with pytest.raises(BusyError):
            receiver.take(body, PROTOBUF, told=told)
    lock.rollback()
    lock.close()
    store.catch_up()
    receiver.take(body, PROTOBUF, told=told)
    assert store.stats()["dropped"] == 7
    store.close()


def test_what_a_request_waited_for_its_turn_counts_to_its_limit(tmp_path: Path) -> None:
    """Requests are taken one after the other: four senders to a full store would wait one, two, three, four limits."""
    store = Store(tmp_path / "traces.db", StoreSettings(pending_spans=1, room_seconds=1.0))
    receiver = Receiver(store)
    lock = sqlite3.connect(store.path)
    lock.execute("BEGIN IMMEDIATE")
    receiver.take(request_of(new_span()).SerializeToString(), PROTOBUF)
    began, turn, refused = time.monotonic(), threading.Lock(), []

    def send() -> None:
        arrived = time.monotonic()
        with turn, pytest.raises(BusyError):
            receiver.take(request_of(new_span()).SerializeToString(), PROTOBUF, told=Told(arrived=arrived))
        refused.append(time.monotonic() - began)

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    lock.rollback()
    lock.close()
    assert len(refused) == 4
    assert max(refused) < 2 * min(refused)
    store.close()
