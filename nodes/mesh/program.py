"""What a node's program does around its mesh: interpreter settings, the fast event loop, signals."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import Any

# A QUIC thread asks for the GIL at every wake: with Python's 5 ms a call beside busy code waited up to 4.1 s.
SWITCH_INTERVAL = 0.0005


def tune_interpreter() -> None:
    """Call it first in every node's program."""
    sys.setswitchinterval(SWITCH_INTERVAL)


def run_node(main: Coroutine[Any, Any, None]) -> None:
    """Runs the program's main coroutine on uvloop where there is one."""
    tune_interpreter()
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def stop_event() -> asyncio.Event:
    """Set by SIGTERM or SIGINT. The program then awaits `mesh.close()`, which peers notice within milliseconds."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, event.set)
    return event
