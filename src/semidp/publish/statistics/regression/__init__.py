"""Linear and logistic regression of a private outcome on features with exact counts.

`kind` says what is asked for and released, `linear` what is measured; it and `logistic` are the
fits.
"""
