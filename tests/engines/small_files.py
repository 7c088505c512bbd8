"""A small CSV file, and what tests of sources share."""

from collections.abc import Callable
from pathlib import Path

from semidp.promise.schema.features import Feature
from semidp.promise.schema.schema import Schema

SECRET = 7654321
SEX = Schema((Feature("sex", ("f", "m")),))
Refused = Callable[[BaseException, str], None]


def written_csv(folder: Path, text: str, name: str = "people.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name
