"""`Span` and `Trace` as a notebook uses them: the tree of a trace, its chain, its critical path, a DataFrame.

A trace is what stores have of it: spans may be missing, doubled, late or from a skewed clock. Doubles are kept once, a
span whose parent is missing is a root of its own (`orphans`), and a child outside its parent's time stays where its
clock says, is named by `skewed`, and counts as inside for the critical path.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from traces import critical_path
from traces.chain import difference
from traces.errors import ChainError, TraceFormatError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened during a span."""

    time_ns: int
    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpanLink:
    """Another span, often of another trace, that this one has to do with."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span. Ids are hexadecimal, times nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str | None = None
    name: str
    service: str
    kind: str = "internal"
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: bool = False
    status: str = ""
    resource: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""

    @property
    def duration_ns(self) -> int:
        return max(0, self.end_ns - self.start_ns)

    @property
    def duration_ms(self) -> float:
        return self.duration_ns / 1e6

    def __str__(self) -> str:
        return f"{self.service} {self.name} {self.duration_ms:.3f} ms{' ERROR' if self.error else ''}"


class Trace:
    """All spans of one trace id, in the order of their tree: parents before children, siblings by start."""

    def __init__(self, trace_id: str, spans: Iterable[Span]) -> None:
        self.trace_id = trace_id
        unique: dict[str, Span] = {}
        self.duplicates = 0
        for span in spans:
            if unique.setdefault(span.span_id, span) is not span:
                self.duplicates += 1
        self._by_id = unique
        self._children, self.spans = _tree(unique)

    def __len__(self) -> int:
        return len(self.spans)

    def __repr__(self) -> str:
        root = f"{self.root.service} {self.root.name}" if self.spans else "empty"
        return f"<Trace {self.trace_id} {root}, {len(self)} spans, {self.duration_ms:.3f} ms>"

    def __str__(self) -> str:
        return "\n".join(f"{'  ' * self.depth(span)}{span}" for span in self.spans)

    @property
    def roots(self) -> tuple[Span, ...]:
        """Spans without a parent here; more than one if some are missing."""
        return tuple(self._by_id[span_id] for span_id in self._children.get(None, ()))

    @property
    def root(self) -> Span:
        """The span that the trace began with: the first true root, or else the first whose parent is missing."""
        if not self.spans:
            raise TraceFormatError(f"trace {self.trace_id} has no spans")
        return next((span for span in self.roots if span.parent_id is None), self.roots[0])

    @property
    def orphans(self) -> tuple[Span, ...]:
        """Spans that name a parent which is not here: it was lost, or has not arrived yet."""
        return tuple(span for span in self.spans if span.parent_id and span.parent_id not in self._by_id)

    @property
    def skewed(self) -> tuple[Span, ...]:
        """Spans that start before their parent: the clocks of two machines differ."""
        return tuple(span for span in self.spans if (up := self.parent(span)) and span.start_ns < up.start_ns)

    @property
    def services(self) -> dict[str, int]:
        """How many spans each service has."""
        return dict(sorted(Counter(span.service for span in self.spans).items()))

    @property
    def errors(self) -> tuple[Span, ...]:
        return tuple(span for span in self.spans if span.error)

    @property
    def start_ns(self) -> int:
        return min((span.start_ns for span in self.spans), default=0)

    @property
    def end_ns(self) -> int:
        return max((span.end_ns for span in self.spans), default=0)

    @property
    def duration_ms(self) -> float:
        return max(0, self.end_ns - self.start_ns) / 1e6

    def parent(self, span: Span) -> Span | None:
        return self._by_id.get(span.parent_id) if span.parent_id else None

    def children(self, span: Span) -> tuple[Span, ...]:
        """In order of their start."""
        return tuple(self._by_id[span_id] for span_id in self._children.get(span.span_id, ()))

    def depth(self, span: Span) -> int:
        """0 for a root."""
        return self._depths[span.span_id]

    @cached_property
    def _depths(self) -> dict[str, int]:
        depths: dict[str, int] = {}
        for span in self.spans:
            depths[span.span_id] = depths.get(span.parent_id or "", -1) + 1
        return depths

    def find(self, name: str) -> tuple[Span, ...]:
        """All spans of this name, in the trace's order."""
        return tuple(span for span in self.spans if span.name == name)

    def chain(self) -> list[str]:
        """The spans' names in the order of the tree: what `names.PRODUCE_CHAIN` is for a produce."""
        return [span.name for span in self.spans]

    def assert_chain(self, expected: Sequence[str], parents: Mapping[str, str] | None = None) -> None:
        """Raises ChainError, with the difference, if the chain is another, or a span lies under another one than
        `parents` (such as `names.PRODUCE_PARENTS`) says."""
        wrong = difference(list(expected), self.chain())
        for span in self.spans if parents else ():
            above = self.parent(span)
            wanted = (parents or {}).get(span.name)
            if wanted != (above.name if above else None):
                wrong.append(
                    f"{span.name} lies under {above.name if above else 'nothing'}, expected {wanted or 'nothing'}"
                )
        if wrong:
            raise ChainError("\n".join([f"trace {self.trace_id} is not the expected chain:", *wrong, "", str(self)]))

    def critical_path(self) -> list[tuple[Span, int]]:
        """(span, nanoseconds of its own) for the spans that the trace's end waited for, in order of time."""
        return critical_path.of(self.root, self.children) if self.spans else []

    def to_dataframe(self) -> "pd.DataFrame":
        """One row a span, in the trace's order; attributes as columns of their own. One that is called as a column of
        the trace, such as `name`, is `attribute.name`."""
        import pandas as pd

        on_path: Counter[str] = Counter()
        for span, own in self.critical_path():
            on_path[span.span_id] += own
        rows = [
            {
                "trace_id": span.trace_id,
                "span_id": span.span_id,
                "parent_id": span.parent_id,
                "name": span.name,
                "service": span.service,
                "kind": span.kind,
                "start": pd.Timestamp(span.start_ns, unit="ns", tz="UTC"),
                "offset_ms": (span.start_ns - self.start_ns) / 1e6,
                "duration_ms": span.duration_ms,
                "critical_ms": on_path[span.span_id] / 1e6,
                "depth": self.depth(span),
                "error": span.error,
                "status": span.status,
            }
            for span in self.spans
        ]
        for row, span in zip(rows, self.spans, strict=True):
            row.update(_attribute_columns(span.attributes, frozenset(row)))
        return pd.DataFrame(rows)

    def to_json(self) -> str:
        """Jaeger's format: what its UI downloads and takes as an upload."""
        from traces import jaeger_json

        return json.dumps({"data": [jaeger_json.trace_document(self)]}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Trace":
        """One trace in Jaeger's format. Raises TraceFormatError."""
        from traces import jaeger_json

        found = jaeger_json.read_traces(text)
        if len(found) != 1:
            raise TraceFormatError(f"the document holds {len(found)} traces; one is needed")
        return found[0]


def _attribute_columns(attributes: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    columns = {}
    for key, value in attributes.items():
        column = f"attribute.{key}" if key in taken else key
        while column != key and column in attributes:
            column = f"attribute.{column}"
        columns[column] = value
    return columns


def _tree(spans: dict[str, Span]) -> tuple[dict[str | None, list[str]], tuple[Span, ...]]:
    """Ids of children by parent, under None the roots, and the spans in tree order.

    Spans whose parents form a circle hang on no root; the earliest of them is made one."""
    children: dict[str | None, list[str]] = {}
    by_start = sorted(spans.values(), key=lambda span: (span.start_ns, -span.end_ns))
    for span in by_start:
        children.setdefault(span.parent_id if span.parent_id in spans else None, []).append(span.span_id)
    seen: dict[str, None] = {}
    _walk(children.get(None, []), children, seen)
    for span in by_start:
        if span.span_id not in seen:
            children[span.parent_id].remove(span.span_id)
            children.setdefault(None, []).append(span.span_id)
            _walk([span.span_id], children, seen)
    return children, tuple(spans[span_id] for span_id in seen)


def _walk(start: list[str], children: dict[str | None, list[str]], seen: dict[str, None]) -> None:
    waiting = list(reversed(start))
    while waiting:
        span_id = waiting.pop()
        seen[span_id] = None
        waiting.extend(reversed(children.get(span_id, ())))
