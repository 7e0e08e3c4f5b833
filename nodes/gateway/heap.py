"""Gives memory that is free inside the C library's heap back to the system.

glibc raises its own thresholds with the largest buffer it has seen freed (to 32 MB for a mapping of its own, to 64 MB
for what it keeps at the end of the heap), and never returns what is free in the middle. One large request would then be
paid for until the gateway ends. Where the C library is another one, nothing is done here.
"""

import ctypes
from collections.abc import Callable
from typing import Any

_SIZES_BEFORE_FREE_BYTES = 8


class _HeapFigures(ctypes.Structure):
    """glibc's `struct mallinfo2`: ten sizes, of which the ninth (`fordblks`) is what is free inside the heap."""

    _fields_ = [
        ("others", ctypes.c_size_t * _SIZES_BEFORE_FREE_BYTES),
        ("free_bytes", ctypes.c_size_t),
        ("free_at_end", ctypes.c_size_t),
    ]


def _glibc() -> tuple[Callable[[], Any], Callable[[int], int]] | None:
    library = ctypes.CDLL(None)
    try:
        figures, give_back = library.mallinfo2, library.malloc_trim  # the first is there from glibc 2.33 on
    except AttributeError:
        return None
    figures.restype = _HeapFigures
    give_back.argtypes = (ctypes.c_size_t,)
    return figures, give_back


_functions = _glibc()


def trim(limit: int) -> bool:
    """Gives free memory back if there is more than `limit` of it; whether it did."""
    if _functions is None:
        return False
    figures, give_back = _functions
    if figures().free_bytes <= limit:
        return False
    give_back(0)
    return True
