"""The C library's heap: buffers of requests are reused while there is traffic, and given back when it is over.

Left alone, glibc does neither well: it shrinks and grows the heap with every large request, each time with page faults
(118 a megabyte were measured in a broker), and after a very large one it keeps up to 64 MB at the end
of the heap and all that is free in the middle. Where the C library is another one, nothing is done here.
"""

import ctypes
from collections.abc import Callable
from typing import Any

_SIZES_BEFORE_FREE_BYTES = 8
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_OPTIONS = {
    # Larger buffers are mappings of their own, which go back when they are freed. Clients send batches of about 1 MB.
    _M_MMAP_THRESHOLD: 8 * 1024 * 1024,
    # More than the requests of a fast client at one time.
    _M_TRIM_THRESHOLD: 64 * 1024 * 1024,
    # Growing costs a system call; by this much at a time it is not felt.
    _M_TOP_PAD: 1024 * 1024,
}


class _HeapFigures(ctypes.Structure):
    """glibc's `struct mallinfo2`: ten sizes, of which the ninth (`fordblks`) is what is free inside the heap."""

    _fields_ = [
        ("others", ctypes.c_size_t * _SIZES_BEFORE_FREE_BYTES),
        ("free_bytes", ctypes.c_size_t),
        ("free_at_end", ctypes.c_size_t),
    ]


class _Glibc:
    """The functions used here; AttributeError where the C library does not have them."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self.figures: Callable[[], Any] = library.mallinfo2  # from glibc 2.33 on
        self.figures.restype = _HeapFigures
        self.give_back: Callable[[int], int] = library.malloc_trim
        self.give_back.argtypes = (ctypes.c_size_t,)
        self.set_option: Callable[[int, int], int] = library.mallopt


def _glibc() -> _Glibc | None:
    try:
        return _Glibc()
    except AttributeError:
        return None


_library = _glibc()


def keep_for_reuse() -> None:
    """To be called once, when the program starts: what is freed stays in the heap until `trim`."""
    if _library is not None:
        for option, value in _OPTIONS.items():
            _library.set_option(option, value)


def trim(limit: int) -> bool:
    """Gives free memory back if there is more than `limit` of it; whether it did."""
    if _library is None or _library.figures().free_bytes <= limit:
        return False
    _library.give_back(0)
    return True


class IdleTrim:
    """Gives free memory back when traffic is low: while much comes and goes it is about to be used again."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._moved = 0

    def look(self, moved: int) -> None:
        """To be called now and then with the bytes that came and went in all."""
        if moved - self._moved < self._limit:
            trim(self._limit)
        self._moved = moved
