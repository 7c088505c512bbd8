"""release.json written by hand, so that any claim can be made on purpose."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def feature(name: str, levels: str | Sequence[str]) -> dict[str, Any]:
    return {"name": name, "levels": list(levels)}


def nested(names: Sequence[str], tree: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": names[-1], "nest": list(names), "tree": tree}


def margin(names: str, counts: Sequence[int]) -> dict[str, Any]:
    return {"features": names.split(","), "counts": list(counts)}


def guarantee(kind: str, value: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The guarantee and the budget of one number: mu squared, rho or epsilon."""
    if kind == "mu":
        return {"kind": "gaussian", "mu_squared": value}, {"kind": "gdp", "mu": 100}
    if kind == "rho":
        return {"kind": "zcdp", "rho": value}, {"kind": "zcdp", "rho": value}
    stated = {"kind": "approximate", "epsilon": value, "delta": "0", "group": 1}
    return stated, {"kind": "pure", "epsilon": value, "delta": 0}


LAWS = {"mu": "rounded gaussian", "rho": "discrete gaussian", "epsilon": "laplace"}


def document(
    features: Sequence[Mapping[str, Any]],
    margins: Sequence[Mapping[str, Any]],
    stated: tuple[str, str],
    size: str,
    *,
    a: int = 1,
    adjacency: str | int = "worst-case",
    table: str = "",
    mean: Mapping[str, Any] | None = None,
    zeros: Sequence[Mapping[str, Any]] = (),
    n: int | None = None,
    law: str = "",
) -> dict[str, Any]:
    """One table or one mean with noise of a size (sigma squared, or the scale of Laplace noise)."""
    claim, budget = guarantee(*stated)
    key = "scale" if stated[0] == "epsilon" else "sigma2"
    noise = {"mechanism": "one", "claim": "exact", "law": law or LAWS[stated[0]], key: size}
    entry: dict[str, Any] = {"name": "one", "noise": noise, "guarantee": claim, "budget": budget}
    records = n or sum(margins[0]["counts"])
    plan: dict[str, Any] = {
        "invariants": [each["features"] for each in margins],
        "adjacency": adjacency,
        "report_delta": "1e-9",
        "table": [],
        "group": [],
    }
    release = {
        "private": True,
        "plan": plan,
        "dataspace": {
            "schema": {"feature": list(features), "structural_zero": list(zeros)},
            "n": records,
            "margins": list(margins),
        },
        "a": {"used": a, **({"kind": "exchange"} if adjacency == "exchange" else {})},
        "guarantee": claim,
        "budget": budget,
        "epsilon": 1e6,
        "report_delta": 1e-9,
        "tables": [],
        "groups": [],
        "disclosures": [],
    }
    if mean is not None:
        plan["group"] = [{"name": "one", "statistic": "mean", **mean}]
        release["groups"] = [entry]
    else:
        plan["table"] = [{"name": "one", "features": table.split(",")}]
        release["tables"] = [{**entry, "features": table.split(",")}]
    return release


def write(folder: Path, release: Mapping[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "release.json").write_text(json.dumps(release), encoding="utf-8")
    return folder
