"""What the columns of the published files mean, for machines: CSV on the Web, a vocabulary of the W3C.

The file has the name at which readers of CSV on the Web look for it beside the tables.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from semidp.release.products import MEASUREMENTS, PublishedProduct
from semidp.release.published import Published, PublishedGroups, PublishedTable, table_files

METADATA = "csv-metadata.json"

_MEANINGS = {
    "count": "the number of records that is published",
    "estimate": "the unbiased estimate of the count, before it was fitted to the exact totals",
    "standard_error": "of the estimate, from the noise alone",
    "estimate_low": "the lower end of a 95% interval of the estimate, from the noise alone",
    "estimate_high": "the upper end of a 95% interval of the estimate, from the noise alone",
    "noisy_count": "the count with the noise that was drawn",
    "mean": "the mean, from noisy sums and exact counts",
    "sum": "the noisy sum",
    "proportion": "the share of ones, from noisy sums and exact counts",
    "noisy_steps": "the noisy sum as drawn, in steps of the grid above the lower bound",
    "coefficient": "the estimated coefficient",
    "entry": "the position in the residual",
    "scale": "what the entry was multiplied by before noise was added",
    "noisy": "the entry with the noise that was drawn",
}
_LEVELS = {"term": "the column of the design", "residual": "the features whose residual was measured"}


def csvw(title: str, results: Sequence[Published], files: Mapping[str, bytes]) -> bytes:
    """Return the description of the CSV files of a release as JSON.

    Parameters
    ----------
    title
        What the release is about.
    results
        What is published.
    files
        The content of every CSV file by its name.
    """
    labels = {name: count for result in results for name, count in _labels(result).items()}
    document = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "dc:title": title,
        "tables": [
            {"url": quote(name), "tableSchema": _schema(content, labels[name])}
            for name, content in files.items()
            if name in labels
        ],
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _labels(result: Published) -> dict[str, int]:
    """Return how many columns of each file of a result hold levels."""
    if isinstance(result, PublishedTable):
        return dict.fromkeys(table_files(result.name), result.level_columns)
    if isinstance(result, PublishedProduct):
        return {**{f"{table.name}.csv": table.level_columns for table in result.tables}, MEASUREMENTS: 1}
    if isinstance(result, PublishedGroups):
        return {file: len(names) for file, names in zip(result.request.files, result.columns, strict=True)}
    return dict.fromkeys(result.files(), 1)


def _schema(content: bytes, labels: int) -> dict[str, Any]:
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline=""))
    header, first = next(lines), next(lines, None)
    columns = []
    for place, name in enumerate(header):
        text = place < labels
        meaning = _LEVELS.get(name, "a level of this feature") if text else _MEANINGS.get(name)
        columns.append(
            {
                "name": quote(name, safe=""),
                "titles": name,
                "datatype": "string" if text else "integer" if _whole(first, place) else "number",
                **({} if meaning is None else {"dc:description": meaning}),
            }
        )
    keys = [quote(name, safe="") for name in header[:labels]]
    return {"columns": columns, **({"primaryKey": keys} if keys and header[0] != "residual" else {})}


def _whole(row: Sequence[str] | None, place: int) -> bool:
    """Whether a column holds whole numbers: floats are written so that they can be told by any one of them."""
    return row is not None and row[place].lstrip("-").isdigit()
