"""The page of result objects lists attributes that exist, and everything that the lists of a
release hold.
"""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "results.md").read_text(encoding="utf-8")
SECTIONS = re.findall(
    r"^##+ `(semidp[\w.]*)`\n(.*?)(?=^##|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL
)


def found(address: str) -> Any:
    module, _, name = address.rpartition(".")
    return getattr(importlib.import_module(module), name)


def members(kind: type) -> set[str]:
    """Return the fields, properties and methods of a class."""
    names: set[str] = set()
    for part in kind.__mro__:
        names |= set(vars(part)) | set(
            getattr(part, "__attrs_attrs__", ()) and part.__annotations__
        )
    return names


@pytest.mark.parametrize(("address", "text"), SECTIONS, ids=[address for address, _ in SECTIONS])
def test_every_listed_attribute_exists(address: str, text: str) -> None:
    kind = found(address)
    listed = re.findall(r"^\| `(\w+)(\(\))?` \|", text, flags=re.MULTILINE)
    assert len(listed) >= 3
    assert len(listed) == len(set(listed))
    for name, called in listed:
        assert name in members(kind), f"{address} has no {name}"
        assert bool(called) == callable(getattr(kind, name, None)), (
            f"{address}.{name} is called, or is not"
        )


def test_the_page_is_about_every_result_and_can_fail() -> None:
    addresses = {address for address, _ in SECTIONS}
    assert len(addresses) >= 12
    assert {
        "semidp.Release",
        "semidp.publish.results.published_table.PublishedTable",
        "semidp.Guarantee",
        "semidp.publish.pipeline.Prepared",
    } <= addresses
    assert "no_such_attribute" not in members(found("semidp.Release"))


def test_the_example_runs() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    release = names["release"]
    assert release["table"].counts.sum(axis=1).tolist() == [100, 100]
    assert len(release["mean-age"].to_dict()["mean"]) == 2
