"""Noise on residuals as a release states it: what release.json says of it, and the file of what was
measured.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from semidp.promise.exact import positive
from semidp.promise.mechanisms.branch_noise import BranchNoise
from semidp.promise.mechanisms.placement import Workload
from semidp.promise.mechanisms.residual_noise import ResidualMechanism
from semidp.promise.sensitivity.products import ProductSpace
from semidp.promise.spaces.linked import MEMBER, UNIT
from semidp.publish.results.cells import Columns, StoredFiles
from semidp.publish.results.columns import Labels
from semidp.publish.statistics.protocol.results import is_size

RESIDUAL_FIELDS = ("precision", "law", "residuals")
"""The fields of release.json that state the noise of residuals."""

RESIDUAL_MEANINGS = {
    "residual": "the features whose residual was measured",
    "scale": "what the entry was multiplied by before noise was added",
}
"""What the columns of measured residuals mean, for the description of their file."""

LAWS = ("discrete", "rounded")
"""The laws of noise on residuals, as release.json names them."""


def residuals_json(mechanism: ResidualMechanism) -> dict[str, Any]:
    """Return the noise of every residual as plain values."""
    # σ² is written as an exact fraction, so that the claim is checked for the noise that was drawn.
    schema = mechanism.space.schema
    return {
        "precision": str(mechanism.precision),
        "law": mechanism.law,
        "saved_by_joint_sensitivity": mechanism.saved,
        "residuals": [
            {"features": list(schema.list_view_names(view)), "sigma2": str(square)}
            for view, square in mechanism.sigma2.items()
        ],
    }


def within_claim(recorded: ResidualMechanism) -> ResidualMechanism | None:
    """Return recorded noise on residuals, if it costs no more than it claims; else None."""
    return recorded if recorded.spent <= recorded.precision else None


def residual_faults(recorded: ResidualMechanism, needed: ResidualMechanism) -> Iterator[str]:
    """Say where less noise is recorded than the claim needs: it may be placed otherwise than it
    would be today.
    """
    if recorded.spent > max(recorded.precision, needed.precision):
        yield "it records less noise on some residual than its plan needs"


def residuals_from_json(
    entry: Mapping[str, Any], space: ProductSpace, workload: Workload | None = None
) -> ResidualMechanism:
    """Read what `residuals_json` wrote; refuse residuals that are not those of the space."""
    squares = {
        space.schema.view(part["features"]): positive(part["sigma2"], "σ²")
        for part in entry["residuals"]
    }
    # A residual that is left out here would be taken for one without noise, and cost nothing.
    if set(squares) != set(space.measured_residuals):
        raise ValueError("the residuals are not those of the plan")
    squares = {view: squares[view] for view in space.measured_residuals}
    precision, law, saved = entry["precision"], entry["law"], entry["saved_by_joint_sensitivity"]
    if law not in LAWS:
        raise ValueError("the noise of residuals has a law")
    if not is_size(saved) or saved >= 1:
        raise ValueError("what the joint sensitivity saved is a part of the variance")
    return ResidualMechanism(
        space, squares, positive(precision, "the precision"), law, saved, workload
    )


def residual_columns(
    mechanism: ResidualMechanism | BranchNoise, noisy: NDArray[np.int64]
) -> Columns:
    """Return the measured residuals, one row an entry."""
    space = mechanism.space
    sizes = [part.stop - part.start for part in space.parts.values()]
    names = [" × ".join(space.schema.list_view_names(view)) for view in space.parts] or ["none"]
    entries = np.concatenate([np.zeros(0, np.int64), *(np.arange(size) for size in sizes)])
    return Columns(
        {"residual": Labels(names, codes=np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))},
        {"entry": entries, "scale": space.scales, "noisy": noisy},
        RESIDUAL_MEANINGS,
        key=(),  # the rows of one residual share their label
    )


def read_residuals(files: StoredFiles, name: str, space: ProductSpace) -> NDArray[np.int64]:
    """Read what `residual_columns` wrote; refuse measurements that are not of the space."""
    noisy: NDArray[np.int64] = files.numbers(name, 1)["noisy"]
    if noisy.shape != space.shape or noisy.dtype != np.int64:
        raise ValueError("the measurements are not those of the plan")
    return noisy


def linked_columns(spaces: Sequence[ProductSpace | None], noisy: NDArray[np.int64]) -> Columns:
    """Return the measured residuals of both kinds as a file has them, one row an entry.

    A kind of which nothing was measured has no space.
    """
    names: list[str] = []
    counted: list[str] = []
    sizes: list[int] = []
    all_scales = [np.zeros(0, np.int64)]
    for kind, space in zip((MEMBER, UNIT), spaces, strict=True):
        if space is None:
            continue
        all_scales.append(space.scales)
        for view, part in space.parts.items():
            names.append(" × ".join(space.schema.list_view_names(view)))
            counted.append(kind)
            sizes.append(part.stop - part.start)
    which = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    numbered = [np.arange(size) for size in sizes]
    entries = np.concatenate([np.zeros(0, np.int64), *numbered])
    scales = np.concatenate(all_scales)
    kinds = Labels(counted or ["none"], codes=which)
    residuals = Labels(names or ["none"], codes=which)
    numbers = {"entry": entries, "scale": scales, "noisy": noisy}
    meanings = {**RESIDUAL_MEANINGS, "kind": "the kind of record whose residual was measured"}
    return Columns({"kind": kinds, "residual": residuals}, numbers, meanings, key=())
