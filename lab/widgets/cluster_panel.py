"""The cluster panel: the nodes of a lab with live rates, and buttons that start, stop, pause and kill them."""

import threading
import weakref
from typing import Any

import traitlets

from lab.widgets.static import StaticWidget, script, style
from rafka_lab.errors import RafkaLabError
from rafka_lab.tools import LabTools

LOOK_SECONDS = 1.0
_ACTIONS = ("start", "stop", "kill", "pause", "resume")


class ClusterPanel(StaticWidget):
    """Looks at the lab once a second, also while a cell runs. It holds no lab: that ends with its variable."""

    _esm = script("cluster_panel")
    _css = style("cluster_panel")
    nodes: Any = traitlets.List().tag(sync=True)
    facts = traitlets.Dict().tag(sync=True)
    trouble = traitlets.Unicode("").tag(sync=True)

    def __init__(self, lab: LabTools, **options: Any) -> None:
        self._lab = weakref.ref(lab)
        self._changed = threading.Event()
        super().__init__(**options)
        self.look()
        self.on_msg(self._on_message)
        threading.Thread(target=self._follow, name="cluster-panel", daemon=True).start()

    def look(self) -> bool:
        """Shows the nodes as they are now; whether there is more to come."""
        lab = self._lab()
        if lab is None or not lab.is_running:
            stopped = {"state": "stopped", "pid": None, "records_per_s": 0.0, "cpu_percent": 0.0, "memory_mb": 0.0}
            self.nodes = [node | stopped for node in self.nodes]
            self.facts = {}
            return lab is not None
        self.nodes = [node._asdict() for node in lab.rates()]
        self.facts = {"bootstrap": lab.bootstrap, "data": str(lab.data), "traces": lab.traces_url or ""}
        return True

    def act(self, action: str, node: str) -> None:
        """What a button does."""
        lab = self._lab()
        if lab is None or node not in lab.nodes or action not in _ACTIONS:
            self.trouble = f"cannot {action} {node}: there is no such node any more"
            return
        faults = {"kill": "kill", "pause": "pause", "resume": "resume", "stop": "stop", "start": "restart"}
        try:
            getattr(lab.faults, faults[action])(node)
            self.trouble = ""
        except RafkaLabError as error:
            self.trouble = str(error)
        self._changed.set()

    def static_html(self) -> str:
        lab = self._lab()
        return "<p>The lab is gone.</p>" if lab is None else lab._repr_html_()

    def close(self) -> None:
        super().close()
        self._changed.set()

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        # In a thread: a node takes a second to stop, and the kernel has other cells to run.
        arguments = (str(content.get("action")), str(content.get("node")))
        threading.Thread(target=self.act, args=arguments, name="cluster-panel-act", daemon=True).start()

    def _follow(self) -> None:
        while self.comm is not None and self.look():
            self._changed.wait(LOOK_SECONDS)
            self._changed.clear()
