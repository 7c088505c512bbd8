"""An interrupt while the command line is still loading ends it with exit code 130 and one
line.

Libraries turn an interrupt during their import into errors of their own, which end with code 1.
This module is imported before all of them. If semidp is imported as a library, nothing changes.
"""

import contextlib
import os
import signal
import sys
from itertools import pairwise
from typing import Any, NoReturn


def _is_command() -> bool:
    """Whether this process was started as ``semidp`` or ``python -m semidp``."""
    name = sys.argv[0] if getattr(sys, "argv", None) else ""
    if name == "-m":  # Python has not yet found the module that it runs
        return ("-m", "semidp") in pairwise(sys.orig_argv) or "-msemidp" in sys.orig_argv
    return os.path.splitext(os.path.basename(name))[0] == "semidp"


def _leave(number: int, frame: Any) -> NoReturn:
    with contextlib.suppress(OSError):
        os.write(2, b"semidp: interrupted; no release was written\n")
    # Nothing is open yet; an exception would become an import error of some library.
    os._exit(130)


# A program that imports semidp keeps its own signals, and an ignored one stays ignored.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)  # until the command line takes over
