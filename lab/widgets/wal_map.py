"""The WAL map: the segments of all brokers' logs, and what lives in them."""

import html
from typing import Any

import traitlets

from lab.widgets.static import StaticWidget, script, style
from rafka_lab.display import size
from rafka_lab.wal_frames import WalFrames

# The same as in wal_map.js.
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#c99a0c", "#9d755d")


class WalMap(StaticWidget):
    """A picture of the logs as they are now; `refresh()` or its button looks again."""

    _esm = script("wal_map")
    _css = style("wal_map")
    segments: Any = traitlets.List().tag(sync=True)
    contents: Any = traitlets.List().tag(sync=True)

    def __init__(self, wal: WalFrames, **options: Any) -> None:
        self._wal = wal
        super().__init__(**options)
        self.refresh()
        self.on_msg(self._on_message)

    def refresh(self) -> None:
        """The logs as they are now; as they were where they are gone, with a lab that was stopped."""
        if all(folder.is_dir() for folder in self._wal.folders.values()):
            self.contents = self._wal.contents().to_dict("records")
            self.segments = self._wal.segments().to_dict("records")

    def static_html(self) -> str:
        topics = sorted({part["topic"] for part in self.contents})
        colours = {topic: COLOURS[at % len(COLOURS)] for at, topic in enumerate(topics)}
        longest = max((segment["bytes"] for segment in self.segments), default=1)
        bars = "".join(self._bar(segment, colours, longest) for segment in self.segments)
        legend = "".join(
            f'<span><span class="rl-swatch" style="background:{colours[topic]}"></span>{html.escape(topic)}</span>'
            for topic in topics
        )
        return (
            f'<style>{style("wal_map")}</style><div class="rl rl-wal"><div class="rl-head">'
            f'<span class="rl-title">Write-ahead log</span></div><div class="rl-segments">{bars}</div>'
            f'<div class="rl-legend">{legend}</div></div>'
        )

    def _bar(self, segment: dict[str, Any], colours: dict[str, str], longest: int) -> str:
        place = (segment["broker"], segment["segment"])
        parts = [part for part in self.contents if (part["broker"], part["segment"]) == place]
        inside = "".join(
            f'<span class="rl-part" style="flex:{part["bytes"]} 0 0;background:{colours[part["topic"]]}" title="'
            f"{html.escape(part['topic'])} partition {part['partition']}: offsets {part['first_offset']} to "
            f'{part["next_offset"] - 1}"></span>'
            for part in parts
        )
        rest = max(0, segment["bytes"] - sum(part["bytes"] for part in parts))
        return (
            f'<div class="rl-segment"><div class="rl-segment-name"><span><b>{html.escape(segment["broker"])}</b> '
            f'segment {segment["segment"]}</span><span class="rl-muted">{size(segment["bytes"])}, '
            f"{segment['state']}</span></div>"
            f'<div class="rl-bar" style="width:{max(4, 100 * segment["bytes"] / longest):.1f}%">{inside}'
            f'<span style="flex:{rest} 0 0"></span></div></div>'
        )

    def _on_message(self, _widget: object, _content: object, _buffers: object) -> None:
        self.refresh()
