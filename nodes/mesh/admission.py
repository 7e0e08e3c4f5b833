"""Who may come in: pure decisions, without I/O. The mesh asks, and does what it is told."""

from collections.abc import Callable

from nodes.mesh.messages import PROTOCOL_VERSION, Hello


class HandshakeBudget:
    """A token bucket for handshakes of unknown sources; a flood of strangers then costs a bounded part of a core."""

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._tokens = float(per_second)
        self._at = clock()

    def take(self) -> bool:
        now = self._clock()
        self._tokens = min(self._per_second, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def refusal_of(hello: object) -> str:
    """Why a first message does not make a peer; "" if it does."""
    if not isinstance(hello, Hello):
        return "the first message must be Hello"
    if hello.protocol != PROTOCOL_VERSION:
        return f"protocol {hello.protocol} is not {PROTOCOL_VERSION}; run the same version on both nodes"
    return ""


def new_link_wins(*, same_boot: bool, old_alive: bool, old_dialer: str, new_dialer: str) -> bool:
    """Whether a new connection replaces the old one of the same NodeId. Both sides come to the same answer.

    A restarted peer, a dead link and a re-dial by the same side always win. When two running nodes dial each other at
    the same moment, the connection of the smaller NodeId stays.
    """
    if not same_boot or not old_alive or old_dialer == new_dialer:
        return True
    return new_dialer < old_dialer
