"""Every error of the mesh, and the status codes that errors of the remote side travel as.

Each message says what happened, with which peer, and what to do. All attributes beside the message are keywords, so
that an error survives pickling.
"""

from enum import IntEnum


class Status(IntEnum):
    """How a call ended, as it travels in `KafkaOpResponse`. Codes from `FIRST_APPLICATION_CODE` are the handler's."""

    OK = 0
    NO_HANDLER = 1
    HANDLER_FAILED = 2
    DEADLINE = 3
    CANCELLED = 4
    BUSY = 5
    TOO_LARGE = 6
    MALFORMED = 7
    REPLAYED = 8
    CLOSING = 9


# Below lies the mesh's own range; a handler that raises `HandlerError` chooses from here on.
FIRST_APPLICATION_CODE = 100


class MeshError(Exception):
    """Base of all errors of this package."""

    def __init__(self, message: str, *, peer: str | None = None) -> None:
        super().__init__(message)
        self.peer = peer


class MalformedError(MeshError):
    """Bytes from the network that are not what the grammar says: the sender's fault, never executed."""


class FrameTooLargeError(MalformedError):
    """A frame that announces more than its tag's limit; refused before anything is allocated for it."""


class PostcardError(MalformedError):
    """Bytes that do not decode to the wanted type."""


class UnencodableError(MeshError):
    """A value that the wire type cannot hold (our own mistake, found before anything was sent)."""


class PayloadTooLargeError(MeshError):
    """A body over the limit, refused on the calling side."""


class IdentityError(MeshError):
    """The node's key file cannot be read, written or trusted."""


class ListenError(MeshError):
    """The endpoint cannot listen where it should, or listens where it must not."""


class MeshClosedError(MeshError):
    """The mesh is not started, or was closed before or during the call."""


class UnknownPeerError(MeshError):
    """A NodeId that nobody added to this mesh."""


class NotAdmittedError(MeshError):
    """The peer refused us: our NodeId is not on its allow-list, or our versions do not fit."""


class PeerDownError(MeshError):
    """No working connection to the peer, before or during the call. Whether the peer did the work is unknown if the
    call had been sent (`sent`)."""

    def __init__(self, message: str, *, peer: str | None = None, sent: bool = False) -> None:
        super().__init__(message, peer=peer)
        self.sent = sent

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args[0], {"peer": self.peer, "sent": self.sent})


class CallTimeoutError(MeshError, TimeoutError):
    """The call's deadline passed on the calling side. Whether the peer did the work is unknown."""


class RemoteError(MeshError):
    """The peer answered with an error: `code` is a `Status`, or the handler's own code from 100 on."""

    def __init__(self, message: str, *, code: int = Status.HANDLER_FAILED, peer: str | None = None) -> None:
        super().__init__(message, peer=peer)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args[0], {"peer": self.peer, "code": self.code})


class HandlerError(MeshError):
    """Raised by a handler to answer with its own code (>= 100) and message instead of HANDLER_FAILED."""

    def __init__(self, message: str, *, code: int = FIRST_APPLICATION_CODE, peer: str | None = None) -> None:
        super().__init__(message, peer=peer)
        if not FIRST_APPLICATION_CODE <= code <= 0xFFFF:
            raise ValueError(f"a handler's error code lies in {FIRST_APPLICATION_CODE}..65535, not {code}")
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.args[0], {"peer": self.peer, "code": self.code})


class FastBindingWarning(RuntimeWarning):
    """The iroh binding runs unpatched: correct, but slow and not safe under cancellation."""


def _rebuild(kind: type[MeshError], message: str, attributes: dict[str, object]) -> MeshError:
    return kind(message, **attributes)  # type: ignore[arg-type]
