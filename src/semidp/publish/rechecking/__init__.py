"""What `semidp show` computes again: whether a release follows from its plan, its exact totals and
its noisy values.

`release_check` is the page to read first; `result_check` compares the noise and the fits of one
result, and `file_check` files and parts. `Findings` keeps what was found.
"""
