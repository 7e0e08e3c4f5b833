"""Where a run was made: figures without it mean nothing."""

import os
import platform
from pathlib import Path

import psutil

from rafka_lab.bench.results import Machine
from rafka_lab.bench.sides import folder_for
from rafka_lab.java import find_java, java_version

_CPU_INFO = Path("/proc/cpuinfo")


def this_machine() -> Machine:
    java = find_java()
    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 1,
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        system=f"{platform.system()} {platform.release()}",
        disk=_file_system(),
        python=platform.python_version(),
        java="" if java is None else str(java_version(str(java))),
    )


def _cpu_name() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _file_system() -> str:
    """The kind of file system that the logs lie on."""
    with folder_for("disk") as folder:
        place = str(folder.resolve())
    mounts = [part for part in psutil.disk_partitions(all=True) if place.startswith(part.mountpoint)]
    return str(max(mounts, key=lambda part: len(part.mountpoint)).fstype) if mounts else "unknown"
