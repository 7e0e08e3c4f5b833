"""Attributes that many spans share: the recorder keeps them by reference and encodes them once. To any other provider
they are a plain mapping."""

from typing import Any


class Fixed(dict[str, Any]):
    """Must not be changed once a span has it."""

    __slots__ = ("encoded",)

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.encoded: bytes | None = None  # the recorder's
