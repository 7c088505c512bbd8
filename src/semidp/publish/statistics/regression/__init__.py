"""Linear and logistic regression of a private outcome on features with exact counts.

`kind` says what is asked for and released, `routes` what is measured, `linear` and `logistic` are
the fits.
"""
