"""Nodes are children of the kernel: an interrupt leaves them alone, and any end of the kernel ends them."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

START = "from rafka_lab import Lab\nlab = Lab(trace_ratio=0).start()\nprint([node.pid for node in lab.nodes.values()])"
# Nodes give themselves 4.5 s at most after their kernel is gone; the rest is for a machine that is busy.
GONE_SECONDS = 15.0
ANSWER_SECONDS = 60.0


class Kernel:
    """A kernel as Jupyter starts it."""

    def __init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel()
        self.client = self._connect()

    def _connect(self) -> BlockingKernelClient:
        client = self.manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=ANSWER_SECONDS)
        return client

    def run(self, code: str) -> str:
        """What the code prints; raises what it raises."""
        said: list[str] = []

        def output(message: dict[str, object]) -> None:
            content = message["content"]
            assert isinstance(content, dict)
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                said.append(content["text"])

        reply = self.client.execute_interactive(code, output_hook=output, timeout=ANSWER_SECONDS)
        while reply["content"]["status"] == "aborted":  # right after an interrupt a kernel drops what is queued
            reply = self.client.execute_interactive(code, output_hook=output, timeout=ANSWER_SECONDS)
        assert reply["content"]["status"] == "ok", reply["content"]
        return "".join(said)

    def start_lab(self) -> list[int]:
        return [int(pid) for pid in self.run(START).strip("[]\n").split(",")]

    def restart(self) -> None:
        self.client.stop_channels()
        self.manager.restart_kernel(now=False)
        self.client = self._connect()

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    started = Kernel()
    yield started
    started.close()


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while any(map(alive, pids)):
        assert time.monotonic() < deadline, f"still there: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.05)


def test_an_interrupt_leaves_the_nodes_alone(kernel: Kernel) -> None:
    pids = kernel.start_lab()
    waiting = kernel.client.execute("print('waiting')\nimport time\ntime.sleep(600)")
    while kernel.client.get_iopub_msg(timeout=ANSWER_SECONDS)["msg_type"] != "stream":
        pass
    kernel.manager.interrupt_kernel()
    reply = kernel.client.get_shell_msg(timeout=ANSWER_SECONDS)
    while reply["parent_header"].get("msg_id") != waiting:
        reply = kernel.client.get_shell_msg(timeout=ANSWER_SECONDS)
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    assert all(map(alive, pids))
    assert kernel.run("lab.produce('t', ['a', 'b'])\nprint(len(lab.fetch('t')))").strip() == "2"


def test_a_restart_and_a_shutdown_end_the_nodes(kernel: Kernel) -> None:
    first = kernel.start_lab()
    kernel.restart()
    assert_gone(first)
    second = kernel.start_lab()
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel()
    assert_gone(second)


def test_a_killed_kernel_takes_its_nodes_along(kernel: Kernel) -> None:
    pids = kernel.start_lab()
    kernel_pid = int(kernel.run("import os\nprint(os.getpid())"))
    os.kill(kernel_pid, signal.SIGKILL)
    assert_gone(pids)


def test_two_notebooks_have_two_labs_and_a_start_cell_that_is_run_again_replaces_its_lab(kernel: Kernel) -> None:
    other = Kernel()
    try:
        pids, theirs = kernel.start_lab(), other.start_lab()
        for one, name in ((kernel, "mine"), (other, "theirs")):
            one.run(f"lab.produce('{name}', '{name}')")
        assert kernel.run("print(lab.topics()['topic'].tolist())").strip() == "['mine']"
        assert other.run("print(lab.topics()['topic'].tolist())").strip() == "['theirs']"
        again = kernel.start_lab()
        assert set(again).isdisjoint(pids)
        assert_gone(pids)
        assert all(map(alive, [*again, *theirs]))
    finally:
        other.close()
    assert_gone(theirs)
