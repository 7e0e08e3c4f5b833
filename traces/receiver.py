"""OTLP requests, whatever they came by: checked, then kept. HTTP and gRPC are thin layers over this."""

from dataclasses import dataclass

from traces import otlp, otlp_json
from traces.errors import MalformedError, TooLargeError, UnsupportedError
from traces.otlp import Checked
from traces.store import Store

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Sizes of one request."""

    # As sent. The recorder's batch of 4096 spans needs about 1.5 MB.
    body_bytes: int = 16 * 1024 * 1024
    # After decompression: a few KB of gzip can stand for a GB.
    inflated_bytes: int = 64 * 1024 * 1024


class Receiver:
    """Takes one request's bytes."""

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.store = store
        self.limits = limits or Limits()
        # Requests that are not answered yet; counted by the event loop, which waits for them at its end.
        self.under_way = 0

    def take(self, body: bytes, content_type: str, encoding: str = "") -> Checked:
        """Checks and keeps a request: when this returns it is stored. Raises what says whose fault it is."""
        checked = self._check(body, content_type, encoding)
        self.store.add(checked)
        return checked

    def _check(self, body: bytes, content_type: str, encoding: str) -> Checked:
        try:
            self.check_size(len(body))
            kind = content_type.partition(";")[0].strip().lower()
            if kind not in (PROTOBUF, JSON):
                raise UnsupportedError(f"content type {content_type[:80]!r} is not OTLP's; send {PROTOBUF} or {JSON}")
            body = otlp.inflate(body, encoding.strip().lower(), self.limits.inflated_bytes)
            return otlp.check(body) if kind == PROTOBUF else otlp_json.check(body)
        except (MalformedError, TooLargeError, UnsupportedError):
            self.store.count_refused()
            raise

    def check_size(self, size: int) -> None:
        """Refuses a body by its size alone."""
        limit = self.limits.body_bytes
        if size > limit:
            raise TooLargeError(f"the body of {size} bytes is over the limit of {limit}; send smaller batches")
