"""semidp: differential privacy with invariants."""

from semidp._version import __version__

__all__ = ["__version__"]
