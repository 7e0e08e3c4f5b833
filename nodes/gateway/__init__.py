"""The gateway: Kafka's wire protocol for clients on TCP, ops over the mesh to the brokers behind it."""

from nodes.gateway.server import Gateway, bind
from nodes.gateway.session import Advertised
from nodes.gateway.settings import Settings

__all__ = ["Advertised", "Gateway", "Settings", "bind"]
