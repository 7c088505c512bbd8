"""Fit of all parts in one piece, stored in the folder of an unfinished release until every part is
written.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from semidp.errors import DataError
from semidp.promise.documents import from_json
from semidp.promise.files import durable, replace
from semidp.promise.schema.margins import View
from semidp.publish.results.published_table import Fitted
from semidp.publish.statistics.tables.by_parts.separate_fits import Fits

_HOW = "how"  # the entry of an archive that says how its tables were fitted


def store_fits(path: Path, fits: Fits) -> None:
    """Write fitted tables to an archive of arrays that is whole or not there.

    Parameters
    ----------
    path
        The archive. Its name ends in ``.npz``.
    fits
        The tables by their views, each with how it was fitted.
    """
    arrays: dict[str, Any] = {}
    entries = []
    for number, (view, (counts, how)) in enumerate(fits.items()):
        arrays[f"table_{number}"] = counts
        entries.append({"view": view, "fit": asdict(how)})
    fresh = path.with_name(f"fresh-{path.name}")
    arrays[_HOW] = np.array(json.dumps(entries))
    np.savez(fresh, **arrays)
    durable(path.parent)
    replace(fresh, path)


def read_fits(path: Path) -> Fits:
    """Read what `store_fits` wrote; `FileNotFoundError` where nothing was.

    Examples
    --------
    >>> import tempfile
    >>> fits = {(1, 0): (np.array([3, 4]), Fitted("integer", "flow", 2.0, 1.0, True, ""))}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store_fits(Path(folder) / "fit.npz", fits)
    ...     read_fits(Path(folder) / "fit.npz")
    {(1, 0): (array([3, 4]), Fitted(kind='integer', method='flow', loss=2.0, bound=1.0,
    optimal=True, note=''))}
    """
    fits: Fits = {}
    try:
        # Pickled objects could run code when they are read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            for number, entry in enumerate(from_json(str(stored[_HOW]))):
                view: View = tuple(entry["view"])
                fits[view] = (stored[f"table_{number}"], Fitted(**entry["fit"]))
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, OSError, EOFError, BadZipFile):
        raise DataError("the fit of the unfinished release is damaged: discard it") from None
    return fits
