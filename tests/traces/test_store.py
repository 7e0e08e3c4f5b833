"""The store: duplicates, late spans, searches, retention by age and size, damaged and foreign files, restarts."""

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from otlp_samples import new_span, produce_requests, request_of

from traces import insert, otlp, rows
from traces.errors import BusyError, StoreError
from traces.http_query import V1Traces
from traces.reader import Reader
from traces.retention import Retention
from traces.rows import Group
from traces.schema import open_for_writing
from traces.search import TraceQuery
from traces.store import Store, StoreSettings

SECOND = 10**9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "traces.db")
    yield opened
    opened.close()


@pytest.fixture
def reader(store: Store) -> Iterator[Reader]:
    opened = Reader(store.path)
    yield opened
    opened.close()


def add(store: Store, *spans: Span, service: str = "sample") -> None:
    store.add(otlp.check_request(request_of(*spans, service=service)))
    store.catch_up()


def found(reader: Reader, **query: object) -> set[bytes]:
    numbers = reader.find(TraceQuery(**query))  # type: ignore[arg-type]
    return {trace.trace_id for trace in reader.traces(numbers)}


def tagged(key: str, value: str | int | bool, **fields: object) -> Span:
    span = new_span(**fields)  # type: ignore[arg-type]
    target = span.attributes.add(key=key).value
    if isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, int):
        target.int_value = value
    else:
        target.string_value = value
    return span


def test_a_span_sent_twice_is_stored_once_and_counted(store: Store, reader: Reader) -> None:
    span = new_span()
    add(store, span, span)
    add(store, span)
    trace = reader.traces(reader.find(TraceQuery(service="sample")))[0]
    assert [len(spans) for _, spans in trace.groups] == [1]
    assert (store.stats()["spans"], store.stats()["duplicates"]) == (1, 2)


def test_a_late_span_joins_its_trace_and_is_counted(store: Store, reader: Reader) -> None:
    root = new_span("root")
    add(store, root)
    late = new_span("late", root.trace_id, root.span_id, start=time.time_ns() - 3600 * SECOND)
    add(store, late)
    assert store.stats()["late"] == 1
    summary = reader.summaries(reader.find(TraceQuery(service="sample")))[0]
    assert (summary.spans, summary.root_operation) == (2, "root")
    assert summary.start == late.start_time_unix_nano


def test_missing_parents_are_counted_as_orphans(store: Store, reader: Reader) -> None:
    add(store, new_span("lonely", parent=b"absentee"))
    summary = reader.summaries(reader.find(TraceQuery(service="sample")))[0]
    assert (summary.orphans, summary.root_operation) == (1, "lonely")


def test_a_span_that_ends_before_it_starts_is_kept_with_no_duration(store: Store, reader: Reader) -> None:
    span = new_span(length=-5000)
    add(store, span)
    assert found(reader, service="sample", max_duration=0) == {span.trace_id}


def test_searches_find_what_fits_and_nothing_else(store: Store, reader: Reader) -> None:
    now = time.time_ns()
    a = tagged("topic", "orders", name="produce", start=now - 50 * SECOND, length=5_000_000)
    b = tagged("topic", "orders", name="fetch", start=now - 40 * SECOND, length=1000)
    c = tagged("partition", 3, name="produce", start=now - 30 * SECOND, length=2000)
    c.status.code = 2
    c.events.add(name="retry").attributes.add(key="attempt").value.int_value = 2
    other = tagged("topic", "orders", name="produce", start=now)
    add(store, a, b, c)
    add(store, other, service="another")
    ids = [span.trace_id for span in (a, b, c)]
    assert found(reader, service="sample") == set(ids)
    assert found(reader, service="nobody") == set()
    assert found(reader, service="sample", operation="produce") == {ids[0], ids[2]}
    assert found(reader, service="sample", operation="absent") == set()
    assert found(reader, service="sample", tags={"topic": "orders"}) == {ids[0], ids[1]}
    assert found(reader, service="sample", tags={"topic": "orders"}, operation="fetch") == {ids[1]}
    assert found(reader, service="sample", tags={"topic": "orders"}, min_duration=1_000_000) == {ids[0]}
    assert found(reader, service="sample", tags={"topic": "orders", "partition": "3"}) == set()
    assert found(reader, service="sample", tags={"partition": "3"}) == {ids[2]}
    assert found(reader, service="sample", tags={"error": "true"}) == {ids[2]}
    assert found(reader, service="sample", tags={"event": "retry", "attempt": "2"}) == {ids[2]}
    assert found(reader, service="sample", tags={"span.kind": "internal"}) == set(ids)
    assert found(reader, service="sample", tags={"span.kind": "server"}) == set()
    assert found(reader, service="sample", tags={"otel.scope.name": "tests"}) == set(ids)
    assert found(reader, service="sample", min_duration=1500) == {ids[0], ids[2]}
    assert found(reader, service="sample", max_duration=1500) == {ids[1]}
    assert found(reader, service="sample", start=now - 45 * SECOND, end=now - 35 * SECOND) == {ids[1]}
    assert found(reader, service="sample", limit=1) == {ids[2]}
    assert found(reader, tags={"topic": "orders"}) == {ids[0], ids[1], other.trace_id}


def test_what_jaeger_shows_as_a_tag_is_found_as_one(store: Store, reader: Reader) -> None:
    span, other = new_span(), new_span()
    span.trace_state, span.status.code, span.status.message = "a=b", 2, "failed"
    request = request_of(span)
    scope = request.resource_spans[0].scope_spans[0].scope
    scope.version = "1.2"
    scope.attributes.add(key="part").value.string_value = "log"
    store.add(otlp.check_request(request))
    add(store, other)
    for key, value in (
        ("w3c.tracestate", "a=b"),
        ("otel.status_description", "failed"),
        ("otel.status_code", "ERROR"),
        ("otel.scope.version", "1.2"),
        ("part", "log"),
    ):
        assert found(reader, service="sample", tags={key: value}) == {span.trace_id}, key


def test_common_tags_are_found_by_time_and_rare_ones_by_trace(store: Store, reader: Reader) -> None:
    begin = time.time_ns() - 3600 * SECOND
    for body in produce_requests(2500, random.Random(5), begin):
        store.add(otlp.check(body))
    store.catch_up()
    everything = reader.find(TraceQuery(service="broker", tags={"messaging.system": "kafka"}, limit=10_000))
    assert len(everything) == 2500
    starts = [summary.start for summary in reader.summaries(everything[:50])]
    assert starts == sorted(starts, reverse=True)
    one = reader.traces(everything[1200:1201])[0]
    request_id = next(item for item in one.groups[0][1][0].attributes if item.key == "mesh.request_id").value.int_value
    assert found(reader, service="gateway", tags={"mesh.request_id": str(request_id)}) == {one.trace_id}
    assert reader.dependencies(0, 2**63 - 1) == [("broker", "gateway", 2500), ("gateway", "broker", 2500)]


def test_old_traces_go_whole_and_take_their_names_with_them(tmp_path: Path) -> None:
    moment = [1000.0]
    settings = StoreSettings(retention_hours=1, retention_seconds=0.05)
    store = Store(tmp_path / "traces.db", settings, clock=lambda: moment[0])
    reader = Reader(store.path)
    old, kept = tagged("k", "v", name="old"), new_span("kept")
    add(store, old, service="gone")
    moment[0] += 1800
    add(store, kept, service="stays")
    assert reader.services() == ["gone", "stays"]
    moment[0] += 1801
    deadline = time.monotonic() + 20
    while store.stats()["expired"] < 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert reader.services() == ["stays"]
    assert reader.trace_number(old.trace_id) is None
    assert found(reader, service="stays") == {kept.trace_id}
    # The numbers that were remembered are gone as well: the same service may come again.
    add(store, old, service="gone")
    assert found(reader, service="gone", tags={"k": "v"}) == {old.trace_id}
    reader.close()
    store.close()


def remove_all_when_asked(reader: Reader, path: Path, words: str) -> list[int]:
    """Retention removes everything when the reader comes to a statement with these words; how many spans went."""
    removed: list[int] = []

    def statement(text: str) -> None:
        if words in text and not removed:
            with closing(open_for_writing(path)) as connection:
                removed.append(Retention(connection).remove_received_before(2**63 - 1))

    reader._db.set_trace_callback(statement)
    return removed


@pytest.mark.parametrize("words", ["FROM spans", "FROM sources"])
def test_traces_that_are_removed_while_they_are_read_are_read_whole(store: Store, reader: Reader, words: str) -> None:
    now = time.time_ns()
    spans = [new_span(start=now - age) for age in range(3)]
    for at, span in enumerate(spans):
        add(store, span, service=f"service-{at}")
    numbers = reader.find(TraceQuery())
    removed = remove_all_when_asked(reader, store.path, words)
    assert [trace.trace_id for trace in reader.traces(numbers)] == [span.trace_id for span in spans]
    assert removed == [3]
    # The next question sees what is there.
    assert reader.traces(numbers) == []


def test_an_answer_is_one_moment_from_search_to_spans(store: Store, reader: Reader) -> None:
    add(store, new_span(), new_span())
    removed = remove_all_when_asked(reader, store.path, "SELECT trace_id")
    handler = V1Traces.__new__(V1Traces)
    handler.reader, handler.store = reader, store
    status, document = handler._answer_now({"service": ["sample"]})
    assert (status, len(document["data"]), removed) == (200, 2, [2])


def test_the_oldest_traces_go_when_the_store_is_too_large(tmp_path: Path) -> None:
    limit = 2_000_000
    store = Store(tmp_path / "traces.db", StoreSettings(max_bytes=limit, retention_seconds=0.05))
    reader = Reader(store.path)
    rng = random.Random(3)
    for round_number in range(6):
        for body in produce_requests(300, rng, time.time_ns() + round_number * SECOND):
            store.add(otlp.check(body))
        store.catch_up()
    deadline = time.monotonic() + 30
    while store.stats()["bytes"] > limit and time.monotonic() < deadline:
        time.sleep(0.02)
    stats = store.stats()
    assert stats["bytes"] <= limit
    assert stats["expired"] > 0
    assert stats["spans"] + stats["expired"] == 6 * 300 * 7
    newest = reader.summaries(reader.find(TraceQuery(service="gateway", limit=100)))
    assert all(summary.spans == 7 for summary in newest)
    reader.close()
    store.close()


def test_more_than_may_wait_is_refused_and_not_lost_silently(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db", StoreSettings(pending_spans=10, room_seconds=0.2))
    lock = sqlite3.connect(store.path)
    lock.execute("BEGIN IMMEDIATE")
    store.add(otlp.check_request(request_of(*(new_span() for _ in range(8)))))
    with pytest.raises(BusyError, match="send the same request again"):
        store.add(otlp.check_request(request_of(*(new_span() for _ in range(8)))))
    lock.rollback()
    lock.close()
    store.catch_up()
    assert (store.stats()["spans"], store.stats()["refused_requests"]) == (8, 1)
    store.close()


def test_a_sender_that_is_faster_than_the_tables_waits_and_loses_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db", StoreSettings(pending_spans=500))
    bodies = [body for seed in range(20) for body in produce_requests(50, random.Random(seed), time.time_ns())]
    for body in bodies:
        store.add(otlp.check(body))
        assert store.stats()["pending"] <= 500
    store.catch_up()
    assert (store.stats()["spans"], store.stats()["refused_requests"]) == (20 * 50 * 7, 0)
    store.close()


def test_a_request_that_cannot_be_indexed_is_dropped_alone_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def groups_of(body: bytes) -> Iterator[Group]:
        if b"poison" in body:
            raise LookupError("our own mistake")
        return rows.groups_of(body)

    monkeypatch.setattr(insert, "groups_of", groups_of)
    store = Store(tmp_path / "traces.db")
    lock = sqlite3.connect(store.path)
    lock.execute("BEGIN IMMEDIATE")  # all of them then come into one transaction
    for name in ("before", "poison", "behind"):
        store.add(otlp.check_request(request_of(new_span(name), new_span(name))))
    lock.rollback()
    lock.close()
    store.catch_up()
    stats = store.stats()
    assert (stats["spans"], stats["rejected"], stats["pending"]) == (4, 2, 0)
    assert "a request of 2 spans cannot be indexed and is dropped" in caplog.text
    add(store, new_span("still at work"))
    assert store.stats()["spans"] == 5
    store.close()


def test_tables_that_cannot_grow_are_said_nothing_is_half_stored_or_lost_and_it_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "traces.db", StoreSettings(failure_seconds=0.05))
    reader = Reader(store.path)
    add(store, new_span())
    # SQLite's own limit gives the same error as a disk without room.
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count={pages}")
    spans = [tagged("payload", "x" * 5000) for _ in range(20)]
    add(store, *spans, service="kept")
    with pytest.raises(StoreError, match="full"):
        add(store, new_span(), service="refused")
    assert (store.stats()["spans"], store.stats()["received"], store.stats()["pending"]) == (1, 21, 20)
    assert reader.services() == ["sample"]
    store._connection.execute("PRAGMA max_page_count=1000000")
    deadline = time.monotonic() + 20
    while store.stats()["pending"] and time.monotonic() < deadline:
        store.catch_up()
    assert store.stats()["spans"] == 21
    assert found(reader, service="kept", limit=100) == {span.trace_id for span in spans}
    add(store, new_span(), service="taken")
    assert reader.services() == ["kept", "sample", "taken"]
    reader.close()
    store.close()


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path / "traces.db")
    span = tagged("k", 1)
    add(store, span)
    store.close()
    again = Store(tmp_path / "traces.db")
    reader = Reader(again.path)
    add(again, new_span("child", span.trace_id, span.span_id))
    assert again.stats()["spans"] == 2
    assert [summary.spans for summary in reader.summaries(reader.find(TraceQuery(tags={"k": "1"})))] == [2]
    reader.close()
    again.close()


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\x00" + bytes(4080)])
def test_a_damaged_file_is_refused_with_a_way_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "traces.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"move the file away|name another"):
        Store(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (text)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="another program"):
        Store(path)


def test_a_store_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    store = Store(path)
    add(store, new_span())
    store.close()
    connection = sqlite3.connect(path)
    connection.executescript("DROP TABLE inbox; PRAGMA user_version=1;")
    connection.close()
    again = Store(path)
    add(again, new_span())
    assert again.stats()["spans"] == 2
    again.close()


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="version 99"):
        Store(path)


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="--store"):
        Store(tmp_path / "absent" / "traces.db")
