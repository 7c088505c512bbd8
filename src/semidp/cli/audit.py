"""``semidp audit``: attack the mechanisms of a plan or a release, and leave with code 1 where a claim does not survive.

The attack needs no confidential table: the pair it compares is built from the published totals.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from semidp.audit import Audit, Subject, affordable_samples, audit_mechanism, of_plan, of_release, worst_pair
from semidp.audit.attack import ERROR, SHRINKAGE
from semidp.cli import _options as o
from semidp.cli._output import Format, print_json, progress_bar
from semidp.engines import open_source
from semidp.errors import InputError
from semidp.files import replace_file
from semidp.grouped import SumSpace
from semidp.noise import Randomness, SeededRandomness, SystemRandomness
from semidp.progress import Progress
from semidp.release import Release, survey

What = Annotated[
    Path,
    typer.Argument(
        help="A folder that `semidp release` wrote, or a plan (TOML or JSON) with --data.", metavar="PLAN-OR-RELEASE"
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help="For a plan: the data, of which only the public totals are used.", metavar="DATA"),
]
SamplesOption = Annotated[
    int | None,
    typer.Option("--samples", help="Outputs to draw for each of the two tables; else what a minute allows.", min=1),
]
SeedOption = Annotated[int | None, typer.Option("--seed", help="Repeat the same audit.", min=0)]
OutOption = Annotated[Path | None, typer.Option("--out", help="Draw the attacks beside the claim in this PNG file.")]


def audit(
    what: What,
    data: DataOption = None,
    from_table: o.FromTable = None,
    hive_partitions: o.HivePartitions = False,
    allow_empty: o.AllowEmpty = False,
    samples: SamplesOption = None,
    seed: SeedOption = None,
    out: OutOption = None,
    format: o.FormatOption = Format.text,
    quiet: o.Quiet = False,
) -> None:
    """Attack what a plan or a release promises: exit code 1 where the promise does not survive, 0 where it does.

    The mechanism is calibrated again and run on two tables with the published totals that differ as much as may be. A
    claim that does not survive is wrong but for a chance of 1 in 1,000; one that survives is not thereby proved.
    """
    if out is not None and out.suffix != ".png":
        raise InputError(f"--out names a PNG picture such as audit.png, not {out.name}")
    subjects = _subjects(what, data, from_table, hive_partitions=hive_partitions, allow_empty=allow_empty)
    randomness = SystemRandomness() if seed is None else SeededRandomness(seed)
    with progress_bar(quiet) as progress:
        error = ERROR / max(1, len(subjects))
        findings = [_examine(subject, samples, error, randomness, progress) for subject in subjects]
    pictures = _draw(findings, out) if out is not None else []
    if format is Format.json:
        print_json(_document(findings, pictures))
    else:
        typer.echo("\n\n".join("\n".join(_lines(finding)) for finding in findings))
        for picture in pictures:
            typer.echo(f"{'picture':<10} {picture}")
    if any(finding.convicted for finding in findings):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Finding:
    """A table and what the attack on it found: None where it is published exactly."""

    subject: Subject
    audit: Audit | None

    @property
    def convicted(self) -> bool:
        return bool(self.subject.faults) or (self.audit is not None and self.audit.convicted)


def _subjects(what: Path, data: str | None, from_table: str | None, **options: bool) -> tuple[Subject, ...]:
    if what.is_dir():
        if data is not None or from_table is not None:
            raise InputError("a release holds its public totals: leave --data and --from out")
        return of_release(Release.load(what))
    if not what.is_file():
        raise InputError(f"{what} is neither a release folder nor a plan file")
    plan = o.read_plan(what, "the plan")
    if not plan.requests:
        raise InputError("the plan releases nothing: there is nothing to audit")
    if data is None:
        raise InputError("a plan holds no totals: name the data with --data, of which only the public totals are used")
    with open_source(data, table=from_table, count=plan.count, where=plan.where, id=plan.id, **options) as source:
        return of_plan(plan, survey(plan, source).scope)


def _examine(
    subject: Subject, samples: int | None, error: float, randomness: Randomness, progress: Progress
) -> _Finding:
    if subject.fixed:
        return _Finding(subject, None)
    draws = subject.mechanism.measure_many
    pair = worst_pair(subject.mechanism.space)
    count = affordable_samples(draws, pair, randomness) if samples is None else samples
    found = audit_mechanism(
        draws, pair, subject.claim, samples=count, error=error, randomness=randomness, progress=progress
    )
    return _Finding(subject, found)


def _draw(findings: list[_Finding], out: Path) -> list[Path]:
    from semidp.plots import audit_plot, png

    drawn = [(finding.subject, finding.audit) for finding in findings if finding.audit is not None]
    written = []
    for subject, found in drawn:
        path = out if len(drawn) == 1 else out.with_stem(f"{out.stem}-{subject.name}")
        title = f"{subject.mechanism.name}: the claim {'is refuted' if found.convicted else 'survives'}"
        replace_file(path, png(audit_plot(found.claim, found.points, title)))
        written.append(path)
    return written


def _document(findings: list[_Finding], pictures: list[Path]) -> dict[str, Any]:
    return {
        "verdict": "convicted" if any(finding.convicted for finding in findings) else "survives",
        "tables": [
            {
                "name": finding.subject.name,
                "features": list(finding.subject.mechanism.space.schema.names),
                "mechanism": finding.subject.mechanism.name,
                "scale": finding.subject.mechanism.scale,
                "verdict": "convicted" if finding.convicted else "survives",
                "published_exactly": finding.subject.fixed,
                "faults": list(finding.subject.faults),
                "audit": None if finding.audit is None else finding.audit.to_json(),
            }
            for finding in findings
        ],
        "pictures": [str(picture) for picture in pictures],
    }


def _lines(finding: _Finding) -> list[str]:
    subject, found = finding.subject, finding.audit
    table = " by ".join(subject.mechanism.space.schema.names)
    lines = [("table", f"{table}: {subject.mechanism.name}, scale {subject.mechanism.scale:.6g}")]
    if found is None:
        lines.append(("attack", "none: the published totals fix this table, which is published exactly"))
    else:
        lines += _attack(found, isinstance(subject.mechanism.space, SumSpace))
    lines += [("fault", fault) for fault in subject.faults]
    lines.append(("verdict", _verdict(finding)))
    return [f"{name:<10} {text}" for name, text in lines]


def _attack(found: Audit, sums: bool) -> list[tuple[str, str]]:
    bound, confidence = found.bound, 1 - found.error
    cells = int((found.pair.move != 0).sum())
    difference = f"{found.pair.records} records ({cells} cells)"
    if sums:  # the pair is one of sums, counted in steps of the outcome's grid
        difference = f"{found.pair.records} steps of the grid ({cells} sum{'s' if cells > 1 else ''})"
    return [
        (
            "attack",
            f"{found.samples:,} outputs for each of two {'datasets' if sums else 'tables'} with the published totals "
            f"that differ in {difference}",
        ),
        ("claim", f"{bound.unit} is at most {bound.claimed:.6g}"),
        ("measured", f"{bound.unit} is at least {bound.measured:.4g}, with confidence {100 * confidence:.6g}%"),
        ("also", f"epsilon of at least {found.epsilon:.4g} at delta 0, mu of at least {found.mu:.4g}"),
        (
            "power",
            f"with {1 - SHRINKAGE:.0%} less noise than it has, the mechanism would be convicted in about "
            f"{found.power:.1%} of audits like this",
        ),
    ]


def _verdict(finding: _Finding) -> str:
    found = finding.audit
    if found is not None and found.convicted:
        worst = found.worst
        return (
            f"convicted: an attacker ({worst.attack}) with at most {worst.size_high:.4g} false alarms detects the "
            f"difference with probability at least {worst.power_low:.4g}, and the claim allows {worst.allowed:.4g}"
        )
    if finding.convicted:
        return "convicted: what is recorded does not agree with the plan"
    if found is None:
        return "survives: nothing here is protected by noise, and nothing is claimed to be"
    return "survives: no attack that was tried beats the claim (which does not prove it)"
