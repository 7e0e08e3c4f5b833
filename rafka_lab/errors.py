"""Every error of the library. Each message says what happened, where, and what to do next."""


class RafkaLabError(Exception):
    """Base of all errors of this package."""


class LabError(RafkaLabError):
    """The cluster cannot do what it was asked to."""


class DataFolderError(LabError):
    """The data folder is in use, cannot be written, or holds another cluster."""


class NodeStartError(LabError):
    """A node did not start. `log` holds the lines that it wrote."""

    def __init__(self, message: str, *, node: str = "", log: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.log = log


class NodeStateError(LabError):
    """The node is not in a state in which it could do that."""


class UnknownTopicError(LabError):
    """The cluster has no such topic or partition."""


class NoTracesError(LabError):
    """Nothing collects traces here, or the trace is not there."""


class ExperimentError(LabError):
    """An experiment cannot be run or compared as asked."""
