"""Which labs run here, for programs beside their kernels: one small file a lab, locked as long as the lab runs.

The files are the user's own. A lab whose process was killed holds no lock any more, and its file is removed by whoever
looks next.
"""

import fcntl
import itertools
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_numbers = itertools.count()


def folder() -> Path:
    """`labs/` in the user's runtime folder, or in the cache where there is none."""
    base = os.environ.get("XDG_RUNTIME_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rafka-lab" / "labs"


class Entry:
    """A running lab's file. Where none can be written the lab runs all the same, and others do not find it."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self._path = folder() / f"{os.getpid()}-{next(_numbers)}.json"
        self._file: int | None = None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            os.write(self._file, json.dumps(about).encode())
        except OSError as error:
            log.warning("the launcher's tile will not find this lab: %s", error)

    def close(self) -> None:
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def running() -> list[dict[str, Any]]:
    """What the labs that run now say of themselves, the newest first."""
    files = sorted(folder().glob("*.json"), key=_changed, reverse=True)
    return [about for about in map(_read, files) if about is not None]


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: Path) -> dict[str, Any] | None:
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                about: dict[str, Any] = json.loads(file.read())
                return about
        path.unlink(missing_ok=True)  # nobody holds it: its lab was killed
    except (FileNotFoundError, ValueError):
        pass  # it has just ended, or is being written
    return None
