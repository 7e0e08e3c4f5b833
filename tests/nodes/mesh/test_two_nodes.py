"""Two nodes in two processes over real iroh: calls, lanes, deadlines, cancellation, faults."""

import asyncio
from pathlib import Path

import pytest
from two_nodes import (
    BODIES,
    ECHO,
    FAIL,
    GIVE,
    RECALL,
    REFUSE,
    REMEMBER,
    SIZE,
    SLEEP,
    Child,
    run,
    run_here,
)

from nodes.mesh import (
    SINGLE_USE,
    CallTimeoutError,
    Mesh,
    NodeState,
    PayloadTooLargeError,
    RemoteError,
    Status,
    UnknownPeerError,
)

# The figure of RELIABILITY.md: a peer is said to be down within this time.
DOWN_WITHIN = 2.5


@pytest.mark.parametrize("bodies", BODIES)
@pytest.mark.parametrize("lane", [None, "connection-1", SINGLE_USE])
@pytest.mark.parametrize("size", [0, 200, 4096, 16 * 1024, 16 * 1024 + 1, 3_000_000])
def test_a_call_brings_the_answer_back(tmp_path: Path, bodies: str, lane: object, size: int) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        body = bytes(range(256)) * (size // 256 + 1)
        answer = await mesh.kafka_op_call(child.node_id, ECHO, 7, [body[:10], memoryview(body)[10:size]], lane=lane)
        assert answer == (body[:10] + body[10:size])

    run(test, tmp_path, settings=BODIES[bodies])


def test_errors_of_the_remote_side_carry_a_code(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        for op, code, text in ((FAIL, 2, "on purpose"), (REFUSE, 142, "not today"), (0x99, 1, "no handler")):
            for lane in (None, SINGLE_USE):
                with pytest.raises(RemoteError, match=text) as caught:
                    await mesh.kafka_op_call(child.node_id, op, 7, b"", lane=lane)
                assert (caught.value.code, caught.value.peer) == (code, child.node_id)

    run(test, tmp_path)


@pytest.mark.parametrize("bodies", BODIES)
def test_a_lane_keeps_the_order_of_its_calls_with_large_ones_among_them(tmp_path: Path, bodies: str) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        bodies = [b"%08d" % n + bytes(400_000 if n % 7 == 0 else 10) for n in range(200)]
        calls = [mesh.kafka_op_call(child.node_id, REMEMBER, 7, body, lane="one") for body in bodies]
        await asyncio.gather(*calls)
        order = bytes(await mesh.kafka_op_call(child.node_id, RECALL, 7, b"")).split(b",")
        assert order == [body[:8] for body in bodies]

    run(test, tmp_path, settings=BODIES[bodies])


@pytest.mark.parametrize("bodies", BODIES)
def test_a_caller_that_gives_up_on_a_large_body_does_not_block_its_lane(tmp_path: Path, bodies: str) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        for _ in range(5):
            large = asyncio.create_task(mesh.kafka_op_call(child.node_id, SIZE, 7, bytes(30_000_000), lane="one"))
            await asyncio.sleep(0.01)
            large.cancel()
            answer = await mesh.kafka_op_call(child.node_id, ECHO, 7, b"next", lane="one", timeout=10)
            assert answer == b"next"

    run(test, tmp_path, settings=BODIES[bodies])


@pytest.mark.parametrize("bodies", BODIES)
def test_large_answers_flow_beside_small_calls(tmp_path: Path, bodies: str) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        large = [mesh.kafka_op_call(child.node_id, GIVE, 7, b"5000000") for _ in range(4)]
        small = [mesh.kafka_op_call(child.node_id, ECHO, 7, b"%d" % n, lane=n) for n in range(200)]
        answers = await asyncio.gather(*large, *small)
        assert [len(answer) for answer in answers[:4]] == [5_000_000] * 4
        assert [int(bytes(answer)) for answer in answers[4:]] == list(range(200))

    run(test, tmp_path, settings=BODIES[bodies])


def test_a_deadline_ends_the_call_on_both_sides(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        with pytest.raises(CallTimeoutError, match="within"):
            await mesh.kafka_op_call(child.node_id, SLEEP, 7, b"30", timeout=0.2)
        assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"next") == b"next"
        await asyncio.sleep(1)  # by now the peer has answered the expired call, and nothing is in flight
        link = mesh._links[child.node_id]
        assert not link.calling._calls
        assert link.calling._bytes == 0

    run(test, tmp_path)


@pytest.mark.parametrize("bodies", BODIES)
def test_bytes_in_flight_are_bounded_and_waiting_calls_are_served_in_order(tmp_path: Path, bodies: str) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        calls = [mesh.kafka_op_call(child.node_id, SIZE, 7, bytes(20_000_000), lane=n) for n in range(6)]
        tasks = [asyncio.create_task(call) for call in calls]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.005)
            assert mesh._links[child.node_id].calling._bytes <= mesh.settings.bytes_in_flight
        assert [int(bytes(task.result())) for task in tasks] == [20_000_000] * 6

    run(test, tmp_path, settings=BODIES[bodies])


def test_a_body_over_the_limit_and_a_stranger_are_refused_before_sending(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        with pytest.raises(PayloadTooLargeError):
            await mesh.kafka_op_call(child.node_id, ECHO, 7, [bytes(10_000_000)] * 11)
        with pytest.raises(UnknownPeerError, match="add_peer"):
            await mesh.kafka_op_call("00" * 32, ECHO, 7, b"")

    run(test, tmp_path)


def test_the_roster_tells_what_is_known_of_the_peer(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        await mesh.kafka_op_call(child.node_id, ECHO, 7, b"x" * 1000)
        await asyncio.sleep(0.8)
        [info] = mesh.roster.nodes()
        assert (info.state, info.role, info.capabilities) == (NodeState.UP, "broker", ("echo",))
        assert info.calls_made == 1
        assert info.bytes_sent > 1000
        assert info.bytes_received > 1000
        assert info.round_trip is not None
        assert 0 < info.round_trip < 1

    run(test, tmp_path)


def test_two_nodes_that_dial_each_other_end_with_one_connection(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        one, two = Mesh(tmp_path / "one", role="broker"), Mesh(tmp_path / "two", role="broker")
        for mesh in (one, two):
            mesh.register_kafka_handler(ECHO, lambda call: call.payload)
            await mesh.start()
        one.add_peer(two.node_id, two.addresses)
        two.add_peer(one.node_id, one.addresses)
        await one.wait_up(two.node_id, 5)
        await two.wait_up(one.node_id, 5)
        await asyncio.sleep(0.5)  # the loser of the two dials, if there were two, is closed by now
        there, back = one._links[two.node_id], two._links[one.node_id]
        for mesh, peer in ((one, two), (two, one)):
            assert await mesh.kafka_op_call(peer.node_id, ECHO, 7, b"hello", timeout=5) == b"hello"
        assert there.dialed is not back.dialed
        assert (one._links[two.node_id], two._links[one.node_id]) == (there, back)
        await one.close()
        await two.close()

    run_here(test, tmp_path)


def test_status_codes_of_the_mesh_stay_below_the_handlers_range() -> None:
    assert max(Status) < 100
