"""`lab.faults`: what goes wrong with real machines, done to a lab's nodes; each fault is kept for the timeline.

A full disk is a limit on the size of the files that the broker's process may write (RLIMIT_FSIZE, set from outside
with prlimit): the kernel then refuses to write further, as a disk without room does. A slow or lossy mesh is a relay
that the real packets go through (`mesh_paths`).
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rafka_lab.errors import LabError
from rafka_lab.mesh_paths import MeshPaths
from rafka_lab.node import Node, State

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

DEFAULT_NODE = "broker-0"
# Behind the file header, so that the damage is in an entry.
_FILE_HEADER = 64


class Faults:
    """Faults of the nodes of one lab. A node is named, such as `gateway` or `broker-0`."""

    def __init__(self, nodes: Mapping[str, Node], log_folder: Callable[[str], Path], mesh_paths: MeshPaths) -> None:
        self._nodes = nodes
        self._log_folder = log_folder
        self._mesh_paths = mesh_paths
        self._events: list[tuple[float, str, str, str]] = []

    def __repr__(self) -> str:
        made = "kill, pause, resume, stop, restart, mesh_latency, mesh_loss, full_disk, free_disk, torn_tail, flip_bit"
        return f"<Faults: {made}; timeline()>"

    def kill(self, node: str = DEFAULT_NODE) -> Node:
        """kill -9."""
        return self._do(node, "kill", "SIGKILL", self._node(node).kill)

    def pause(self, node: str = DEFAULT_NODE) -> Node:
        """Freezes the process, as a machine that hangs; `resume` lets it go on."""
        return self._do(node, "pause", "SIGSTOP", self._node(node).pause)

    def resume(self, node: str = DEFAULT_NODE) -> Node:
        return self._do(node, "resume", "SIGCONT", self._node(node).resume)

    def stop(self, node: str = DEFAULT_NODE) -> Node:
        """A clean stop."""
        return self._do(node, "stop", "SIGTERM", self._node(node).stop)

    def restart(self, node: str = DEFAULT_NODE) -> Node:
        """Starts the node, after a clean stop if it runs. The time it took is in the timeline."""
        found = self._node(node)
        begun = time.monotonic()
        found.stop().start()
        self._note(node, "restart", f"served again after {time.monotonic() - begun:.2f} s")
        return found

    def mesh_latency(self, ms: float, jitter_ms: float = 0, node: str | None = None) -> "MeshFault":
        """Delays each packet between the gateway and the brokers (or one, `node`) by `ms`, in both directions.

        `with lab.faults.mesh_latency(50): ...`, or `end()` of what it returns. Above some 400 ms the mesh's own
        deadlines (2 s) take the broker for dead. What large bodies meet is seen with `Lab(shared_bodies=False)`: they
        lie in shared memory otherwise, and only the calls go over the mesh.
        """
        if not 0 <= jitter_ms <= ms:
            raise LabError(f"give a latency of 0 ms or more and a jitter of at most that, not {ms} and {jitter_ms}")
        spread = f", give or take {jitter_ms:g} ms" if jitter_ms else ""
        fault = MeshFault(self, "mesh latency", self._brokers(node), {"latency_ms": 0, "jitter_ms": 0})
        return fault.begin({"latency_ms": ms, "jitter_ms": jitter_ms}, f"{ms:g} ms each way{spread}")

    def mesh_loss(self, share: float, node: str | None = None) -> "MeshFault":
        """Drops that share of the packets between the gateway and the brokers (or one, `node`), by chance.

        `with lab.faults.mesh_loss(0.05): ...`, or `end()` of what it returns. A share of 1 is a cut.
        """
        if not 0 <= share <= 1:
            raise LabError(f"the share of lost packets is from 0 to 1, not {share}: 0.05 is 5 %")
        fault = MeshFault(self, "mesh loss", self._brokers(node), {"loss": 0})
        return fault.begin({"loss": share}, f"{share:.4g} of all packets")

    def full_disk(self, node: str = DEFAULT_NODE, room: int = 0) -> None:
        """From now on the node's log files cannot grow by more than `room` bytes; `free_disk` ends it."""
        found = self._running(node, "have a full disk")
        largest = max((path.stat().st_size for path in self._log_folder(node).glob("*.*")), default=0)
        self._limit(found, largest + room)
        self._note(node, "full disk", f"room for {room} more bytes")

    def free_disk(self, node: str = DEFAULT_NODE) -> None:
        """There is room again."""
        self._limit(self._running(node, "have room"), resource.RLIM_INFINITY)
        self._note(node, "disk has room", "")

    def torn_tail(self, node: str = DEFAULT_NODE, drop: int = 10) -> Path:
        """Cuts the last `drop` bytes off the newest log file of a node that does not run: an unfinished write."""
        path = self._damaged(node)
        size = path.stat().st_size
        if not 0 < drop < size - _FILE_HEADER:
            raise LabError(f"{path.name} has {size} bytes: drop between 1 and {size - _FILE_HEADER - 1}, not {drop}")
        os.truncate(path, size - drop)
        self._note(node, "torn tail", f"{drop} bytes cut off {path.name}")
        return path

    def flip_bit(self, node: str = DEFAULT_NODE, position: int | None = None, bit: int = 0) -> Path:
        """Flips one bit of the newest log file of a node that does not run; in its middle unless told where."""
        path = self._damaged(node)
        size = path.stat().st_size
        at = (size // 2) if position is None else position
        if not 0 <= at < size or not 0 <= bit <= 7:
            raise LabError(f"{path.name} has bytes 0 to {size - 1} with bits 0 to 7; there is no {at}, bit {bit}")
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))
        self._note(node, "flipped bit", f"bit {bit} of byte {at} of {path.name}")
        return path

    def timeline(self) -> "pd.DataFrame":
        """What was done, and when."""
        import pandas as pd

        frame = pd.DataFrame(self._events, columns=["time", "node", "fault", "detail"])
        frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
        return frame

    def _do(self, node: str, fault: str, detail: str, act: Callable[[], Node]) -> Node:
        """A fault is noted with the moment it began, and only if it could be made."""
        begun = time.time()
        done = act()
        self._events.append((begun, node, fault, detail))
        return done

    def _note(self, node: str, fault: str, detail: str) -> None:
        self._events.append((time.time(), node, fault, detail))

    def _change_mesh(self, brokers: list[str], changed: Mapping[str, float], fault: str, detail: str) -> None:
        begun = time.time()
        self._mesh_paths.change(brokers, **changed)
        self._events += [(begun, broker, fault, detail) for broker in brokers]

    def _brokers(self, name: str | None) -> list[str]:
        """The one, or all."""
        if name is None:
            return [node.name for node in self._nodes.values() if node.role == "broker"] or [
                self._node(DEFAULT_NODE).name
            ]
        if self._node(name).role != "broker":
            raise LabError(f"{name} is no broker: name one, or none for all of them")
        return [name]

    def _node(self, name: str) -> Node:
        found = self._nodes.get(name)
        if found is None:
            there = f"there are {', '.join(self._nodes)}" if self._nodes else "the lab is not running: start() it first"
            raise LabError(f"there is no node {name!r}: {there}")
        return found

    def _running(self, name: str, what: str) -> Node:
        found = self._node(name)
        if found.state is not State.RUNNING:
            raise LabError(f"{name} is {found.state}: only a node that is running can {what}")
        return found

    def _damaged(self, name: str) -> Path:
        found = self._node(name)
        if found.role != "broker":
            raise LabError(f"{name} has no log: damage a broker's")
        if found.is_alive:
            raise LabError(f"{name} is {found.state}, and would not notice: kill or stop it first")
        return max(self._log_folder(name).glob("*.log"))

    def _limit(self, node: Node, size: int) -> None:
        if not hasattr(resource, "prlimit"):
            raise LabError(
                f"this needs prlimit, which {sys.platform} does not have: put the data on a small disk instead"
            )
        assert node.pid is not None
        _, hard = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size, hard))


class MeshFault:
    """A slow or lossy mesh, from its making until `end()` or the end of its `with` block. The lab's end ends it too."""

    def __init__(self, faults: Faults, name: str, brokers: list[str], without: Mapping[str, float]) -> None:
        self._faults = faults
        self._name = name
        self._brokers = brokers
        self._without = without
        self._on = False

    def __repr__(self) -> str:
        return f"<{self._name} of {', '.join(self._brokers)}: {'on; end() ends it' if self._on else 'over'}>"

    def __enter__(self) -> "MeshFault":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self.end()

    def begin(self, changed: Mapping[str, float], detail: str) -> "MeshFault":
        self._faults._change_mesh(self._brokers, changed, self._name, detail)
        self._on = True
        return self

    def end(self) -> None:
        """The mesh is as before; a second time does nothing."""
        if self._on:
            self._on = False
            self._faults._change_mesh(self._brokers, self._without, f"{self._name} ends", "")
