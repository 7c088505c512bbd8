"""What `semidp show` computes again: whether a release follows from its plan, its exact totals and
its noisy values.

`recheck` is the page to read first; `results_again` and `parts_again` publish a result again,
`refit` fits whole numbers again, `stored` compares files, `findings` keeps what was found.
"""
