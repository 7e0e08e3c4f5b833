"""Requests from bytes and responses to buffers, for every API and version of the table."""

import functools
import struct
from typing import Any, NamedTuple

from nodes.kafka import entities, legacy, requests, responses
from nodes.kafka.apis import APIS, Api
from nodes.kafka.cursor import Cursor
from nodes.kafka.errors import MalformedRequestError, UnknownApiError, UnsupportedVersionError

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct(">hhi")
_LENGTH_AND_ID = struct.Struct(">ii")
# Pieces from here on are sent as they are; smaller ones are joined, since each costs the socket an entry.
JOIN_BELOW = 4 * 1024
_NO_TAGGED_FIELDS = b"\x00"


class Wire:
    """One version of one API: how its requests are read and its responses written. Made when it is first met."""

    __slots__ = ("api", "build", "flexible", "name", "opening", "read", "version", "write")

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.name = api.schema
        self.build = entities.Builders(api, version)
        self.flexible = False
        self.opening: tuple[bytes, ...] = ()  # of a response, behind the correlation id
        self.read: requests.Read = functools.partial(legacy.decode, api.key, version)
        self.write: responses.Write = functools.partial(legacy.encode, api.key, version)
        if version >= api.lowest_in_kio:
            request = entities.request_type(api, version)
            self.flexible = bool(request.__flexible__)
            self.read = requests.reader(request)
            self.write = responses.writer(entities.response_type(api, version))
            if entities.response_header_version(api, version):
                self.opening = (_NO_TAGGED_FIELDS,)


_wires: dict[tuple[int, int], Wire] = {}


class Request(NamedTuple):
    """A decoded request. `body` is kio's entity of the version (of kio's lowest version for older ones)."""

    wire: Wire
    correlation_id: int
    client_id: str | None
    body: Any
    size: int

    @property
    def api(self) -> Api:
        return self.wire.api

    @property
    def version(self) -> int:
        return self.wire.version

    @property
    def build(self) -> entities.Builders:
        """The builders for this request's response."""
        return self.wire.build


def decode_request(frame: memoryview) -> Request:
    """The request in a frame (read-only, without its length). Bytes after the body are left alone, as Kafka does.

    Record bytes in the result are views on the frame, all else is copied.
    """
    if len(frame) < _HEADER.size:
        raise MalformedRequestError(f"a request of {len(frame)} bytes; its header alone has {_HEADER.size}")
    key, version, correlation_id = _HEADER.unpack_from(frame)
    wire = _wires.get((key, version)) or _new_wire(key, version, correlation_id)
    cursor = Cursor(frame, _HEADER.size)
    client_id = cursor.nullable_string()
    if wire.flexible:
        cursor.tagged_fields({})
    return Request(wire, correlation_id, client_id, wire.read(cursor), len(frame))


def _new_wire(key: int, version: int, correlation_id: int) -> Wire:
    api = APIS.get(key)
    if api is None:
        raise UnknownApiError(f"API {key} (version {version}) is not served here")
    if not api.lowest <= version <= api.highest:
        raise UnsupportedVersionError(
            f"{api.schema} version {version} is not served; versions {api.lowest} to {api.highest} are",
            api_key=key,
            correlation_id=correlation_id,
        )
    wire = _wires[key, version] = Wire(api, version)
    return wire


def encode_response(request: Request, response: Any) -> list[Buffer]:
    """The response with length and header, as buffers to be sent one after the other."""
    parts: list[Buffer] = [*request.wire.opening]
    request.wire.write(parts, response)
    return _framed(request.correlation_id, parts)


def _framed(correlation_id: int, parts: list[Buffer]) -> list[Buffer]:
    length = 4 + sum(map(len, parts))
    out: list[Buffer] = []
    small: list[Buffer] = [_LENGTH_AND_ID.pack(length, correlation_id)]
    for part in parts:
        if len(part) < JOIN_BELOW:
            small.append(part)
        else:
            out += (b"".join(small), part)
            small = []
    if small:
        out.append(b"".join(small))
    return out


def encode_versions_answer(correlation_id: int, error_code: int) -> bytes:
    """ApiVersions version 0 with our ranges: what a client gets that asked in a version above ours."""
    ranges = b"".join(struct.pack(">hhh", api.key, api.lowest, api.highest) for api in APIS.values())
    body = struct.pack(">ihi", correlation_id, error_code, len(APIS)) + ranges
    return struct.pack(">i", len(body)) + body
