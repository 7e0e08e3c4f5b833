"""Producing, fetching and listing against a real cluster."""

import time
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from confluent_kafka.admin import AdminClient

from rafka_lab import Kafka, Lab, LabError
from rafka_lab.errors import UnknownTopicError

MANY = 100_000


def test_what_is_produced_is_fetched_with_all_that_belongs_to_it(shared_lab: Lab, topic: str) -> None:
    moment = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    rows = [
        {"key": "k", "value": "v", "headers": [("h", b"1"), ("h", None)], "partition": 1, "timestamp": moment},
        {"value": b"\xff\x00", "partition": 1},
        {"key": "only", "partition": 1},
    ]
    sent = shared_lab.produce(topic, rows)
    assert sent["offset"].tolist() == [0, 1, 2]
    assert sent["partition"].tolist() == [1, 1, 1]
    fetched = shared_lab.fetch(topic)
    assert fetched["value"].tolist() == ["v", b"\xff\x00", None]
    assert fetched["key"].tolist() == ["k", None, "only"]
    assert fetched["headers"].tolist() == [[("h", b"1"), ("h", None)], [], []]
    assert fetched["timestamp"].iloc[0] == moment
    assert fetched["trace_id"].tolist() == sent["trace_id"].tolist()
    assert len(sent["trace_id"].iloc[0]) == 32


def test_records_of_all_partitions_come_in_order(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, [(f"k{number}", str(number)) for number in range(500)])
    fetched = shared_lab.fetch(topic)
    assert sorted(fetched["value"].astype(int)) == list(range(500))
    assert set(fetched["partition"]) == {0, 1}
    assert fetched[["partition", "offset"]].equals(
        fetched[["partition", "offset"]].sort_values(["partition", "offset"])
    )
    assert shared_lab.fetch(topic, partitions=[1])["partition"].unique().tolist() == [1]


def test_where_to_start_and_where_to_stop(shared_lab: Lab, topic: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    shared_lab.produce(
        topic,
        [{"value": str(n), "partition": 0, "timestamp": start + timedelta(minutes=n)} for n in range(10)],
    )

    def values(**options: object) -> list[int]:
        return shared_lab.fetch(topic, **options)["value"].astype(int).tolist()  # type: ignore[arg-type]

    assert values() == list(range(10))
    assert values(offset=7) == [7, 8, 9]
    assert values(offset=-2) == [8, 9]
    assert values(offset=-99) == list(range(10))
    assert values(offset=start + timedelta(minutes=6)) == [6, 7, 8, 9]
    assert values(offset=start + timedelta(days=1)) == []
    assert values(offset="end") == []
    assert values(count=3) == [0, 1, 2]
    assert values(offset=5, count=2) == [5, 6]
    assert values(count=0) == []


def test_a_fetched_frame_can_be_produced_again(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, [("a", "1"), ("b", "2")])
    fetched = shared_lab.fetch(topic)
    shared_lab.produce(f"{topic}-copy", fetched)
    again = shared_lab.fetch(f"{topic}-copy")
    same = ["partition", "timestamp", "key", "value"]
    assert again[same].equals(fetched[same])


def test_values_stay_bytes_where_that_is_asked_for(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, "text")
    assert shared_lab.fetch(topic, text=False)["value"].tolist() == [b"text"]


def test_topics_and_their_records_are_listed(shared_lab: Lab, topic: str) -> None:
    shared_lab.create_topic(topic, partitions=3)
    shared_lab.produce(topic, ["a", "b", "c"])
    found = shared_lab.topics().set_index("topic").loc[topic]
    assert (found["partitions"], found["records"]) == (3, 3)
    assert isinstance(shared_lab.admin, AdminClient)
    with pytest.raises(LabError, match=f"{topic}.*exists already"):
        shared_lab.create_topic(topic)


def test_an_unknown_topic_is_named_with_those_that_are_there(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, "x")
    with pytest.raises(UnknownTopicError, match=f"no topic 'nowhere'.*{topic}"):
        shared_lab.fetch("nowhere")
    with pytest.raises(UnknownTopicError, match="partitions 0 to 1, no 7"):
        shared_lab.fetch(topic, partitions=[7])


def test_what_cannot_be_asked_for_is_said(shared_lab: Lab, topic: str) -> None:
    shared_lab.produce(topic, "x")
    with pytest.raises(LabError, match="'middle'"):
        shared_lab.fetch(topic, offset="middle")
    with pytest.raises(LabError, match="count is -1"):
        shared_lab.fetch(topic, count=-1)
    with pytest.raises(LabError, match="does not take these settings"):
        shared_lab.produce(topic, "x", compression="zip")


def test_a_cluster_that_is_not_there_is_said_in_one_sentence() -> None:
    kafka = Kafka("127.0.0.1:1", timeout=1)
    for ask in (kafka.topics, lambda: kafka.fetch("t")):
        with pytest.raises(LabError, match=r"no Kafka answers at 127\.0\.0\.1:1"):
            ask()
    with pytest.raises(LabError, match="1 of 1 records were not acknowledged"):
        kafka.produce("t", "x")


def test_a_record_that_is_too_large_fails_alone_and_by_name(shared_lab: Lab, topic: str) -> None:
    with pytest.raises(LabError, match=r"1 of 1 records were not acknowledged.*[Mm]essage size"):
        shared_lab.produce(topic, "x" * 5_000_000, config={"message.max.bytes": "10000000"})


def test_a_hundred_thousand_records_become_a_frame_fast(shared_lab: Lab, topic: str) -> None:
    sent = shared_lab.produce(topic, [b"%0100d" % number for number in range(MANY)])
    begun = time.perf_counter()
    fetched = shared_lab.fetch(topic)
    seconds = time.perf_counter() - begun
    assert len(sent) == len(fetched) == MANY
    assert sorted(fetched["value"].astype(int)) == list(range(MANY))
    assert fetched["trace_id"].notna().all()
    # 0.5 to 0.8 s were measured on two quiet cores; the goal is 1.5 s, and others may be at work here.
    assert seconds < 15, f"{seconds:.2f} s"


def test_a_stopped_lab_says_what_to_do() -> None:
    lab = Lab()
    for ask in (lambda: lab.produce("t", "x"), lambda: lab.fetch("t"), lab.topics, lambda: lab.wal, lambda: lab.traces):
        with pytest.raises(LabError, match=r"start\(\) it first"):
            ask()


def test_an_empty_topic_is_an_empty_frame(shared_lab: Lab, topic: str) -> None:
    shared_lab.create_topic(topic)
    fetched = shared_lab.fetch(topic)
    assert fetched.empty
    assert list(fetched.columns) == ["partition", "offset", "timestamp", "key", "value", "headers", "trace_id"]
    assert isinstance(fetched["timestamp"].dtype, pd.DatetimeTZDtype)
