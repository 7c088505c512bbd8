"""The paper's figures, examples and numbers, each as published and as it should be;
`semidp reproduce` runs them.
"""
