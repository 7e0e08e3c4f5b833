"""What each node does per second: records and bytes that its log grew by, CPU and memory of its process.

Read from the log's index and from the system, so that looking costs the nodes nothing.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from rafka_lab.node import Node
from wal.errors import WalError
from wal.reader import WalReader

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# Behind the name in brackets of /proc/PID/stat: user and system time, resident pages.
_USER, _SYSTEM, _RESIDENT = 11, 12, 21


class NodeRates(NamedTuple):
    """One node now. Rates are since the last look, and 0 at the first."""

    name: str
    role: str
    state: str
    pid: int | None
    address: str
    records: int
    log_bytes: int
    records_per_s: float
    bytes_per_s: float
    cpu_percent: float
    memory_mb: float


class _Sample(NamedTuple):
    moment: float
    records: int
    log_bytes: int
    cpu_seconds: float


class Rates:
    """Call it for all nodes as they are now."""

    def __init__(self, nodes: Mapping[str, Node], log_folder: Callable[[str], Path]) -> None:
        self._nodes = nodes
        self._log_folder = log_folder
        self._readers: dict[str, WalReader] = {}
        self._last: dict[tuple[str, int | None], _Sample] = {}

    def __call__(self) -> list[NodeRates]:
        """In the order a request meets them."""
        order = {"gateway": 0, "broker": 1}
        return [self._look(node) for node in sorted(self._nodes.values(), key=lambda node: order.get(node.role, 2))]

    def _look(self, node: Node) -> NodeRates:
        records, log_bytes = self._log(node)
        cpu, memory = _process(node.pid) if node.is_alive and node.pid is not None else (0.0, 0.0)
        now = _Sample(time.monotonic(), records, log_bytes, cpu)
        before = self._last.get((node.name, node.pid), now)
        self._last[node.name, node.pid] = now
        seconds = now.moment - before.moment or 1.0
        listen = node.ready.get("listen") or node.ready.get("traces")
        return NodeRates(
            name=node.name,
            role=node.role,
            state=str(node.state),
            pid=node.pid if node.is_alive else None,
            address=str(listen) if listen else (node.mesh[0] if node.mesh else ""),
            records=records,
            log_bytes=log_bytes,
            records_per_s=(records - before.records) / seconds,
            bytes_per_s=(log_bytes - before.log_bytes) / seconds,
            cpu_percent=max(0.0, (cpu - before.cpu_seconds) / seconds * 100),
            memory_mb=memory,
        )

    def _log(self, node: Node) -> tuple[int, int]:
        if node.role != "broker":
            return 0, 0
        try:
            reader = self._readers.get(node.name)
            if reader is None:
                reader = self._readers[node.name] = WalReader(self._log_folder(node.name))
            else:
                reader.refresh()
        except WalError:  # damaged on purpose, or between two states: the panel shows the node all the same
            self._readers.pop(node.name, None)
            return 0, 0
        records = sum(state.high_watermark - state.log_start for state in reader.state.partitions.values())
        return records, sum(segment.end for segment in reader.segments)


def _process(pid: int) -> tuple[float, float]:
    """CPU seconds and MB of a process; zeros where the system does not tell."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    cpu = (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS
    return cpu, int(fields[_RESIDENT]) * _PAGE / 1e6
