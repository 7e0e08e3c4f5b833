"""Kafka's wire format, sans-IO: request framing, the table of APIs, and the codecs of all their versions."""

from kio.schema.errors import ErrorCode

from nodes.kafka.apis import APIS, Api, ApiKey
from nodes.kafka.codec import Buffer, Request, Wire, decode_request, encode_response, encode_versions_answer
from nodes.kafka.entities import Builders
from nodes.kafka.errors import (
    FrameLengthError,
    KafkaWireError,
    MalformedRequestError,
    UnknownApiError,
    UnsupportedVersionError,
)
from nodes.kafka.frames import MAX_REQUEST_BYTES, SCRATCH_BYTES, FrameReader

__all__ = [
    "APIS",
    "MAX_REQUEST_BYTES",
    "SCRATCH_BYTES",
    "Api",
    "ApiKey",
    "Buffer",
    "Builders",
    "ErrorCode",
    "FrameLengthError",
    "FrameReader",
    "KafkaWireError",
    "MalformedRequestError",
    "Request",
    "UnknownApiError",
    "UnsupportedVersionError",
    "Wire",
    "decode_request",
    "encode_response",
    "encode_versions_answer",
]
