"""What many spans share: the recorder keeps it by reference and encodes it once. To any other provider attributes are a
plain mapping."""

from typing import Any

from opentelemetry.trace import Link, SpanKind


class Fixed(dict[str, Any]):
    """Attributes. Must not be changed once a span has them."""

    __slots__ = ("encoded",)

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.encoded: bytes | None = None  # the recorder's


class Shape:
    """Name, kind, attributes and links of the spans that one place in a program makes."""

    __slots__ = ("attributes", "head", "kind", "links", "name", "tails")

    def __init__(self, name: str, kind: SpanKind, attributes: Fixed, links: tuple[Link, ...] = ()) -> None:
        self.name = name
        self.kind = kind
        self.attributes = attributes
        self.links = links
        self.head: bytes | None = None  # the recorder's: name and kind, encoded
        self.tails: dict[int, bytes] = {}  # and attributes, links and flags, by the flags
