"""The options of `semidp release` for two linked sources: members, and the units that they belong
to.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from attrs import astuple, frozen

import semidp.cli._options as o
from semidp.cli._command import option, plain_defaults
from semidp.errors import InputError
from semidp.promise.exact import positive
from semidp.publish.linked_survey import computed_features, linked_units, with_units
from semidp.publish.plan import Plan
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
