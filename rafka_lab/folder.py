"""A lab's data folder: made, locked for one process, and told apart from the folder of another cluster."""

import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path

from rafka_lab.errors import DataFolderError, LabError

LOCK_FILE = "lab.lock"
CLUSTER_FILE = "lab.json"
# Nodes whose lab was killed end by themselves, within 5 s; the next lab waits for them.
LEFTOVER_SECONDS = 8.0
# The same for the gateway's port, which is free as soon as the gateway has closed its listener.
PORT_SECONDS = 2.0
_POLL_SECONDS = 0.02


class DataFolder:
    """The folder of one cluster: `<node>/` for each node and `logs/`."""

    def __init__(self, path: Path | str | None) -> None:
        self.is_temporary = path is None
        self._wanted = None if path is None else Path(path).expanduser().absolute()
        self.path = self._wanted
        self._lock: int | None = None

    def open(self, brokers: int) -> Path:
        """Makes and locks the folder. Raises `DataFolderError` in one sentence."""
        if self._wanted is None:
            self.path = Path(tempfile.mkdtemp(prefix="rafka-lab-"))
        assert self.path is not None
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(self.path)
            _check_cluster(self.path, brokers)
        except OSError as error:
            self.close()
            raise DataFolderError(
                f"the data folder {self.path} cannot be used ({error.strerror or error}): choose one that you may "
                "write to"
            ) from error
        except DataFolderError:
            self.close()
            raise
        return self.path

    def node(self, name: str) -> Path:
        assert self.path is not None
        return self.path / name

    def log(self, name: str) -> Path:
        assert self.path is not None
        return self.path / "logs" / f"{name}.log"

    def close(self) -> None:
        """Lets go of the folder; a temporary one is removed."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if self.is_temporary and self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)


def _lock(path: Path) -> int:
    descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise DataFolderError(
            f"the data folder {path} is in use by process {owner}: stop that one first, or choose another folder"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _check_cluster(path: Path, brokers: int) -> None:
    """A broker that is left out would take its partitions with it."""
    file = path / CLUSTER_FILE
    known = 0
    if file.exists():
        try:
            known = int(json.loads(file.read_text())["brokers"])
        except (ValueError, KeyError, TypeError):
            raise DataFolderError(f"{file} is not what a lab writes: move it away, or choose another folder") from None
    if brokers < known:
        raise DataFolderError(
            f"the data folder {path} holds a cluster of {known} brokers: ask for at least {known}, not {brokers}"
        )
    if brokers != known:
        file.write_text(json.dumps({"brokers": brokers}) + "\n")


def wait_unlocked(file: Path, seconds: float = LEFTOVER_SECONDS) -> None:
    """Waits until no process holds the log's lock file any more, or the time is over (the broker then says why)."""
    if not file.exists():
        return
    end = time.monotonic() + seconds
    with file.open("rb") as handle:
        while time.monotonic() < end:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_POLL_SECONDS)
            else:
                return


def free_port() -> int:
    """A TCP port that is free now, so that others can be told before its owner runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_port_free(port: int, seconds: float = PORT_SECONDS) -> None:
    """Returns when the gateway can have the port. Raises in one sentence if another program keeps it."""
    end = time.monotonic() + seconds
    while True:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                    reason = "taken by another program" if error.errno == errno.EADDRINUSE else str(error.strerror)
                    raise LabError(
                        f"port {port} of 127.0.0.1 is {reason}: choose another one, or 0 for any that is free"
                    ) from error
            else:
                return
        time.sleep(_POLL_SECONDS)


def free_mesh_ports() -> list[str]:
    """Addresses that a node can have, as host:port, so that its peers can be told before it runs."""
    found = []
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.bind((host, 0))
                port = probe.getsockname()[1]
        except OSError:
            continue  # a machine without IPv6
        found.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found
