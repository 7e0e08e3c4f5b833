"""The mesh's wire types and op codes. Fields travel in the order written here; see `postcard` for the widths.

A new field or a new order is a new protocol: raise `PROTOCOL_VERSION` with it.
"""

from enum import IntEnum

import msgspec

from nodes.mesh.postcard import U8, U16, U32, U64, Blob

# Nodes of different protocol versions refuse each other at Hello.
PROTOCOL_VERSION = 2


class OpCode(IntEnum):
    """The Kafka operations that cross the mesh. New ones go on from the last."""

    PRODUCE = 0x02
    FETCH = 0x03
    LIST_OFFSETS = 0x04
    DELETE_TOPIC = 0x05
    JOIN_GROUP = 0x06
    SYNC_GROUP = 0x07
    HEARTBEAT = 0x08
    LEAVE_GROUP = 0x09
    OFFSET_COMMIT = 0x0A
    OFFSET_FETCH = 0x0B
    METADATA = 0x0C
    CREATE_TOPICS = 0x0D
    CREATE_PARTITIONS = 0x0E
    SYNC_TOPICS = 0x0F
    DESCRIBE_CONFIGS = 0x10
    ALTER_CONFIGS = 0x11
    INIT_PRODUCER_ID = 0x12
    EPOCH_ENDS = 0x13
    DELETE_RECORDS = 0x14
    STATUS = 0x15


class Hello(msgspec.Struct, frozen=True):
    """The dialer's first frame. `boot` is drawn anew by each process, so a restart can be told from a re-dial."""

    protocol: U16
    role: str
    version: str
    boot: U64
    capabilities: list[str]


class HelloAnswer(msgspec.Struct, frozen=True):
    """The acceptor's answer; only a `refusal` of "" makes the two nodes peers."""

    protocol: U16
    role: str
    version: str
    boot: U64
    capabilities: list[str]
    refusal: str


class Ping(msgspec.Struct, frozen=True):
    """Asks for a Pong with the same number."""

    number: U64


class Pong(msgspec.Struct, frozen=True):
    """Proof that the peer's Python, not only its QUIC thread, is alive."""

    number: U64


class ArenaOffer(msgspec.Struct, frozen=True):
    """Shared memory for bodies that the peer may read if it is on the same machine; see `arena`."""

    pid: U32
    descriptor: U32
    size: U64
    proof: bytes


class ArenaAnswer(msgspec.Struct, frozen=True):
    """Whether the offered memory could be opened; only then may bodies lie there."""

    opened: bool


class Control(msgspec.Struct, frozen=True):
    """The body of a frame with tag 0x10."""

    message: Hello | HelloAnswer | Ping | Pong | ArenaOffer | ArenaAnswer


class Inline(msgspec.Struct, frozen=True):
    """A body that travels inside its frame."""

    data: Blob


class Chunked(msgspec.Struct, frozen=True):
    """A body that follows in `BodyChunk` frames on the bulk stream."""

    length: U64


class Shared(msgspec.Struct, frozen=True):
    """A body that lies in the sender's arena, until the receiver has taken it."""

    position: U64
    length: U64


class KafkaOp(msgspec.Struct, frozen=True):
    """One call. `lane` 0 means unordered; `timeout_ms` is what was left when the frame was made."""

    op_code: U8
    request_id: U64
    org_id: U64
    lane: U16
    timeout_ms: U32
    payload: Inline | Chunked | Shared


class KafkaOpResponse(msgspec.Struct, frozen=True):
    """The answer to the call with the same request id. `status` is a `Status` or the handler's code."""

    request_id: U64
    status: U16
    message: str
    payload: Inline | Chunked | Shared


class BodyChunk(msgspec.Struct, frozen=True):
    """A piece of a chunked body. Pieces come in order; `offset` proves that none is missing or doubled."""

    request_id: U64
    offset: U64
    data: Blob


class BodyAborted(msgspec.Struct, frozen=True):
    """The sender gave the body up; nothing of this request follows."""

    request_id: U64


class BodyCredit(msgspec.Struct, frozen=True):
    """How many bytes of bodies this side has taken from the bulk stream so far; the sender stays within a window."""

    taken: U64


class BodiesTaken(msgspec.Struct, frozen=True):
    """Where in the receiver's arena bodies of answers lay that this side has taken."""

    positions: list[U64]


class Body(msgspec.Struct, frozen=True):
    """The body of a frame with tag 0x13."""

    piece: BodyChunk | BodyAborted | BodyCredit | BodiesTaken
