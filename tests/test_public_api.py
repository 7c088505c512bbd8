"""The façade: explicit, complete, documented, and cheap to import."""

import inspect
import subprocess
import sys

import pytest

import semidp

HEAVY = (
    "scipy.optimize",
    "scipy.stats",
    "duckdb",
    "matplotlib",
    "ortools",
    "dp_accounting",
    "flint",
    "pandas",
    "jinja2",
)


def test_all_is_sorted_complete_and_real() -> None:
    public = {name for name in vars(semidp) if not name.startswith("_") and not inspect.ismodule(vars(semidp)[name])}
    assert set(semidp.__all__) == public | {"__version__"}
    assert list(semidp.__all__) == sorted(semidp.__all__)


@pytest.mark.parametrize("name", [name for name in semidp.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(semidp, name)
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return
    assert value.__doc__, f"{name} has no docstring"
    if inspect.isclass(value):
        for member, function in vars(value).items():
            if inspect.isfunction(function) and not member.startswith("_"):
                assert inspect.getdoc(getattr(value, member)), f"{name}.{member} has no docstring"


@pytest.mark.parametrize("name", [name for name in semidp.__all__ if name not in {"__version__", "Randomness"}])
def test_every_public_name_has_an_example(name: str) -> None:
    value = getattr(semidp, name)
    if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, Exception)):
        assert ">>>" in (value.__doc__ or ""), f"{name} has no example"


def test_import_touches_nothing_heavy() -> None:
    code = f"import sys, semidp; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
