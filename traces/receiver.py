"""OTLP requests, whatever they came by: checked, then kept. HTTP and gRPC are thin layers over this."""

from collections.abc import Callable
from dataclasses import dataclass

from traces import otlp, otlp_json
from traces.errors import MalformedError, TooLargeError, UnsupportedError
from traces.exporter import DROPPED_HEADER, RECORDED_HEADER
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


# Ids and the field around them: no span is shorter.
_SHORTEST_SPAN = 30
# Of a count of spans.
_DIGITS = 18


@dataclass(frozen=True, kw_only=True)
class Told:
    """What our own recorder says beside a request."""

    # Spans in the request, which its encoder made: they are checked when they are indexed, not while nodes are busy.
    recorded: int = 0
    # Spans that did not fit into its queue since it was last believed.
    dropped: int = 0
    # When the request came, by the monotonic clock: what it waited for its turn counts.
    arrived: float | None = None

    @classmethod
    def by(cls, header: Callable[[str], str | None], arrived: float | None = None) -> "Told":
        """From a request's headers."""
        recorded, dropped = (header(name) or "" for name in (RECORDED_HEADER, DROPPED_HEADER))
        return cls(recorded=_number(recorded), dropped=_number(dropped), arrived=arrived)

    def may_be_true(self, size: int) -> bool:
        """Whether so many spans fit into so many bytes; without any it is not said at all."""
        return 0 < self.recorded * _SHORTEST_SPAN <= size


NOTHING_TOLD = Told()


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else 0


class Receiver:
    """Takes one request's bytes."""

    def __init__(self, store: Store, limits: Limits | None = None) -> None:
        self.store = store
        self.limits = limits or Limits()
        # Requests that are not answered yet; counted by the event loop, which waits for them at its end.
        self.under_way = 0

    def take(self, body: bytes, content_type: str, encoding: str = "", *, told: Told = NOTHING_TOLD) -> Checked:
        """Checks and keeps a request: when this returns it is stored. Raises what says whose fault it is."""
        if told.may_be_true(len(body)) and content_type == PROTOBUF and not encoding:
            checked = Checked(body, told.recorded, later=True)
        else:
            checked = self._check(body, content_type, encoding)
        self.store.add(checked, told.arrived)
        self.store.count_dropped(told.dropped)  # now that the sender need not say it again
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
