"""What `%load_ext lab` does: `%kcat`, live panels where a lab is shown, charts without a network, short errors."""

from typing import TYPE_CHECKING, Any

from lab.magics import KcatMagics, forget_shown_labs
from rafka_lab.errors import RafkaLabError
from rafka_lab.plots import COLORS
from rafka_lab.tools import LabTools
from rafka_lab.wal_frames import WalFrames
from traces.model import Trace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

CHART_TYPE = "application/vnd.vegalite.v5+json"
_CHART_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_RENDERER = "rafka-lab"
# A grey that can be read on white and on black: the theme may change after a chart was drawn.
_GREY, _FAINT = "#7d8590", "#7d859040"
_TABLE_STYLE = ".jp-RenderedHTMLCommon table.dataframe :is(th, td) { white-space: nowrap; }"
_CHART_LOOK: dict[str, Any] = {
    "background": "transparent",
    "axis": {"labelColor": _GREY, "titleColor": _GREY, "gridColor": _FAINT, "domainColor": _GREY, "tickColor": _GREY},
    "legend": {"labelColor": _GREY, "titleColor": _GREY},
    "title": {"color": _GREY},
    "view": {"stroke": _FAINT},
    "range": {"category": list(COLORS)},
}


def load(shell: "InteractiveShell") -> None:
    """Loads everything into a shell; a second time does nothing new."""
    if "kcat" in shell.magics_manager.magics["line"]:
        return
    shell.register_magics(KcatMagics)
    assert shell.display_formatter is not None
    shown = shell.display_formatter.mimebundle_formatter
    shown.for_type(LabTools, _show_lab)
    shown.for_type(Trace, _show_trace)
    shown.for_type(WalFrames, _show_wal)
    tables = shell.display_formatter.formatters["text/html"]
    tables.for_type_by_name("pandas.core.frame", "DataFrame", _show_table)
    shell.events.register("post_run_cell", lambda *_: forget_shown_labs(shell))
    shell.set_custom_exc((RafkaLabError,), _show_error)  # type: ignore[no-untyped-call]
    _charts()


def _show_lab(lab: LabTools, include: Any = None, exclude: Any = None) -> Any:
    if not lab.is_running:
        return {"text/plain": repr(lab), "text/html": lab._repr_html_()}
    from lab.widgets.cluster_panel import ClusterPanel

    return ClusterPanel(lab)._repr_mimebundle_()


def _show_trace(trace: Trace, include: Any = None, exclude: Any = None) -> Any:
    from lab.widgets.trace_viewer import TraceViewer

    return TraceViewer([trace])._repr_mimebundle_()


def _show_wal(wal: WalFrames, include: Any = None, exclude: Any = None) -> Any:
    from lab.widgets.wal_map import WalMap

    return WalMap(wal)._repr_mimebundle_()


def _show_table(frame: Any) -> str | None:
    """pandas' own table, whose cells stay on one line: it scrolls sideways instead of breaking keys and times."""
    shown: str | None = frame._repr_html_()
    return shown and f"<style>{_TABLE_STYLE}</style>{shown}"


def _show_error(
    shell: "InteractiveShell", kind: type[BaseException], error: BaseException, where: Any, **_: Any
) -> Any:
    """The library's errors are sentences for a person: the line that failed and the sentence, without our frames."""
    shown = shell.InteractiveTB.structured_traceback(kind, error, _first_frame(where))
    shell._showtraceback(kind, error, shown)
    return shown


def _first_frame(where: Any) -> Any:
    """The notebook's own frames only."""
    from types import TracebackType

    frames = []
    while where is not None:
        frames.append(where)
        where = where.tb_next
    own = [frame for frame in frames if frame.tb_frame.f_code.co_filename.startswith(("<ipython", "/tmp/ipykernel"))]
    found = None
    for frame in reversed(own):
        found = TracebackType(found, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return found


def _charts() -> None:
    """JupyterLab draws charts itself, without a network. It knows Vega-Lite 5, and ours are charts of 5 too."""
    import altair

    altair.renderers.register(_RENDERER, _jupyterlab_chart)
    altair.renderers.enable(_RENDERER)


def _jupyterlab_chart(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    look = dict(_CHART_LOOK)
    for name, own in spec.get("config", {}).items():
        common = look.get(name)
        look[name] = common | own if isinstance(common, dict) and isinstance(own, dict) else own
    return {CHART_TYPE: spec | {"$schema": _CHART_SCHEMA, "config": look}, "text/plain": "a chart"}
