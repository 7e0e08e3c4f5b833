"""Errors of the Jupyter front. A message says what happened and what to do next."""

from rafka_lab.errors import RafkaLabError


class KcatError(RafkaLabError):
    """The kcat command cannot be run as it was typed, or failed: one line, as kcat says it."""


class RegressError(RafkaLabError):
    """The notebooks cannot be run."""
