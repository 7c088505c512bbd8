"""What the columns of the published files mean, for machines: CSV on the Web, a vocabulary of the W3C.

The file has the name at which readers of CSV on the Web look for it beside the tables.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from semidp.release.cells import Columns

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


def csvw(title: str, files: Mapping[str, Columns]) -> bytes | None:
    """Return the description of the CSV files of a release as JSON; None where it has none.

    Parameters
    ----------
    title
        What the release is about.
    files
        What every file holds, by its name.
    """
    tables = [
        {"url": quote(name), "tableSchema": _schema(content)}
        for name, content in files.items()
        if name.endswith(".csv")
    ]
    document = {
        "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
        "dc:title": title,
        "tables": tables,
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode() if tables else None


def _schema(content: Columns) -> dict[str, Any]:
    kinds = ["string"] * len(content.labels)
    kinds += ["integer" if column.dtype.kind == "i" else "number" for column in content.numbers.values()]
    columns = []
    for name, kind in zip(content.header, kinds, strict=True):
        meaning = _LEVELS.get(name, "a level of this feature") if kind == "string" else _MEANINGS.get(name)
        columns.append(
            {
                "name": quote(name, safe=""),
                "titles": name,
                "datatype": kind,
                **({} if meaning is None else {"dc:description": meaning}),
            }
        )
    keys = [quote(name, safe="") for name in content.labels]
    return {"columns": columns, **({"primaryKey": keys} if keys and "residual" not in content.labels else {})}
