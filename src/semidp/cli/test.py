"""``semidp test``: are two features of a release associated? At no cost in privacy."""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import semidp.cli._options as o
from semidp.cli._command import argument, command, flag, option
from semidp.cli._output import append_hint, echo, print_json, print_rows
from semidp.errors import InputError, Refused
from semidp.inference.association import Association
from semidp.inference.common_odds import CommonOddsRatio, common_odds_ratio
from semidp.inference.independence import Independence
from semidp.inference.paired_tests import every_pair as every_pair_of
from semidp.inference.paired_tests import pairs_section
from semidp.present.release import Release
from semidp.promise.exact import exact, plain
from semidp.promise.files import lies_inside, replace_file
from semidp.promise.noise.randomness import SeededRandomness
from semidp.publish.plotting import png
from semidp.publish.recheck import load_consistent
from semidp.publish.results.texts import p_value_text
from semidp.publish.statistics.odds_ratio.umpu import Alternative
from semidp.publish.statistics.protocol.statistic import split_names
from semidp.publish.written_values import check_level


@command
def association(
    *,
    folder: str = argument("A folder that `semidp release` wrote.", "RELEASE"),
    rows: o.Text = option("The feature of the rows.", "FEATURE"),
    columns: o.Text = option("The feature of the columns.", "FEATURE"),
    strata: o.Text = option(
        "Test within the combinations of these features.",
        "A[,B]",
    ),
    alternative: Alternative = option(
        "Look for an association in either direction (two-sided), or in one.",
        default=Alternative.TWO_SIDED,
    ),
    level: str = option("The confidence level of the odds ratio.", "NUMBER", default="0.95"),
    ordered: o.Texts = option("A feature with ordered levels: look for a trend.", "FEATURE"),
    scores: o.Texts = option(
        "The scores of an ordered feature's levels, in their order (default: 1, 2, 3 …).",
        "NAME=1,2,4",
    ),
    pooled: bool = flag("--pooled", "Look for one association that is common to all --strata."),
    every_pair: bool = flag(
        "--every-pair", "Test every pair of features instead of --rows and --columns."
    ),
    fdr: o.Text = option(
        "With --every-pair: the share of false discoveries among those found (default 0.05).",
        "NUMBER",
    ),
    plot: Path | None = option("With --every-pair: draw all pairs to this PNG file.", "FILE"),
    page: Path | None = option(
        "With --every-pair: write the report of the release with all pairs to this file.", "HTML"
    ),
    draws: int | None = option("How many tables to simulate (default 9999).", "N"),
    table_name: o.Text = option("Which table, if several have these features.", "TABLE", "--name"),
    seed: int | None = option("Repeat the same simulation.", "N"),
    printing: o.Printing,
) -> None:
    """Test whether two features of a release are associated. This costs no privacy.

    The test uses the noisy counts and the known law of their noise; features may have any number
    of levels. --pooled and --ordered find a weaker association of their kind. Two levels by two
    also have an odds ratio with an exact interval.

    To test data privately, publish the test: `semidp release DATA --odds-ratio ROWS,COLUMNS`.
    """
    if not (Path(folder) / "release.json").is_file():
        _refuse_data(folder, rows, columns, strata)
    if every_pair:
        if rows or columns or strata or pooled or table_name:
            raise InputError(
                "--every-pair tests all features: leave --rows, --columns, --strata, --pooled and"
                " --name out"
            )
        _test_pairs(
            folder, fdr, _parse_scores(ordered, scores), (plot, page), draws, seed, printing
        )
        return
    if fdr is not None or plot is not None or page is not None:
        raise InputError("--fdr, --plot and --page are for --every-pair")
    if rows is None or columns is None:
        raise InputError(
            "name the two features: --rows FEATURE and --columns FEATURE, or --every-pair"
        )
    within = split_names(strata) if strata else ()
    for name in {rows, columns} & {*within} | ({rows} & {columns}):
        raise InputError(
            f"--rows, --columns and --strata name {name!r} twice: name different features"
        )
    confidence = o.parse_real(level, "--level")
    check_level(confidence, "--level")
    release = load_consistent(Release, folder)
    settings: dict[str, Any] = {
        "draws": draws,
        "randomness": None if seed is None else SeededRandomness(seed),
    }
    answer = release.test(
        rows,
        columns,
        within,
        ordered=_parse_scores(ordered, scores),
        pooled=pooled,
        alternative=alternative,
        table=table_name,
        **settings,
    )
    ratio, notes = None, answer.notes
    if _has_odds_ratio(release, answer):
        try:
            ratio = common_odds_ratio(
                release, rows, columns, within, level=confidence, table=answer.table, **settings
            )
        except Refused as refusal:
            # The test itself has an answer.
            notes = (*notes, f"The odds ratio has no interval: {append_hint(refusal)}.")
    if ratio is not None and ratio.approximate:
        notes = (*notes, ratio.notes[0])
    notes = (*notes, *_warn_alphabetical(release, answer, _parse_scores(ordered, scores)))
    if printing.json:
        interval = {} if ratio is None else {"odds_ratio": ratio.to_json()}
        print_json({"release": folder, **answer.to_json(), **interval, "notes": list(notes)})
        return
    in_strata = f" given {', '.join(within)}" if within else ""
    counts = f"unbiased counts with {answer.noise} noise, {_margins(answer)}"
    print_rows(
        [
            ("question", f"are {rows} and {columns} independent{in_strata}?"),
            ("table", f"{answer.table}: {counts}"),
            *_describe_statistic(answer, _name_scores(release, answer)),
            ("p-value", f"{p_value_text(answer.p_value)}, {_valid(answer)}"),
            *([] if ratio is None else _ratio_rows(ratio)),
            ("budget", "none: everything here was published already"),
            *(("note", note) for note in notes),
        ]
    )


def _refuse_data(folder: str, rows: str | None, columns: str | None, strata: str | None) -> None:
    """Answer a test of data with the command that publishes one."""
    features = ",".join(filter(None, (rows or "ROWS", columns or "COLUMNS", strata)))
    words = shlex.join(["semidp", "release", folder, "--odds-ratio", features])
    raise InputError(
        f"{folder} is not the folder of a release; to test data privately, publish the test:"
        f" {words} --epsilon 1 --out FOLDER"
    )


def _parse_scores(ordered: o.Texts, scores: o.Texts) -> dict[str, tuple[float, ...] | None]:
    """Read the ordered features and their scores.

    >>> _parse_scores(["age"], ["dose=0,1/2,4"])
    {'age': None, 'dose': (0.0, 0.5, 4.0)}
    """
    features: dict[str, tuple[float, ...] | None] = dict.fromkeys(ordered or ())
    for name, values in o.parse_lists("--scores", scores, "dose=0,1,4").items():
        features[name] = tuple(o.parse_real(value, "--scores") for value in values)
    return features


def _has_odds_ratio(release: Release, answer: Independence | Association) -> bool:
    """Whether a test is of two levels by two, in one table or of what is common to strata."""
    pooled = isinstance(answer, Association) and answer.pooled
    scored = isinstance(answer, Association) and bool(answer.ordered)
    if (answer.strata and not pooled) or scored or len(answer.noisy_totals) == 2:
        return False
    names = (answer.rows, answer.columns)
    return all(len(_list_labels(release, answer, name)) == 2 for name in names)


def _ratio_rows(ratio: CommonOddsRatio) -> list[tuple[str, str]]:
    """The lines about the odds ratio: of which levels, its estimate, its interval."""
    row, column = ratio.compared
    common = f", common to the strata of {', '.join(ratio.strata)}" if ratio.strata else ""
    high = "without end" if math.isinf(ratio.high) else f"to {ratio.high:.6g}"
    value = "infinite" if math.isinf(ratio.value) else f"{ratio.value:.6g}"
    level = plain(exact(ratio.level))
    covers = "covers noise and sampling"
    if ratio.approximate:
        covers += ", by an approximation"
    elif ratio.noisy_totals:
        covers += ", at least as often as stated"
    return [
        (
            "odds ratio",
            f"{value} for {ratio.rows} = {row} and {ratio.columns} = {column}{common}",
        ),
        ("interval", f"{ratio.low:.6g} {high}, at level {level}; {covers}"),
    ]


def _test_pairs(
    folder: str,
    fdr: str | None,
    scores: dict[str, tuple[float, ...] | None],
    pictures: tuple[Path | None, Path | None],
    draws: int | None,
    seed: int | None,
    printing: o.Printing,
) -> None:
    """Test every pair of features of a release; nothing is spent."""
    rate = o.parse_real("0.05" if fdr is None else fdr, "--fdr")
    plot, page = pictures
    for file in pictures:
        # Before the tests, which take long; a release is read again as it was written.
        if file is not None and (file.exists() or lies_inside(file, Path(folder))):
            raise InputError(
                f"{file} exists already, or lies inside the release: name another file"
            )
    randomness = None if seed is None else SeededRandomness(seed)
    release = load_consistent(Release, folder)
    answer = every_pair_of(release, fdr=rate, ordered=scores, draws=draws, randomness=randomness)
    if plot is not None:
        replace_file(plot, png(answer.plot()))
    if page is not None:
        replace_file(page, release.report_html(further=[pairs_section(answer)]).encode())
    if printing.json:
        print_json({"release": folder, **answer.to_json()})
        return
    lines = sorted(
        zip(answer.adjusted, answer.tests, strict=True), key=lambda line: (line[0], line[1].p_value)
    )
    width = max(len(f"{test.rows} × {test.columns}") for test in answer.tests)
    echo(f"{'pair':<{width}}  p-value   adjusted")
    for adjusted, test in lines:
        verdict = "associated" if adjusted <= rate else ""
        pair = f"{test.rows} × {test.columns}"
        numbers = f"{p_value_text(test.p_value):<8}  {p_value_text(adjusted):<8}"
        echo(f"{pair:<{width}}  {numbers}  {verdict}".rstrip())
    echo()
    for one, other, why in answer.untested:
        echo(f"not tested: {one} × {other}: {why}")
    discoveries, tested = len(answer.discoveries), len(answer.tests)
    echo(
        f"{discoveries} of {tested} pairs are associated, at a false discovery rate of at most"
        f" {plain(exact(rate))}."
    )
    # All tests share the noise of one release, so that they cannot be taken as independent.
    echo("It holds under any dependence of the tests (Benjamini-Yekutieli); no budget is spent.")


def _margins(answer: Independence | Association) -> str:
    """Say which totals of a test are exact."""
    noisy = answer.noisy_totals
    return (
        f"the totals of {' and '.join(noisy)} noisy" if noisy else "all margins of the test exact"
    )


def _valid(answer: Independence | Association) -> str:
    """Say why a p-value holds."""
    if answer.draws:
        return f"exact by simulation of {answer.draws:,} tables with noise"
    return "an upper bound over all plausible totals, valid in finite samples"


def _list_labels(release: Release, answer: Independence | Association, name: str) -> list[str]:
    """The levels of a feature in the table that was tested."""
    (table, *_) = [table for table in release.tables if table.name == answer.table]
    feature = table.schema.features[table.schema.axis(name)]
    return list(feature.leaves_below(name))


def _name_scores(release: Release, answer: Independence | Association) -> list[tuple[str, str]]:
    """The lines that give each level of ordered features with its score."""
    if isinstance(answer, Independence):
        return []
    lines = []
    for name, scores in answer.ordered:
        pairs = zip(_list_labels(release, answer, name), scores, strict=True)
        lines.append(("scores", f"{name}: {', '.join(f'{x} = {score:g}' for x, score in pairs)}"))
    return lines


def _warn_alphabetical(
    release: Release,
    answer: Independence | Association,
    given: Mapping[str, tuple[float, ...] | None],
) -> list[str]:
    """Warn of ordered levels that stand in the order of the alphabet, and have no scores given."""
    if isinstance(answer, Independence):
        return []
    warnings = []
    for name, _ in answer.ordered:
        labels = _list_labels(release, answer, name)
        has_words = not any(label[:1].isdigit() for label in labels)
        if given.get(name) is None and len(labels) > 2 and has_words and labels == sorted(labels):
            warnings.append(
                f"The levels of {name} are in alphabetical order, which may not be their natural"
                f" order: give --scores {name}=… in the order above."
            )
    return warnings


def _describe_statistic(
    answer: Independence | Association, scores: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The lines about the statistic: what was chosen and why, its value, its direction."""
    if isinstance(answer, Independence):
        return [
            (
                "statistic",
                f"{answer.statistic:.6g}, where independence has {answer.expected:,} on average",
            )
        ]
    lines = [("chosen", answer.method), *scores]
    if answer.z is None and answer.noisy_totals:
        size = math.sqrt(answer.statistic)
        lines.append(
            ("statistic", f"{size:.4g} standard deviations: the largest of {answer.degrees:,} sums")
        )
        return lines
    if answer.z is None:
        lines.append(
            (
                "statistic",
                f"{answer.statistic:.6g}, where independence has {answer.degrees} on average",
            )
        )
        return lines
    lines.append(("statistic", f"z = {answer.z:.4g}: {answer.sense}"))
    if answer.alternative is not Alternative.TWO_SIDED:
        lines.append(
            (
                "looked for",
                f"z {'above' if answer.alternative is Alternative.GREATER else 'below'} 0",
            )
        )
    return lines
