"""Whether the machine has time to spare: what is not urgent waits while other programs need the processors."""

import os
import time
from pathlib import Path

# Of all processors, used by others. Above it every slice of ours would be taken from somebody.
_BUSY_SHARE = 0.5
# The kernel counts in hundredths of a second: a shorter look would say nothing.
_LOOK_SECONDS = 0.1
_COUNTS = Path("/proc/stat")


class SpareTime:
    """Compares the processors' idle time between two looks. Where it cannot be read there is always time."""

    def __init__(self) -> None:
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._seen = self._look()
        self._answer = True

    def is_there(self) -> bool:
        """By the last tenth of a second or more."""
        if time.monotonic() - self._seen[0] < _LOOK_SECONDS:
            return self._answer
        before, self._seen = self._seen, self._look()
        wall, idle, own = (now - then for now, then in zip(self._seen, before, strict=True))
        processors = os.cpu_count() or 1
        self._answer = idle + own >= (1 - _BUSY_SHARE) * processors * wall
        return self._answer

    def _look(self) -> tuple[float, float, float]:
        """(wall clock, idle time of all processors, our own processor time), in seconds."""
        try:
            # cpu  user nice system idle iowait ...
            counts = _COUNTS.read_bytes().split(maxsplit=6)
            idle = (int(counts[4]) + int(counts[5])) / self._ticks
        except (OSError, ValueError, IndexError):
            idle = time.monotonic() * (os.cpu_count() or 1)
        return time.monotonic(), idle, time.process_time()
