"""The roster: what this node knows of every other one. Written by the links, read by the lab."""

import time
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec


class NodeState(StrEnum):
    """`UP` only after both sides said Hello and while the peer answers pings."""

    UP = "up"
    DOWN = "down"


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of one node. Times are seconds; `since` is the wall clock at the last change of state."""

    node_id: str
    state: NodeState
    since: float
    role: str
    version: str
    capabilities: tuple[str, ...]
    addresses: tuple[str, ...]
    round_trip: float | None
    bytes_sent: int
    bytes_received: int
    calls_made: int
    calls_served: int
    calls_failed: int
    last_error: str


class NodeRecord:
    """The running figures of one node; plain attributes, because the hot path adds to them."""

    def __init__(self, node_id: str) -> None:
        self.node_id = node_id
        self.state = NodeState.DOWN
        self.since = time.time()
        self.role = ""
        self.version = ""
        self.capabilities: tuple[str, ...] = ()
        self.addresses: list[str] = []
        self.round_trip: float | None = None
        self.bytes_sent = 0
        self.bytes_received = 0
        self.calls_made = 0
        self.calls_served = 0
        self.calls_failed = 0
        self.last_error = ""

    def snapshot(self) -> NodeInfo:
        fields = {name: getattr(self, name) for name in NodeInfo.__struct_fields__}
        return NodeInfo(**fields | {"addresses": tuple(self.addresses)})


class Roster:
    """All nodes ever added or admitted, and the mesh's counters of odd events."""

    def __init__(self) -> None:
        self._records: dict[str, NodeRecord] = {}
        self._watchers: list[Callable[[NodeInfo], None]] = []
        # strangers_refused, handshakes_shed, handshakes_failed, unsupported_tag, malformed, replayed, stray
        self.counters: Counter[str] = Counter()

    def record(self, node_id: str) -> NodeRecord:
        """The node's record, made at first sight."""
        found = self._records.get(node_id)
        if found is None:
            found = self._records[node_id] = NodeRecord(node_id)
        return found

    def nodes(self) -> list[NodeInfo]:
        """Snapshots of all nodes, in the order they became known."""
        return [record.snapshot() for record in self._records.values()]

    def get(self, node_id: str) -> NodeInfo | None:
        record = self._records.get(node_id)
        return None if record is None else record.snapshot()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data (dicts, lists, strings, numbers), ready for JSON or a DataFrame."""
        nodes: list[dict[str, Any]] = [msgspec.to_builtins(info) for info in self.nodes()]
        return {"nodes": nodes, "counters": dict(self.counters)}

    def watch(self, watcher: Callable[[NodeInfo], None]) -> None:
        """Calls `watcher` in the event loop at each change of state; it must not block or raise."""
        self._watchers.append(watcher)

    def set_state(self, node_id: str, state: NodeState, error: str = "") -> None:
        record = self.record(node_id)
        if error:
            record.last_error = error
        if record.state is state:
            return
        record.state = state
        record.since = time.time()
        if state is NodeState.DOWN:
            record.round_trip = None
        for watcher in self._watchers:
            watcher(record.snapshot())
