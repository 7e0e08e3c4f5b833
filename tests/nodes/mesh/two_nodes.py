"""Two nodes for the tests: ours and `child_node.py` in another process, or both in this one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nodes.mesh import Mesh, NodeState, Settings, tune_interpreter

ROOT = Path(__file__).parents[3]
# Between nodes of one machine large bodies lie in shared memory; without an arena they travel, as between machines.
OVER_THE_MESH = Settings(arena_bytes=0)
BODIES = {"shared": Settings(), "over the mesh": OVER_THE_MESH}
ECHO, SIZE, SLEEP, FAIL, REFUSE, GIVE, REMEMBER, RECALL, COUNTERS, ECHO_IN_TASK = range(0x20, 0x2A)


class Child:
    """The other process."""

    def __init__(self, folder: Path, allowed: list[str], dial: list[str] | None = None) -> None:
        program = str(Path(__file__).with_name("child_node.py"))
        dialing = ["--dial", ",".join(dial)] if dial else []
        self._arguments = [sys.executable, program, str(folder), *dialing, *allowed]
        self.start()

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            self._arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.node_id: str = said["node_id"]
        self.addresses: list[str] = said["addresses"]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        code = self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@asynccontextmanager
async def two_nodes(
    folder: Path, *, child_dials: bool = False, settings: Settings | None = None
) -> AsyncIterator[tuple[Mesh, Child]]:
    """Our node, connected to the child, which one of the two has dialed."""
    mesh = Mesh(folder / "ours", role="gateway", settings=settings)
    await mesh.start()
    child = Child(folder / "theirs", [mesh.node_id], mesh.addresses if child_dials else None)
    try:
        if child_dials:
            mesh.allow(child.node_id)
        else:
            mesh.add_peer(child.node_id, child.addresses)
        await mesh.wait_up(child.node_id, 5)
        yield mesh, child
    finally:
        await mesh.close()
        if child.process.poll() is None:
            child.end()


def run(
    test: Callable[[Mesh, Child], Coroutine[Any, Any, None]],
    folder: Path,
    *,
    child_dials: bool = False,
    settings: Settings | None = None,
) -> None:
    """Runs a test on two connected nodes in two processes. `settings` are those of ours."""

    async def body() -> None:
        async with two_nodes(folder, child_dials=child_dials, settings=settings) as (mesh, child):
            await test(mesh, child)

    tune_interpreter()
    asyncio.run(body())


def run_here(
    test: Callable[[Mesh, Mesh], Coroutine[Any, Any, None]], folder: Path, settings: Settings | None = None
) -> None:
    """Runs a test on two connected nodes in this process: the caller and the server."""

    async def body() -> None:
        caller = Mesh(folder / "caller", role="gateway", settings=settings)
        server = Mesh(folder / "server", role="broker", allow=[caller.node_id], settings=settings)
        try:
            await server.start()
            await caller.start()
            caller.add_peer(server.node_id, server.addresses)
            await caller.wait_up(server.node_id, 5)
            await test(caller, server)
        finally:
            await caller.close()
            await server.close()

    asyncio.run(body())


async def state_becomes(mesh: Mesh, node_id: str, state: NodeState, within: float) -> None:
    """Waits for the roster to say so; TimeoutError if it does not in time."""
    async with asyncio.timeout(within):
        while (info := mesh.roster.get(node_id)) is None or info.state is not state:
            await asyncio.sleep(0.005)
