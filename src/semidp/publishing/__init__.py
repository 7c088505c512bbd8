"""From a plan to a release.

`pipeline` is the page to read first. `plan` says what to publish, `survey` reads what is public,
`budgets` and `resources` prepare, `release` holds what comes out. `rechecking`, `side_information`
and `signing` are asked of it later; `parts` carries out a release part by part.
"""
