"""The magics of a notebook: `%load_ext lab` brings `%kcat` and `%%kcat`, and shows a `Lab` as its live panel."""

import shlex
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from lab.errors import KcatError
from lab.kcat_flags import Invocation, parse
from rafka_lab.client import Kafka
from rafka_lab.errors import RafkaLabError
from rafka_lab.tools import LabTools

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

# The variable of most notebooks; others are looked at only if it is none.
_USUAL_NAME = "lab"


@magics_class
class KcatMagics(Magics):
    """kcat's own command line in a cell."""

    @line_cell_magic
    def kcat(self, line: str, cell: str | None = None) -> Any:
        """kcat in a notebook: `%kcat -h` tells the flags. Gives a DataFrame back."""
        try:
            return self._run(line, cell)
        except RafkaLabError as error:
            raise UsageError(f"kcat: {error}") from None  # shown as one line, and the cell fails

    def _run(self, line: str, cell: str | None) -> Any:
        from lab import kcat_run

        try:
            words = shlex.split(line)
        except ValueError as error:
            raise KcatError(f"the line has an open quote ({error})") from None
        asked = parse(words, has_input=cell is not None)
        if asked.mode in ("h", "V"):
            sys.stdout.write(f"{kcat_run.run(asked, Kafka(''))}\n")
            return None
        lab, kafka = self._cluster(asked)
        if kcat_run.is_endless(asked):
            from lab.widgets.record_stream import RecordStream

            return RecordStream(kafka, asked, lab)
        return kcat_run.run(asked, kafka, cell, lab)

    def _cluster(self, asked: Invocation) -> tuple[LabTools | None, Kafka]:
        if asked.brokers is not None:
            return None, Kafka(asked.brokers, timeout=asked.metadata_seconds)
        lab = running_lab(self.shell)
        return lab, lab.kafka


def running_lab(shell: "InteractiveShell | None") -> LabTools:
    """The lab that a notebook means: the one called `lab`, or else the only one that runs."""
    names: dict[str, Any] = {} if shell is None else shell.user_ns
    usual = names.get(_USUAL_NAME)
    if isinstance(usual, LabTools) and usual.is_running:
        return usual
    found = {id(lab): lab for lab in names.values() if isinstance(lab, LabTools) and lab.is_running}
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise KcatError(f"{len(found)} labs run here, and none of them is called 'lab': choose one with -b")
    raise KcatError("no lab is running: lab = Lab().start() starts one, -b host:port names any other broker")


def forget_shown_labs(shell: "InteractiveShell") -> None:
    """A lab that was shown is not kept by the history (`Out`, `_`): it would outlive the variable that held it."""
    names = shell.user_ns
    for number in [number for number, value in names.get("Out", {}).items() if isinstance(value, LabTools)]:
        del names["Out"][number]
        names.pop(f"_{number}", None)
    for name in ("_", "__", "___"):
        if isinstance(names.get(name), LabTools):
            names[name] = ""
    hook = shell.displayhook
    for name in ("_", "__", "___"):
        if isinstance(getattr(hook, name, None), LabTools):
            setattr(hook, name, "")
