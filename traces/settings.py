"""The recorder's settings with their reasons, and what the `OTEL_*` environment variables make of them."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote, urlsplit

from traces.errors import ConfigurationError

DEFAULT_ENDPOINT = "http://127.0.0.1:4318"
TRACES_PATH = "/v1/traces"
PROTOCOL = "http/protobuf"
_EXPORTERS = ("otlp", "none")
_SAMPLERS = ("always_on", "always_off", "traceidratio")


@dataclass(frozen=True, kw_only=True)
class RecorderSettings:
    """All limits of one recorder. Times in seconds."""

    service: str
    endpoint: str = DEFAULT_ENDPOINT + TRACES_PATH
    resource: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    disabled: bool = False
    # Of the traces that begin here; decided once, at the root.
    ratio: float = 1.0
    # A span under a parent does as its parent does. Off only for OpenTelemetry's samplers without `parentbased_`.
    parent_based: bool = True
    # The SDK's 2048 lost 39 % of a burst of 10,000 spans; this holds three seconds of 20,000 spans/s in about 60 MB. A
    # span takes one place with the points under it.
    queue_size: int = 65_536
    # Large enough that the request's fixed cost does not show, small enough to stay far below any size limit.
    batch_size: int = 4096
    # A person looks at a trace right after the request; the SDK's 5 s would feel like a fault.
    delay: float = 0.2
    # While at least so many spans come in each delay, a request of up to a full batch is gathered for this long.
    busy_delay: float = 1.0
    busy_spans: int = 64
    # Of one attempt. Only the exporting thread waits.
    timeout: float = 10.0
    # A collector that restarts is found again within the second.
    backoff_first: float = 0.1
    backoff_limit: float = 1.0
    # How long the program's end may wait for spans that are still queued.
    shutdown_timeout: float = 2.0
    gzip: bool = False


def from_environment(base: RecorderSettings, environ: Mapping[str, str] | None = None) -> RecorderSettings:
    """`base`, with what the standard variables say instead. A variable that means nothing is an error here, at the
    start, where someone reads it."""
    env = {key: value.strip() for key, value in (os.environ if environ is None else environ).items() if value.strip()}
    resource = {**base.resource, **pairs(env, "OTEL_RESOURCE_ATTRIBUTES")}
    service = env.get("OTEL_SERVICE_NAME") or resource.get("service.name") or base.service
    resource = {"service.instance.id": f"{socket.gethostname()}:{os.getpid()}", **resource, "service.name": service}
    ratio, parent_based = sampler(env, base)
    return replace(
        base,
        service=service,
        resource=resource,
        endpoint=_endpoint(env, base.endpoint),
        headers={
            **base.headers,
            **pairs(env, "OTEL_EXPORTER_OTLP_HEADERS"),
            **pairs(env, "OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
        },
        disabled=base.disabled or env.get("OTEL_SDK_DISABLED", "").lower() == "true" or _exporter(env) == "none",
        ratio=ratio,
        parent_based=parent_based,
        queue_size=_count(env, "OTEL_BSP_MAX_QUEUE_SIZE", base.queue_size),
        batch_size=_count(env, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", base.batch_size),
        delay=_count(env, "OTEL_BSP_SCHEDULE_DELAY", int(base.delay * 1000)) / 1000,
        timeout=_timeout(env, base.timeout),
        gzip=base.gzip or _either(env, "COMPRESSION") == "gzip",
    )


def sampler(env: Mapping[str, str], base: RecorderSettings) -> tuple[float, bool]:
    """(ratio, parent based) of OTEL_TRACES_SAMPLER and its argument."""
    name = env.get("OTEL_TRACES_SAMPLER", "")
    if not name:
        return checked_ratio(base.ratio, "ratio"), base.parent_based
    kind = name.removeprefix("parentbased_")
    if kind not in _SAMPLERS:
        known = ", ".join((*_SAMPLERS, *(f"parentbased_{sampler}" for sampler in _SAMPLERS)))
        raise ConfigurationError(f"OTEL_TRACES_SAMPLER is {name!r}; it may be one of: {known}")
    ratio = 1.0 if kind == "always_on" else 0.0
    if kind == "traceidratio":
        ratio = checked_ratio(env.get("OTEL_TRACES_SAMPLER_ARG", "1.0"), "OTEL_TRACES_SAMPLER_ARG")
    return ratio, kind != name


def checked_ratio(value: str | float, where: str) -> float:
    """A number from 0 to 1."""
    try:
        ratio = float(value)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigurationError(f"{where} is {value!r}; a sampling ratio is a number from 0 to 1")
    return ratio


def pairs(env: Mapping[str, str], name: str) -> dict[str, str]:
    """`key=value,key=value` with percent-encoding."""
    found = {}
    for part in env.get(name, "").split(","):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"{name} has the part {part!r}; write it as key=value,key=value")
        found[unquote(key.strip())] = unquote(value.strip())
    return found


def checked_endpoint(url: str, where: str) -> str:
    """An http or https URL with a host."""
    parts = urlsplit(url)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigurationError(f"{where} is {url!r}; it should look like {DEFAULT_ENDPOINT}")
    return url


def traces_endpoint(base_url: str, where: str) -> str:
    """The URL spans are sent to, for a collector's base URL."""
    url = checked_endpoint(base_url, where).rstrip("/")
    return url if url.endswith(TRACES_PATH) else url + TRACES_PATH


def _endpoint(env: Mapping[str, str], default: str) -> str:
    if exact := env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        return _checked_protocol(env, checked_endpoint(exact, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"))
    if base := env.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return _checked_protocol(env, traces_endpoint(base, "OTEL_EXPORTER_OTLP_ENDPOINT"))
    return default


def _exporter(env: Mapping[str, str]) -> str:
    name = env.get("OTEL_TRACES_EXPORTER", "otlp")
    if name not in _EXPORTERS:
        raise ConfigurationError(f"OTEL_TRACES_EXPORTER is {name!r}; it may be one of: {', '.join(_EXPORTERS)}")
    return name


def _checked_protocol(env: Mapping[str, str], endpoint: str) -> str:
    """The protocol is fixed: spans for somebody's gRPC port would be lost, and only the log would say so."""
    protocol = _either(env, "PROTOCOL") or PROTOCOL
    if protocol != PROTOCOL:
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}, and nodes send {PROTOCOL}; set it to that, and the endpoint"
            f" {endpoint} to the OTLP/HTTP port, usually 4318"
        )
    return endpoint


def _either(env: Mapping[str, str], name: str) -> str:
    return env.get(f"OTEL_EXPORTER_OTLP_TRACES_{name}") or env.get(f"OTEL_EXPORTER_OTLP_{name}") or ""


def _timeout(env: Mapping[str, str], default: float) -> float:
    for name in ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_BSP_EXPORT_TIMEOUT"):
        if name in env:
            return _count(env, name, 0) / 1000
    return default


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name)
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or int(value) == 0:
        raise ConfigurationError(f"{name} is {value!r}; it must be a whole number above 0")
    return int(value)
