"""Kafka's types by API and version, as kio has them, and builders that take the fields of all versions at once."""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

from nodes.kafka.apis import Api


def request_type(api: Api, version: int) -> Any:
    """The type that requests of this version decode to (of kio's lowest version for older ones)."""
    return getattr(_module(api, version, "request"), _camel(api.schema) + "Request")


def response_type(api: Api, version: int) -> Any:
    return getattr(_module(api, version, "response"), _camel(api.schema) + "Response")


def response_header_version(api: Api, version: int) -> int:
    """0 or 1. For ApiVersions it is 0 at every version: a client reads that answer before it knows what we are."""
    return int(response_type(api, version).__header_schema__.__version__)


class Builders:
    """`builders.PartitionData(...)` makes that type, leaving out the fields that the version does not have."""

    def __init__(self, api: Api, version: int) -> None:
        self._module = _module(api, version, "response")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        builder = _builder(getattr(self._module, name))
        setattr(self, name, builder)
        return builder


def _builder(kind: Any) -> Callable[..., Any]:
    """A function with the type's fields as parameters, which drops all others."""
    fields = dataclasses.fields(kind)
    scope: dict[str, Any] = {f"default_{field.name}": field.default for field in fields}
    parameters = [field.name + ("" if _is_required(field) else f"=default_{field.name}") for field in fields]
    body = maker(kind, {field.name: field.name for field in fields}, scope)
    return compiled(f"build(*, {', '.join([*parameters, '**_others'])})", body, scope)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    return field.default is dataclasses.MISSING


def maker(kind: Any, values: dict[str, str], scope: dict[str, Any]) -> list[str]:
    """The lines of a function that return a `kind` of these values (expressions by field).

    kio's types are frozen, and their own __init__ takes twice as long: it goes by the name of each field.
    """
    scope |= {"new": object.__new__, "kind": kind}
    lines = ["made = new(kind)"]
    for number, (name, value) in enumerate(values.items()):
        scope[f"set{number}"] = vars(kind)[name].__set__  # the slot itself
        lines.append(f"set{number}(made, {value})")
    return [*lines, "return made"]


def compiled(head: str, body: list[str], scope: dict[str, Any]) -> Callable[..., Any]:
    """The function of this head and these lines."""
    source = f"def {head}:\n" + "".join(f"    {line}\n" for line in body)
    exec(compile(source, f"<{head}>", "exec"), scope)
    function: Callable[..., Any] = scope[head.partition("(")[0]]
    return function


def _module(api: Api, version: int, kind: str) -> Any:
    return importlib.import_module(f"kio.schema.{api.schema}.v{api.kio_version(version)}.{kind}")


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
