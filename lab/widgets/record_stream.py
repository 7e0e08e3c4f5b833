"""An endless consumption in a notebook: the last records, a counter and a stop button. The cell itself ends at once."""

import html
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import traitlets

from lab.kcat_consume import consume
from lab.kcat_flags import Invocation
from lab.kcat_format import Printed, one_text
from lab.widgets.static import StaticWidget, script, style
from rafka_lab.client import Kafka
from rafka_lab.errors import RafkaLabError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

    from rafka_lab.tools import LabTools

# A person reads the last ones; all are in `frame` up to its own limit.
SHOWN_LINES = 200
KEPT_RECORDS = 100_000
# A browser need not draw more often.
_DRAW_SECONDS = 0.2


class RecordStream(StaticWidget):
    """Consumes until `stop()` or its button. `frame` has the last 100,000 records as a DataFrame."""

    _esm = script("record_stream")
    _css = style("record_stream")
    topic = traitlets.Unicode("").tag(sync=True)
    lines: Any = traitlets.List().tag(sync=True)
    count = traitlets.Int(0).tag(sync=True)
    running = traitlets.Bool(True).tag(sync=True)
    trouble = traitlets.Unicode("").tag(sync=True)

    def __init__(self, kafka: Kafka, asked: Invocation, lab: "LabTools | None" = None, **options: Any) -> None:
        self._asked = asked
        self._lab = lab
        self._stopped = threading.Event()
        self._records: deque[Printed] = deque(maxlen=KEPT_RECORDS)
        self._texts: deque[str] = deque(maxlen=SHOWN_LINES)
        super().__init__(topic=", ".join(asked.topics), **options)
        self.on_msg(self._on_message)
        self._thread = threading.Thread(target=self._follow, args=(kafka,), name="kcat-stream", daemon=True)
        self._thread.start()

    @property
    def frame(self) -> "pd.DataFrame":
        """What came so far."""
        from lab.kcat_run import consumed_frame

        return consumed_frame(list(self._records), self._asked, self._lab)

    def stop(self) -> None:
        """Ends the consumption and waits for its end."""
        self._stopped.set()
        self._thread.join()

    def static_html(self) -> str:
        text = html.escape("".join(self.lines))
        return (
            f'<style>{style("record_stream")}</style><div class="rl rl-stream"><div class="rl-head"><span '
            f'class="rl-title">{html.escape(self.topic)}</span><span class="rl-muted">{self.count:,} records'
            f"</span></div><pre>{text}</pre></div>"
        )

    def _on_message(self, _widget: object, _content: object, _buffers: object) -> None:
        self._stopped.set()

    def _follow(self, kafka: Kafka) -> None:
        drawn = 0.0
        try:
            for records in consume(kafka, self._asked, self._stopped):
                self._records.extend(records)
                self._texts.extend(one_text(record, self._asked) for record in records)
                if time.monotonic() - drawn > _DRAW_SECONDS:
                    self._draw(len(records))
                    drawn = time.monotonic()
                else:
                    self.count += len(records)
        except RafkaLabError as error:
            self.trouble = str(error)
        self._draw(0)
        self.running = False

    def _draw(self, more: int) -> None:
        with self.hold_sync():
            self.count += more
            self.lines = list(self._texts)
