"""The library that a notebook imports. `from rafka_lab import Lab`; what is not asked for is not imported."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rafka_lab.client import Kafka
    from rafka_lab.errors import DataFolderError, LabError, NodeStartError, NodeStateError, RafkaLabError
    from rafka_lab.lab import Lab
    from rafka_lab.ledger import Ledger, kill_under_load
    from rafka_lab.node import Node, State
    from rafka_lab.spark import spark_session

__all__ = [
    "DataFolderError",
    "Kafka",
    "Lab",
    "LabError",
    "Ledger",
    "Node",
    "NodeStartError",
    "NodeStateError",
    "RafkaLabError",
    "State",
    "kill_under_load",
    "spark_session",
]

_HOMES = {
    "Kafka": "client",
    "Lab": "lab",
    "Ledger": "ledger",
    "Node": "node",
    "State": "node",
    "kill_under_load": "ledger",
    "spark_session": "spark",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"rafka_lab.{_HOMES.get(name, 'errors')}"), name)
