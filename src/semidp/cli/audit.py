"""``semidp audit``: attack the mechanisms of a plan or a release; the exit code says whether the
claims survive.

The attack needs no confidential table: the pair it compares is built from the published totals.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from attrs import evolve, frozen

import semidp.cli._options as o
from semidp.assess.attack import (
    ENOUGH_POWER,
    ERROR,
    Audit,
    Verdict,
    affordable_samples,
    audit_mechanism,
    with_less_noise,
)
from semidp.assess.attack_bounds import MOST_DRAWS, Energy, noise_energy
from semidp.assess.attacked_pairs import (
    Claim,
    choose_pair,
    claims_of_plan,
    claims_of_release,
    given_pairs,
)
from semidp.assess.foreign import audit_function, audit_samples
from semidp.assess.pairs import Pair, describe_difference
from semidp.cli._command import argument, command, option
from semidp.cli._output import (
    echo,
    kind_and_a,
    naming_options,
    print_json,
    print_rows,
    progress_bar,
)
from semidp.cli.guarantee import stated_curve
from semidp.errors import InputError, Occupied
from semidp.present.release import Release
from semidp.promise.documents import from_json
from semidp.promise.files import recover, replace_file
from semidp.promise.guarantee import Scope
from semidp.promise.mechanisms.mechanism import Mechanism
from semidp.promise.noise.randomness import Randomness
from semidp.promise.progress import Progress
from semidp.promise.spaces.adjacency import Adjacency
from semidp.publish.pipeline import Prepared, prepare
from semidp.publish.plan import Plan
from semidp.publish.plan_settings import choose_randomness, open_data, read_text
from semidp.publish.presentation import report_words
from semidp.publish.release_files import read_release_document
from semidp.publish.results.columns import read_numbers
from semidp.publish.survey import public_scope

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_CALLS = 20_000
EXIT_CODES: dict[Verdict, int] = {"survives": 0, "convicted": 1, "inconclusive": 3}
"""What the command leaves with; 2 is for what cannot be audited at all."""


@command
def audit(
    *,
    what: o.Text = argument(
        "A folder that `semidp release` wrote, a plan (TOML or JSON) with --data, or"
        " module:function with --pair.",
        "[PLAN-OR-RELEASE]",
        None,
    ),
    data: o.Text = option(
        "For a plan: the data, of which only the public totals are used.", "DATA"
    ),
    outputs: list[Path] | None = option(
        "A CSV or Parquet file of outputs, one per row; give it twice, for two adjacent datasets.",
        "FILE",
    ),
    pair: Path | None = option(
        "A JSON file of two datasets [first, second]: for a plan or a release lists of records to"
        " attack on, for module:function what it takes.",
        "FILE",
    ),
    options: Annotated[o.Options, (*o.BUDGET, "from_table", "units", "units_from", "set")],
    adjacency: o.Text = option(
        "Attack pairs of another adjacency than the claimed one: exchange, worst-case, definition"
        " or a number.",
        "READING|N",
    ),
    most: int | None = option(
        "Attack pairs that differ in one person with up to N records.", "N", min=1
    ),
    samples: int | None = option(
        "Outputs to draw for each of the two tables (default: as many as a minute allows).",
        "N",
        min=1,
    ),
    seed: int | None = option("Repeat the same audit.", "N", min=0),
    out: Path | None = option("Draw the attacks and the claim in this PNG file.", "FILE"),
    force: bool = o.FORCE,
    printing: o.Printing,
) -> None:
    """Attack what a plan or a release promises. Exit code 0: it survives, 1: it is convicted, 3:
    inconclusive.

    The mechanism is calibrated again and run on two tables that have the published totals and
    differ as much as the claim allows. The noise in each published cell is compared with its stated
    standard error. A claim that holds is convicted with probability at most 1 in 1,000; surviving
    proves nothing. An audit is inconclusive if it would convict the same mechanism with 20% less
    noise in fewer than half of the cases: draw more samples. For linked members and units, whose
    costs are bounds that no pair attains, the noise is reduced by more than 20%; the line
    `power` says by how much.

    With --pair the attack is on two datasets of your own, [[{"sex": "f", …}, …], [{"sex": "m", …},
    …]]. Each record is an object with a value for every column of the release. Both datasets must
    have its exact totals and be adjacent as it promises.

    Mechanisms of others are audited by their outputs (--outputs twice) or by a function that is
    called on two datasets (module:function with --pair), against what --epsilon, --rho or --mu
    state for these two.
    """
    if out is not None and out.suffix != ".png":
        raise InputError(f"--out names a PNG picture such as audit.png, not {out.name}")
    randomness = choose_randomness(seed)
    with progress_bar(printing.quiet) as progress:
        audited = _foreign(what, outputs or (), pair, options, samples, randomness, progress)
    if isinstance(audited, Audit):
        if most is not None:
            raise InputError("--most is about plans and releases: leave it out here")
        if data is not None or out is not None or options.given.has_units:
            raise InputError(
                "--data, --units and --out are about plans and releases: leave them out here"
            )
        _report_foreign(audited, printing)
        return
    subject = _subject(audited, data, options, _Pairs(adjacency, most))
    claims = subject.claims
    pairs = [None] * len(claims) if pair is None else subject.build_pairs(_datasets(pair))
    pictures = _pictures(claims, out) if out is not None else {}
    _check_vacant(pictures.values(), force)
    with progress_bar(printing.quiet) as progress:
        # All claims together may be convicted wrongly once in 1,000 audits (a union bound).
        error = ERROR / max(1, len(claims))
        findings = [
            (
                _Finding(
                    claim, subject.adjacency or claim.mechanism.space.adjacency, unchanged=True
                )
                if pair is not None and own_pair is None and not claim.is_fixed
                else _examine(
                    claim, own_pair, subject.adjacency, samples, error, randomness, progress
                )
            )
            for claim, own_pair in zip(claims, pairs, strict=True)
        ]
    _draw(findings, pictures, force)
    if printing.json:
        print_json(_document(findings, list(pictures.values())))
    else:
        for place, finding in enumerate(findings):
            if place:
                echo()
            print_rows(_rows(finding))
        print_rows(("picture", str(picture)) for picture in pictures.values())
    _leave(_combine_verdicts(findings))


def _leave(verdict: Verdict) -> None:
    if EXIT_CODES[verdict]:
        raise typer.Exit(EXIT_CODES[verdict])


def _foreign(
    what: str | None,
    outputs: Sequence[Path],
    pair: Path | None,
    options: o.Options,
    samples: int | None,
    randomness: Randomness,
    progress: Progress,
) -> Audit | Path:
    """Return the audit of what is foreign; else the plan or the release that is to be audited."""
    if outputs:
        if what is not None or pair is not None or len(outputs) != 2:
            raise InputError(
                "give --outputs twice, once for each of two adjacent datasets, and nothing else to"
                " audit"
            )
        first, second = (read_numbers(path)[:samples] for path in outputs)
        return audit_samples(
            first, second, stated_curve(options), randomness=randomness, progress=progress
        )
    if what is None:
        raise InputError(
            "say what to audit: a release, a plan, module:function with --pair, or --outputs twice"
        )
    # A file of that name is meant first: importing a module runs its code.
    if _FUNCTION.fullmatch(what) and not Path(what).exists():
        if pair is None:
            raise InputError("a function is audited on two datasets: give them with --pair FILE")
        datasets = _datasets(pair)
        claim = stated_curve(options)
        return audit_function(
            _function(what),
            *datasets,
            claim,
            samples=samples or _CALLS,
            randomness=randomness,
            progress=progress,
        )
    # A claim that is typed could be weaker than what the release promises, and would survive.
    if options.spends:
        raise InputError(
            "a plan or a release states its own claim: leave --epsilon, --rho and --mu out"
        )
    return Path(what)


def _datasets(path: Path) -> tuple[Any, Any]:
    try:
        datasets = from_json(read_text(path, "--pair"))
    except ValueError:
        datasets = None
    if not isinstance(datasets, list) or len(datasets) != 2:
        raise InputError(f"{path} does not hold a list of two datasets")
    return datasets[0], datasets[1]


def _function(what: str) -> Callable[[Any], Any]:
    module, name = what.split(":")
    # The installed command does not look in the current folder, where the user's module is.
    sys.path.insert(0, str(Path.cwd()))
    try:
        function = getattr(importlib.import_module(module), name, None)
    except ImportError:
        raise InputError(f"there is no module {module!r} to import here") from None
    finally:
        sys.path.pop(0)
    if not callable(function):
        raise InputError(f"the module {module!r} has no function {name!r}")

    def call_function(dataset: Any) -> Any:
        try:
            # What the user's function raises may quote its data: only its kind is said.
            return function(dataset)
        except Exception as error:
            raise InputError(
                f"{what} failed on a dataset of the pair ({type(error).__name__})"
            ) from None

    return call_function


def _report_foreign(found: Audit, printing: o.Printing) -> None:
    if printing.json:
        print_json({"verdict": found.verdict, "audit": found.to_json()})
    else:
        attack = (
            f"{found.samples:,} outputs for each of two datasets, half of them or more only counted"
        )
        print_rows(
            [
                ("attack", attack),
                *_bounds(found),
                ("verdict", _sentence(found, "give more outputs")),
            ]
        )
    _leave(found.verdict)


@frozen
class _Finding:
    """A claim, what the attack on it found and how its noise compares: None where there is nothing
    to look at.
    """

    claim: Claim
    pairs: Adjacency
    audit: Audit | None = None
    energy: Energy | None = None
    unchanged: bool = False  # by the pair that was given

    @property
    def verdict(self) -> Verdict:
        # What is recorded may contradict the plan: that convicts, whatever the attack found.
        if self.claim.faults or (self.energy is not None and self.energy.convicts):
            return "convicted"
        return "survives" if self.audit is None else self.audit.verdict


def _combine_verdicts(findings: list[_Finding]) -> Verdict:
    """The verdict on all tables: convicted where one is, and surviving where all do."""
    verdicts = {finding.verdict for finding in findings}
    return (
        # One wrong claim is enough, since all tables are published together.
        "convicted"
        if "convicted" in verdicts
        else "inconclusive"
        if "inconclusive" in verdicts
        else "survives"
    )


@frozen
class _Subject:
    """A plan or a release on trial: its claims, and the adjacency to attack them under if it is
    another one.
    """

    claims: tuple[Claim, ...]
    plan: Plan
    scope: Scope
    adjacency: Adjacency | None

    def build_pairs(self, datasets: tuple[Any, Any]) -> list[Pair | None]:
        """Return the pair of each claim on two datasets."""
        if self.plan.units is not None:
            raise InputError(
                "a pair of your own has records of one kind, and this release has members and"
                " units: leave --pair out, and the worst pair that is found is attacked"
            )
        return given_pairs(datasets, self.claims, self.plan, self.scope, self.adjacency)


@frozen
class _Pairs:
    """Which other pairs to attack on: of another adjacency, or of a person with several records."""

    adjacency: str | None
    most: int | None

    def find_adjacency(self, subject: Release | Prepared) -> Adjacency | None:
        """Return the adjacency whose pairs are attacked, where it is another than is claimed."""
        if self.adjacency is None and self.most is None:
            return None
        plan = subject.plan
        if self.most is not None and plan.units is not None:
            raise InputError(
                "linked units have their own bound on members, which the promise is about: leave"
                " --most out"
            )
        if self.adjacency is not None:
            plan = evolve(plan, adjacency=self.adjacency)
        if self.most is not None:
            plan = evolve(plan, most=self.most, id=plan.id or "person")
        return public_scope(plan, subject.scope.dataspace).adjacency


def _subject(
    what: Path,
    data: str | None,
    options: o.Options,
    pairs: _Pairs,
) -> _Subject:
    # A run that was killed while it replaced the folder may have left it under another name.
    recover(what)
    if what.is_dir():
        if data is not None or options.given.has("from_table", "units", "units_from"):
            raise InputError(
                "a release holds its public totals: leave --data, --from and --units out"
            )
        release = Release.load(what)
        claims = claims_of_release(release, read_release_document(what))
        return _Subject(claims, release.plan, release.scope, pairs.find_adjacency(release))
    if not what.is_file():
        raise InputError(f"{what} is neither a release folder nor a plan file")
    plan, held = o.read_plan_file(what, "the plan", {})
    # The pair to attack needs the totals, which a plan does not hold.
    if data is None:
        raise InputError(
            "a plan holds no totals: name the data with --data, of which only the public totals are"
            " used"
        )
    with open_data(options.with_held(held).given, plan, data) as source:
        prepared = prepare(plan, source)
        return _Subject(
            claims_of_plan(prepared), prepared.plan, prepared.scope, pairs.find_adjacency(prepared)
        )


def _examine(
    claim: Claim,
    given: Pair | None,
    pairs: Adjacency | None,
    samples: int | None,
    error: float,
    randomness: Randomness,
    progress: Progress,
) -> _Finding:
    """Attack and compare the noise, half of the error for each."""
    attacked = pairs or claim.mechanism.space.adjacency
    if claim.is_fixed:
        return _Finding(claim, attacked)
    draws = claim.mechanism.measure_many
    pair = choose_pair(claim.mechanism, pairs) if given is None else given
    count = affordable_samples(draws, pair, randomness) if samples is None else samples
    measured = audit_mechanism(
        draws,
        pair,
        claim.tradeoff,
        samples=count,
        error=error / 2,
        randomness=randomness,
        progress=progress,
        # The twin with less noise shows whether so many samples would find a fault at all.
        weaker=with_less_noise(claim.mechanism),
    )
    # A choice among values adds no noise, so that there is no energy to compare.
    if not claim.mechanism.adds_noise:
        return _Finding(claim, attacked, measured)
    energy = noise_energy(
        claim.mechanism, pair.first, min(count, MOST_DRAWS), error / 2, randomness
    )
    return _Finding(claim, attacked, measured, energy)


def _pictures(claims: tuple[Claim, ...], out: Path) -> dict[str, Path]:
    """Return the file for the picture of each table that is attacked."""
    names = [claim.name for claim in claims if not claim.is_fixed]
    return {name: out if len(names) == 1 else out.with_stem(f"{out.stem}-{name}") for name in names}


def _check_vacant(pictures: Iterable[Path], force: bool) -> None:
    """Refuse a picture that exists before the attack takes its minute; `replace_file` decides in
    the end.
    """
    for picture in pictures:
        if os.path.lexists(picture) and not force:
            with naming_options(force):
                raise Occupied(f"{picture} already exists", replaceable=True)


def _draw(findings: list[_Finding], pictures: Mapping[str, Path], force: bool) -> None:
    if not pictures:
        return
    from semidp.publish.plotting import audit_plot, png

    titles = {
        "convicted": "the claim is refuted",
        "inconclusive": "too few samples",
        "survives": "the claim survives",
    }
    for finding in findings:
        measured, claim = finding.audit, finding.claim
        if measured is not None:
            title = f"{claim.mechanism.name}: {titles[measured.verdict]}"
            with naming_options(force):
                replace_file(
                    pictures[claim.name],
                    png(audit_plot(measured.claim, measured.points, title)),
                    force=force,
                )


def _document(findings: list[_Finding], pictures: list[Path]) -> dict[str, Any]:
    return {
        "verdict": _combine_verdicts(findings),
        "tables": [
            {
                "name": finding.claim.name,
                "features": list(finding.claim.features),
                "adjacency": kind_and_a(finding.pairs),
                "mechanism": finding.claim.mechanism.name,
                "scale": finding.claim.mechanism.scale,
                "verdict": finding.verdict,
                "published_exactly": finding.claim.is_fixed,
                "unchanged_by_pair": finding.unchanged,
                "faults": list(finding.claim.faults),
                "audit": None if finding.audit is None else finding.audit.to_json(),
                "energy": None if finding.energy is None else finding.energy.to_json(),
            }
            for finding in findings
        ],
        "pictures": [str(picture) for picture in pictures],
    }


def _rows(finding: _Finding) -> list[tuple[str, str]]:
    claim, measured, energy = finding.claim, finding.audit, finding.energy
    table = " by ".join(claim.features)
    lines = [("table", f"{table}: {claim.mechanism.name}, scale {claim.mechanism.scale:.6g}")]
    if finding.unchanged:
        lines.append(("attack", "none: the two datasets of the pair give the same values here"))
    elif measured is None:
        lines.append(
            ("attack", "none: the published totals fix this table, which is published exactly")
        )
    else:
        lines += _attack(measured, claim.mechanism)
        claimed = claim.mechanism.space.adjacency
        if finding.pairs != claimed:
            lines.insert(1, ("pairs", f"{finding.pairs}, where the claim is about {claimed}"))
        elif (restriction := report_words(claimed).restriction) is not None:
            lines.insert(1, ("pairs", restriction))
    if energy is not None:
        lines.append(
            (
                "noise",
                (
                    f"its variance in each of {energy.directions} combinations of cells is at"
                    f" least {energy.share:.4g} of what is stated ({energy.direction}); by chance"
                    f" it may seem as little as {energy.least:.4g}"
                ),
            )
        )
    lines += [("fault", fault) for fault in claim.faults]
    return [*lines, ("verdict", _verdict(finding))]


def _attack(found: Audit, mechanism: Mechanism) -> list[tuple[str, str]]:
    space = mechanism.space
    compared = "tables" if space.of_counts else "datasets"
    said = (
        f"{found.samples:,} outputs for each of two {compared} with the published totals that"
        f" differ in {found.pair.differing_records or describe_difference(space, found.pair)}"
    )
    return [("attack", said), *_bounds(found)]


def _bounds(found: Audit) -> list[tuple[str, str]]:
    """What is claimed, what was measured, and what the audit would have found."""
    bound, confidence = found.bound, 1 - found.error
    return [
        ("claim", f"{bound.unit} is at most {bound.claimed:.6g} (the smaller, the safer)"),
        (
            "measured",
            (
                f"{bound.unit} is at least {bound.measured:.4g}, with confidence"
                f" {100 * confidence:.6g}%, which is how well the attack told the two apart"
            ),
        ),
        (
            "also",
            f"epsilon of at least {found.epsilon:.4g} at delta 0, mu of at least {found.mu:.4g}",
        ),
        (
            "power",
            (
                f"had it {1 - found.less_noise:.0%} less noise than it has, an audit like this"
                f" would notice in about {found.power:.1%} of cases"
            ),
        ),
    ]


def _verdict(finding: _Finding) -> str:
    measured, energy = finding.audit, finding.energy
    if measured is not None and measured.is_convicted:
        return _sentence(measured)
    if energy is not None and energy.convicts:
        return f"convicted: the noise is smaller than is stated ({energy.direction})"
    if finding.verdict == "convicted":
        return "convicted: what is recorded does not agree with the plan"
    if finding.unchanged:
        return "survives: this pair says nothing about it"
    if measured is None:
        return "survives: nothing here is protected by noise, and nothing is claimed to be"
    return _sentence(measured)


def _sentence(found: Audit, mend: str = "draw more with --samples") -> str:
    """Say what an attack found."""
    if found.is_convicted:
        worst = found.worst
        return (
            f"convicted: an attacker ({worst.attack}) with at most {worst.size_high:.4g} false"
            f" alarms detects the difference with probability at least {worst.power_low:.4g}, and"
            f" the claim allows {worst.allowed:.4g}"
        )
    if found.verdict == "inconclusive":
        return (
            f"inconclusive: an audit that notices too little noise in less than"
            f" {ENOUGH_POWER:.0%} of cases says little, so {mend}"
        )
    return "survives: no attack that was tried beats the claim (which does not prove it)"
