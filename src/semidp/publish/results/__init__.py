"""Output of results: files and folders that appear only when complete, columns of published tables,
plots.
"""
