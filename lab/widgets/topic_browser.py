"""The topic browser: the topics of a cluster, and the records of one of them, page by page."""

import html
import weakref
from typing import Any

import traitlets

from lab.widgets.static import StaticWidget, script, style
from rafka_lab.errors import RafkaLabError
from rafka_lab.tools import LabTools

PAGE = 20  # the same as in topic_browser.js
# A longer value is cut: the browser shows what is there, `fetch` gives all of it.
_SHOWN_CHARACTERS = 400


class TopicBrowser(StaticWidget):
    """Shows the newest page of a topic first."""

    _esm = script("topic_browser")
    _css = style("topic_browser")
    topics: Any = traitlets.List().tag(sync=True)
    records: Any = traitlets.List().tag(sync=True)
    view = traitlets.Dict().tag(sync=True)
    trouble = traitlets.Unicode("").tag(sync=True)

    def __init__(self, lab: LabTools, topic: str | None = None, **options: Any) -> None:
        self._lab = weakref.ref(lab)
        super().__init__(**options)
        self.show(topic)
        self.on_msg(self._on_message)

    def show(self, topic: str | None, partition: int = 0, offset: int | None = None) -> None:
        """A page of a partition; the newest one without an offset."""
        lab = self._lab()
        if lab is None or not lab.is_running:
            self.trouble = "the lab is stopped: start it to see its topics"
            return
        try:
            self.topics = lab.topics()[["topic", "partitions", "records"]].to_dict("records")
            if topic:
                self.view, self.records = _page(lab, topic, partition, offset)
            self.trouble = ""
        except RafkaLabError as error:
            self.trouble = str(error)

    def static_html(self) -> str:
        rows = "".join(
            f'<tr><td>{html.escape(topic["topic"])}</td><td class="rl-n">{topic["partitions"]}</td>'
            f'<td class="rl-n">{topic["records"]:,}</td></tr>'
            for topic in self.topics
        )
        records = "".join(
            f'<tr><td class="rl-n">{record["offset"]}</td><td class="rl-muted">{record["timestamp"]}</td>'
            f'<td class="rl-value">{html.escape(record["key"] or "")}</td>'
            f'<td class="rl-value">{html.escape(record["value"] or "null")}</td></tr>'
            for record in self.records
        )
        shown = (
            f'<h4>{html.escape(self.view["topic"])}, partition {self.view["partition"]}</h4><table class="rl-table">'
            f'<tr><th class="rl-n">offset</th><th>time</th><th>key</th><th>value</th></tr>{records}</table>'
            if self.view
            else ""
        )
        return (
            f'<style>{style("topic_browser")}</style><div class="rl"><div class="rl-head"><span class="rl-title">Topics'
            f'</span></div><table class="rl-table"><tr><th>topic</th><th class="rl-n">partitions</th>'
            f'<th class="rl-n">records</th></tr>{rows}</table>{shown}</div>'
        )

    def _on_message(self, _widget: object, content: dict[str, Any], _buffers: object) -> None:
        self.show(content.get("topic"), int(content.get("partition") or 0), content.get("offset"))


def _page(lab: LabTools, topic: str, partition: int, offset: int | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    low, high = lab.kafka.watermarks(topic, partition)
    start = max(low, high - PAGE) if offset is None else offset
    frame = lab.fetch(topic, partitions=[partition], offset=start, count=PAGE)
    rows = [
        {
            "offset": int(row.offset),
            "timestamp": row.timestamp.strftime("%H:%M:%S.%f")[:-3],
            "key": _shown(row.key),
            "value": _shown(row.value),
            "trace_id": row.trace_id,
        }
        for row in frame.itertuples()
    ]
    return {"topic": topic, "partition": partition, "offset": start, "low": low, "high": high}, rows


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
