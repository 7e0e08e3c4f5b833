"""Traces of a real cluster: whole chains from any client, one trace a request, sampling, a collector that dies."""

import functools
import json
import re
import socket
import struct
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
)

from nodes.mesh import OpCode, Status
from rafka_lab import Lab, LabError
from traces import names
from traces.client import JaegerClient
from traces.model import Span, Trace
from wal import WalReader
from wal.entry import Kind

PATIENCE = 20.0  # a safety limit: the machine may be busy
SPANS = len(names.PRODUCE_CHAIN)
REQUESTS = 10_000
IN_FLIGHT = 100
SAMPLED_REQUESTS = 1500
NO_TRACE = bytes(16)
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ONE_RECORD_A_REQUEST = {"linger.ms": 0, "batch.num.messages": 1}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as running:
        yield running


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def produce(lab: Lab, topic: str, count: int = 1, partition: int = 0, **config: Any) -> list[KafkaError]:
    """Sends records and waits for the acks; the errors."""
    errors: list[KafkaError] = []
    settings = {"bootstrap.servers": lab.bootstrap, "log_level": 0, "message.timeout.ms": 20_000}
    producer = Producer(settings | {key.replace("_", "."): value for key, value in config.items()})

    def acked(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            errors.append(error)

    for _ in range(count):
        producer.produce(topic, b"v" * 100, partition=partition, headers={"traceparent": PARENT}, on_delivery=acked)
    assert producer.flush(PATIENCE) == 0
    return errors


def trace_ids(lab: Lab, broker: str = "broker-0") -> list[str]:
    """Of all data entries in a broker's log."""
    reader = WalReader(lab.data / broker / "data")
    return [entry.header.trace_id.hex() for entry in reader.entries() if entry.header.kind == Kind.DATA]


def find(lab: Lab, operation: str, topic: str, spans: int = SPANS, service: str = "rafka-broker") -> Trace:
    client = JaegerClient(lab.traces_url)

    def whole() -> Trace | None:
        found = client.search(service, operation, {names.KAFKA_TOPIC: topic})
        return found[0] if found and len(found[0]) >= spans else None

    trace: Trace = until(whole, f"no trace of {operation} with {spans} spans for {topic}")
    return trace


def stats(lab: Lab) -> dict[str, int]:
    with urllib.request.urlopen(f"{lab.traces_url}/api/stats", timeout=20) as answer:
        found: dict[str, int] = json.loads(answer.read())
    return found


def summaries(lab: Lab, operation: str, limit: int) -> list[dict[str, Any]]:
    now = time.time()
    times = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment)) for moment in (now - 3600, now + 60)]
    question = "&".join(
        (
            "query.service_name=rafka-gateway",
            f"query.operation_name={operation}",
            f"query.start_time_min={times[0]}",
            f"query.start_time_max={times[1]}",
            f"query.num_traces={limit}",
        )
    )
    with urllib.request.urlopen(f"{lab.traces_url}/api/v3/trace-summaries?{question}", timeout=30) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["summaries"]
    return found


def by_kcat(lab: Lab, topic: str, program: Callable[[str], str]) -> None:
    subprocess.run([program("kcat"), "-P", "-b", lab.bootstrap, "-t", topic], input=b"v\n", check=True, timeout=30)


def by_confluent_kafka(lab: Lab, topic: str, program: Callable[[str], str]) -> None:
    assert produce(lab, topic) == []


def by_the_labs_client(lab: Lab, topic: str, program: Callable[[str], str]) -> None:
    sent = lab.produce(topic, ["v"])
    lab.traces.of(sent.iloc[0]).assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)


# Chains


@pytest.mark.parametrize("send", [by_kcat, by_confluent_kafka, by_the_labs_client])
def test_a_produce_leaves_seven_spans_in_one_trace_and_its_id_in_the_log(
    lab: Lab, program: Callable[[str], str], send: Callable[[Lab, str, Callable[[str], str]], None]
) -> None:
    topic = f"produced-{send.__name__}"
    send(lab, topic, program)
    newest = trace_ids(lab)[-1]
    trace = JaegerClient(lab.traces_url).trace(newest, wait=PATIENCE, spans=SPANS)
    trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)
    assert not trace.errors
    assert trace.services == {"rafka-broker": 3, "rafka-gateway": 4}
    request, store = trace.find(names.GATEWAY_REQUEST)[0].attributes, trace.find(names.PRODUCE_STORE)[0].attributes
    for attributes in (request, store):
        assert (attributes[names.KAFKA_TOPIC], attributes[names.KAFKA_PARTITION]) == (topic, 0)
        assert (attributes[names.MESSAGING_DESTINATION], attributes[names.MESSAGING_PARTITION]) == (topic, "0")
        assert (attributes[names.MESSAGING_SYSTEM], attributes[names.MESSAGING_OPERATION_NAME]) == ("kafka", "produce")
        assert attributes[names.MESSAGING_OPERATION_TYPE] == "send"
    assert request[names.MESSAGING_CLIENT_ID] == "rdkafka"
    assert (store[names.MESSAGING_OFFSET], store[names.MESSAGING_BATCH_COUNT]) == (0, 1)
    kafka_ops = (names.MESH_SENT, names.MESH_HANDLE, names.ACK, names.ACK_RECEIVED)
    ops = [trace.find(name)[0].attributes for name in kafka_ops]
    for name in (names.MESH_OP_CODE, names.MESH_ORG_ID, names.MESH_REQUEST_ID):
        assert len({attributes[name] for attributes in ops}) == 1
    assert ops[0][names.MESH_OP_CODE] == OpCode.PRODUCE
    assert trace.find(names.ACK)[0].attributes[names.MESH_STATUS] == Status.OK
    connect = _connect(trace).attributes
    assert connect[names.MESSAGING_CLIENT_ID] == "rdkafka"
    assert connect[names.CONNECTION_PEER].startswith("127.0.0.1:")
    assert connect[names.CONNECTION_ID] > 0
    assert connect[names.CONNECTION_AGE_MS] >= 0


def test_a_fetch_leaves_its_chain(lab: Lab) -> None:
    lab.produce("fetched", ["a", "b"])
    lab.fetch("fetched")
    client = JaegerClient(lab.traces_url)

    def with_records() -> Trace | None:
        found = client.search("rafka-broker", names.FETCH_READ, {names.KAFKA_TOPIC: "fetched"})
        full = [trace for trace in found if trace.find(names.FETCH_READ)[0].attributes[names.MESSAGING_BODY_SIZE]]
        return full[0] if full and len(full[0]) >= SPANS else None

    trace: Trace = until(with_records, "no fetch that read records")
    trace.assert_chain(names.FETCH_CHAIN, names.FETCH_PARENTS)
    request, read = trace.find(names.GATEWAY_REQUEST)[0].attributes, trace.find(names.FETCH_READ)[0].attributes
    for attributes in (request, read):
        assert (attributes[names.KAFKA_TOPIC], attributes[names.KAFKA_PARTITION]) == ("fetched", 0)
        assert (attributes[names.MESSAGING_DESTINATION], attributes[names.MESSAGING_PARTITION]) == ("fetched", "0")
    assert trace.find(names.ACK)[0].attributes[names.MESH_STATUS] == Status.OK
    assert (read[names.MESSAGING_BATCH_COUNT], read[names.MESSAGING_OPERATION_TYPE]) == (2, "receive")


def test_every_other_op_has_its_chain(lab: Lab) -> None:
    admin = lab.admin
    resource = ConfigResource(ConfigResource.Type.TOPIC, "ops")
    change = ConfigEntry("retention.ms", "100000", incremental_operation=AlterConfigOpType.SET)
    changing = ConfigResource(ConfigResource.Type.TOPIC, "ops", incremental_configs=[change])
    end = {TopicPartition("ops", 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]

    def wait(futures: dict[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(PATIENCE)

    lab.create_topic("ops", 1)
    assert produce(lab, "ops", enable_idempotence=True) == []
    wait(admin.list_offsets(end))
    wait(admin.describe_configs([resource]))
    wait(admin.incremental_alter_configs([changing]))
    wait(admin.create_partitions([NewPartitions("ops", 2)]))
    wait(admin.delete_records([TopicPartition("ops", 0, 1)]))
    wait(admin.delete_topics(["ops"]))
    for operation in (
        names.CREATE_TOPICS_STORE,
        names.METADATA_READ,
        names.LIST_OFFSETS_READ,
        names.CREATE_PARTITIONS_STORE,
        names.DELETE_RECORDS_STORE,
        names.DELETE_TOPICS_STORE,
    ):
        find(lab, operation, "ops").assert_chain(names.op_chain(operation), names.parents_of(operation))
    client = JaegerClient(lab.traces_url)
    for operation in (names.INIT_PRODUCER_ID_STORE, names.DESCRIBE_CONFIGS_READ, names.ALTER_CONFIGS_STORE):
        [trace] = until(functools.partial(client.search, "rafka-broker", operation), operation)
        whole = client.trace(trace.trace_id, wait=PATIENCE, spans=SPANS)
        whole.assert_chain(names.op_chain(operation), names.parents_of(operation))
        assert not whole.errors
    api_versions = client.search("rafka-gateway", tags={names.MESSAGING_OPERATION_NAME: "api_versions"})
    api_versions[0].assert_chain(names.LOCAL_CHAIN)


def test_several_brokers_share_a_trace() -> None:
    with Lab(brokers=2) as lab:
        lab.create_topic("spread", 2)
        made = find(lab, names.CREATE_TOPICS_STORE, "spread", spans=2 * SPANS - 2)
        assert [span.name for span in made.children(made.find(names.GATEWAY_REQUEST)[0])] == [names.MESH_SENT] * 2
        assert [span.name for span in made.spans if span.name.startswith("broker.")] == [
            names.CREATE_TOPICS_STORE,
            names.SYNC_TOPICS_STORE,
        ]
        assert len(made.roots) == 1
        nodes = set()
        for partition in (0, 1):
            assert produce(lab, "spread", partition=partition) == []
            ids = trace_ids(lab, f"broker-{partition}")
            trace = JaegerClient(lab.traces_url).trace(ids[-1], wait=PATIENCE, spans=SPANS)
            trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)
            nodes.add(trace.find(names.PRODUCE_STORE)[0].resource["rafka.node"])
        assert nodes == {"broker-0", "broker-1"}
        # A peer that is down: the call found no way to it, and says so.
        lab.nodes["broker-1"].kill()
        errors = produce(lab, "spread", partition=1, message_timeout_ms=1500)
        assert [error.code() for error in errors] == [KafkaError._MSG_TIMED_OUT]
        client = JaegerClient(lab.traces_url)
        failed: list[Trace] = until(
            lambda: client.search("rafka-gateway", names.MESH_SENT, {"error": True}), "no failed call"
        )
        assert all(_failed_at(trace, names.MESH_SENT, names.GATEWAY_REQUEST) for trace in failed)
        assert any("is down" in trace.find(names.MESH_SENT)[0].status for trace in failed)


def _failed_at(trace: Trace, *wanted: str) -> bool:
    return {span.name for span in trace.errors} == set(wanted) and len(trace.roots) == 1


def test_a_refused_batch_is_an_error_of_its_spans(lab: Lab) -> None:
    lab.create_topic("narrow", config={"max.message.bytes": "50"})
    assert [error.code() for error in produce(lab, "narrow")] == [KafkaError.MSG_SIZE_TOO_LARGE]
    trace = find(lab, names.PRODUCE_STORE, "narrow")
    trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)
    assert _failed_at(trace, names.PRODUCE_STORE, names.GATEWAY_REQUEST)
    store = trace.find(names.PRODUCE_STORE)[0]
    assert store.attributes[names.KAFKA_ERROR_CODE] == KafkaError.MSG_SIZE_TOO_LARGE
    assert "max.message.bytes" in store.status


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_a_traceparent_header_becomes_a_link(lab: Lab, codec: str) -> None:
    assert produce(lab, f"linked-{codec}", compression_type=codec) == []
    trace = find(lab, names.PRODUCE_STORE, f"linked-{codec}")
    [link] = trace.find(names.PRODUCE_STORE)[0].links
    assert (link.trace_id, link.span_id) == (PARENT.split("-")[1], PARENT.split("-")[2])


# One trace a request


def test_a_long_lived_client_does_not_make_one_giant_trace() -> None:
    request = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # ApiVersions 0, without a client id
    with Lab() as lab:
        host, _, port = lab.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as client, client.makefile("rb") as answers:
            for _ in range(REQUESTS // IN_FLIGHT):
                client.sendall(request * IN_FLIGHT)
                for _ in range(IN_FLIGHT):
                    (size,) = struct.unpack(">i", answers.read(4))
                    assert len(answers.read(size)) == size
        until(lambda: stats(lab)["spans"] >= 2 * REQUESTS, "not all spans came")
        assert stats(lab)["traces"] == REQUESTS
        assert stats(lab)["dropped"] == 0
        newest = JaegerClient(lab.traces_url).search("rafka-gateway", names.GATEWAY_CONNECT, limit=50)
        assert {len(trace) for trace in newest} == {2}
        [first] = JaegerClient(lab.traces_url).search("rafka-gateway", tags={names.CONNECTION_REQUEST_NUMBER: 1})
        accepted = _connect(first)
        assert accepted.attributes[names.CONNECTION_REUSED] is False
        assert accepted.links == ()
        ids = {_connect(trace).attributes[names.CONNECTION_ID] for trace in (first, *newest)}
        assert len(ids) == 1
        for trace in newest:
            connect = _connect(trace)
            assert connect.attributes[names.CONNECTION_REUSED] is True
            assert [(link.trace_id, link.span_id) for link in connect.links] == [(first.trace_id, accepted.span_id)]


def _connect(trace: Trace) -> Span:
    [span] = trace.find(names.GATEWAY_CONNECT)
    return span


def test_a_share_of_requests_is_traced_and_each_as_a_whole() -> None:
    with Lab(trace_ratio=0.1) as lab:
        assert produce(lab, "sampled", SAMPLED_REQUESTS, **ONE_RECORD_A_REQUEST) == []
        traced = {trace_id for trace_id in trace_ids(lab) if bytes.fromhex(trace_id) != NO_TRACE}
        # 150 on average; outside of these is less likely than once in 10^9 runs.
        assert 75 < len(traced) < 235
        summary = {
            found["traceId"]: found["spanCount"]
            for found in until(
                lambda: _whole(summaries(lab, names.MESH_SENT, SAMPLED_REQUESTS), traced), "traces are not whole"
            )
        }
        assert {summary[trace_id] for trace_id in traced} == {SPANS}


def _whole(found: list[dict[str, Any]], wanted: set[str]) -> list[dict[str, Any]]:
    return found if sum(one["traceId"] in wanted and one["spanCount"] == SPANS for one in found) == len(wanted) else []


def test_without_tracing_there_is_no_collector_and_no_trace_id() -> None:
    with Lab(trace_ratio=0) as lab:
        assert list(lab.nodes) == ["broker-0", "gateway"]
        assert lab.traces_url == ""
        assert produce(lab, "plain") == []
        assert trace_ids(lab) == [NO_TRACE.hex()]


# A collector that is not there


def test_a_dead_collector_never_slows_or_fails_a_produce_and_what_is_lost_is_counted() -> None:
    small = {"OTEL_BSP_MAX_QUEUE_SIZE": "256", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "64"}
    with Lab(environment=small) as lab:
        with_collector = _seconds(lambda: produce(lab, "t", 300, **ONE_RECORD_A_REQUEST))
        lab.nodes["collector"].kill()
        without = _seconds(lambda: produce(lab, "t", 300, **ONE_RECORD_A_REQUEST))
        # One wait for the collector anywhere on the way would be 100 ms a request.
        assert without < 5 * with_collector + 5
        lab.nodes["collector"].start()
        # What waits fills the queues until the first attempt that succeeds.
        client = JaegerClient(lab.traces_url)
        until(lambda: produce(lab, "back") or _found(client, "back"), "a collector that is back gets no spans")
        assert until(lambda: stats(lab)["dropped"], "the collector was not told") > 0
        for name in ("gateway", "broker-0"):
            lab.nodes[name].stop()
            said = re.search(r"WARNING nodes.process: spans: (\d+) sent, (\d+) dropped", lab.nodes[name].logs())
            assert said is not None
            assert min(int(said[1]), int(said[2])) > 0


def _found(client: JaegerClient, topic: str) -> bool:
    found = client.search("rafka-broker", names.PRODUCE_STORE, {names.KAFKA_TOPIC: topic})
    return any(len(trace) == SPANS for trace in found)


def _seconds(send: Callable[[], list[KafkaError]]) -> float:
    started = time.perf_counter()
    assert send() == []
    return time.perf_counter() - started


# A real Jaeger


@pytest.mark.parametrize("name", ["jaeger", "jaeger-all-in-one"])
def test_a_real_jaeger_keeps_the_traces_instead(
    name: str, program: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kcat = program("kcat")
    (tmp_path / name).symlink_to(program(name))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAEGER_URL", raising=False)
    with Lab(jaeger="auto") as lab:
        assert list(lab.nodes) == ["broker-0", "gateway", "jaeger"]
        for send in (by_kcat, by_confluent_kafka, by_the_labs_client):
            send(lab, "orders", lambda _: kcat)
            trace = JaegerClient(lab.traces_url).trace(trace_ids(lab)[-1], wait=PATIENCE, spans=SPANS)
            trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)
        lab.traces.last("produce").assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)
        # The same lab's Jaeger, as one that somebody else runs.
        with Lab(jaeger=lab.traces_url, environment={"OTEL_EXPORTER_OTLP_ENDPOINT": _otlp(lab)}) as other:
            assert list(other.nodes) == ["broker-0", "gateway"]
            by_kcat(other, "others", lambda _: kcat)
            trace = JaegerClient(other.traces_url).trace(trace_ids(other)[-1], wait=PATIENCE, spans=SPANS)
            trace.assert_chain(names.PRODUCE_CHAIN, names.PRODUCE_PARENTS)


def _otlp(lab: Lab) -> str:
    return str(lab.nodes["jaeger"].ready["otlp"])


def test_without_a_jaeger_auto_is_the_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAEGER_URL", raising=False)
    with Lab(jaeger="auto") as lab:
        assert list(lab.nodes) == ["broker-0", "gateway", "collector"]
    with pytest.raises(LabError, match="auto"):
        Lab(jaeger="yes")


def test_topics_that_are_not_there_are_an_error_of_the_request(lab: Lab) -> None:
    with pytest.raises(KafkaException):
        lab.admin.delete_topics(["absent"])["absent"].result(PATIENCE)
    trace = find(lab, names.DELETE_TOPICS_STORE, "absent")
    assert _failed_at(trace, names.DELETE_TOPICS_STORE, names.GATEWAY_REQUEST)
