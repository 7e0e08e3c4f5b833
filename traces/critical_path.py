"""The critical path of a trace: going back from the end, the span that was waited for at each moment.

As the viewer does it. Before a span's own end its children are cut to its time, so that a skewed clock cannot make time
run backwards; after it, children that outlive it count (a connect span ends as soon as its request begins).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar


class Timed(Protocol):
    """What of a span the path looks at."""

    @property
    def start_ns(self) -> int: ...

    @property
    def end_ns(self) -> int: ...


Node = TypeVar("Node", bound=Timed)
# What a span has to explain: from when, up to when.
Part = tuple[Node, int, int]


def of(root: Node, children: Callable[[Node], Sequence[Node]]) -> list[tuple[Node, int]]:
    """(span, nanoseconds of its own) in order of time. They add up to the time from the root's start to the end of the
    last span, but for moments at which nothing ran."""
    reach = _reach(root, children)
    found: list[Part[Node]] = []
    waiting = [(root, root.start_ns, reach[id(root)])]
    while waiting:
        span, start, end = waiting.pop()
        own_end = _end(span)
        for child, began, ended in _outliving(span, start, end, children(span), reach):
            waiting.append((child, began, ended))
            end = began
        moment = min(end, own_end)
        for child, began, ended in _inside(start, moment, children(span)):
            if moment > ended:
                found.append((span, ended, moment))
            waiting.append((child, began, ended))
            moment = began
        if moment > start:
            found.append((span, start, moment))
    found.sort(key=lambda part: part[1])
    return [(span, end - start) for span, start, end in found] or [(root, 0)]


def _end(span: Timed) -> int:
    return max(span.start_ns, span.end_ns)


def _reach(root: Node, children: Callable[[Node], Sequence[Node]]) -> dict[int, int]:
    """When the last span below each one has ended, by the span's id()."""
    order: list[tuple[Node, Node | None]] = [(root, None)]
    for span, _ in order:
        order.extend((child, span) for child in children(span))
    reach = {id(span): _end(span) for span, _ in order}
    for span, parent in reversed(order):
        if parent is not None:
            reach[id(parent)] = max(reach[id(parent)], reach[id(span)])
    return reach


def _outliving(
    span: Node, start: int, moment: int, children: Sequence[Node], reach: dict[int, int]
) -> Iterator[Part[Node]]:
    """The children that were waited for after the span's own end, the last one first."""
    own_end = max(_end(span), start)
    if moment <= own_end:
        return
    for child in sorted(children, key=lambda child: reach[id(child)], reverse=True):
        if moment <= own_end or reach[id(child)] <= own_end:
            return
        if reach[id(child)] <= moment:
            began = max(child.start_ns, start)
            yield child, began, reach[id(child)]
            moment = began


def _inside(start: int, moment: int, children: Sequence[Node]) -> Iterator[Part[Node]]:
    """The children that were waited for within the span's time, the last one first."""
    cut = ((child, max(child.start_ns, start), min(_end(child), moment)) for child in children)
    for child, began, ended in sorted(
        (part for part in cut if part[2] > part[1]), key=lambda part: part[2], reverse=True
    ):
        if ended <= moment:
            yield child, began, ended
            moment = began
