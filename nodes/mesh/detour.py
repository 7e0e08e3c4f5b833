"""Sends a node's packets over a detour: a relay that delays or drops them (`rafka_lab.mesh_relay`).

iroh finds the direct path between two nodes by itself, whatever address it was told. So a node on a detour hears one
source port only: a filter on its UDP sockets (classic BPF) lets the kernel drop all other packets, and no other path
ever works. Linux only; without a detour nothing here runs.
"""

import contextlib
import ctypes
import logging
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodes.mesh.quic import join_address

if TYPE_CHECKING:
    from nodes.mesh.mesh import Mesh

log = logging.getLogger(__name__)

# Linux's numbers; Python's socket module does not name them.
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_OPEN_FILES = Path("/proc/self/fd")
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def obey(mesh: "Mesh", order: dict[str, Any]) -> None:
    """What a lab may ask of a running node, by its control pipe."""
    match order:
        case {"peer": str(node_id), "addresses": [*addresses]}:
            mesh.move_peer(node_id, addresses)
        case {"hear_only": int() | None as port}:
            mesh.hear_only(port)
        case _:
            log.error("the control pipe brought an order that this version does not know: %r", order)


def hear_only(addresses: list[str], port: int | None) -> None:
    """The sockets at `addresses` get packets of source port `port` only; None: of all."""
    for mine in _sockets(addresses):
        with mine:
            if port is not None:
                _attach(mine, port)
            else:
                with contextlib.suppress(FileNotFoundError):  # there is none
                    mine.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)


def _sockets(addresses: list[str]) -> Iterator[socket.socket]:
    """iroh keeps its sockets to itself; they are found by their addresses. The caller closes these copies."""
    for file in list(_OPEN_FILES.iterdir()):
        try:
            if not file.is_socket():
                continue
            found = socket.socket(fileno=os.dup(int(file.name)))
        except OSError:
            continue  # closed since
        is_udp = found.family in _FAMILIES and found.type == socket.SOCK_DGRAM
        if is_udp and join_address(*found.getsockname()[:2]) in addresses:
            yield found
        else:
            found.close()


def _attach(mine: socket.socket, port: int) -> None:
    program = (
        (0x28, 0, 0, 0),  # load the two bytes at 0 of the UDP header: the source port
        (0x15, 0, 1, port),  # if it is `port`
        (0x06, 0, 0, 0xFFFFFFFF),  # take all of the packet
        (0x06, 0, 0, 0),  # else nothing of it
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    mine.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(code)))
