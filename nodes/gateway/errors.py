"""The gateway's own errors, and the one place where errors of the mesh become Kafka's numbers."""

import logging

from kio.schema.errors import ErrorCode

from nodes.mesh import (
    CallTimeoutError,
    MeshClosedError,
    MeshError,
    NotAdmittedError,
    PayloadTooLargeError,
    PeerDownError,
    RemoteError,
    Status,
    UnknownPeerError,
)

log = logging.getLogger(__name__)

_CODES = {int(code): code for code in ErrorCode}
NONE = ErrorCode.none
UNKNOWN = ErrorCode.unknown_server_error
# The handler never began, so the client may try again at once.
_NOT_BEGUN = frozenset({Status.BUSY})
# The handler may have done its work.
_OUTCOME_UNKNOWN = frozenset({Status.DEADLINE, Status.CANCELLED, Status.CLOSING, Status.REPLAYED})


class GatewayError(Exception):
    """Base of the gateway's own errors."""


class CloseConnectionError(GatewayError):
    """A request that is answered by closing the connection, as Kafka does; the message goes to the log."""


def kafka_code(number: int) -> ErrorCode:
    """Kafka's code for a number from a broker; one that Kafka does not have is our own mistake."""
    code = _CODES.get(number)
    if code is None:
        log.error("a broker answered with error %d, which Kafka does not have", number)
        return UNKNOWN
    return code


def is_sure_not_done(error: MeshError) -> bool:
    """Whether the peer certainly did nothing."""
    if isinstance(error, PeerDownError):
        return not error.sent
    if isinstance(error, RemoteError):
        return error.code in _NOT_BEGUN
    return isinstance(error, MeshClosedError | UnknownPeerError | NotAdmittedError)


def write_failure(error: MeshError, unavailable: ErrorCode) -> ErrorCode:
    """The code for a write that got no answer: `unavailable` only if it was certainly not done."""
    if isinstance(error, PayloadTooLargeError):
        return ErrorCode.message_too_large
    if is_sure_not_done(error):
        return unavailable
    if isinstance(error, CallTimeoutError | PeerDownError):
        return ErrorCode.request_timed_out
    if isinstance(error, RemoteError) and error.code in _OUTCOME_UNKNOWN:
        return ErrorCode.request_timed_out
    log.error("an op failed at the broker: %s", error)
    return UNKNOWN


def read_failure(error: MeshError, unavailable: ErrorCode) -> ErrorCode:
    """The code for a read that got no answer. It can always be tried again, so it matters only that clients do."""
    code = write_failure(error, unavailable)
    return unavailable if code is ErrorCode.request_timed_out else code
