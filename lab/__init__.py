"""The Jupyter front: the `rafka-lab` command, magics and widgets. In a notebook: `%load_ext lab`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: "InteractiveShell") -> None:
    """What `%load_ext lab` calls."""
    from lab.extension import load

    load(shell)
