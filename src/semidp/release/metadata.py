"""What the columns of the published files mean, for machines: CSV on the Web, a vocabulary of the W3C.

The file has the name at which readers of CSV on the Web look for it beside the tables.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from semidp.release.cells import Columns
from semidp.release.published import Published
from semidp.release.published_outcomes import PublishedGroups, PublishedQuantiles, PublishedRegression

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
    "entry": "the position in what was measured",
    "lower": "the lower end of an interval for the value of these records",
    "upper": "the upper end of an interval for the value of these records",
    "population_lower": "the lower end of an interval for the population that the records were drawn from",
    "population_upper": "the upper end of an interval for the population that the records were drawn from",
    "difference": "the estimate of the first group less that of the second",
    "scale": "what the entry was multiplied by before noise was added",
    "noisy": "the entry with the noise that was drawn",
}
_LEVELS = {"term": "the column of the design", "residual": "the features whose residual was measured"}


def csvw(title: str, results: Sequence[Published], files: Mapping[str, bytes | Columns]) -> bytes | None:
    """Return the description of the CSV files of a release as JSON; None where it has none.

    Parameters
    ----------
    title
        What the release is about.
    results
        What is published.
    files
        What every file holds, by its name.
    """
    labels = {name: count for result in results for name, count in _labels(result).items()}
    tables = [
        {"url": quote(name), "tableSchema": _schema(content, labels.get(name, 1))}
        for name, content in files.items()
        if name.endswith(".csv")
    ]
    document = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "dc:title": title,
        "tables": tables,
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode() if tables else None


def _labels(result: Published) -> dict[str, int]:
    """Return how many columns of each file hold levels, where its columns do not say."""
    if isinstance(result, (PublishedGroups, PublishedQuantiles)):
        return dict(zip(result.request.files, result.label_columns, strict=True))
    if isinstance(result, PublishedRegression):
        return dict(zip(result.files(), (1, 0), strict=False))
    return {}


def _schema(content: bytes | Columns, labels: int) -> dict[str, Any]:
    if isinstance(content, Columns):
        header, labels = [*content.labels, *content.numbers], len(content.labels)
        whole = [column.dtype.kind == "i" for column in content.numbers.values()]
    else:
        lines = csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline=""))
        header, first = next(lines), next(lines, None)
        whole = [_whole(first, place) for place in range(labels, len(header))]
    columns = []
    for place, name in enumerate(header):
        text = place < labels
        meaning = _LEVELS.get(name, "a level of this feature") if text else _MEANINGS.get(name)
        columns.append(
            {
                "name": quote(name, safe=""),
                "titles": name,
                "datatype": "string" if text else "integer" if whole[place - labels] else "number",
                **({} if meaning is None else {"dc:description": meaning}),
            }
        )
    keys = [quote(name, safe="") for name in header[:labels]]
    return {"columns": columns, **({"primaryKey": keys} if keys and header[0] != "residual" else {})}


def _whole(row: Sequence[str] | None, place: int) -> bool:
    """Whether a column holds whole numbers: floats are written so that they can be told by any one of them."""
    return row is not None and row[place].lstrip("-").isdigit()
