"""A combination of releases, computed again from the releases that its folder holds.

Everything in it follows from them; whether they themselves follow from their measurements is
checked one by one.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from semidp.errors import SemidpError
from semidp.publish.combined.releases_together import build_combination, combined_release
from semidp.publish.combined.several_releases import ListedTable, SeveralReleases
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.release_value import SOURCES
from semidp.publish.results.published_table import PublishedTable
from semidp.publish.statistics.recheck_findings import Findings, close, differences, short
from semidp.publish.statistics.tables.refit import FittedTable, Refit, intervals_hold, note_fits

_BELIEVED = {"created", "versions", "combination"}


def check_sources(
    sources: Sequence[ReleaseFiles],
    folder: Path | None,
    check: Callable[..., Any],
    findings: Findings,
) -> None:
    """Check every release of a combination by itself, and note what is wrong with it and what is
    believed of it.
    """
    for number, source in enumerate(sources, 1):
        place = f"{SOURCES}/{number}"
        checked = check(source, None if folder is None else folder / place)
        findings.wrong += [f"{place}: {said}" for said in checked.disagreements]
        for trust in checked.trusted:
            findings.trust(trust.what, *(f"{place} {field}" for field in trust.fields))


def check_combination(
    release: ReleaseFiles, document: Mapping[str, Any], findings: Findings
) -> None:
    """Compare a combination with what follows from its releases."""
    sources = release.sources
    try:
        combination = build_combination(sources)
        tables = () if release.combined_tables is None else release.combined_tables.tables
        stated = []
        for table in tables:
            stated.append(ListedTable(table.name, table.schema.names, table.counted))
        expected = combination.listed_tables if any(one.tables for one in sources) else ()
        if tuple(stated) != expected:
            findings.wrong.append("it states other tables than its releases have")
            return
        again = _compare_tables(combination, tables, findings)
        rebuilt = combined_release(type(release), combination, again)
    except SemidpError as error:
        findings.wrong.append(f"its releases cannot be combined again: {error}")
        return
    follows = json.loads(json.dumps(rebuilt.to_json()))
    for key, value in follows.items():
        if key in _BELIEVED:
            continue
        for path, said, computed in differences(document.get(key), value, key):
            findings.wrong.append(f"it states {path} {short(said)}, and {short(computed)} follows")
    # What a combination does not write, nobody has computed.
    unknown = [key for key in document if key not in follows and key not in {"files", "form"}]
    findings.wrong += [f"it states {key!r}, which no combination has" for key in unknown]
    findings.trust("when it was made, and with which software", "created", "versions")


def _compare_tables(
    combination: SeveralReleases, tables: tuple[PublishedTable, ...], findings: Findings
) -> tuple[PublishedTable, ...]:
    """Compare estimates, errors, intervals and whole numbers; return the tables as they are
    computed again.
    """
    if not tables:
        return ()
    again = []
    fitted = []
    for number, table in enumerate(tables):
        values, errors = combination.table_estimates(number)
        half_widths = combination.table_half_widths(number)
        if not close(table.estimate, values):
            findings.wrong.append(
                f"it states estimates of {table.name} that do not follow from its releases"
            )
        if not close(table.standard_errors, errors):
            findings.wrong.append(
                f"it states standard errors of {table.name} that the noise does not have"
            )
        elif not intervals_hold(table, half_widths):
            findings.wrong.append(
                f"it states intervals of {table.name} that the noise does not have"
            )
        again.append(
            replace(table, estimate=values, standard_errors=errors, half_widths=half_widths)
        )
        fitted.append(FittedTable(table.name, f"{table.name}.csv", table, values))
    # Fitting again takes the time of a recheck, and is left out where it was not asked for.
    fits: list[Refit] | None = None
    if findings.refits:
        fits = combination.fits([table.estimate for table in again])
    note_fits(findings, "tables", "combined.tables.fit", fitted, fits)
    return tuple(again)
