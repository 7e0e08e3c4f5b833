"""What the standard `OTEL_*` variables do to a lab's traces. They win over the lab, which has to say so."""

from collections.abc import Mapping

from traces.errors import ConfigurationError
from traces.settings import RecorderSettings, from_environment, traces_endpoint
from traces.wiring import MODE_VARIABLE

# In the order in which they win.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def why_no_traces(otlp_url: str, environ: Mapping[str, str]) -> str:
    """Why no spans of nodes with this environment come to the lab's own `otlp_url`, in one sentence; empty if they do.

    A variable that means nothing is left to the nodes, which do not start with it.
    """
    lab = RecorderSettings(service="lab", endpoint=traces_endpoint(otlp_url, "the lab's collector"))
    try:
        nodes = from_environment(lab, environ)
    except ConfigurationError:
        return ""
    if variable := _silencer(nodes, environ):
        return f"no spans are made, because {variable} is {environ[variable]!r}, so {_empty(variable)}"
    if nodes.endpoint != lab.endpoint:
        variable = next(name for name in _ENDPOINTS if environ.get(name, "").strip())
        return f"spans go to {nodes.endpoint}, because {variable} is set, and not to this lab, so {_empty(variable)}"
    return ""


def _silencer(nodes: RecorderSettings, environ: Mapping[str, str]) -> str:
    """The variable that turns recording off, if one does."""
    if environ.get(MODE_VARIABLE) == "off":
        return MODE_VARIABLE
    if nodes.disabled:
        return (
            "OTEL_TRACES_EXPORTER" if environ.get("OTEL_TRACES_EXPORTER", "").strip() == "none" else "OTEL_SDK_DISABLED"
        )
    return "OTEL_TRACES_SAMPLER" if nodes.ratio == 0 else ""


def _empty(variable: str) -> str:
    return (
        f'lab.traces stays empty; unset {variable}, or start Lab(environment={{"{variable}": ""}}), to have them here'
    )
