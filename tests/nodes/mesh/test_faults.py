"""Two processes that are killed, frozen, restarted and told to stop, whichever of them dialed."""

import asyncio
import signal
import time
from pathlib import Path

import pytest
from two_nodes import ECHO, RECALL, REMEMBER, SLEEP, Child, run, state_becomes

from nodes.mesh import Mesh, NodeInfo, NodeState, PeerDownError

# The figures of RELIABILITY.md: a peer is said to be down within the first time, and serves within the second when it
# is back.
DOWN_WITHIN = 2.5
UP_WITHIN = 1.0

either_dials = pytest.mark.parametrize("child_dials", [False, True], ids=["we-dial", "child-dials"])


async def works(mesh: Mesh, child: Child) -> None:
    assert await mesh.kafka_op_call(child.node_id, ECHO, 7, b"again", timeout=5) == b"again"


@either_dials
def test_a_killed_peer_is_down_in_time_and_back_after_its_restart(tmp_path: Path, child_dials: bool) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        waiting = asyncio.create_task(mesh.kafka_op_call(child.node_id, SLEEP, 7, b"60"))
        await asyncio.sleep(0.05)
        addresses = child.addresses
        child.end(signal.SIGKILL)
        await state_becomes(mesh, child.node_id, NodeState.DOWN, DOWN_WITHIN)
        with pytest.raises(PeerDownError) as caught:
            await waiting
        assert caught.value.sent
        with pytest.raises(PeerDownError):
            await mesh.kafka_op_call(child.node_id, ECHO, 7, b"")
        await asyncio.to_thread(child.start)
        assert child.addresses == addresses
        await mesh.wait_up(child.node_id, UP_WITHIN)
        await works(mesh, child)

    run(test, tmp_path, child_dials=child_dials)


@either_dials
def test_a_peer_that_restarts_at_once_replaces_its_stale_connection(tmp_path: Path, child_dials: bool) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        stale = mesh._links[child.node_id]
        waiting = asyncio.create_task(mesh.kafka_op_call(child.node_id, SLEEP, 7, b"60"))
        await asyncio.sleep(0.05)
        child.end(signal.SIGKILL)
        await asyncio.to_thread(child.start)
        with pytest.raises(PeerDownError):
            await asyncio.wait_for(waiting, DOWN_WITHIN)
        reason = await stale.ended
        assert not child_dials or "replaced" in reason or "reset" in reason
        await mesh.wait_up(child.node_id, UP_WITHIN)
        assert mesh._links[child.node_id] is not stale
        await works(mesh, child)

    run(test, tmp_path, child_dials=child_dials)


@either_dials
def test_a_frozen_peer_is_down_in_time_and_back_when_it_goes_on(tmp_path: Path, child_dials: bool) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        child.send(signal.SIGSTOP)
        try:
            await state_becomes(mesh, child.node_id, NodeState.DOWN, DOWN_WITHIN)
        finally:
            child.send(signal.SIGCONT)
        await mesh.wait_up(child.node_id, UP_WITHIN)
        await works(mesh, child)

    run(test, tmp_path, child_dials=child_dials)


def test_a_short_freeze_loses_nothing(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        child.send(signal.SIGSTOP)
        calls = [asyncio.create_task(mesh.kafka_op_call(child.node_id, REMEMBER, 7, b"%08d" % n)) for n in range(100)]
        await asyncio.sleep(1)
        child.send(signal.SIGCONT)
        await asyncio.gather(*calls)
        kept = bytes(await mesh.kafka_op_call(child.node_id, RECALL, 7, b"")).split(b",")
        assert sorted(kept) == [b"%08d" % n for n in range(100)]

    run(test, tmp_path)


@pytest.mark.soak
@either_dials
def test_a_peer_that_was_frozen_for_longer_than_quic_waits_comes_back(tmp_path: Path, child_dials: bool) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        for seconds in (1, 10, 25, 40):
            child.send(signal.SIGSTOP)
            await asyncio.sleep(seconds)
            child.send(signal.SIGCONT)
            await mesh.wait_up(child.node_id, 5)
            await works(mesh, child)

    run(test, tmp_path, child_dials=child_dials)


def test_a_restart_of_our_side_is_let_in_again(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        node_id = mesh.node_id
        await mesh.close()
        again = Mesh(tmp_path / "ours", role="gateway")
        assert again.node_id == node_id
        await again.start()
        try:
            again.add_peer(child.node_id, child.addresses)
            await again.wait_up(child.node_id, 3)
            await works(again, child)
        finally:
            await again.close()

    run(test, tmp_path)


@either_dials
def test_sigterm_closes_cleanly_and_is_noticed_at_once(tmp_path: Path, child_dials: bool) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        changes: list[NodeInfo] = []
        mesh.roster.watch(changes.append)
        child.send(signal.SIGTERM)
        await state_becomes(mesh, child.node_id, NodeState.DOWN, DOWN_WITHIN)
        assert await asyncio.to_thread(child.process.wait, 5) == 0
        # It was the close that was noticed, not the silence that follows it.
        assert "closed by peer" in changes[0].last_error
        assert child.process.stdout is not None
        child.process.stdout.close()

    run(test, tmp_path, child_dials=child_dials)


def test_a_close_reaches_the_peer_within_milliseconds(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        link = mesh._links[child.node_id]
        other = Mesh(tmp_path / "other", role="gateway")
        mesh.allow(other.node_id)
        await other.start()
        other.add_peer(mesh.node_id, mesh.addresses)
        await mesh.wait_up(other.node_id, 5)
        gone = mesh._links[other.node_id].ended
        started = time.monotonic()
        await other.close()
        await asyncio.wait_for(gone, DOWN_WITHIN)
        # A tenth of the ping interval would be 50 ms; ten of them are a generous limit for a noisy machine.
        assert time.monotonic() - started < mesh.settings.ping_interval
        assert not link.ended.done()

    run(test, tmp_path)


def test_a_dialer_backs_off_and_finds_the_peer_when_it_comes(tmp_path: Path) -> None:
    async def test(mesh: Mesh, child: Child) -> None:
        attempts = 0
        dial = mesh._dial

        async def counted(node_id: str) -> None:
            nonlocal attempts
            attempts += 1
            await dial(node_id)

        mesh._dial = counted  # type: ignore[method-assign]
        child.end(signal.SIGKILL)
        await state_becomes(mesh, child.node_id, NodeState.DOWN, DOWN_WITHIN)
        attempts = 0
        await asyncio.sleep(3)
        # Without a back-off a refused dial would be tried hundreds of times; with the longest one, at least thrice.
        assert 3 <= attempts <= 3 / (mesh.settings.backoff_limit / 2) + 10
        await asyncio.to_thread(child.start)
        await mesh.wait_up(child.node_id, 10)
        await works(mesh, child)

    run(test, tmp_path)
