"""The words of a report, each in a sentence or two. The same list is the page docs/glossary.md."""

GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "exact statistic",
        (
            "A total that is published as it is, without noise. Everybody who reads the release"
            " knows it for certain, so that it is not protected, and neither is what follows"
            " from it."
        ),
    ),
    (
        "noise",
        (
            "Random numbers that are added before publication. Their law is public, so that"
            " everybody can compute how far off a published number may be; what was drawn is not."
        ),
    ),
    (
        "count and estimate",
        (
            "The estimate is the measurement with the exact totals put back: right on average, not"
            " whole, perhaps negative. The count is the nearest table of whole numbers that adds up"
            " to every exact total."
        ),
    ),
    (
        "standard error",
        (
            "How far off an estimate typically is, from the noise alone. Two thirds of the"
            " estimates are nearer to the truth than one standard error, and 95% nearer than two."
        ),
    ),
    (
        "noise dominates (≈)",
        (
            "A count that is smaller than the half-width of its 95% interval, about two standard"
            " errors. It may well be zero in truth: do not read it by itself."
        ),
    ),
    (
        "a(t)",
        (
            "How many records have to change together, at least, so that one person could have been"
            " somebody else and every exact total stays as it is. Without exact totals it is 1."
        ),
    ),
    (
        "ball, or any a records",
        (
            "The promise that compares all datasets which agree with the exact totals and differ in"
            " at most a records, whoever they are."
        ),
    ),
    (
        "exchange",
        (
            "The promise that compares datasets in which one person's record is different and a few"
            " others hand over the published values that the person takes. It promises less about"
            " groups of people, and needs less noise."
        ),
    ),
    (
        "one patient with up to 5 stays",
        (
            "The promise where a person has several records: all of them may be different at once."
            " How many a person may have is declared and public; who has more is refused, and"
            " nobody is dropped."
        ),
    ),
    (
        "best attacker, false alarms",
        (
            "Somebody who knows two possible datasets and wants to tell from the release which is"
            " true. A false alarm is to say that your record was the one when it was the other. Who"
            " accepts 5% of them is right about you in 5% of cases by guessing; the guarantee says"
            " how much more the release allows."
        ),
    ),
    (
        "μ, Gaussian differential privacy",
        (
            "A strength of protection: telling the two datasets apart is as hard as telling one"
            " draw of a normal law with mean 0 from one with mean μ and the same variance 1. It has"
            " nothing to do with gross domestic product."
        ),
    ),
    (
        "ρ, zero-concentrated differential privacy (zCDP)",
        "Another scale of the same thing. Gaussian noise with μ has ρ = μ²/2. Budgets in ρ add up.",
    ),
    (
        "ε and δ",
        (
            "The most common scale: whatever is seen, it is at most e^ε times as likely under the"
            " one dataset as under the other, but for a probability δ. Smaller is safer."
        ),
    ),
    (
        "sensitivity Δ1, Δ2, Δ∞",
        (
            "How far the table moves between two datasets that are compared: all cells added up, as"
            " a length (the root of the sum of squares), and in one cell. Noise is scaled to it."
        ),
    ),
    (
        "mechanism, scale",
        (
            "The law of the noise, and how wide it is. Laplace, Gaussian and K-norm noise are"
            " mechanisms."
        ),
    ),
    (
        "residual",
        (
            "What a set of features has beyond its parts: of sex by region what is left when the"
            " totals of sex and of region are taken away. Tables that share a budget are put"
            " together from residuals, each measured once."
        ),
    ),
    (
        "exact claim, ideal claim",
        (
            "An exact claim holds for the whole numbers that the computer drew. An ideal claim is"
            " proved for real numbers, and what was drawn was rounded afterwards."
        ),
    ),
    (
        "ledger",
        (
            "The file that adds up what all releases of the same data have cost, and refuses more"
            " than its budget."
        ),
    ),
)
"""Each term with what it means."""
