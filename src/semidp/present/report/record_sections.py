"""How good records of microdata are, for the report: a function of what is published."""

from semidp.inference.records.record_errors import RecordErrors, estimate_errors
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.results.grids import Section

_LISTED = 12  # pairs in the list, those of the largest error first
_NAMED = 8  # weak pairs that are named


def record_sections(release: ReleaseFiles) -> list[Section]:
    """Return the section on the errors of records; none where no microdata were asked for."""
    if release.plan.microdata is None:
        return []
    errors = estimate_errors(release)
    worst = sorted(errors.pairs.items(), key=lambda item: (-round(item[1], 4), item[0]))
    rows = [
        (one, other, _percent(error), "weak" if (one, other) in errors.weak else "")
        for (one, other), error in worst[:_LISTED]
    ]
    return [
        Section(
            heading="How good is it?",
            paragraphs=_explain(errors),
            columns=("column", "column", "error of the pair", "association"),
            rows=rows,
            names=2,
        )
    ]


def _explain(errors: RecordErrors) -> list[str]:
    """What errors of one, two and three columns are expected, and which pairs are weak."""
    pairs = list(errors.pairs.values())
    mean = sum(pairs) / max(len(pairs), 1)
    paragraphs = [
        "Errors of the records, estimated from the published numbers alone: the absolute errors of"
        " a table, added up, as a share of all records. 2% means that about one record in a"
        " hundred stands in a wrong cell."
    ]
    if errors.columns:
        worst = max(errors.columns, key=lambda name: errors.columns[name])
        paragraphs.append(
            f"One column: {_percent(sum(errors.columns.values()) / len(errors.columns))} on"
            f" average, at most {_percent(errors.columns[worst])} ({worst}). Exact totals have no"
            " error."
        )
    paragraphs.append(
        f"Two columns: {_percent(mean)} on average over {len(pairs)} measured pairs, on the bins"
        " that pairs are measured on. How people are spread inside a bin is not measured, so that"
        " single levels are farther off."
    )
    if errors.three_columns:
        paragraphs.append(
            f"Three columns: at least {_percent(errors.three_columns)} on average. What three"
            " columns have in common beyond their pairs is not measured."
        )
    if errors.weak:
        named = [" and ".join(pair) for pair in errors.weak[:_NAMED]]
        left = len(errors.weak) - len(named)
        listed = "; ".join([*named, f"{left} more"] if left else named)
        paragraphs.append(
            f"Weak pairs, in which nothing is louder than the noise: {listed}. Records treat these"
            " columns as nearly independent of each other; a weak association may be lost."
        )
    else:
        paragraphs.append("No pair is weak: each has an association that is louder than the noise.")
    return paragraphs


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%"
