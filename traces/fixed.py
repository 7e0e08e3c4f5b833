"""What many spans share: the recorder keeps it by reference and encodes it once. To any other provider it is a plain
mapping, or a plain link."""

from typing import Any

from opentelemetry.trace import Link


class Fixed(dict[str, Any]):
    """Attributes. Must not be changed once a span has them."""

    __slots__ = ("encoded",)

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.encoded: bytes | None = None  # the recorder's


class FixedLink(Link):
    """A link, as from all requests of a connection to its first."""

    encoded: bytes | None = None  # the recorder's
