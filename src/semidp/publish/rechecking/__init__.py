"""What `semidp show` computes again: whether a release follows from its plan, its exact totals and
its noisy values.

`release_check` is the page to read first; `result_check` compares the noise and the fits of one
result, `part_check` the parts, and `file_differences` the files. `Findings` keeps what was found.
"""
