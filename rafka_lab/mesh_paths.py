"""The ways between the gateway and the brokers: direct, or over a relay that makes them slow or lossy.

A fault can begin and end while the cluster runs. At both moments the gateway's links to the brokers in question are
made anew, as when a network changes; requests at work then are repeated by Kafka's clients.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rafka_lab.errors import LabError
from rafka_lab.mesh_relay import LOOPBACK
from rafka_lab.node import Node, State, process_environment
from rafka_lab.plan import GATEWAY, Plan

# A link is made anew within some round trips; the mesh gives a dial 2 s, and then tries again.
_SWITCH_SECONDS = 5.0
_POLL_SECONDS = 0.01
# How long the relay may take to answer a line, on a machine that is busy.
_STOP_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What packets meet on the way to a broker and, once more, on the way back."""

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0


DIRECT = Conditions()


class MeshPaths:
    """The conditions of each broker's way. Nothing runs while all of them are direct."""

    def __init__(self, nodes: Mapping[str, Node], plan: Plan) -> None:
        self._nodes = nodes
        self._plan = plan
        self._conditions: dict[str, Conditions] = {}
        self._relay: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def change(self, brokers: Iterable[str], **changed: float) -> None:
        """Changes some of the brokers' conditions, and returns when packets go that way."""
        if sys.platform != "linux":
            raise LabError(f"this needs Linux's socket filters, which {sys.platform} does not have")
        with self._lock:
            names = list(brokers)
            for name in names:
                self._conditions[name] = replace(self._conditions.get(name, DIRECT), **changed)
            self._apply(names)

    def refresh(self) -> None:
        """A broker has come back, maybe on other ports."""
        with self._lock:
            if self._relay is not None:
                self._ask_relay()

    def close(self) -> None:
        """The nodes have ended, and the relay ends too."""
        with self._lock:
            self._conditions.clear()
            self._plan.detours.clear()
            self._end_relay()

    def _apply(self, names: list[str]) -> None:
        self._conditions = {name: found for name, found in self._conditions.items() if found != DIRECT}
        ports = self._ask_relay() if self._conditions else {}
        begun = [name for name in names if name in self._conditions and name not in self._plan.detours]
        ended = [name for name in names if name not in self._conditions and name in self._plan.detours]
        for name in begun:
            self._plan.detours[name] = (f"{LOOPBACK}:{ports[name]['front']}", ports[name]["back"])
            self._tell_gateway(name)
            self._nodes[name].tell({"hear_only": ports[name]["back"]})
        for name in ended:
            del self._plan.detours[name]
            self._nodes[name].tell({"hear_only": None})
            self._tell_gateway(name)
        self._wait_moved(begun)
        if not self._conditions:
            self._end_relay()

    def _tell_gateway(self, name: str) -> None:
        order = {"peer": self._nodes[name].node_id, "addresses": self._plan.dialed(name)}
        self._nodes[GATEWAY].tell(order)

    def _wait_moved(self, names: list[str]) -> None:
        """Packets that came home over the relay show that the link is there again."""
        deadline = time.monotonic() + _SWITCH_SECONDS
        waiting = {name for name in names if self._can_answer(name)}
        while waiting:
            passed = self._ask_relay()
            waiting = {name for name in waiting if not passed[name]["home"]}
            if waiting and time.monotonic() > deadline:
                late = ", ".join(sorted(waiting))
                raise LabError(f"{late} did not take the slow way within {_SWITCH_SECONDS:g} s: see its logs()")
            time.sleep(_POLL_SECONDS)

    def _can_answer(self, name: str) -> bool:
        running = all(self._nodes[node].state is State.RUNNING for node in (GATEWAY, name))
        return running and self._conditions[name].loss == 0

    def _ask_relay(self) -> dict[str, Any]:
        """Tells the relay its table; gives its ports and counts."""
        table = {
            name: {
                "target": next(a for a in self._plan.addresses[name] if a.startswith(LOOPBACK)),
                "latency": conditions.latency_ms / 1000,
                "jitter": conditions.jitter_ms / 1000,
                "loss": conditions.loss,
            }
            for name, conditions in self._conditions.items()
        }
        if self._relay is None:
            self._relay = _start()
        assert self._relay.stdin is not None
        assert self._relay.stdout is not None
        try:
            self._relay.stdin.write(json.dumps(table).encode() + b"\n")
            self._relay.stdin.flush()
            line = self._relay.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise LabError("the mesh's relay has ended by itself: stop() the lab and start() it again")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end_relay(self) -> None:
        relay, self._relay = self._relay, None
        if relay is None:
            return
        assert relay.stdin is not None
        assert relay.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            relay.stdin.close()
        try:
            relay.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            relay.kill()
            relay.wait()
        relay.stdout.close()


def _start() -> subprocess.Popen[bytes]:
    """Its stdin ends with this process, and the relay with it. An interrupt of the notebook is not meant for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "rafka_lab.mesh_relay"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=process_environment(),
        process_group=0,
    )
