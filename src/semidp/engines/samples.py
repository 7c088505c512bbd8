"""Numbers in CSV and Parquet files, such as outputs of a mechanism: a row each, all columns numeric."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.errors import InputError

_READERS = {".csv": "read_csv_auto", ".tsv": "read_csv_auto", ".txt": "read_csv_auto", ".parquet": "read_parquet"}


def read_numbers(path: Path) -> NDArray[Any]:
    """Return the rows of a file of numbers: whole numbers where all are, else floats.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "samples.csv").write_text("a,b\\n1,2\\n3,4\\n")
    ...     read_numbers(Path(folder) / "samples.csv").tolist()
    [[1, 2], [3, 4]]
    """
    import duckdb

    reader = _READERS.get(path.suffix.lower())
    if reader is None or not path.is_file():
        raise InputError(f"{path} is not a CSV or Parquet file of numbers")
    try:
        with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as database:
            found = database.execute(f"SELECT * FROM {reader}(?)", [str(path)]).fetchnumpy()
        columns = [np.ma.getdata(column) for column in found.values() if not np.ma.getmaskarray(column).any()]
    except Exception:  # messages of the driver quote rows
        raise InputError(f"{path} could not be read as a file of numbers") from None
    if not columns or len(columns) < len(found) or any(column.dtype.kind not in "iufb" for column in columns):
        raise InputError(f"every column of {path} must hold numbers, and none may be missing")
    return np.column_stack(columns)
