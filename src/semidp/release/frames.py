"""What is published as a CSV file, as a data frame: the same columns, the same text and numbers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from semidp.errors import InputError
from semidp.notebook import SHOWN_ROWS, sheet
from semidp.release.cells import Columns

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Framed:
    """Something that is published as one file whose first columns are levels and the others numbers."""

    name: str

    def columns(self) -> Columns:
        """Return the columns of the file."""
        raise NotImplementedError

    def csv(self) -> bytes:
        """Return the file."""
        return b"".join(self.columns().csv())

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns as lists: levels as text, counts as whole numbers, what is missing as NaN."""
        columns = self.columns()
        return dict(zip(columns.header, columns.lists(), strict=True))

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
        columns = self.columns()
        rows = zip(*columns.lists(SHOWN_ROWS), strict=True)
        return sheet(self.name, columns.header, rows, columns.rows)


@dataclass(frozen=True)
class Sheet(Framed):
    """A file of a release that holds no table of counts: the statistics of groups, or their differences."""

    name: str
    content: Columns = field(repr=False)

    def columns(self) -> Columns:
        """Return the columns of the file."""
        return self.content


def _package(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError(f"{name} is not installed: install it, or use to_dict()") from None
