"""Long polls: fetches that wait for records, woken by appends, by the end of their time, or by the broker's end."""

import asyncio
from collections.abc import Callable, Iterable

Key = tuple[bytes, int]  # topic id and partition


class Wait:
    """One fetch that waits for `missing` more bytes in any of its partitions."""

    __slots__ = ("keys", "missing", "on_ready", "timer")

    def __init__(self, keys: list[Key], missing: int, on_ready: Callable[[], None]) -> None:
        self.keys = keys
        self.missing = missing
        self.on_ready = on_ready
        self.timer: asyncio.TimerHandle | None = None


class Waits:
    """All waiting fetches by partition. An append costs those who wait for its partition, and no other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._by_key: dict[Key, set[Wait]] = {}
        self.closed = False

    def __len__(self) -> int:
        return len({wait for waiting in self._by_key.values() for wait in waiting})

    def add(self, keys: Iterable[Key], missing: int, seconds: float, on_ready: Callable[[], None]) -> None:
        """Calls `on_ready` once, from the loop: after that many bytes or that time, whichever is first."""
        wait = Wait(list(keys), missing, on_ready)
        for key in wait.keys:
            self._by_key.setdefault(key, set()).add(wait)
        wait.timer = self._loop.call_later(seconds, self._ready, wait)

    def appended(self, key: Key, size: int) -> None:
        waiting = self._by_key.get(key)
        if waiting:
            for wait in list(waiting):
                wait.missing -= size
                if wait.missing <= 0:
                    self._soon(wait)

    def end(self, keys: Iterable[Key]) -> None:
        """The partitions are gone: whoever waits for one shall look again."""
        for key in keys:
            for wait in list(self._by_key.get(key, ())):
                self._soon(wait)

    def close(self) -> None:
        """No fetch waits from now on."""
        self.closed = True
        self.end(list(self._by_key))

    def _soon(self, wait: Wait) -> None:
        """Not at once: the append that woke it comes first, and others of the same moment are then seen too."""
        self._remove(wait)
        self._loop.call_soon(wait.on_ready)

    def _ready(self, wait: Wait) -> None:
        self._remove(wait)
        wait.on_ready()

    def _remove(self, wait: Wait) -> None:
        if wait.timer is not None:
            wait.timer.cancel()
        for key in wait.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.discard(wait)
                if not waiting:
                    del self._by_key[key]
