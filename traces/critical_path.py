"""The critical path of a trace: going back from the end, the span that was waited for at each moment.

Children are cut to their parent's time, so that a skewed clock cannot make time run backwards.
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


def of(root: Node, children: Callable[[Node], Sequence[Node]]) -> list[tuple[Node, int]]:
    """(span, nanoseconds of its own) in order of time. The nanoseconds add up to the root's duration."""

    def last_first(span: Node) -> Iterator[Node]:
        return iter(sorted(children(span), key=lambda child: (child.end_ns, child.start_ns), reverse=True))

    path: list[tuple[Node, int]] = []
    # (span, from, to, children not looked at): the time that this span has to explain, from its end to its start.
    waiting = [(root, root.start_ns, max(root.start_ns, root.end_ns), last_first(root))]
    while waiting:
        span, start, moment, left = waiting.pop()
        child = _next_ended(left, start, moment)
        if child is None:
            if moment > start:
                path.append((span, moment - start))
            continue
        began, ended = max(child.start_ns, start), min(child.end_ns, moment)
        if moment > ended:
            path.append((span, moment - ended))
        # The child explains its own time first, then the parent goes on before the child's start.
        waiting.append((span, start, began, left))
        waiting.append((child, began, ended, last_first(child)))
    path.reverse()
    return path or [(root, 0)]


def _next_ended(left: Iterator[Node], start: int, moment: int) -> Node | None:
    """The child that ended last and began before the moment: later ones were not waited for. One pass is enough,
    because the moment only goes back."""
    for child in left:
        if max(child.start_ns, start) < min(child.end_ns, moment):
            return child
    return None
