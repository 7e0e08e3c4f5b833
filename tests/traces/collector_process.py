"""A collector as a process of its own, from its ready line to its end by the control pipe."""

import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
END_SECONDS = 20


@dataclass
class Running:
    """A collector process."""

    process: subprocess.Popen[str]
    url: str
    grpc: str
    store: Path

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            return json.loads(answer.read())

    def stats(self) -> dict[str, int]:
        found: dict[str, int] = self.get("/api/stats")
        return found

    def end(self) -> int:
        """Closes the control pipe and waits."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(END_SECONDS)


def start(store: Path, *arguments: str) -> Running:
    process = subprocess.Popen(
        [sys.executable, "-m", "traces", "--control-pipe", "--store", str(store), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    assert said["pid"] == process.pid
    return Running(process, said["traces"], said["grpc"], store)


def finish(running: Running) -> None:
    process = running.process
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(END_SECONDS)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
