"""The mesh between nodes. Everything else in the project imports from here and never sees iroh."""

from nodes.mesh.calls import SINGLE_USE
from nodes.mesh.detour import obey
from nodes.mesh.errors import (
    CallTimeoutError,
    FastBindingWarning,
    HandlerError,
    IdentityError,
    ListenError,
    MalformedError,
    MeshClosedError,
    MeshError,
    NotAdmittedError,
    PayloadTooLargeError,
    PeerDownError,
    RemoteError,
    Status,
    UnknownPeerError,
)
from nodes.mesh.frames import NO_TRACE
from nodes.mesh.mesh import Mesh
from nodes.mesh.messages import OpCode
from nodes.mesh.postcard import Buffer
from nodes.mesh.program import run_node, stop_event, tune_interpreter
from nodes.mesh.roster import NodeInfo, NodeState, Roster
from nodes.mesh.serving import Handler, KafkaCall
from nodes.mesh.settings import Settings
from nodes.mesh.spans import Trace
from nodes.mesh.streams import Payload

__all__ = [
    "NO_TRACE",
    "SINGLE_USE",
    "Buffer",
    "CallTimeoutError",
    "FastBindingWarning",
    "Handler",
    "HandlerError",
    "IdentityError",
    "KafkaCall",
    "ListenError",
    "MalformedError",
    "Mesh",
    "MeshClosedError",
    "MeshError",
    "NodeInfo",
    "NodeState",
    "NotAdmittedError",
    "OpCode",
    "Payload",
    "PayloadTooLargeError",
    "PeerDownError",
    "RemoteError",
    "Roster",
    "Settings",
    "Status",
    "Trace",
    "UnknownPeerError",
    "obey",
    "run_node",
    "stop_event",
    "tune_interpreter",
]
