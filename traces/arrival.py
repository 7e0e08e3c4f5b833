"""When a trace that still grows is all there: each node sends its spans when it wants, and none says it is done."""

from traces import names
from traces.model import Span, Trace

# Nodes under load send once a second. Who has nothing more to say for longer has sent all of it.
SETTLED_SECONDS = 1.5


def is_whole(trace: Trace) -> bool:
    """Whether all spans of a request have arrived, by their names. A gateway's spans end, and come, innermost first:
    once its request is here, so is all that it sent on. False where names do not tell."""
    requests = trace.find(names.GATEWAY_REQUEST)
    if not requests or trace.orphans or trace.root.name != names.GATEWAY_CONNECT:
        return False
    sent, handled = trace.find(names.MESH_SENT), trace.find(names.MESH_HANDLE)
    return all(_has(trace, span, names.MESH_HANDLE, names.ACK_RECEIVED) for span in sent) and all(
        _has(trace, span, names.ACK) and len(trace.children(span)) > 1 for span in handled
    )


def _has(trace: Trace, span: Span, *wanted: str) -> bool:
    return set(wanted) <= {child.name for child in trace.children(span)}


class Arrival:
    """Looks at a trace again and again, and says when it need not be asked for any more."""

    def __init__(self) -> None:
        self._spans = 0
        self._grew_at = 0.0

    def is_over(self, trace: Trace, now: float) -> bool:
        if len(trace) > self._spans:
            self._spans, self._grew_at = len(trace), now
        return is_whole(trace) or (not trace.orphans and now - self._grew_at >= SETTLED_SECONDS)
