"""The checker as a module: it is read from its file, as nothing in semidp imports it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import semidp

FILE = Path(semidp.__file__).parent / "checker" / "semidp_check.py"


def load() -> ModuleType:
    """Read the file as a module of its own."""
    spec = importlib.util.spec_from_file_location("semidp_check", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["semidp_check"] = module
    spec.loader.exec_module(module)
    return module


check = load()
