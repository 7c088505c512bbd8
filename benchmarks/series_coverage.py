"""How often intervals of changes and of weighted totals hold: releases drawn again and again.

A change is about the records of two periods. A weighted total with the design is about a population
of which a stratified sample is drawn anew every time.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import semidp as sd
from semidp.inference.design_weights import PopulationStrata, weighted_estimates
from semidp.inference.period_changes import compare_releases
from semidp.promise.noise.randomness import SeededRandomness

DRAWS = 300
LEVEL = 0.95
LEAST = LEVEL - 4 * math.sqrt(LEVEL * (1 - LEVEL) / DRAWS)
WARDS = [*"abc"]
ALL_NOISE_DRAWS = 120
ALL_NOISE_LEVEL = 0.9
SHARES = {
    "median": 0.5,
    "quantile 0.1": 0.1,
    "quantile 0.25": 0.25,
    "quantile 0.75": 0.75,
    "quantile 0.9": 0.9,
}


def period(source: np.random.Generator, n: int, mean: float) -> dict[str, list[Any]]:
    """Return the records of one period."""
    return {
        "ward": source.choice(WARDS, n, p=[0.5, 0.45, 0.05]).tolist(),
        "ill": source.choice([*"yn"], n, p=[0.02, 0.98]).tolist(),
        "days": np.minimum(source.poisson(mean, n), 30).tolist(),
    }


def release(data: dict[str, list[Any]], mu: float, seed: int) -> sd.Release:
    """Release a table, a mean and a distribution of one period."""
    return sd.release(
        data,
        sd.table("ward", "ill"),
        sd.mean("days", by="ward", bounds=(0, 30)),
        sd.distribution("days", by="ward", bounds=(0, 30)),
        exact=["ward"],
        levels={"ill": ["y", "n"]},
        mu=mu,
        randomness=SeededRandomness(seed),
    )


def truths(data: dict[str, list[Any]]) -> dict[tuple[str, str], float]:
    """Return the true numbers by statistic and row."""
    ward, ill = np.array(data["ward"]), np.array(data["ill"])
    days = np.array(data["days"], dtype=float)
    found = {}
    for name in WARDS:
        for level in "yn":
            found["table", f"{name} · {level}"] = float(((ward == name) & (ill == level)).sum())
        found["mean-days", name] = float(days[ward == name].mean())
        ordered = np.sort(days[ward == name])
        found["quantiles", name] = float(ordered[math.ceil(0.5 * len(ordered)) - 1])
        found["exact ward", name] = float((ward == name).sum())
    return found


def coverage_of_changes(mu: float, draws: int = DRAWS) -> dict[str, tuple[float, int]]:
    """Return how often intervals of differences and ratios hold, and how many were looked at."""
    source = np.random.default_rng(5)
    first, second = period(source, 600, 6), period(source, 700, 7)
    before, after = truths(first), truths(second)
    held: dict[str, list[bool]] = {}
    for seed in range(draws):
        pair = [release(first, mu, 2 * seed), release(second, mu, 2 * seed + 1)]
        for row in compare_releases(pair, ["1", "2"], LEVEL, SeededRandomness(seed)).rows:
            label = " · ".join(level for _, level in row.labels)
            name = row.statistic
            if name.startswith("distribution"):
                label, _, which = label.partition(" · ")
                if which != "median":
                    continue
                name = "quantiles"
            start, end = before[name, label], after[name, label]
            small = name == "table" and label.endswith("y")
            kind = "small counts" if small else name
            held.setdefault(kind, []).append(row.lower - 1e-9 <= end - start <= row.upper + 1e-9)
            if start > 0:
                inside = row.ratio_lower - 1e-9 <= end / start <= row.ratio_upper + 1e-9
                held.setdefault(f"ratios of {kind}", []).append(inside)
    return {name: (float(np.mean(one)), len(one)) for name, one in held.items()}


def coverage_of_weights(mu: float, draws: int = DRAWS) -> dict[str, tuple[float, int]]:
    """Return how often weighted totals hold the population, over samples of it."""
    source = np.random.default_rng(6)
    sizes = {"a": 4000, "b": 2500, "c": 300}
    sampled = {"a": 200, "b": 250, "c": 60}
    shares = {"a": 0.3, "b": 0.1, "c": 0.5}
    people = {name: source.random(size) < shares[name] for name, size in sizes.items()}
    truth = float(sum(part.sum() for part in people.values()))
    days = {name: np.minimum(source.poisson(9 * part + 3), 30) for name, part in people.items()}
    mean = float(np.concatenate([*days.values()]).mean())
    strata = PopulationStrata(("ward",), {(name,): float(size) for name, size in sizes.items()})
    held: dict[str, list[bool]] = {"with the design": [], "noise alone": []}
    for seed in range(draws):
        places = {name: source.permutation(sizes[name])[: sampled[name]] for name in WARDS}
        chosen = {name: people[name][places[name]] for name in WARDS}
        data = {
            "ward": [name for name in WARDS for _ in chosen[name]],
            "ill": ["y" if one else "n" for name in WARDS for one in chosen[name]],
        }
        made = sd.release(
            data,
            sd.table("ward", "ill"),
            exact=["ward"],
            levels={"ill": ["y", "n"]},
            mu=mu,
            randomness=SeededRandomness(seed),
        )
        weighted = sum(sizes[name] / sampled[name] * chosen[name].sum() for name in WARDS)
        for kind, target in (("with the design", truth), ("noise alone", weighted)):
            design = kind == "with the design"
            (total,) = (
                one
                for one in weighted_estimates(made, strata, design=design)
                if one.kind == "total" and dict(one.labels) == {"ill": "y"}
            )
            held[kind].append(bool(total.lower - 1e-9 <= target <= total.upper + 1e-9))
        stays = {
            "ward": data["ward"],
            "days": [d for w in WARDS for d in days[w][places[w]].tolist()],
        }
        asked = sd.mean("days", by="ward", bounds=(0, 30))
        made = sd.release(stays, asked, exact=["ward"], mu=mu, randomness=SeededRandomness(seed))
        _, found = weighted_estimates(made, strata, design=True)
        held.setdefault("means with the design", []).append(found.lower <= mean <= found.upper)
    return {name: (float(np.mean(one)), len(one)) for name, one in held.items()}


def survey(source: np.random.Generator, n: int, shift: float) -> dict[str, list[Any]]:
    """Return the records of one period, with answers of every kind."""
    incomes = source.integers(0, 40, n).tolist()
    return {
        "ward": source.choice(WARDS, n, p=[0.5, 0.42, 0.08]).tolist(),
        "ill": source.choice([*"yn"], n, p=[0.03 + shift, 0.97 - shift]).tolist(),
        "sex": source.choice([*"fm"], n).tolist(),
        "days": np.minimum(source.poisson(5 + 10 * shift, n), 30).tolist(),
        "change": source.integers(-9, 10, n).astype(float).tolist(),
        "income": [None if source.random() < 0.15 else float(one) for one in incomes],
    }


def plans_of_all_noise() -> dict[str, dict[str, Any]]:
    """Return what is released, and from which budget, for each kind of noise and statistic."""
    tables = [sd.table("ward", "ill"), sd.table("ward", "sex"), sd.table("ill", "sex")]
    income = sd.mean("income", by="ward", bounds=(0, 40))
    return {
        "K-norm": {"requests": [sd.table("ward", "ill", mechanism="knorm")], "epsilon": "0.5"},
        "K-norm, two exact columns": {
            "requests": [sd.table("ward", "ill", mechanism="knorm")],
            "exact": ["ward", "ill"],
            "epsilon": "1",
        },
        "product": {"requests": tables, "mu": 0.7},
        "exchange": {
            "requests": [sd.table("ward", "ill", "sex")],
            "exact": ["ward", "sex"],
            "mu": 0.7,
            "adjacency": "exchange",
        },
        "sums": {"requests": [sd.total("change", by="ward", bounds=(-9, 9))], "mu": 0.7},
        "proportions": {"requests": [sd.proportion("ill=y", by="ward")], "mu": 0.7},
        "exact answers": {"requests": [income], "mu": 1, "missing": {"income": "exact"}},
        "private answers": {"requests": [income], "mu": 1, "missing": {"income": "private"}},
        "distributions": {
            "requests": [sd.distribution("days", by="ward", bounds=(0, 30))],
            "mu": 1,
        },
    }


def find_truth(data: dict[str, list[Any]], statistic: str, labels: dict[str, str]) -> float:
    """Return the true number of a row of changes."""
    features = [name for name in ("ward", "ill", "sex") if name in labels]
    keep = np.ones(len(data["ward"]), dtype=bool)
    for name in features:
        keep &= np.array(data[name]) == labels[name]
    if statistic.startswith("sum"):
        return float(np.array(data["change"])[keep].sum())
    if statistic.startswith("proportion"):
        return float((np.array(data["ill"])[keep] == "y").mean())
    if statistic.startswith("mean"):
        return float(np.nanmean(np.array(data["income"], dtype=float)[keep]))
    if statistic.startswith("distribution"):
        days = np.sort(np.array(data["days"])[keep])
        return float(days[math.ceil(SHARES[labels["estimate"]] * len(days) - 1e-9) - 1])
    return float(keep.sum())


def coverage_of_all_noise(name: str, draws: int = ALL_NOISE_DRAWS) -> tuple[float, int]:
    """Return how often intervals of differences hold for one kind of noise, exact totals apart."""
    source = np.random.default_rng(3)
    periods = [survey(source, 300, 0.0), survey(source, 340, 0.05)]
    asked = {"exact": ["ward"], **plans_of_all_noise()[name]}
    requests = asked.pop("requests")
    used = {column for request in requests for column in request.features} | {*asked["exact"]}
    levels = {
        column: code
        for column, code in (("ill", "yn"), ("sex", "fm"))
        if column in used - {*asked["exact"]}
    }
    held = []
    for seed in range(draws):
        pair = []
        for place, data in enumerate(periods):
            noise = SeededRandomness(2 * seed + place)
            pair.append(sd.release(data, *requests, levels=levels, randomness=noise, **asked))
        changes = compare_releases(pair, ["1", "2"], ALL_NOISE_LEVEL, SeededRandomness(seed))
        for row in changes.rows:
            if row.statistic.startswith("exact"):
                continue
            before, after = (find_truth(data, row.statistic, dict(row.labels)) for data in periods)
            held.append(row.lower - 1e-9 <= after - before <= row.upper + 1e-9)
    return float(np.mean(held)), len(held)


def rows(draws: int = DRAWS) -> Iterator[tuple[str, str, float, int]]:
    """Yield each setting with its coverage and the number of intervals."""
    for mu in (1.0, 0.25):
        for name, (share, count) in coverage_of_changes(mu, draws).items():
            yield f"change, mu = {mu:g}", name, share, count
        for name, (share, count) in coverage_of_weights(mu, draws).items():
            yield f"weighted total, mu = {mu:g}", name, share, count
    for name in plans_of_all_noise():
        yield f"change at {ALL_NOISE_LEVEL}", name, *coverage_of_all_noise(name)


if __name__ == "__main__":
    for setting, name, share, count in rows():
        error = math.sqrt(share * (1 - share) / count)
        print(f"| {setting} | {name} | {share:.3f} ± {error:.3f} | {count:,} |")
