"""One connection's life: order of answers, acks=0, long polls, back-pressure, and bad input of every kind."""

import random
import socket
import struct
import time
import uuid
from collections.abc import Iterator

import psutil
import pytest
from gateway_cluster import Cluster
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka_wire import Client, batch, create, decode, produce_request

from nodes.kafka import APIS, MAX_REQUEST_BYTES

VERSIONS_REQUEST = ApiVersionsRequest(client_software_name="tests", client_software_version="1")


@pytest.fixture
def client(gateway: Cluster) -> Iterator[Client]:
    with Client(gateway.port) as connection:
        yield connection


def fetch(topic: str, offsets: dict[int, int], **fields: int) -> FetchRequest:
    kind = FetchRequest.FetchTopic
    partitions = [
        kind.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1_000_000)
        for number, offset in offsets.items()
    ]
    settings = {"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1_000_000, "session_id": 0, "session_epoch": -1}
    return FetchRequest(
        topics=[kind(topic=topic, partitions=partitions)], forgotten_topics_data=[], rack_id="", **settings | fields
    )


def is_alive(gateway: Cluster) -> bool:
    with Client(gateway.port) as client:
        return client.call(VERSIONS_REQUEST, 3).error_code == 0


def test_pipelined_requests_are_answered_in_their_order(client: Client) -> None:
    slow, quick = create(client, prefix="slow"), create(client)
    sent = []
    for number in range(10):
        sent.append(client.send(produce_request(slow if number % 2 else quick, 0, batch(b"x")), 9))
        sent.append(client.send(VERSIONS_REQUEST, 2))
        sent.append(client.send(MetadataRequest(topics=[]), 5))
    assert [client.receive()[0] for _ in sent] == sent


def test_produces_of_a_connection_keep_their_order(client: Client) -> None:
    topic = create(client)
    large = batch(bytes(300_000))
    requests = [produce_request(topic, 0, large if number % 3 == 0 else batch(b"x")) for number in range(60)]
    sent = [client.send(request, 9) for request in requests]
    offsets = []
    for number, request in zip(sent, requests, strict=True):
        correlation, data = client.receive()
        assert correlation == number
        offsets.append(decode(request, 9, data).responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(60))


def test_slow_produces_overlap(client: Client) -> None:
    """Each takes half a second at the broker; one after the other they would take five."""
    topic = create(client, prefix="slow")
    started = time.monotonic()
    for _ in range(10):
        client.send(produce_request(topic, 0, batch(b"x")), 9)
    for _ in range(10):
        client.receive()
    assert time.monotonic() - started < 4


def test_acks_0_has_no_answer_bytes(client: Client) -> None:
    topic = create(client)
    client.send(produce_request(topic, 0, batch(b"a"), acks=0), 9)
    acked = client.send(produce_request(topic, 0, batch(b"b"), acks=1), 9)
    correlation, data = client.receive()
    assert correlation == acked
    assert decode(produce_request(topic, 0, b""), 9, data).responses[0].partition_responses[0].base_offset == 1


def test_acks_0_records_are_kept_when_their_client_goes_at_once(gateway: Cluster) -> None:
    with Client(gateway.port) as client:
        topic = create(client)
        with Client(gateway.port) as going:
            for _ in range(50):
                going.send(produce_request(topic, 0, batch(bytes(20_000)), acks=0), 9)
            going.send(MetadataRequest(topics=[]), 5)
            going.send(produce_request(topic, 0, batch(b"last"), acks=0), 9)
        deadline = time.monotonic() + 20
        while (found := client.call(fetch(topic, {0: 50}), 11).responses[0].partitions[0]).error_code:
            assert time.monotonic() < deadline
        assert bytes(found.records).endswith(batch(b"last")[8:])


def test_acks_0_that_fails_closes_the_connection(client: Client) -> None:
    client.send(produce_request("no-such-topic", 0, batch(b"a"), acks=0), 9)
    assert client.is_closed()


def test_acks_that_kafka_does_not_have_are_refused(client: Client) -> None:
    topic = create(client)
    response = client.call(produce_request(topic, 0, batch(b"a"), acks=5), 9)
    assert response.responses[0].partition_responses[0].error_code == 21


def test_a_fetch_answers_with_exactly_the_partitions_asked_for(client: Client) -> None:
    topic = create(client, partitions=3)
    client.call(produce_request(topic, 1, batch(b"a")), 9)
    response = client.call(fetch(topic, {2: 0, 0: 0, 1: 0}), 11)
    partitions = response.responses[0].partitions
    assert [item.partition_index for item in partitions] == [2, 0, 1]
    assert [bool(item.records) for item in partitions] == [False, False, True]


def test_a_fetch_waits_for_data_and_no_longer_than_asked(client: Client, gateway: Cluster) -> None:
    topic = create(client)
    started = time.monotonic()
    response = client.call(fetch(topic, {0: 0}, max_wait_ms=1500), 11)
    assert not response.responses[0].partitions[0].records
    assert 1.4 < time.monotonic() - started < 10
    client.send(fetch(topic, {0: 0}, max_wait_ms=30_000), 11)
    with Client(gateway.port) as other:
        other.call(produce_request(topic, 0, batch(b"now")), 9)
    started = time.monotonic()
    client.receive()
    assert time.monotonic() - started < 10


def test_a_fetch_of_nothing_is_answered_at_once_and_holds_up_nobody(client: Client, gateway: Cluster) -> None:
    request = fetch("unused", {0: 0}, max_wait_ms=2**31 - 1)
    request.topics = []
    assert client.call(request, 11).responses == []
    assert is_alive(gateway)


def test_the_first_batch_is_returned_however_small_the_limit(client: Client) -> None:
    topic = create(client)
    large = batch(bytes(100_000))
    client.call(produce_request(topic, 0, large), 9)
    response = client.call(fetch(topic, {0: 0}, max_bytes=10), 11)
    assert bytes(response.responses[0].partitions[0].records) == large


def test_a_version_of_apiversions_above_ours_gets_error_35_and_our_ranges(client: Client) -> None:
    body = struct.pack(">hhi", 18, 99, 4242) + b"\xff\xff" + b"whatever it holds"
    client.socket.sendall(struct.pack(">i", len(body)) + body)
    correlation, data = client.receive()
    error, count = struct.unpack_from(">hi", data, 4)
    assert (correlation, error, count) == (4242, 35, len(APIS))
    assert client.call(VERSIONS_REQUEST, 4).error_code == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", -5), id="negative length"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="huge length"),
        pytest.param(struct.pack(">i", MAX_REQUEST_BYTES + 1), id="length over the limit"),
        pytest.param(struct.pack(">ihhi", 10, 999, 0, 1) + b"\xff\xff", id="unknown API"),
        pytest.param(struct.pack(">ihhi", 10, 0, 99, 1) + b"\xff\xff", id="unknown version"),
        pytest.param(struct.pack(">ihhi", 10, 3, 1, 1) + b"\x7f\xff", id="client id that is not there"),
        pytest.param(struct.pack(">ihhi", 14, 3, 1, 1) + b"\xff\xff\x7f\xff\xff\xff", id="count that lies"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    ],
)
def test_bytes_that_are_no_request_close_the_connection(client: Client, gateway: Cluster, data: bytes) -> None:
    client.socket.sendall(data)
    assert client.is_closed()
    assert is_alive(gateway)


def test_half_a_request_holds_up_nobody(client: Client, gateway: Cluster) -> None:
    client.socket.sendall(struct.pack(">ihhi", MAX_REQUEST_BYTES, 0, 9, 1))
    assert is_alive(gateway)


def test_requests_that_come_byte_by_byte_are_answered(client: Client) -> None:
    VERSIONS_REQUEST.API_VERSION = 3
    VERSIONS_REQUEST.with_header(correlation_id=9, client_id="slow")
    for byte in bytes(VERSIONS_REQUEST.encode(header=True, framed=True)):
        client.socket.sendall(bytes([byte]))
    assert client.receive()[0] == 9


def test_a_client_that_does_not_read_is_held_back(gateway: Cluster) -> None:
    """It asks for far more than it reads: the gateway stops taking its requests, and others do not notice."""
    process = psutil.Process(gateway.gateway.process.pid)
    with Client(gateway.port) as client:
        topic = create(client)
        for _ in range(4):
            client.call(produce_request(topic, 0, batch(bytes(900_000))), 9)
        before = process.memory_info().rss
        client.socket.settimeout(1)
        request = fetch(topic, {0: 0}, max_bytes=50_000_000)
        request.rack_id = "r" * 30_000  # so that the requests do not all fit into the socket's buffers
        with pytest.raises(TimeoutError):
            send_often(client, request, 2000)
        assert is_alive(gateway)
        assert process.memory_info().rss - before < 100_000_000


def send_often(client: Client, request: FetchRequest, count: int) -> None:
    for _ in range(count):
        client.send(request, 11)


def test_many_idle_connections_cost_little(gateway: Cluster) -> None:
    process = psutil.Process(gateway.gateway.process.pid)
    before = process.memory_info().rss
    idle = [socket.create_connection(("127.0.0.1", gateway.port)) for _ in range(400)]
    try:
        assert is_alive(gateway)
        assert process.memory_info().rss - before < 400 * 20_000
    finally:
        for connection in idle:
            connection.close()


FUZZED_FRAMES = 3000
ARENA_IDLE_SECONDS = 3.0


def test_fuzzed_frames_leave_the_gateway_whole(gateway: Cluster) -> None:
    """Valid headers with random bodies, mutated requests, and noise; each on a connection until it is closed."""
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    process = psutil.Process(gateway.gateway.process.pid)
    with Client(gateway.port) as client:
        topic = create(client)
    send_fuzzed(gateway.port, rng, topic, FUZZED_FRAMES // 3)
    before = process.memory_info().rss
    send_fuzzed(gateway.port, rng, topic, FUZZED_FRAMES)
    assert is_alive(gateway), f"seed {seed}"
    assert process.memory_info().rss - before < 10_000_000, f"seed {seed}"
    assert "Traceback" not in gateway.gateway_log(), f"seed {seed}"


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_million_fuzzed_frames_leave_the_gateway_whole(gateway: Cluster) -> None:
    seed = random.randrange(2**32)
    process = psutil.Process(gateway.gateway.process.pid)
    with Client(gateway.port) as client:
        topic = create(client)
    rng = random.Random(seed)
    # The first ones load the types of every API and version, which stay.
    send_fuzzed(gateway.port, rng, topic, 50_000)
    before = process.memory_info().rss
    send_fuzzed(gateway.port, rng, topic, 1_000_000)
    assert is_alive(gateway), f"seed {seed}"
    # By now fetches answer with megabytes, which lie in memory shared with the broker until a moment after the last.
    time.sleep(ARENA_IDLE_SECONDS)
    assert process.memory_info().rss - before < 10_000_000, f"seed {seed}"
    assert "Traceback" not in gateway.gateway_log(), f"seed {seed}"


def send_fuzzed(port: int, rng: random.Random, topic: str, count: int) -> None:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    for number in range(count):
        try:
            connection.sendall(fuzzed(rng, topic))
            connection.setblocking(False)
            try:
                gone = connection.recv(65536) == b""
            except BlockingIOError:
                gone = False
            connection.settimeout(20)
        except (ConnectionError, TimeoutError):
            gone = True
        # Noise can announce a produce of megabytes, of which all that follows would then be a part.
        if gone or number % 100 == 99:
            connection.close()
            connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.close()


def fuzzed(rng: random.Random, topic: str) -> bytes:
    kind = rng.randrange(10)
    if kind == 0:
        return rng.randbytes(rng.randrange(1, 64))
    if kind < 5:
        request = rng.choice([produce_request(topic, 0, batch(b"x")), fetch(topic, {0: 0}, max_wait_ms=0)])
        request.API_VERSION = 9
        request.with_header(correlation_id=1, client_id="f")
        data = bytearray(request.encode(header=True, framed=True))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(4, len(data))] = rng.randrange(256)
        return bytes(data)
    api = rng.choice(list(APIS.values()))
    version = rng.randint(api.lowest, api.highest)
    body = bytes(rng.choice((0, 0, 0, 1, 2, 0x7F, 0xFF, rng.randrange(256))) for _ in range(rng.randrange(60)))
    frame = struct.pack(">hhi", api.key, version, 1) + rng.choice((b"\xff\xff", b"\0\1c")) + body
    return struct.pack(">i", len(frame)) + frame


def test_topic_names_that_are_not_utf8_close_the_connection(client: Client) -> None:
    body = struct.pack(">hhi", 3, 1, 1) + b"\xff\xff" + b"\0\0\0\1" + b"\0\2\xc3\x28"
    client.socket.sendall(struct.pack(">i", len(body)) + body)
    assert client.is_closed()


def test_an_unknown_error_of_a_broker_is_an_unknown_server_error(client: Client) -> None:
    topic = create(client, prefix="strange")
    response = client.call(produce_request(topic, 0, batch(b"a")), 9)
    assert response.responses[0].partition_responses[0].error_code == -1


def test_a_handler_that_fails_at_the_broker_is_an_unknown_server_error(client: Client) -> None:
    topic = create(client, prefix="broken")
    response = client.call(produce_request(topic, 0, batch(b"a")), 9)
    assert response.responses[0].partition_responses[0].error_code == -1


def test_a_broker_that_does_not_answer_in_time_gives_a_timeout_and_no_ack(client: Client) -> None:
    topic = create(client, prefix="stuck")
    started = time.monotonic()
    response = client.call(produce_request(topic, 0, batch(b"a"), timeout_ms=1000), 9)
    assert response.responses[0].partition_responses[0].error_code == 7
    assert time.monotonic() - started < 10


def test_ids_of_connections_and_counters_are_logged_when_the_client_misbehaves(
    client: Client, gateway: Cluster
) -> None:
    mark = uuid.uuid4().int % 30_000
    client.socket.sendall(struct.pack(">ihhi", 10, 0, 13 + mark, 1) + b"\xff\xff")
    assert client.is_closed()
    assert f"produce version {13 + mark} is not served" in gateway.gateway_log()
