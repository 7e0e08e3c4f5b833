"""A gateway process and fake brokers for the tests, each in a process of its own."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodes.mesh import Mesh

ROOT = Path(__file__).parents[3]
FAKE_BROKER = Path(__file__).with_name("fake_broker.py")


class Node:
    """One process that prints a JSON line when it is ready."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self.start()

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.said: dict[str, Any] = json.loads(line)

    def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return code


class Cluster:
    """A gateway in front of fake brokers."""

    def __init__(self, folder: Path, brokers: int = 1, extra: tuple[str, ...] = ()) -> None:
        self.folder = folder
        gateway_id = Mesh(folder / "gateway", role="gateway").node_id
        self.brokers = [
            Node(
                [
                    sys.executable,
                    str(FAKE_BROKER),
                    str(index),
                    str(brokers),
                    str(folder / f"broker-{index}"),
                    gateway_id,
                ],
                folder / f"broker-{index}.log",
            )
            for index in range(brokers)
        ]
        places = [
            f"--broker={index}={node.said['node_id']}@{','.join(node.said['addresses'])}"
            for index, node in enumerate(self.brokers)
        ]
        command = [sys.executable, "-m", "nodes.gateway", "--name", "gateway-0", "--data", str(folder / "gateway")]
        self.gateway = Node([*command, "--listen", "127.0.0.1:0", *places, *extra], folder / "gateway.log")
        self.bootstrap: str = self.gateway.said["listen"]
        self.port = int(self.bootstrap.rpartition(":")[2])

    def gateway_log(self) -> str:
        return (self.folder / "gateway.log").read_text()

    def end(self) -> None:
        for node in (self.gateway, *self.brokers):
            node.end()


@contextlib.contextmanager
def running(folder: Path, brokers: int = 1, extra: tuple[str, ...] = ()) -> Iterator[Cluster]:
    cluster = Cluster(folder, brokers, extra)
    try:
        yield cluster
    finally:
        cluster.end()
    log = cluster.gateway_log()
    assert "Traceback" not in log, log
