"""The node's identity: an Ed25519 key and the ports it listened on, kept in the node's folder."""

import contextlib
import json
import os
import stat
from pathlib import Path

from nodes.mesh import quic
from nodes.mesh.errors import IdentityError

KEY_FILE = "mesh.key"
PORTS_FILE = "mesh.ports"
_KEY_BYTES = 32
_OWNER_ONLY = 0o600


def load_or_create_key(folder: Path) -> bytes:
    """The node's secret key; made at the first start. Refuses a key that others can read."""
    path = folder / KEY_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        _create(path)
        return _read(path)
    except OSError as error:
        raise IdentityError(f"the node's key {path} cannot be used: {error}") from error


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise IdentityError(f"{path} has mode {mode:o}, so others may know the node's key: chmod 600 it")
        key = file.read(_KEY_BYTES + 1)
    if len(key) != _KEY_BYTES:
        raise IdentityError(f"{path} is not a key ({_KEY_BYTES} bytes); remove it to get a new identity")
    return key


def _create(path: Path) -> None:
    """Writes a whole key under another name first: a crash or a second starter never leaves half of one."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
    try:
        os.write(descriptor, quic.new_secret())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        with contextlib.suppress(FileExistsError):  # another process was first: its key counts
            os.link(draft, path)
    finally:
        draft.unlink()


def load_ports(folder: Path) -> dict[str, int]:
    """The port of each host at the last start, so that peers find a restarted node where it was."""
    try:
        ports = json.loads((folder / PORTS_FILE).read_text())
        return {str(host): int(port) for host, port in ports.items() if 0 < int(port) < 65536}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # a lost or odd file costs a new port, nothing else


def save_ports(folder: Path, addresses: list[str]) -> None:
    ports = {}
    for address in addresses:
        host, _, port = address.rpartition(":")
        ports[host.strip("[]")] = int(port)
    (folder / PORTS_FILE).write_text(json.dumps(ports))
