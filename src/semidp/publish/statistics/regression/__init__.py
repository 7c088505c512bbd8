"""Linear and logistic regression of a private outcome on features with exact counts.

`kind` says what is asked for and released, `fits` what is measured, and what follows from it.
"""
