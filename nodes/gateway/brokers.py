"""The brokers behind the gateway, by index: typed calls over the mesh. Broker 0 is the controller."""

import contextlib
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from nodes.mesh import NO_TRACE, Mesh, OpCode, PeerDownError, Trace, UnknownPeerError
from nodes.mesh.postcard import Codec, codec

A = TypeVar("A")
CONTROLLER = 0


def _codec(kind: type[A]) -> Codec[A]:
    return codec(kind)  # type: ignore[arg-type]  # its cache hides the types


class Brokers:
    """Calls to brokers. Every call raises `MeshError` if there is no usable answer."""

    def __init__(self, mesh: Mesh, node_ids: Mapping[int, str], org_id: int) -> None:
        self._mesh = mesh
        self._node_ids = dict(node_ids)
        self._org_id = org_id

    @property
    def indexes(self) -> list[int]:
        return sorted(self._node_ids)

    @property
    def is_single(self) -> bool:
        return len(self._node_ids) == 1

    def index_of(self, node_id: str) -> int | None:
        return next((index for index, known in self._node_ids.items() if known == node_id), None)

    async def call(
        self,
        index: int,
        op_code: OpCode,
        payload: Any,
        answer: type[A],
        *,
        timeout: float,
        lane: Hashable = None,
        trace: Trace = NO_TRACE,
    ) -> A:
        """The broker's answer. Up to the sending nothing awaits, so calls go out in the order they are awaited."""
        return _codec(answer).decode(await self._call(index, op_code, payload, timeout, lane, trace))

    async def tell(self, index: int, op_code: OpCode, payload: Any, *, timeout: float, trace: Trace = NO_TRACE) -> None:
        """A call whose answer says no more than that it was done."""
        await self._call(index, op_code, payload, timeout, None, trace)

    async def _call(
        self,
        index: int,
        op_code: OpCode,
        payload: Any,
        timeout: float,
        lane: Hashable,
        trace: Trace,
    ) -> memoryview:
        node_id = self._node_ids.get(index)
        if node_id is None:
            raise UnknownPeerError(f"a topic names broker {index}, which this gateway was not given")
        parts = _codec(type(payload)).parts(payload)
        return await self._mesh.kafka_op_call(
            node_id, op_code, self._org_id, parts, lane=lane, timeout=timeout, trace=trace
        )

    async def controller_call(
        self,
        op_code: OpCode,
        payload: Any,
        answer: type[A],
        *,
        timeout: float,
        trace: Trace = NO_TRACE,
    ) -> A:
        return await self.call(CONTROLLER, op_code, payload, answer, timeout=timeout, trace=trace)

    async def wait_for_controller(self, timeout: float) -> None:
        """Returns when the controller is up, or at the end of the time."""
        with contextlib.suppress(PeerDownError):
            await self._mesh.wait_up(self._node_ids[CONTROLLER], timeout)

    def states(self) -> dict[str, str]:
        """`up` or `down` by index, for the status."""
        infos = {index: self._mesh.roster.get(node_id) for index, node_id in self._node_ids.items()}
        return {str(index): "down" if info is None else str(info.state) for index, info in infos.items()}
