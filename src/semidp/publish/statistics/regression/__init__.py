"""Linear and logistic regression of a private outcome on features with exact counts.

`request` says what is asked for, `routes` what is measured, `linear` and `logistic` the
fits, `published` what is released.
"""
