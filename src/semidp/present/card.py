"""The card of a release: answers to what NIST SP 800-226 has evaluators ask about a claim of
differential privacy, and an entry for the public registry of deployments.

Everything is filled from the release. What only the publisher knows is blank and named. The fields
of the entry are those of the registry (https://registry.opendp.org), by their names there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from semidp.present.report import sentences
from semidp.promise.exact import format_rounded_up, number, plain
from semidp.promise.spaces.dataspace import list_column_margins
from semidp.promise.spaces.linked import LinkedDataspace
from semidp.promise.tradeoff.polygons import Approximate
from semidp.publish.recheck import Recheck
from semidp.publish.release_files import ReleaseFiles
from semidp.publish.results.columns import TABLE_MEANINGS

Entry = Mapping[str, Mapping[str, Any]]

QUESTIONS: dict[str, str] = {
    "definition": "Which definition of privacy holds, and which datasets does it compare?",
    "unit": "Whom or what does the promise protect?",
    "parameters": "How large are the privacy parameters, and what do they mean?",
    "unprotected": "What is published without protection?",
    "bounds": "Is the size of the data protected?",
    "algorithms": "Which mechanisms were used, and where is it proved that they are right?",
    "numbers": "Do floating-point numbers or the random numbers break the proof?",
    "composition": "How is the loss of several releases added up?",
    "utility": "How accurate is what is published?",
    "bias": "Is what is published biased, and against whom?",
    "trust": "Who is trusted with the confidential data?",
    "verification": "What was checked, and what is taken on trust?",
    "side channels": "What else could an attacker observe, such as running times and messages?",
    "security": "How are the confidential data stored, and who has access?",
    "collection": "How were the data collected, and what happens to them afterwards?",
    "choice": "Why were this unit, these parameters and these exact totals chosen?",
    "tuning": "Were the data looked at to choose settings, and was that accounted for?",
}
"""What is asked, from the narrowest question to the widest."""


@frozen
class ReleaseCard:
    """What is said of one release.

    Parameters
    ----------
    title
        What was published.
    created
        When, and with which software.
    answers
        The answer to each of `QUESTIONS`; None where only the publisher knows.
    entry
        The entry of the registry: groups of fields, None where only the publisher knows.
    faults
        What the release states that does not follow; such a card is not to be relied on.
    """

    title: str
    created: str
    answers: Mapping[str, str | None]
    entry: Entry
    faults: tuple[str, ...] = ()

    @property
    def blank(self) -> list[str]:
        """The fields and questions that only the publisher can fill."""
        fields = [
            f"{group}.{name}"
            for group, held in self.entry.items()
            for name, value in held.items()
            if value is None
        ]
        return [
            *fields,
            *(f"question: {key}" for key, said in self.answers.items() if said is None),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        asked = [
            {"about": key, "question": QUESTIONS[key], "answer": said}
            for key, said in self.answers.items()
        ]
        return {
            "title": self.title,
            "created": self.created,
            "disagreements": list(self.faults),
            "nist_sp_800_226": asked,
            "registry": {"deployment": {key: dict(held) for key, held in self.entry.items()}},
            "left_to_publisher": self.blank,
        }

    def markdown(self) -> str:
        """Return it as Markdown, which reads as text, too."""
        lines = [f"# {self.title}", "", f"Made {self.created}.", ""]
        if self.faults:
            lines += ["**Do not rely on this card: the release contradicts itself.**", ""]
            lines += [*(f"- {said}" for said in self.faults), ""]
        lines += ["## Evaluating the claim (after NIST SP 800-226)", ""]
        for key, said in self.answers.items():
            lines += [f"**{QUESTIONS[key]}** {said or _BLANK}", ""]
        lines += ["## Entry for the registry of deployments", ""]
        for group, held in self.entry.items():
            lines += [f"### {group}", ""]
            lines += [f"- `{name}`: {_text(value)}" for name, value in held.items()]
            lines.append("")
        lines += ["## Left to the publisher", "", *(f"- {name}" for name in self.blank)]
        return "\n".join(lines)


_BLANK = "_(for the publisher to fill)_"


def _text(value: Any) -> str:
    if value is None:
        return _BLANK
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {_text(held)}" for name, held in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def describe_release(
    release: ReleaseFiles, checked: Recheck, verified: str | None = None
) -> ReleaseCard:
    """Return the card of a release.

    Parameters
    ----------
    release
        The release.
    checked
        What came out when it was computed again.
    verified
        The key whose signature of every file was verified.

    Examples
    --------
    >>> import semidp
    >>> people = {"sex": [*"ffm"]}
    >>> release = semidp.release(people, semidp.table("sex"), levels={"sex": ["f", "m"]}, mu=1)
    >>> card = describe_release(release, Recheck((), ()))
    >>> card.entry["privacy_loss"]["privacy_unit"], card.entry["basic"]["intended_use"]
    ('one person, taken to have one record', None)
    """
    shown = release.presentation
    software = f"semidp {release.versions['semidp']}"
    answered = _answers(release, checked, verified)
    return ReleaseCard(
        shown.title or sentences.name_results(release),
        f"{release.created} by {software}",
        {key: answered.get(key) for key in QUESTIONS},
        _entry(release, software),
        checked.disagreements,
    )


def _answers(
    release: ReleaseFiles, checked: Recheck, verified: str | None
) -> dict[str, str | None]:
    """Answer what follows from the release."""
    scope, space = release.scope, release.scope.dataspace
    return {
        "definition": _join(sentences.explain_protection(release)),
        "unit": sentences.describe_unit(release),
        "parameters": _join([*sentences.release_strength(release), *_delta_words(release)]),
        "unprotected": _join(_unprotected(release)),
        "bounds": (
            "No. Datasets of one size are compared (bounded differential privacy), and that size is"
            f" published: {sentences.counted_text(scope)}."
            if not isinstance(space, LinkedDataspace)
            else "No. The numbers of members and of units are published."
        ),
        "algorithms": _join([*_mechanisms(release), _PROOFS]),
        "numbers": _join([*_claims(release), _randomness(release)]),
        "composition": _join(_composition(release)),
        "utility": _join(_utility(release)),
        "bias": _join([*_table_bias(release), _SMALL_GROUPS]),
        "trust": f"The central model: {_TRUST}",
        "verification": _verification(checked, verified),
        "side channels": (
            "Error messages and files of the software hold no confidential value. Running times and"
            " memory are not protected: whoever runs the software must not publish them."
        ),
    }


def _entry(release: ReleaseFiles, software: str) -> Entry:
    """Return the entry of the registry."""
    shown, plan = release.presentation, release.plan
    exact = sentences.exact_part(release.scope.dataspace, release.scope)
    noisy = sentences.noisy_part(release)
    described = f"With noise: {'; '.join(noisy)}. Exact: {'; '.join(exact)}."
    return {
        "basic": {
            "name": shown.title,
            "data_curators": None,
            "intended_use": None,
            "data_product_type": "Summary statistics",
            "data_product_region": None,
            "description": _join([described, *shown.notes]),
            "publication_date": None,
            "data_product_sector": None,
        },
        "dp_variant": {
            "variant_name": _variant(release),
            "data_domain": (
                f"{sentences.counted_text(release.scope)}; all datasets that agree with what is"
                " published exactly."
            ),
            "unprotected_quantities": _join(_unprotected(release)),
        },
        "privacy_loss": {
            "privacy_unit": _unit(release),
            "privacy_unit_details": _join(
                [
                    *sentences.explain_protection(release),
                    f"{sentences.together_text(release.scope)}.",
                ]
            ),
            "privacy_parameters": _parameters(release),
            "privacy_parameters_details": _join(sentences.release_strength(release)),
        },
        "deployment_model": {
            "model_name": "Central",
            "model_name_details": _TRUST[:1].upper() + _TRUST[1:],
            "actors": None,
            "release_type": None if plan.period is None else "Many releases",
            "release_type_details": (
                None if plan.period is None else f"This one is about {plan.period}."
            ),
            "data_source_type": None,
            "data_source_type_details": None,
            "access_type": "Non-interactive",
            "access_type_details": "Files that are published; nobody asks the data.",
        },
        "accounting": {
            "post_processing": (
                "Estimates are computed from the noisy values. Tables are fitted to the exact"
                " totals as whole numbers that are not negative unless asked otherwise."
            ),
            "composition": _join(_composition(release)),
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": None,
            "mechanisms": _join(
                [*_mechanisms(release), *_claims(release), _randomness(release), f"{software}."]
            ),
            "justification": None,
        },
        "administrative": {
            "sources": None,
            "notes": _join([*release.scope.warnings, *sentences.cautions(release)]) or "none",
            "registry_authors": None,
        },
    }


_TRUST = "whoever ran the release read the confidential data, and is trusted."
_SMALL_GROUPS = (
    "Groups with few records have the largest errors relative to their size. Whether that harms a"
    " group is for the publisher to judge."
)
_PROOFS = (
    "docs/proofs.md of the software lists the theorems behind each mechanism; `semidp check`"
    " recomputes this guarantee with a separate program."
)


def _join(texts: Sequence[str]) -> str:
    return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in texts)


def _unprotected(release: ReleaseFiles) -> list[str]:
    exact = sentences.exact_part(release.scope.dataspace, release.scope)
    disclosed = sentences.together_disclosed(release.scope.disclosures)
    return [f"Published exactly: {'; '.join(exact)}", *disclosed]


def _mechanisms(release: ReleaseFiles) -> list[str]:
    said = []
    for result in release.results:
        details = result.details()
        said.append(f"{details.what}: {result.noise.mechanism}, {details.how}")
    return [*said, *sentences.budget_parts(release.plan)]


def _claims(release: ReleaseFiles) -> list[str]:
    claims = [result.claim_text() for result in release.results if not result.is_fixed]
    return [f"The claim is {said}" for said in dict.fromkeys(claims)]


def _randomness(release: ReleaseFiles) -> str:
    if not release.private:
        return "NOT PRIVATE: drawn with a seed, or by a mechanism meant for studies."
    return "Random words come from the operating system."


def _composition(release: ReleaseFiles) -> list[str]:
    together = "The guarantee is that of everything in this release together."
    if release.sources:
        together = f"{together} It combines {len(release.sources)} releases."
    if release.ledger:
        return [
            together,
            "It was charged to a ledger, which adds up all releases of the data that it lists.",
        ]
    return [together, "No ledger was given: other releases of the same data are not accounted for."]


def _utility(release: ReleaseFiles) -> list[str]:
    said = []
    for result in release.results:
        for entry in result.errors_json():
            largest = entry.get("largest_standard_error", entry.get("standard_error"))
            if largest is not None:
                said.append(
                    f"{entry.get('name', result.name)}: standard errors up to {largest:.4g}"
                )
    published = "Standard errors and intervals stand beside the estimates that have them."
    return [published, *said, *sentences.cautions(release)]


def _table_bias(release: ReleaseFiles) -> list[str]:
    if not release.tables:
        return []
    return [f"Of a table: {name} is {meaning}" for name, meaning in TABLE_MEANINGS.items()]


def _verification(checked: Recheck, verified: str | None) -> str:
    followed = (
        "Everything that is stated was computed again from the plan, the exact totals and the noisy"
        " values, and agrees."
    )
    if checked.disagreements:
        followed = "The release contradicts itself, as said above."
    signed = "Its signature was not verified."
    if verified is not None:
        signed = f"Every file is signed by the key {verified}."
    trusted = "; ".join(trust.what for trust in checked.trusted)
    return f"{followed} {signed} On trust: {trusted}."


def _variant(release: ReleaseFiles) -> str:
    """Name the variant as the registry does; next to exact totals it is one of its own."""
    scope = release.scope
    is_usual = (
        release.stated is not None
        and not list_column_margins(scope.dataspace)
        and scope.adjacency.a == 1
        and scope.protection is None
        and not scope.disclosures
    )
    if not is_usual or release.guarantee.tradeoff.implied_mu_squared() is not None:
        return "Custom"
    tradeoff = release.guarantee.tradeoff
    if tradeoff.implied_epsilon() is not None:
        return "Pure DP"
    if tradeoff.implied_rho() is not None:
        return "Zero-concentrated DP"
    return "Approximate DP" if isinstance(tradeoff, Approximate) else "Custom"


def _unit(release: ReleaseFiles) -> str:
    protection = release.scope.protection
    if protection is not None:
        return protection.who
    return "one person with one record" if release.plan.id else _ASSUMED


_ASSUMED = "one person, taken to have one record"


def _parameters(release: ReleaseFiles) -> dict[str, Any] | None:
    if release.epsilon is None:
        return None
    held = {"epsilon": release.epsilon, "delta": number(release.plan.report_delta)}
    rho = release.guarantee.tradeoff.implied_rho()
    return held if rho is None else {**held, "rho": number(rho)}


def _delta_words(release: ReleaseFiles) -> list[str]:
    """Compare delta with the number of records, which it should be far below."""
    delta, n = release.plan.report_delta, release.scope.dataspace.n
    if release.epsilon is None or not n:
        return []
    return [
        f"ε = {format_rounded_up(release.epsilon)} at δ = {plain(delta)}, which is"
        f" {float(delta * n):.2g} times 1/n for n = {n:,} records"
    ]
