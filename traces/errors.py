"""Every error of this package. Each says what happened, where, and what to do next; all survive pickling."""


class TracesError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(TracesError):
    """A setting or environment variable that cannot be used; the message names it and what it may be."""


class MalformedError(TracesError):
    """OTLP bytes that are not what the protocol says: the sender's fault, not to be sent again."""


class TooLargeError(TracesError):
    """A request over the limit, before or after decompression."""


class UnsupportedError(TracesError):
    """A content type or encoding that OTLP does not have."""


class BusyError(TracesError):
    """The collector has more unwritten spans than it may hold; the sender should try again later."""


class StoreError(TracesError):
    """The store cannot be opened, read or written."""


class QueryError(TracesError):
    """A question with a parameter that means nothing: the caller's fault."""


class JaegerError(TracesError):
    """A Jaeger query API that does not answer, or answers what it should not."""


class TraceNotFoundError(JaegerError):
    """No store has a trace of this id (yet: spans arrive a moment after they end)."""


class TraceFormatError(TracesError):
    """A document that is not a trace in Jaeger's or OTLP's JSON."""


class ChainError(TracesError, AssertionError):
    """A trace whose spans are not the expected chain; the message shows the difference."""
