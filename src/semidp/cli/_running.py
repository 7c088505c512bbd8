"""The options of `semidp release` alone: how tables are measured, and how the release is carried
out.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import typer
from attrs import frozen

import semidp.cli._options as o
from semidp.cli._command import flag, option, plain_defaults
from semidp.cli._presenting import Presenting
from semidp.errors import InputError
from semidp.promise.mechanisms.selection import NAMES
from semidp.publish.pipeline import RunOptions
from semidp.publish.resources import memory_from
from semidp.publish.signing import Signer


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
    resume: bool = flag(
        "--resume",
        "Finish a release by --partition that ended early, from the same records; nothing is drawn"
        " again.",
    )
    discard: bool = flag(
        "--discard",
        "Remove what a release by --partition that ended early has left, and do nothing else.",
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
        if self.partition is None and (self.jobs is not None or self.resume or self.discard):
            raise InputError(
                "--jobs, --resume and --discard are for a release by parts: give --partition"
                " DEPTH too"
            )
        if self.resume and self.discard:
            raise InputError("--resume finishes what --discard removes: give one of them")
        # What is discarded was paid for, so that its folder must be named and meant.
        if self.discard and (out is None or self.dry_run):
            raise InputError(
                "--discard removes what is unfinished: say of which --out FOLDER, and leave"
                " --dry-run out"
            )

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
            resume=self.resume,
        )
        return (
            options
            if self.sign is None
            else replace(options, finish=Signer(self.sign, _password).sign)
        )


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
