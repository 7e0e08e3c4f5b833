"""Requests from bytes and responses to buffers, for every API and version of the table."""

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


class Request(NamedTuple):
    """A decoded request. `body` is kio's entity of the version (of kio's lowest version for older ones)."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    size: int

    @property
    def build(self) -> entities.Builders:
        """The builders for this request's response."""
        return entities.builders(self.api, self.version)


def decode_request(frame: memoryview) -> Request:
    """The request in a frame (read-only, without its length). Bytes after the body are left alone, as Kafka does.

    Record bytes in the result are views on the frame, all else is copied.
    """
    if len(frame) < _HEADER.size:
        raise MalformedRequestError(f"a request of {len(frame)} bytes; its header alone has {_HEADER.size}")
    key, version, correlation_id = _HEADER.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise UnknownApiError(f"API {key} (version {version}) is not served here")
    if not api.lowest <= version <= api.highest:
        raise UnsupportedVersionError(
            f"{api.schema} version {version} is not served; versions {api.lowest} to {api.highest} are",
            api_key=key,
            correlation_id=correlation_id,
        )
    cursor = Cursor(frame, _HEADER.size)
    client_id = cursor.nullable_string()
    if entities.is_flexible(api, version):
        cursor.tagged_fields({})
    if version < api.lowest_in_kio:
        body = legacy.decode(api.key, version, cursor)
    else:
        body = requests.reader(entities.request_type(api, version))(cursor)
    return Request(api, version, correlation_id, client_id, body, len(frame))


def encode_response(request: Request, response: Any) -> list[Buffer]:
    """The response with length and header, as buffers to be sent one after the other."""
    api, version = request.api, request.version
    parts: list[Buffer] = []
    if version < api.lowest_in_kio:
        legacy.encode(api.key, version, response, parts)
    else:
        if entities.response_header_version(api, version):
            parts.append(_NO_TAGGED_FIELDS)
        responses.writer(entities.response_type(api, version))(parts, response)
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
