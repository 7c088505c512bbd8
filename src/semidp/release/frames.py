"""What is published as a CSV file, as a data frame: the same columns, the same text and numbers."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from semidp.errors import InputError
from semidp.notebook import sheet
from semidp.release.cells import Columns

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_SHOWN = 20_000  # bytes of a file that a notebook needs at most


class Framed:
    """Something that is published as one CSV file whose first columns are levels and the others numbers."""

    name: str

    def columns(self) -> Columns | None:
        """Return the columns of the file where they are at hand, and not just its text."""
        return None

    def csv(self) -> bytes:
        """Return the file."""
        columns = self.columns()
        if columns is None:
            raise NotImplementedError
        return b"".join(columns.csv())

    @property
    def level_columns(self) -> int:
        """How many columns hold levels."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists: levels as text, counts as whole numbers, what is missing as NaN."""
        known = self.columns()
        if known is not None:
            labels = {name: column.column(known.rows).tolist() for name, column in known.labels.items()}
            return {**labels, **{name: column.tolist() for name, column in known.numbers.items()}}
        header, *rows = csv.reader(io.StringIO(self.csv().decode()))
        columns = [[row[place] for row in rows] for place in range(len(header))]
        texts = self.level_columns
        values = [column if place < texts else _numbers(column) for place, column in enumerate(columns)]
        return dict(zip(header, values, strict=True))

    def to_arrow(self) -> "pyarrow.Table":
        """Return an Arrow table (needs pyarrow)."""
        return _package("pyarrow").table(self.to_dict())

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas data frame (needs pandas)."""
        return _package("pandas").DataFrame(self.to_dict())

    def to_polars(self) -> "polars.DataFrame":
        """Return a polars data frame (needs polars)."""
        return _package("polars").DataFrame(self.to_dict())

    def _repr_html_(self) -> str:
        known = self.columns()
        content = self.csv() if known is None else b"".join(islice(known.csv(), 2))
        size = max(content.count(b"\n") - 1, 0) if known is None else known.rows
        header, *rows = csv.reader(io.StringIO(content[:_SHOWN].decode(errors="ignore")))
        whole = rows if len(content) <= _SHOWN else rows[:-1]
        texts = self.level_columns
        shown = [(*row[:texts], *(_numbers([cell])[0] for cell in row[texts:])) for row in whole]
        return sheet(self.name, header, shown, max(size, len(shown)))


@dataclass(frozen=True)
class Sheet(Framed):
    """A file of a release that holds no table of counts: the statistics of groups, or coefficients.

    >>> found = Sheet("mean-score", b"ward,count,mean\\na,3,7.5\\n", 1)
    >>> found.to_dict()
    {'ward': ['a'], 'count': [3], 'mean': [7.5]}
    """

    name: str
    content: bytes = field(repr=False)
    labels: int = field(repr=False)

    def csv(self) -> bytes:
        """Return the file."""
        return self.content

    @property
    def level_columns(self) -> int:
        """How many columns hold levels."""
        return self.labels


def _numbers(column: Sequence[str]) -> list[Any]:
    """Read numbers: whole ones where all are written so, else floats; nothing is NaN."""
    if all(text.lstrip("-").isdigit() for text in column):
        return [int(text) for text in column]
    return [float(text) if text else math.nan for text in column]


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed: install it, or use to_dict()") from None
