"""`lab.traces`: the traces of a lab, from its collector or from a real Jaeger: last, find, of a record, compare."""

import os
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rafka_lab.errors import NoTracesError
from traces import names
from traces.client import JaegerClient
from traces.errors import JaegerError, TraceFormatError, TraceNotFoundError
from traces.jaeger_program import URL_VARIABLE
from traces.model import Trace

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

# Spans are sent in groups, about once a second at worst.
WAIT_SECONDS = 5.0
_POLL_SECONDS = 0.05
# A cell that ends with `lab.traces` must not hang where nothing answers.
_SHOWN_SECONDS = 2.0
# Among so many of the newest there is one without an error, or none that matters.
_LAST_LOOKED_AT = 20
# `last("produce")`: the span that only such a trace has.
OPERATIONS = {
    "produce": names.PRODUCE_STORE,
    "fetch": names.FETCH_READ,
    "metadata": names.METADATA_READ,
    "list_offsets": names.LIST_OFFSETS_READ,
    "create_topics": names.CREATE_TOPICS_STORE,
    "delete_topics": names.DELETE_TOPICS_STORE,
}


class Traces:
    """Asks the Jaeger API at `url`; without one, every question says how to get it. `why_none` is said wherever there
    is nothing: what keeps spans from that place."""

    def __init__(self, url: str | None, why_none: str = "") -> None:
        self.url = url or os.environ.get(URL_VARIABLE) or None
        self._why_none = why_none

    def __repr__(self) -> str:
        if not self.url:
            return "<Traces: nothing collects them>"
        return f"<Traces at {'; '.join(filter(None, (self.url, *self._losses(), self._why_none)))}>"

    @property
    def available(self) -> bool:
        """Whether anything collects traces here."""
        return self.url is not None

    @property
    def client(self) -> JaegerClient:
        if self.url is None:
            raise NoTracesError(
                f"nothing collects traces for this lab: start it with a trace_ratio above 0, or set {URL_VARIABLE} to "
                "the address of a Jaeger"
            )
        return JaegerClient(self.url)

    def get(self, trace_id: str, wait: float = WAIT_SECONDS) -> Trace:
        """One trace, waiting a moment for its last spans."""
        if not trace_id or trace_id != trace_id:
            raise NoTracesError("this record has no trace id: its request was not traced")
        try:
            return self.client.whole_trace(trace_id, wait)
        except TraceNotFoundError as error:
            raise self._none(str(error)) from None
        except (JaegerError, TraceFormatError) as error:
            raise NoTracesError(str(error)) from None

    def of(self, record: Any, wait: float = WAIT_SECONDS) -> Trace:
        """The trace of a record: a row of what `produce`, `fetch` or `wal.frame` gave."""
        return self.get(record["trace_id"], wait)

    def last(self, kind: str = "produce", wait: float = WAIT_SECONDS, *, errors: bool = False) -> Trace:
        """The newest trace of that kind (produce, fetch, metadata and so on), with `errors` also a failed one.

        A consumer that is closed leaves a fetch that was cut off, which counts as failed.
        """
        operation = self._operation(kind)
        deadline = time.monotonic() + wait
        while True:
            found = self._search(operation, {}, None, None, _LAST_LOOKED_AT)
            for trace in found:
                if not errors and trace.errors:
                    continue
                whole = self.get(trace.trace_id, wait)
                if errors or not whole.errors:  # the span with the error may have come last
                    return whole
            if time.monotonic() > deadline:
                raise self._none(f"{self.url} has no {kind} trace yet: produce or fetch something first")
            time.sleep(_POLL_SECONDS)

    def find(
        self,
        kind: str | None = None,
        *,
        topic: str | None = None,
        tags: Mapping[str, Any] | None = None,
        min_ms: float | None = None,
        max_ms: float | None = None,
        limit: int = 20,
    ) -> list[Trace]:
        """Traces that fit all that is given, newest first."""
        operation = self._operation(kind) if kind else None
        wanted = dict(tags or {}) | ({names.KAFKA_TOPIC: topic} if topic else {})
        found = self._search(operation, wanted, min_ms, max_ms, limit)
        if not found and self._why_none:
            warnings.warn(self._why_none, stacklevel=2)
        return found

    def frame(self, traces: list[Trace] | None = None, kind: str = "produce", limit: int = 200) -> "pd.DataFrame":
        """One row a span, over several traces; the newest of `kind` if none are given."""
        import pandas as pd

        chosen = self.find(kind, limit=limit) if traces is None else traces
        if not chosen:
            raise self._none(f"there is no {kind} trace yet: produce or fetch something first")
        return pd.concat([trace.to_dataframe() for trace in chosen], ignore_index=True)

    def compare(self, first: Trace, second: Trace) -> "pd.DataFrame":
        """Both traces hop by hop: milliseconds of each span name, and the difference."""
        left, right = (
            trace.to_dataframe().groupby("name", sort=False)["duration_ms"].sum() for trace in (first, second)
        )
        import pandas as pd

        both = pd.DataFrame({"first_ms": left, "second_ms": right})
        both = both.reindex([*left.index, *(name for name in right.index if name not in left.index)])
        both["difference_ms"] = both["second_ms"] - both["first_ms"]
        return both.rename_axis("hop").reset_index()

    def _losses(self) -> list[str]:
        """What is missing from the traces that are there. Never raises: it is asked for whenever this is shown."""
        try:
            lost = JaegerClient(self.url or "", timeout=_SHOWN_SECONDS).lost_spans()
        except JaegerError as error:
            return [str(error)]
        said = {"dropped": "dropped by recorders", "rejected": "rejected by the collector"}
        return [f"spans {said[name]}: {count:,}" for name, count in lost.items() if count]

    def _none(self, sentence: str) -> NoTracesError:
        return NoTracesError(f"{sentence} ({self._why_none})" if self._why_none else sentence)

    def _operation(self, kind: str) -> str:
        if kind not in OPERATIONS:
            raise NoTracesError(f"there is no kind {kind!r} of trace: use one of {', '.join(OPERATIONS)}")
        return OPERATIONS[kind]

    def _search(
        self, operation: str | None, tags: Mapping[str, Any], min_ms: float | None, max_ms: float | None, limit: int
    ) -> list[Trace]:
        """Spans of brokers are each of their own service, so all services are asked."""
        client = self.client
        found: dict[str, Trace] = {}
        try:
            for service in client.services():
                for trace in client.search(
                    service,
                    operation,
                    tags,
                    None if min_ms is None else min_ms / 1000,
                    None if max_ms is None else max_ms / 1000,
                    limit=limit,
                ):
                    found.setdefault(trace.trace_id, trace)
        except (JaegerError, TraceFormatError) as error:
            raise NoTracesError(str(error)) from None
        return sorted(found.values(), key=lambda trace: trace.start_ns, reverse=True)[:limit]
