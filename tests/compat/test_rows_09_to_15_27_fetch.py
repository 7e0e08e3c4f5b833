"""Rows 9 to 15 and 27 of KAFKA-PITFALLS.md: what a consumer gets, and when."""

import datetime
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kcat_program import Kcat
from raw_client import RawClient, schema
from reading import high_watermark, read_all, watermarks

from rafka_lab import Lab
from wal.batch import parse_header


def produce(bootstrap: str, topic: str, values: list[bytes], **options: Any) -> None:
    """One batch, if the options do not say otherwise."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 200, **options})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def fetch_request(version: int, topic: Any, partitions: dict[int, int], **fields: Any) -> Any:
    """A Fetch from these offsets; `topic` is a name, or an id from version 13 on."""
    module = schema("fetch", version, "request")
    items = tuple(
        module.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=fields.pop("limit", 1 << 20))
        for number, offset in partitions.items()
    )
    named = {"topic_id": topic} if version >= 13 else {"topic": topic}
    given = {"max_wait": datetime.timedelta(milliseconds=100), "min_bytes": 1} | fields
    if version >= 7:
        given["forgotten_topics_data"] = ()
    return module.FetchRequest(topics=(module.FetchTopic(partitions=items, **named),), **given)


def fetched(bootstrap: str, request: Any) -> Any:
    version = request.__version__
    with RawClient(bootstrap) as client:
        return client.ask(request, schema("fetch", version, "response").FetchResponse)


def test_row_09_an_offset_inside_a_batch_gets_the_whole_batch(bootstrap: str, kcat: Kcat, topic_name: str) -> None:
    produce(bootstrap, topic_name, [b"%d" % n for n in range(100)])
    out = kcat.run("-C", "-t", topic_name, "-p", "0", "-o", "57", "-c", "1", "-q", "-f", "%o %s\n").stdout
    assert out == b"57 57\n"
    answer = fetched(bootstrap, fetch_request(11, topic_name, {0: 57}))
    records = answer.responses[0].partitions[0].records
    assert parse_header(records).base_offset + parse_header(records).record_count > 57


def test_row_10_an_idle_consumer_asks_about_twice_a_second(kcat: Kcat, topic_name: str, bootstrap: str) -> None:
    produce(bootstrap, topic_name, [b"x"])
    seconds = 5
    process = subprocess.Popen(
        [*kcat.command, "-C", "-t", topic_name, "-p", "0", "-o", "end", "-d", "protocol"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        time.sleep(seconds)
    finally:
        process.terminate()
    said = process.communicate(timeout=20)[1].decode(errors="replace")
    answers = said.count("Received FetchResponse")
    assert 4 <= answers <= 2 * seconds + 4, f"{answers} fetches in {seconds} s"


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_row_10_a_long_poll_ends_at_max_wait_also_without_enough_bytes(
    bootstrap: str, new_topic: Callable[..., str], version: int
) -> None:
    topic = new_topic()
    produce(bootstrap, topic, [b"few bytes"])
    wait = datetime.timedelta(milliseconds=700)
    began = time.monotonic()
    answer = fetched(bootstrap, fetch_request(version, topic, {0: 0}, max_wait=wait, min_bytes=1_000_000))
    assert time.monotonic() - began >= 0.6
    assert answer.responses[0].partitions[0].records, "what there is comes at the end of the wait"


def test_row_10_a_long_poll_ends_when_records_come(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    wait = datetime.timedelta(seconds=30)
    with RawClient(bootstrap) as client:
        client.send(fetch_request(11, topic, {0: 0}, max_wait=wait))
        time.sleep(0.2)
        began = time.monotonic()
        produce(bootstrap, topic, [b"x"], **{"linger.ms": 0})
        answer = client.receive(schema("fetch", 11, "response").FetchResponse)
        assert time.monotonic() - began < 20
    assert answer.responses[0].partitions[0].records


def test_row_11_the_first_batch_comes_even_if_it_is_too_large(bootstrap: str, kcat: Kcat, topic_name: str) -> None:
    produce(bootstrap, topic_name, [b"x" * 500_000])
    assert kcat.consume(topic_name, "-X", "fetch.message.max.bytes=1000", form="%S") == ["500000"]
    answer = fetched(bootstrap, fetch_request(11, topic_name, {0: 0}, max_bytes=1000))
    assert len(answer.responses[0].partitions[0].records) > 500_000


def test_row_12_an_answer_holds_exactly_the_partitions_that_were_asked_for(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    produce(bootstrap, topic, [b"x"])
    answer = fetched(bootstrap, fetch_request(11, topic, {2: 0, 0: 0, 1: 0}, session_id=0, session_epoch=0))
    assert answer.session_id == 0
    found = {row.partition_index: len(row.records or b"") > 0 for row in answer.responses[0].partitions}
    assert found == {0: True, 1: False, 2: False}


@pytest.mark.parametrize(("session", "epoch", "code"), [(5, 3, 70), (0, 3, 71), (0, -1, 0), (0, 0, 0)])
def test_row_12_an_unknown_session_is_70_and_a_bad_epoch_71(
    bootstrap: str, new_topic: Callable[..., str], session: int, epoch: int, code: int
) -> None:
    request = fetch_request(11, new_topic(), {0: 0}, session_id=session, session_epoch=epoch)
    assert fetched(bootstrap, request).error_code == code


def test_row_13_acked_records_can_be_read_at_once_and_are_there_after_kill_9(kcat: Kcat, tmp_path: Path) -> None:
    with Lab(data=tmp_path / "data", trace_ratio=0) as lab:
        for n in range(20):
            produce(lab.bootstrap, "t", [b"%d" % n], **{"linger.ms": 0})
            assert high_watermark(lab.bootstrap, "t") == n + 1
        before = watermarks(lab.bootstrap, "t")
        lab.nodes["broker-0"].kill().start()
        assert watermarks(lab.bootstrap, "t") == before
        shown = kcat.run("-Q", "-t", "t:0:-1", bootstrap=lab.bootstrap).stdout.decode()
        assert "offset 20" in shown
        assert [m.value() for m in read_all(lab.bootstrap, "t", 20)] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize("offset", [-5, 2, 2**62])
def test_row_13_an_offset_out_of_range_is_error_1(bootstrap: str, new_topic: Callable[..., str], offset: int) -> None:
    topic = new_topic()
    produce(bootstrap, topic, [b"x"])
    (row,) = fetched(bootstrap, fetch_request(11, topic, {0: offset})).responses[0].partitions
    assert row.error_code == 1
    (row,) = fetched(bootstrap, fetch_request(11, topic, {0: 0})).responses[0].partitions
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (1, 1, 0)


def test_row_14_offsets_by_time(kcat: Kcat, bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": bootstrap})
    for offset, age in enumerate((5000, 3000, 4000, 1000)):
        producer.produce(topic, b"x", timestamp=now - age)
        assert producer.flush(20) == 0, offset

    def asked(timestamp: int) -> str:
        return kcat.run("-Q", "-t", f"{topic}:0:{timestamp}").stdout.decode().split("offset ")[1].strip()

    assert asked(-1) == "4"
    assert asked(-2) == "0"
    assert asked(now - 6000) == "0"
    assert asked(now - 4000) == "1", "the first offset whose time is at or after it, also if later ones are older"
    assert asked(now - 2999) == "3"
    assert asked(now) == "-1"


def test_row_14_max_timestamp_and_unknown_times(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": bootstrap})
    for age in (5000, 1000, 3000):
        producer.produce(topic, b"x", timestamp=now - age)
        assert producer.flush(20) == 0
    module = schema("list_offsets", 7, "request")

    def ask(timestamp: int) -> Any:
        partition = module.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = module.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=(module.ListOffsetsTopic(name=topic, partitions=(partition,)),),
        )
        with RawClient(bootstrap) as client:
            answer = client.ask(request, schema("list_offsets", 7, "response").ListOffsetsResponse)
        return answer.topics[0].partitions[0]

    assert (ask(-3).error_code, ask(-3).offset) == (0, 1)
    assert (ask(now + 1).error_code, ask(now + 1).offset) == (0, -1)


def test_row_15_epochs_agree_after_delete_and_recreate(bootstrap: str, admin: AdminClient, topic_name: str) -> None:
    for round_ in (b"first", b"second"):
        admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(20)
        produce(bootstrap, topic_name, [round_])
        assert [m.value() for m in read_all(bootstrap, topic_name, 1)] == [round_]
        metadata = schema("metadata", 9, "request")
        epochs = schema("offset_for_leader_epoch", 4, "request")
        with RawClient(bootstrap) as client:
            found = client.ask(
                metadata.MetadataRequest(
                    topics=(metadata.MetadataRequestTopic(name=topic_name),),
                    allow_auto_topic_creation=False,
                    include_cluster_authorized_operations=False,
                    include_topic_authorized_operations=False,
                ),
                schema("metadata", 9, "response").MetadataResponse,
            )
            epoch = found.topics[0].partitions[0].leader_epoch
            partition = epochs.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=epoch)
            ends = client.ask(
                epochs.OffsetForLeaderEpochRequest(
                    replica_id=-1,
                    topics=(epochs.OffsetForLeaderTopic(topic=topic_name, partitions=(partition,)),),
                ),
                schema("offset_for_leader_epoch", 4, "response").OffsetForLeaderEpochResponse,
            )
        row = ends.topics[0].partitions[0]
        assert (row.error_code, row.leader_epoch, row.end_offset) == (0, epoch, 1)
        admin.delete_topics([topic_name])[topic_name].result(20)


def test_row_27_a_consumer_notices_delete_and_recreate(bootstrap: str, admin: AdminClient, topic_name: str) -> None:
    """confluent-kafka fetches by topic id: the old one becomes unknown, and it must find the new one by itself."""
    admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(20)
    produce(bootstrap, topic_name, [b"old"] * 3)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    try:
        consumer.assign([TopicPartition(topic_name, 0, 0)])
        assert [_next(consumer) for _ in range(3)] == [b"old"] * 3
        admin.delete_topics([topic_name])[topic_name].result(20)
        admin.create_topics([NewTopic(topic_name, 1, 1)])[topic_name].result(20)
        produce(bootstrap, topic_name, [b"new 0"])
        assert _next(consumer) == b"new 0"
    finally:
        consumer.close()


def _next(consumer: Consumer) -> bytes | None:
    """The next record; errors that a consumer goes on after are waited out."""
    end = time.monotonic() + 40
    while time.monotonic() < end:
        message = consumer.poll(1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            return message.value()
        assert error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, 100), error
    raise AssertionError("no record came")


def test_row_27_an_unknown_topic_id_is_error_100(bootstrap: str) -> None:
    (row,) = fetched(bootstrap, fetch_request(13, uuid.uuid4(), {0: 0})).responses[0].partitions
    assert row.error_code == 100
