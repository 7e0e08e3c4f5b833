"""Widgets of the notebook, each a page of Python with a file of JavaScript and one of CSS, and a static form."""

from lab.widgets.cluster_panel import ClusterPanel
from lab.widgets.record_stream import RecordStream
from lab.widgets.topic_browser import TopicBrowser
from lab.widgets.trace_viewer import TraceViewer
from lab.widgets.wal_map import WalMap

__all__ = ["ClusterPanel", "RecordStream", "TopicBrowser", "TraceViewer", "WalMap"]
