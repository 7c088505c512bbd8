"""How results leave: files and folders that appear whole, columns of published tables, plots."""
