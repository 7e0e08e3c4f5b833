"""Shared memory between two nodes of one machine: a body lies in the sender's arena, and its frame says where.

Everything else stays on the mesh: the frame with its trace header, the order, the answer, the deadline. What is saved
is the crossing of the body's bytes, which costs both nodes about 6 ms of CPU a megabyte, a third of it in the binding's
byte-by-byte converters.

An arena is anonymous memory (memfd) that only its owner writes. The owner tells an admitted peer where it is; the peer
opens it through /proc, which the kernel allows to processes of the same user on the same machine only, and looks for
the proof that came over the mesh. Whatever goes wrong means no more than that bodies travel as chunks. The memory is
sealed against shrinking, so that reading it never ends the reader, and a body is copied out before anything looks at
it, so that nobody can change it afterwards.
"""

import fcntl
import mmap
import os
import secrets
from bisect import bisect_left
from contextlib import suppress

from nodes.mesh.errors import MalformedError
from nodes.mesh.frames import MAX_BODY_BYTES
from nodes.mesh.messages import ArenaOffer, Shared
from nodes.mesh.postcard import Buffer

AVAILABLE = hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")
_SEALS = (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL) if AVAILABLE else 0
PROOF_BYTES = 32
# Smaller bodies travel in their frame: a place in the arena and its way back cost about as much as 2 KB on the mesh.
SHARED_BYTES = 4 * 1024
# The largest arena of a peer that is opened. It is mapped, not read, so it costs addresses only.
LARGEST_OFFER = 1024 * 1024 * 1024
# Places are whole pages: fewer sizes of holes, and memory goes back to the system by the page.
_PAGE = mmap.PAGESIZE


class Arena:
    """The memory that this node writes bodies into, for one peer. `put` says None where there is no room."""

    def __init__(self, size: int) -> None:
        self._descriptor = os.memfd_create("rafka-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._descriptor, size)
        fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, _SEALS)
        self._memory = mmap.mmap(self._descriptor, size)
        self._view = memoryview(self._memory)
        self._size = size
        self._proof = secrets.token_bytes(PROOF_BYTES)
        self._view[:PROOF_BYTES] = self._proof
        self._taken: dict[int, int] = {}  # end of each place by its start
        # The holes as two lists in step, by address: the lowest that fits is used, so that little memory is touched.
        self._hole_starts = [_PAGE]
        self._hole_ends = [size]
        self._touched = _PAGE  # the end of what was written since memory was given back
        self._used = False  # since the last `trim`

    def offer(self) -> ArenaOffer:
        return ArenaOffer(os.getpid(), self._descriptor, self._size, self._proof)

    def put(self, buffers: list[Buffer], size: int) -> int | None:
        """Copies a body into a free place; where that is, or None."""
        room = -(-size // _PAGE) * _PAGE
        start = self._reserve(room)
        if start is None:
            return None
        self._used = True
        self._taken[start] = start + room
        self._touched = max(self._touched, start + room)
        position = start
        for buffer in buffers:
            after = position + len(buffer)
            self._view[position:after] = buffer
            position = after
        return start

    def _reserve(self, room: int) -> int | None:
        for index, (start, end) in enumerate(zip(self._hole_starts, self._hole_ends, strict=True)):
            if end - start == room:
                del self._hole_starts[index], self._hole_ends[index]
                return start
            if end - start > room:
                self._hole_starts[index] = start + room
                return start
        return None

    def free(self, start: int) -> None:
        """The peer has taken the body that lay there."""
        end = self._taken.pop(start, None)
        if end is None:
            raise MalformedError(f"the peer says that it took a body at {start}, where none lies")
        index = bisect_left(self._hole_starts, start)
        if index < len(self._hole_starts) and self._hole_starts[index] == end:
            end = self._hole_ends.pop(index)
            del self._hole_starts[index]
        if index and self._hole_ends[index - 1] == start:
            self._hole_ends[index - 1] = end
        else:
            self._hole_starts.insert(index, start)
            self._hole_ends.insert(index, end)

    def trim(self) -> None:
        """Gives the memory back to the system if it was not used since the last call; to be called now and then."""
        used, self._used = self._used, False
        if used or self._taken or self._touched == _PAGE:
            return
        with suppress(OSError):  # a kernel that cannot do this keeps the memory, which is bounded
            self._memory.madvise(mmap.MADV_REMOVE, _PAGE, self._touched - _PAGE)
        self._touched = _PAGE

    def close(self) -> None:
        self._view.release()
        self._memory.close()
        os.close(self._descriptor)


class PeerArena:
    """The peer's arena, for reading."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._size = len(memory)

    def take(self, position: int, length: int) -> memoryview:
        """A copy of the body at `position`."""
        if length > MAX_BODY_BYTES or position + length > self._size:
            raise MalformedError(f"a body of {length} bytes at {position} of an arena of {self._size}")
        return memoryview(self._memory[position : position + length])

    def close(self) -> None:
        self._memory.close()


def open_offer(offer: ArenaOffer) -> PeerArena | None:
    """The arena that the peer offers, or None if it cannot be had: another machine, another user, not what it says."""
    if not PROOF_BYTES <= offer.size <= LARGEST_OFFER:
        return None
    with suppress(OSError, ValueError):
        # Not blocking: a path may name anything, and a pipe without a writer would hold the node up.
        descriptor = os.open(f"/proc/{offer.pid}/fd/{offer.descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            memory = _map(descriptor, offer)
        finally:
            os.close(descriptor)
        return None if memory is None else PeerArena(memory)
    return None


def _map(descriptor: int, offer: ArenaOffer) -> mmap.mmap | None:
    seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # OSError for what is no such memory
    if not seals & fcntl.F_SEAL_SHRINK or os.fstat(descriptor).st_size != offer.size:
        return None
    memory = mmap.mmap(descriptor, offer.size, prot=mmap.PROT_READ)
    if secrets.compare_digest(memory[:PROOF_BYTES], offer.proof):
        return memory
    memory.close()
    return None


class SharedBodies:
    """Both arenas of a link: ours, which the peer reads, and the peer's.

    Each may be missing (root may open another user's memory, and not the other way round); bodies then travel.
    """

    def __init__(self, size: int) -> None:
        self._enabled = size > 0 and AVAILABLE
        self._ours = Arena(size) if self._enabled else None
        self._peers: PeerArena | None = None
        self._readable = False  # the peer said that it can read ours
        self._offered = False

    def offer(self) -> ArenaOffer | None:
        return None if self._ours is None else self._ours.offer()

    def on_offer(self, offer: ArenaOffer) -> bool:
        """Opens the peer's arena, if this node uses any; whether it could."""
        if self._offered:
            raise MalformedError("a second arena on a link")
        self._offered = True
        self._peers = open_offer(offer) if self._enabled else None
        return self._peers is not None

    def on_answer(self, opened: bool) -> None:
        """The peer says whether it can read our arena; if not, it is of no use."""
        self._readable = opened
        if not opened and self._ours is not None:
            self._ours.close()
            self._ours = None

    def place(self, buffers: list[Buffer], size: int) -> Shared | None:
        """The body in our arena, or None if it has to travel."""
        if size < SHARED_BYTES or not self._readable or self._ours is None:
            return None
        position = self._ours.put(buffers, size)
        return None if position is None else Shared(position, size)

    def take(self, body: Shared) -> memoryview:
        """A copy of a body in the peer's arena."""
        if self._peers is None:
            raise MalformedError("a body in an arena that is not open")
        return self._peers.take(body.position, body.length)

    def free(self, position: int) -> None:
        """The peer has taken the body that lay there."""
        if self._ours is None:
            raise MalformedError("a body that was taken from an arena that is not open")
        self._ours.free(position)

    def trim(self) -> None:
        if self._ours is not None:
            self._ours.trim()

    def close(self) -> None:
        self._readable = False
        for arena in (self._ours, self._peers):
            if arena is not None:
                arena.close()
        self._ours = self._peers = None
