"""The options of `semidp release` alone: how tables are measured, how the release is carried out
and presented, and two linked sources (members, and the units that they belong to).
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from attrs import astuple, frozen

import semidp.cli._options as o
from semidp.cli._command import flag, option, plain_defaults
from semidp.errors import InputError
from semidp.promise.exact import positive
from semidp.promise.mechanisms.selection import NAMES
from semidp.publish.linked_survey import computed_features, linked_units, with_units
from semidp.publish.pipeline import RunOptions
from semidp.publish.plan import Plan
from semidp.publish.presentation import Presentation
from semidp.publish.resources import memory_from
from semidp.publish.results.cells import Form, form_named
from semidp.publish.results.place_maps import PlaceMap
from semidp.publish.signing import Signer
from semidp.publish.sources.linked_records import LinkedData
from semidp.publish.sources.opening import local_paths


@frozen(field_transformer=plain_defaults)
class Linking:
    """Units that records are members of, where those are counted too: households of persons."""

    units: o.Text = option(
        "The units that records belong to, counted by --table units:A,B.", "FILE"
    )
    units_from: o.Text = option("The table of units of the database.", "TABLE")
    link: o.Text = option("The column that names the unit, in both sources.", "COLUMN")
    protect: o.Text = option(
        "Whom the promise is about: one member, or a whole unit.", "member|unit"
    )
    least: int | None = option(
        "The fewest members of a unit, 0 or 1 (default 1); --most is required.", "N"
    )
    derived: o.Texts = option(
        "A column of units that depends on their members; repeat it.", "COLUMN"
    )
    quarters: o.Text = option(
        "Units that are group quarters, in no table of units: unittype=1,2.", "COLUMN=LEVELS"
    )
    top_code: o.Text = option(
        "Publish units of N members and more as one level, such as size=5 for 5+.", "size=N"
    )
    aggregate: o.Texts = option(
        "A feature of units computed from members, such as 'kids=count_if(age < 18)'; repeat it.",
        "NAME=SQL",
    )

    @property
    def says_how(self) -> bool:
        """Whether something is said that a plan says itself."""
        return any(value not in (None, []) for value in astuple(self)[2:])

    @property
    def is_given(self) -> bool:
        """Whether units are given."""
        return self.units is not None or self.units_from is not None

    def apply_to_plan(
        self, plan: Plan, most: int | None, shares: Sequence[str] | None = None
    ) -> Plan:
        """Return the plan about linked records; the plan itself where no units are given."""
        if not self.is_given:
            # Without units these options would do nothing, and the user would not notice.
            if self.says_how:
                raise InputError(
                    "--link, --protect, --least, --derived, --quarters, --top-code and --aggregate"
                    " are for linked units: give --units FILE"
                )
            return plan
        example = "'kids=count_if(age < 18)'"
        computed = computed_features(
            o.assignments("--aggregate", self.aggregate, example), plan.features
        )
        units = linked_units(
            self.link, self.protect, self.least, most, self.derived or (), computed, self._quarters
        )
        parts = {
            name: positive(text, "--share")
            for name, text in o.assignments("--share", shares).items()
        }
        top_code = None
        if self.top_code is not None:
            top_code = o.assignments("--top-code", [self.top_code], "size=5")
        return with_units(plan, units, parts, called="--share", top_code=top_code)

    @property
    def _quarters(self) -> dict[str, tuple[str, ...]] | None:
        """The column of quarters, and its levels that are."""
        if self.quarters is None:
            return None
        levels = o.assignments("--quarters", [self.quarters], "unittype=1")
        return {name: o.split_names(text) for name, text in levels.items()}

    def check_plan(self, plan: Plan) -> None:
        """Refuse units without a plan that has some, and the other way round."""
        if self.says_how:
            raise InputError(
                "--plan already says how units are linked: beside it, give only --units"
            )
        # Units beside a plan about one kind of record would be left out without a word.
        if self.is_given and plan.units is None:
            raise InputError("the plan has no [units], so that --units has nothing to be linked by")

    def data(
        self, plan: Plan, members: str, opening: o.Opening
    ) -> contextlib.AbstractContextManager[Any] | None:
        """Return what is opened as two linked sources; None where a plan is about records of one
        kind.
        """
        if plan.units is None:
            return None
        source = self.units
        if not self.is_given:
            source = plan.units.source
            if source is None:
                raise InputError(
                    "the plan has [units]: give the source of units too, with --units FILE"
                )
        # two tables of one database have the same address
        units = members if source is None else source
        linked = LinkedData(
            members,
            units,
            opening.from_table,
            self.units_from,
            opening.hive_partitions,
            opening.allow_empty,
            opening.encoding,
        )
        return contextlib.nullcontext(linked)

    def paths(self, plan: Plan) -> Sequence[str]:
        """The files of this machine that hold the units."""
        source = self.units
        if source is None and plan.units is not None and not self.is_given:
            source = plan.units.source
        return [] if source is None else local_paths(source, self.units_from)


EXCEL = "xlsx"
"""The value of --write that adds a workbook."""


@frozen(field_transformer=plain_defaults)
class Presenting:
    """What a release says beside its numbers, and how they are shown and written."""

    title: o.Text = option("The heading of the report.", "TEXT")
    contact: o.Text = option(
        "Whom to ask about the release: in the report, the workbook and release.json.", "TEXT"
    )
    note: o.Texts = option("A paragraph at the top of the report; repeat it.", "TEXT")
    round_to: int | None = option(
        "Show counts in multiples of this number in the report and workbook; the files stay as they"
        " are.",
        "N",
        "--round",
        min=1,
    )
    mark_below: int | None = option(
        "Mark counts below this number in the report and workbook.", "N", min=1
    )
    map: Path | None = option(
        "Outlines of places, GeoJSON or TopoJSON: results by place are drawn as maps.", "FILE"
    )
    map_key: o.Text = option(
        "The property of the outlines that names places; the best fit unless given.", "PROPERTY"
    )
    write: o.Text = option(
        "How to write tables: CSV, or Parquet, which is used from a million cells on unless said;"
        " xlsx adds a workbook to CSV files (extra: excel).",
        "csv|parquet|xlsx",
    )

    def form(self) -> Form | None:
        """Return the form of the files that commands read; None where none was chosen."""
        if self.write is None:
            return None
        # A workbook is for people; commands still read CSV files beside it.
        if self.write == EXCEL:
            return Form.csv
        try:
            return form_named(self.write)
        except InputError:
            raise InputError(
                f"tables are written as csv, parquet or xlsx, not {self.write!r}"
            ) from None

    def presentation(self) -> Presentation:
        """Return how the release is presented."""
        return Presentation(
            title=self.title,
            contact=self.contact,
            notes=tuple(self.note or ()),
            round_to=self.round_to,
            mark_below=self.mark_below,
            workbook=self.write == EXCEL,
            places=read_places(self.map, self.map_key),
        )


def read_places(file: Path | None, key: str | None) -> PlaceMap | None:
    """Return the outlines of places that --map names."""
    if file is None:
        if key is not None:
            raise InputError(
                "--map-key names a property of the places of --map FILE: give that too"
            )
        return None
    return PlaceMap.read(file, key)


@frozen(field_transformer=plain_defaults)
class Measuring:
    """A plan, or how the tables of one are measured and published."""

    target_error: o.Texts = option(
        "Instead of a budget: the largest standard error that a table may have; repeat it. The"
        " least mu is found.",
        "A,B=NUMBER",
    )
    plan: Path | None = option("A plan (TOML or JSON), instead of --table and --exact.")
    mechanism: str = option(
        f"How to draw the noise: auto, {', '.join(NAMES)}.", "NAME", default="auto"
    )
    claim: o.Text = option(
        "Use only mechanisms whose claim holds for the numbers that are drawn: exact.", "exact"
    )

    missing: o.Texts = option(
        "Missing values of a private column: refuse (default), or how many answered stays private"
        " or becomes exact.",
        "COLUMN=refuse|private|exact",
    )

    @property
    def says_how(self) -> bool:
        """Whether something is said that a plan says itself."""
        return self.mechanism != "auto" or bool(self.claim) or bool(self.missing)

    def check_beside(self, spending: o.Spending) -> None:
        """Refuse target errors beside the budget that they find."""
        # A budget and an error that needs another one cannot both be kept.
        if self.target_error and any((spending.epsilon, spending.rho, spending.mu)):
            raise InputError(
                "--target-error finds the budget: leave --epsilon, --rho and --mu out, or leave"
                " it out"
            )


@frozen(field_transformer=plain_defaults)
class Running:
    """How a release is carried out: what it is charged to, how it is written, in one piece or part
    by part.
    """

    ledger: Path | None = o.LEDGER
    label: o.Text = option("What the ledger calls this charge.", "TEXT")
    seed: int | None = o.SEED
    sign: Path | None = option(
        "Sign every file with this secret key of minisign (extra: sign).", "KEY"
    )
    memory: o.Text = option(
        "The memory that may be used; that of the machine or container unless said.", "8GB"
    )
    partition: o.Text = option(
        "Release part by part: a depth of a nested feature, such as state. Only tables, and no pure"
        " epsilon.",
        "DEPTH",
    )
    jobs: int | None = option(
        "With --partition: how many parts at a time, each in a process.", min=1
    )
    dry_run: bool = flag(
        "--dry-run", "Say what would be released and with what noise; draw and write nothing."
    )
    force: bool = o.FORCE

    def check(self, out: Path | None) -> None:
        """Refuse options that contradict each other, or that lack a folder to write."""
        if out is None and not self.dry_run:
            raise InputError(
                "say where to write the release: --out FOLDER (or --dry-run to write nothing)"
            )
        if self.partition is None and self.jobs is not None:
            raise InputError("--jobs is for a release by parts: give --partition DEPTH too")

    def options(
        self, out: Path | None, inputs: Sequence[Path], presenting: Presenting
    ) -> RunOptions:
        """Return how the release is carried out; its ledger is opened when the data are."""
        usable = None if self.memory is None else memory_from(self.memory)
        randomness = o.choose_randomness(self.seed)
        options = RunOptions(
            randomness=randomness,
            label=self.label,
            memory=usable,
            form=presenting.form(),
            presentation=presenting.presentation(),
            out=out,
            force=self.force,
            inputs=inputs,
            jobs=self.jobs or 1,
        )
        return sign_with(options, self.sign)


def sign_with(options: RunOptions, key: Path | str | None) -> RunOptions:
    """Return options that sign every file with a secret key, where one is given."""
    if key is None:
        return options
    return replace(options, finish=Signer(Path(key), _password).sign)


def note_command(
    data: str, opening: o.Opening, running: Running | None = None, linking: Linking | None = None
) -> dict[str, Any]:
    """Return what `semidp resume` needs to go on without being told again.

    An address that may hold a password is not noted.
    """
    facts: dict[str, Any] = {"data": _locate(data)}
    facts |= {name: getattr(opening, name) for name in o.FILES}
    if linking is not None:
        facts["units"] = None if linking.units is None else _locate(linking.units)
        facts["units_from"] = linking.units_from
    if running is not None:
        for name in ("ledger", "sign"):
            path: Path | None = getattr(running, name)
            facts[name] = None if path is None else str(path.absolute())
        facts |= {"seed": running.seed, "jobs": running.jobs}
    return {name: value for name, value in facts.items() if value is not None}


def _locate(data: str) -> str | None:
    """Return where data are, from any folder; None for an address that may hold a password."""
    if "://" not in data:
        return str(Path(data).absolute())
    return None if "@" in data or "?" in data else data


def _password() -> str:
    """Return the password of a secret key: from SEMIDP_SIGN_PASSWORD, or from who sits at the
    terminal.
    """
    password = os.environ.get("SEMIDP_SIGN_PASSWORD")
    if password is not None:
        return password
    # A prompt that nobody sees would wait for ever.
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError(
            "the secret key is encrypted: give its password in SEMIDP_SIGN_PASSWORD, or at a"
            " terminal"
        )
    # No option takes the password: other users see the words of a command, and logs keep them.
    return str(typer.prompt("password of the secret key", hide_input=True, err=True))
