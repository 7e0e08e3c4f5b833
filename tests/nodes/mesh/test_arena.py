"""Bodies in shared memory: places that never overlap, arenas that are opened only if they are what they say."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from two_nodes import ECHO, GIVE, Child, run, run_here, two_nodes

from nodes.mesh import Mesh, Settings
from nodes.mesh import arena as arena_module
from nodes.mesh.arena import SHARED_BYTES, Arena, PeerArena, open_offer
from nodes.mesh.errors import MalformedError
from nodes.mesh.frames import MAX_BODY_BYTES, NO_TRACE, TAG_BODY, TAG_CONTROL, TAG_LANE, encode_frame
from nodes.mesh.messages import ArenaOffer, BodiesTaken, Body, Control, Inline, KafkaOp, Shared
from nodes.mesh.postcard import codec

ARENA = 1024 * 1024
MEGABYTE = 1_000_000


@pytest.fixture
def arena() -> Iterator[Arena]:
    made = Arena(ARENA)
    yield made
    made.close()


@given(st.lists(st.one_of(st.integers(1, 200_000), st.integers(-20, -1)), max_size=60))
def test_bodies_in_an_arena_never_overlap_and_all_room_comes_back(steps: list[int]) -> None:
    """A positive step puts a body of that size, a negative one takes a body that is there."""
    arena, bodies = Arena(ARENA), dict[int, bytes]()
    peers = open_offer(arena.offer())
    assert peers is not None
    for number, step in enumerate(steps):
        if step > 0:
            body = bytes([number % 256]) * step
            position = arena.put([body[:5], memoryview(body)[5:]], step)
            if position is not None:
                bodies[position] = body
        elif bodies:
            position = list(bodies)[step % len(bodies)]
            assert peers.take(position, len(bodies[position])) == bodies.pop(position)
            arena.free(position)
    for position, body in bodies.items():
        assert peers.take(position, len(body)) == body
        arena.free(position)
    assert arena.put([bytes(ARENA - 4096)], ARENA - 4096) is not None
    peers.close()
    arena.close()


def test_a_body_over_the_limit_is_not_taken_from_a_large_arena() -> None:
    large = Arena(2 * MAX_BODY_BYTES)
    peers = open_offer(large.offer())
    assert peers is not None
    with pytest.raises(MalformedError, match="a body of"):
        peers.take(4096, MAX_BODY_BYTES + 1)
    peers.close()
    large.close()


def test_a_full_arena_has_no_room_until_a_body_is_taken(arena: Arena) -> None:
    position = arena.put([bytes(900_000)], 900_000)
    assert position is not None
    assert arena.put([bytes(200_000)], 200_000) is None
    arena.free(position)
    assert arena.put([bytes(200_000)], 200_000) == position
    with pytest.raises(MalformedError, match="where none lies"):
        arena.free(position + 4096)


def test_memory_that_is_not_used_goes_back_to_the_system(arena: Arena) -> None:
    position = arena.put([bytes(900_000)], 900_000)
    assert position is not None
    descriptor = arena.offer().descriptor
    assert os.fstat(descriptor).st_blocks * 512 >= 900_000
    arena.free(position)
    arena.trim()  # it was used a moment ago
    assert os.fstat(descriptor).st_blocks * 512 >= 900_000
    arena.trim()
    assert os.fstat(descriptor).st_blocks * 512 <= 8192


def test_what_is_not_the_offered_arena_is_not_opened(arena: Arena, tmp_path: Path) -> None:
    good = arena.offer()
    (tmp_path / "file").write_bytes(bytes(good.proof) + bytes(ARENA - len(good.proof)))
    os.mkfifo(tmp_path / "pipe")
    others = [
        os.open(tmp_path / "file", os.O_RDWR),
        os.open(tmp_path / "pipe", os.O_RDWR),
        os.memfd_create("not sealed"),
    ]
    os.ftruncate(others[2], ARENA)
    os.pwrite(others[2], bytes(good.proof), 0)
    offers = [
        ArenaOffer(2**22 + 1, good.descriptor, ARENA, good.proof),  # no such process
        ArenaOffer(good.pid, 65_000, ARENA, good.proof),
        ArenaOffer(good.pid, good.descriptor, ARENA, bytes(32)),
        ArenaOffer(good.pid, good.descriptor, ARENA // 2, good.proof),
        ArenaOffer(good.pid, good.descriptor, 2**60, good.proof),
        *(ArenaOffer(good.pid, other, ARENA, good.proof) for other in others),
    ]
    assert [open_offer(offer) for offer in offers] == [None] * len(offers)
    opened = open_offer(good)
    assert opened is not None
    opened.close()
    for other in others:
        os.close(other)


def test_an_arena_cannot_be_shrunk_under_its_reader(arena: Arena) -> None:
    offer = arena.offer()
    assert fcntl.fcntl(offer.descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
    with pytest.raises(PermissionError):
        os.ftruncate(offer.descriptor, 4096)


def test_large_bodies_do_not_cross_the_mesh_and_leave_nothing_behind(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        link = mesh._links[child.node_id]
        async with asyncio.timeout(5):
            while not link._shared._readable:
                await asyncio.sleep(0.01)
        for _ in range(20):
            answer = await mesh.kafka_op_call(child.node_id, ECHO, 7, os.urandom(MEGABYTE), lane="one")
            assert len(answer) == MEGABYTE
        assert link.record.bytes_sent < MEGABYTE
        assert link.record.bytes_received < MEGABYTE
        assert link._shared._ours is not None
        assert not link._shared._ours._taken

    run(test, tmp_path)


def test_answers_come_whole_when_the_arena_is_too_small_for_all(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(GIVE, lambda call: bytes(int(bytes(call.payload))))
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        given = [caller.kafka_op_call(server.node_id, GIVE, 7, b"%d" % (300_000 + n), lane=n) for n in range(40)]
        bodies = [os.urandom(200_000 + n) for n in range(40)]
        echoed = [caller.kafka_op_call(server.node_id, ECHO, 7, body, lane=n) for n, body in enumerate(bodies)]
        answers = await asyncio.gather(*given, *echoed)
        assert [len(answer) for answer in answers[:40]] == [300_000 + n for n in range(40)]
        assert answers[40:] == bodies
        # Some crossed the mesh, some did not.
        assert 0 < caller.roster.nodes()[0].bytes_received < sum(map(len, answers))

    run_here(test, tmp_path, Settings(arena_bytes=ARENA))


def test_one_node_may_be_unable_to_open_the_others_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As between users: root may open what others may not."""
    refused: list[ArenaOffer] = []

    def refuse_first(offer: ArenaOffer) -> PeerArena | None:
        if refused:
            return open_offer(offer)
        refused.append(offer)
        return None

    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        for size in (100, SHARED_BYTES, 50_000, MEGABYTE) * 5:
            body = os.urandom(size)
            assert await caller.kafka_op_call(server.node_id, ECHO, 7, body, lane="one") == body
            await asyncio.sleep(0.02)  # by and by both have heard from each other
        links = caller._links[server.node_id], server._links[caller.node_id]
        assert sorted(link._shared._readable for link in links) == [False, True]
        assert caller.roster.counters["malformed"] + server.roster.counters["malformed"] == 0

    monkeypatch.setattr(arena_module, "open_offer", refuse_first)
    run_here(test, tmp_path)


def test_a_link_that_ends_gives_its_memory_and_descriptors_back(tmp_path: Path) -> None:
    def descriptors() -> list[str]:
        names = [os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd")]
        return [name for name in names if "rafka-arena" in name]

    async def test() -> None:
        async with two_nodes(tmp_path) as (mesh, child):
            await mesh.kafka_op_call(child.node_id, ECHO, 7, bytes(SHARED_BYTES))
            assert descriptors()
        assert descriptors() == []
        assert "rafka-arena" not in Path("/proc/self/maps").read_text()

    asyncio.run(test())


def _op(payload: Shared | Inline) -> bytes:
    op = KafkaOp(ECHO, 1 << 40 | 200, 7, 1, 30_000, payload)
    return b"".join(encode_frame(TAG_LANE, NO_TRACE, codec(KafkaOp).parts(op)))


LIES = {
    "a body behind the end": _op(Shared(2**40, 10)),
    "a body that is too long": _op(Shared(0, 2**40)),
    "a taken body that was never there": b"".join(
        encode_frame(TAG_BODY, NO_TRACE, codec(Body).parts(Body(BodiesTaken([4096]))))
    ),
    "an offer beside the control stream": b"".join(
        encode_frame(TAG_CONTROL, NO_TRACE, codec(Control).parts(Control(ArenaOffer(1, 1, ARENA, bytes(32)))))
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_shared_memory_costs_its_stream_only(tmp_path: Path, lie: str) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        server.register_kafka_handler(ECHO, lambda call: call.payload)
        stream = await caller._links[server.node_id].connection.open_stream()
        await stream.write([LIES[lie]])
        async with asyncio.timeout(5):
            while not server.roster.counters["malformed"]:
                await asyncio.sleep(0.01)
        body = os.urandom(MEGABYTE)
        assert await caller.kafka_op_call(server.node_id, ECHO, 7, body) == body

    run_here(test, tmp_path)
