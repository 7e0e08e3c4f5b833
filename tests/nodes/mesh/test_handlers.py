"""Handlers of every kind: plain, with a future, async; their order, their answers, their failures."""

import asyncio
from pathlib import Path

import pytest
from two_nodes import BODIES, run_here

from nodes.mesh import SINGLE_USE, HandlerError, KafkaCall, Mesh, Payload, RemoteError, Settings, Status
from nodes.mesh.streams import buffers_of

OP = 0x40


def test_plain_future_and_async_handlers_answer_alike(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        def plain(call: KafkaCall) -> Payload:
            return call.payload

        def later(call: KafkaCall) -> "asyncio.Future[Payload]":
            future: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_later(0.01, future.set_result, call.payload)
            return future

        async def in_task(call: KafkaCall) -> Payload:
            await asyncio.sleep(0)
            return call.payload

        def gives_coroutine(call: KafkaCall) -> "asyncio._CoroutineLike[Payload]":
            return in_task(call)

        for handler in (plain, later, in_task, gives_coroutine):
            server.register_kafka_handler(OP, handler)
            for lane in (None, "one", SINGLE_USE):
                for size in (0, 200, 100_000):
                    body = bytes(range(200)) * (size // 200)
                    assert await caller.kafka_op_call(server.node_id, OP, 7, body, lane=lane) == body
        assert not server._links[caller.node_id].serving._running

    run_here(test, tmp_path)


def test_a_lane_starts_handlers_of_different_kinds_in_order(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        started: list[int] = []

        def plain(call: KafkaCall) -> Payload:
            started.append(int(bytes(call.payload[:6])))
            return b""

        async def in_task(call: KafkaCall) -> Payload:
            started.append(int(bytes(call.payload[:6])))
            await asyncio.sleep(0.001 * (started[-1] % 3))
            return b""

        server.register_kafka_handler(OP, plain)
        server.register_kafka_handler(OP + 1, in_task)
        calls = [
            caller.kafka_op_call(
                server.node_id, OP + (n * 7 % 5 > 2), 7, [b"%06d" % n, bytes(n % 11 * 9_000)], lane="one"
            )
            for n in range(300)
        ]
        await asyncio.gather(*calls)
        assert started == list(range(300))

    run_here(test, tmp_path)


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_list_of_buffers_goes_out_and_comes_back_without_being_joined(tmp_path: Path, size: int) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        block = bytes(size)
        given: list[bytes | bytearray | memoryview] = [b"head", memoryview(block)[1:], bytearray(b"tail"), b""]
        server.register_kafka_handler(OP, lambda call: [call.payload, b"-", call.payload[:4]])
        answer = await caller.kafka_op_call(server.node_id, OP, 7, given)
        joined = b"".join(given)
        assert answer == joined + b"-head"

    run_here(test, tmp_path)


def test_buffers_are_taken_as_they_are() -> None:
    block = bytes(10)
    buffers, size = buffers_of([block, memoryview(block)])
    assert buffers[0] is block
    assert size == 20


@pytest.mark.parametrize(
    "payload", ["text", None, [b"x", "text"], memoryview(b"12345678").cast("I"), memoryview(b"1234")[::2]]
)
def test_what_is_no_buffer_is_refused_on_both_sides_and_the_lane_goes_on(tmp_path: Path, payload: object) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        async def in_task(call: KafkaCall) -> Payload:
            return payload  # type: ignore[return-value]

        server.register_kafka_handler(OP, in_task)
        server.register_kafka_handler(OP + 1, lambda call: [payload])  # type: ignore[list-item, return-value]
        with pytest.raises(TypeError):
            await caller.kafka_op_call(server.node_id, OP, 7, payload, lane="one")  # type: ignore[arg-type]
        for op in (OP, OP + 1):
            with pytest.raises(RemoteError, match="TypeError") as caught:
                await caller.kafka_op_call(server.node_id, op, 7, b"", lane="one")
            assert caught.value.code == Status.HANDLER_FAILED
        server.register_kafka_handler(OP, lambda call: b"good")
        assert await caller.kafka_op_call(server.node_id, OP, 7, b"", lane="one") == b"good"

    run_here(test, tmp_path)


def test_failures_of_every_kind_of_handler_carry_their_code(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        def plain(call: KafkaCall) -> Payload:
            raise HandlerError("no such topic", code=103)

        def later(call: KafkaCall) -> "asyncio.Future[Payload]":
            future: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
            future.set_exception(HandlerError("no such topic", code=103))
            return future

        async def in_task(call: KafkaCall) -> Payload:
            raise HandlerError("no such topic", code=103)

        def cancelled(call: KafkaCall) -> "asyncio.Future[Payload]":
            future: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
            future.cancel()
            return future

        for handler in (plain, later, in_task):
            server.register_kafka_handler(OP, handler)
            with pytest.raises(RemoteError, match="no such topic") as caught:
                await caller.kafka_op_call(server.node_id, OP, 7, b"")
            assert caught.value.code == 103
        server.register_kafka_handler(OP, cancelled)
        with pytest.raises(RemoteError, match="cancelled") as caught:
            await caller.kafka_op_call(server.node_id, OP, 7, b"")
        assert caught.value.code == Status.HANDLER_FAILED

    run_here(test, tmp_path)


def test_a_call_past_its_deadline_is_answered_for_and_its_handler_ends_in_peace(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        future: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        server.register_kafka_handler(OP, lambda call: future)
        with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
            await caller.kafka_op_call(server.node_id, OP, 7, b"", timeout=0.1)
        calling = caller._links[server.node_id].calling
        async with asyncio.timeout(5):
            while calling._calls:
                await asyncio.sleep(0.01)
        assert not future.done()
        future.set_result(b"too late")
        await asyncio.sleep(0)
        assert not server._links[caller.node_id].serving._running

    run_here(test, tmp_path)


def test_more_calls_than_handlers_are_answered_busy_at_once(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        gate: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        server.register_kafka_handler(OP, lambda call: gate)
        calls = [asyncio.create_task(caller.kafka_op_call(server.node_id, OP, 7, b"", lane=n)) for n in range(8)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        while sum(call.done() for call in calls) < 3:
            await asyncio.sleep(0.005)
        gate.set_result(b"open")
        results = await asyncio.gather(*calls, return_exceptions=True)
        busy = [result for result in results if isinstance(result, RemoteError)]
        assert [error.code for error in busy] == [Status.BUSY] * 3
        assert results.count(memoryview(b"open")) == 5

    run_here(test, tmp_path, Settings(handlers=5))


def test_single_use_streams_that_are_all_taken_hold_up_no_lane(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        gate: asyncio.Future[Payload] = asyncio.get_running_loop().create_future()
        server.register_kafka_handler(OP, lambda call: gate)
        server.register_kafka_handler(OP + 1, lambda call: call.payload)
        tasks = [
            asyncio.create_task(caller.kafka_op_call(server.node_id, OP, 7, b"", lane=SINGLE_USE)) for _ in range(10)
        ]
        await asyncio.sleep(0.05)
        assert await caller.kafka_op_call(server.node_id, OP + 1, 7, b"lane", lane=1, timeout=5) == b"lane"
        gate.set_result(b"open")
        assert await asyncio.gather(*tasks) == [b"open"] * 10

    run_here(test, tmp_path, Settings(single_streams=4))


def test_calls_beyond_the_bytes_in_flight_wait_in_order_and_time_out_unsent(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        gates: list[asyncio.Future[Payload]] = []
        sizes: list[int] = []

        def hold(call: KafkaCall) -> "asyncio.Future[Payload]":
            sizes.append(len(call.payload))
            gates.append(asyncio.get_running_loop().create_future())
            return gates[-1]

        server.register_kafka_handler(OP, hold)
        first = asyncio.create_task(caller.kafka_op_call(server.node_id, OP, 7, bytes(900), lane=1))
        await asyncio.sleep(0)
        short = asyncio.create_task(caller.kafka_op_call(server.node_id, OP, 7, bytes(901), lane=2, timeout=0.1))
        rest = [
            asyncio.create_task(caller.kafka_op_call(server.node_id, OP, 7, bytes(902 + n), lane=n)) for n in range(3)
        ]
        with pytest.raises(TimeoutError):
            await short
        for n in range(4):
            async with asyncio.timeout(5):
                while len(gates) <= n:
                    await asyncio.sleep(0.001)
            assert caller._links[server.node_id].calling._bytes <= 1000
            gates[n].set_result(b"")
        await asyncio.gather(first, *rest)
        assert sizes == [900, 902, 903, 904]  # 901 was never sent

    run_here(test, tmp_path, Settings(bytes_in_flight=1000))


@pytest.mark.parametrize("bodies", BODIES)
def test_closing_loses_no_answer_that_was_given(tmp_path: Path, bodies: str) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        given: list[int] = []

        async def work(call: KafkaCall) -> Payload:
            await asyncio.sleep(0.1)
            given.append(call.request_id)
            return bytes(200_000 if call.request_id % 3 else 10)

        server.register_kafka_handler(OP, work)
        calls = [caller.kafka_op_call(server.node_id, OP, 7, b"%d" % n, lane=n) for n in range(300)]
        answers = asyncio.gather(*calls, return_exceptions=True)
        await asyncio.sleep(0.05)
        await server.close()
        assert len(given) == 300
        assert [answer for answer in await answers if not isinstance(answer, memoryview)] == []

    run_here(test, tmp_path, BODIES[bodies])


def test_closing_lets_handlers_end_and_tells_those_it_cannot_wait_for(tmp_path: Path) -> None:
    async def test(caller: Mesh, server: Mesh) -> None:
        async def work(call: KafkaCall) -> Payload:
            await asyncio.sleep(float(bytes(call.payload)))
            return b"done"

        server.register_kafka_handler(OP, work)
        quick = asyncio.create_task(caller.kafka_op_call(server.node_id, OP, 7, b"0.1"))
        slow = asyncio.create_task(caller.kafka_op_call(server.node_id, OP, 7, b"60"))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0.02)
        with pytest.raises(RemoteError, match="shutting down") as caught:
            await caller.kafka_op_call(server.node_id, OP, 7, b"0")
        assert caught.value.code == Status.CLOSING
        assert await quick == b"done"
        with pytest.raises(RemoteError, match="shut down") as caught:
            await slow
        assert caught.value.code == Status.CLOSING
        await closing

    run_here(test, tmp_path, Settings(close_grace=0.4))
