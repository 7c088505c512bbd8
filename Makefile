# Two commands, always true:  make demo   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test lint test-services docs studies bench clean

help:           ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "semidp needs Python 3.11 or newer; set PYTHON=python3.x"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

demo: $(STAMP)  ## the main job on an embedded real table
	$(BIN)/semidp demo

lint: $(STAMP)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint      ## everything that needs no server (under ten minutes on two cores)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not services'

test-services: $(STAMP)  ## the same engines on real PostgreSQL and Spark, the report in real Chromium
	tests/services/run

$(VENV)/.installed-docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs  ## the documentation site, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

studies: $(STAMP)  ## every figure of the paper at full size, into build/studies
	$(BIN)/semidp reproduce --out build/studies --force

bench: $(STAMP) ## side by side with peers, ratios against targets
	$(BIN)/python benchmarks/run.py

clean:          ## remove everything that was built
	rm -rf $(VENV) .venv-services .venv-peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
