"""The library that a notebook imports. `from rafka_lab import Lab`; what is not asked for is not imported."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rafka_lab.errors import DataFolderError, LabError, NodeStartError, NodeStateError, RafkaLabError
    from rafka_lab.lab import Lab
    from rafka_lab.node import Node, State

__all__ = [
    "DataFolderError",
    "Lab",
    "LabError",
    "Node",
    "NodeStartError",
    "NodeStateError",
    "RafkaLabError",
    "State",
]

_HOMES = {"Lab": "lab", "Node": "node", "State": "node"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"rafka_lab.{_HOMES.get(name, 'errors')}"), name)
