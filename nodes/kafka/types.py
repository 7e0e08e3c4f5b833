"""What kio's field annotations say."""

import types
import typing
from typing import Any


def taken_apart(annotation: Any) -> tuple[Any, bool, bool]:
    """The item's type, whether it is an array, whether it may be null."""
    nullable = False
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        nullable = True
        (annotation,) = (arm for arm in typing.get_args(annotation) if arm is not type(None))
    if typing.get_origin(annotation) is tuple:
        return typing.get_args(annotation)[0], True, nullable
    return annotation, False, nullable
