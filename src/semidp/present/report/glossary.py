"""The words of a report, each in a few sentences. The same list is the page docs/glossary.md."""

GLOSSARY: tuple[tuple[str, str], ...] = (
    (
        "record, feature, level, cell",
        (
            "A record is what the data say about one person. A feature is a column of the data that"
            " tables count, such as region. Its levels are the values that it may take. A cell of a"
            " table is one combination of levels."
        ),
    ),
    (
        "exact statistic",
        (
            "A total that is published as it is, without noise. Every reader of the release knows"
            " it for certain. So it is not protected, and neither is anything that follows from"
            " it."
        ),
    ),
    (
        "margin",
        (
            "The totals of one feature, or of several features together: for example how many"
            " people there are in each region."
        ),
    ),
    (
        "noise",
        (
            "Random numbers that are added before publication. The probabilities with which they"
            " are drawn (their law) are public, so that everybody can compute how far off a"
            " published number may be. The numbers that were drawn stay secret."
        ),
    ),
    (
        "count and estimate",
        (
            "Estimates are the measured numbers, adjusted so that they have the exact totals:"
            " right on average, not always whole, perhaps negative. Counts are the nearest whole"
            " numbers, none negative, that add up to every exact total."
        ),
    ),
    (
        "fit",
        (
            "How counts are found that lie near the estimates and have every exact total. The"
            " report names the method: thresholds, flow, nested flows, rounding, integer program or"
            " projection."
        ),
    ),
    (
        "standard error",
        (
            "How far off an estimate typically is, from the noise alone. About two thirds of the"
            " estimates are nearer to the truth than one standard error, and about 95% nearer than"
            " two."
        ),
    ),
    (
        "noise dominates (≈)",
        (
            "A count is marked if it is smaller than the half-width of its 95% interval, which is"
            " about two standard errors. The true count may well be zero. Do not read such a count"
            " by itself."
        ),
    ),
    (
        "differential privacy",
        (
            "A promise that noise can keep: what is published would look much the same if one"
            " record had been different. Exact totals would show that one record alone is"
            " different. So the promise here compares only datasets that agree with the exact"
            " totals."
        ),
    ),
    (
        "privacy budget",
        (
            "How much all releases of the same data may tell an attacker, stated as μ, ρ or ε. A"
            " smaller budget protects better and needs more noise."
        ),
    ),
    (
        "adjacency",
        (
            "Which pairs of datasets the promise compares: how many records may differ between the"
            " two, and in what way. The ball and the exchange are two kinds of adjacency."
        ),
    ),
    (
        "a(t)",
        (
            "The number of records that must change together in the worst case, so that one"
            " person could have been somebody else while every exact total stays as it is. Without"
            " exact totals it is 1."
        ),
    ),
    (
        "ball, or any a records",
        (
            "A promise about all pairs of datasets that agree with the exact totals and differ in"
            " at most a records, whoever these belong to."
        ),
    ),
    (
        "exchange",
        (
            "A promise about pairs of datasets in which one person's record is different, and a"
            " few others only hand over the published values that the person takes. For example,"
            " if you had lived in the north, somebody from the north would have lived where you"
            " live now, and would be the same otherwise. It promises less about groups of people,"
            " and needs less noise."
        ),
    ),
    (
        "one patient with up to 5 stays",
        (
            "A promise about a person with several records: all of them may be different at once."
            " How many records a person may have is declared and public. Data in which somebody"
            " has more are refused, and nobody is dropped."
        ),
    ),
    (
        "unit, member",
        (
            "Two words for linked files. A unit is, for example, a household; its members are the"
            " persons who live in it. A promise about whole units names how many members may"
            " differ, and how many units: in their own features, in their size, in all."
        ),
    ),
    (
        "best attacker, false alarms",
        (
            "The attacker knows two possible datasets and wants to tell from the release which of"
            " them is true. A false alarm is to name the second when the first is true. A miss is"
            " to name the first when the second is true. Somebody who only guesses, and accepts 5%"
            " false alarms, names the second in 5% of the cases where it is true. The guarantee"
            " says how often the best attacker can do so with the release."
        ),
    ),
    (
        "μ, Gaussian differential privacy",
        (
            "A measure of protection: telling the two datasets apart is as hard as telling"
            " whether one number was drawn from a normal distribution with mean 0 or with mean μ,"
            " both with variance 1. Smaller is safer. GDP here is short for Gaussian differential"
            " privacy."
        ),
    ),
    (
        "ρ, zero-concentrated differential privacy (zCDP)",
        (
            "Another measure of protection. Gaussian noise with μ has ρ = μ²/2. Budgets in ρ add"
            " up. Smaller is safer."
        ),
    ),
    (
        "ε and δ",
        (
            "The most common measure of protection: whatever is published, it is at most e^ε"
            " times as likely under one dataset as under the other, except for a probability δ."
            " Smaller is safer. It is written (ε, δ)-DP: (6, 1e-9)-DP means ε = 6 and δ ="
            " 0.000000001."
        ),
    ),
    (
        "sensitivity Δ1, Δ2, Δ∞",
        (
            "How far a table can move between two datasets that are compared. Δ1 adds up the"
            " changes of all cells. Δ2 is the root of the sum of their squares. Δ∞ is the largest"
            " change of one cell. The noise is scaled to one of them."
        ),
    ),
    (
        "mechanism, scale",
        (
            "A mechanism is the way in which noise is drawn, such as Laplace, Gaussian or K-norm"
            " noise. Its scale says how wide the noise is."
        ),
    ),
    (
        "residual",
        (
            "What a table says beyond its own totals. For sex by region it is what is left when"
            " the totals of sex and of region are taken away. Tables that share a budget are put"
            " together from residuals, each of which is measured once."
        ),
    ),
    (
        "exact claim, ideal claim",
        (
            "An exact claim holds for the whole numbers that the computer drew. An ideal claim is"
            " proved for real numbers; the computer rounded what it drew."
        ),
    ),
    (
        "ledger",
        (
            "A file that adds up what all releases of the same data have cost, and refuses a"
            " release that would exceed the budget."
        ),
    ),
)
"""Each term with what it means."""
