"""Provider wiring: what a node's program calls once, at its start. Libraries below it speak the OpenTelemetry API only.

The light recorder is the default; `RAFKA_TRACES=sdk` takes the real SDK, to compare or to use its processors,
and `RAFKA_TRACES=off` records nothing.
"""

import atexit
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from opentelemetry import trace
from opentelemetry.trace import NoOpTracerProvider

from traces.errors import ConfigurationError
from traces.exporter import RecorderStats
from traces.recorder import LightTracerProvider
from traces.settings import DEFAULT_ENDPOINT, RecorderSettings, checked_ratio, from_environment, traces_endpoint

if TYPE_CHECKING:
    from traces.sdk import SdkProvider

MODE_VARIABLE = "RAFKA_TRACES"
_MODES = ("light", "sdk", "off")


class Provider(Protocol):
    """A tracer provider whose losses can be read and whose end can be awaited."""

    def get_tracer(self, instrumenting_module_name: str, /) -> trace.Tracer: ...

    def stats(self) -> RecorderStats: ...

    def force_flush(self, timeout_millis: int = 30_000) -> bool: ...

    def shutdown(self, timeout: float | None = None) -> bool: ...


class SilentProvider(NoOpTracerProvider):
    """Records nothing: tracing is off."""

    def stats(self) -> RecorderStats:
        return RecorderStats()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True

    def shutdown(self, timeout: float | None = None) -> bool:
        return True


def configure(
    service: str,
    endpoint: str | None = None,
    ratio: float = 1.0,
    *,
    resource: Mapping[str, str] | None = None,
    install: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Provider:
    """Wires tracing for this process and returns the provider.

    `endpoint` is the collector's base URL; the standard `OTEL_*` variables win over all arguments.
    `ratio` is the share of traces, of those that begin here, that are recorded. With `install` the provider
    becomes the global one and is flushed when the program ends. Raises ConfigurationError, and nothing later.
    """
    env = os.environ if environ is None else environ
    settings = from_environment(
        RecorderSettings(
            service=service,
            endpoint=traces_endpoint(endpoint or DEFAULT_ENDPOINT, "endpoint"),
            ratio=checked_ratio(ratio, "ratio"),
            resource=resource or {},
        ),
        env,
    )
    provider = _provider(env.get(MODE_VARIABLE) or "light", settings)
    if install:
        trace.set_tracer_provider(provider)
        atexit.register(provider.shutdown)
    return provider


def _provider(mode: str, settings: RecorderSettings) -> "LightTracerProvider | SilentProvider | SdkProvider":
    if mode not in _MODES:
        raise ConfigurationError(f"{MODE_VARIABLE} is {mode!r}; it may be one of: {', '.join(_MODES)}")
    if mode == "off" or settings.disabled:
        return SilentProvider()
    if mode == "sdk":
        from traces.sdk import SdkProvider

        return SdkProvider(settings)
    return LightTracerProvider(settings)
