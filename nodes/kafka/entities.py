"""Kafka's types by API and version, as kio has them, and builders that take the fields of all versions at once."""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any

from nodes.kafka.apis import Api


@functools.cache
def request_type(api: Api, version: int) -> Any:
    """The type that requests of this version decode to (of kio's lowest version for older ones)."""
    return getattr(_module(api, version, "request"), _camel(api.schema) + "Request")


@functools.cache
def response_type(api: Api, version: int) -> Any:
    return getattr(_module(api, version, "response"), _camel(api.schema) + "Response")


@functools.cache
def is_flexible(api: Api, version: int) -> bool:
    """Whether requests of this version have tagged fields, and with them header version 2."""
    return version >= api.lowest_in_kio and bool(request_type(api, version).__flexible__)


@functools.cache
def response_header_version(api: Api, version: int) -> int:
    """0 or 1. For ApiVersions it is 0 at every version: a client reads that answer before it knows what we are."""
    return 0 if version < api.lowest_in_kio else int(response_type(api, version).__header_schema__.__version__)


class Builders:
    """`builders.PartitionData(...)` makes that type, leaving out the fields that the version does not have."""

    def __init__(self, api: Api, version: int) -> None:
        self._module = _module(api, version, "response")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        builder = _builder(getattr(self._module, name))
        setattr(self, name, builder)
        return builder


@functools.cache
def builders(api: Api, version: int) -> Builders:
    """The builders for a response of this version."""
    return Builders(api, version)


def _builder(kind: Any) -> Callable[..., Any]:
    names = frozenset(field.name for field in dataclasses.fields(kind))

    def build(**fields: Any) -> Any:
        if fields.keys() <= names:
            return kind(**fields)
        return kind(**{name: value for name, value in fields.items() if name in names})

    return build


def _module(api: Api, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{api.schema}.v{api.kio_version(version)}.{kind}")


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
