# Two commands, always true:  make demo   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TESTS  := $(VENV)/.tests-installed
LOCK   := requirements.lock
TESTLOCK := requirements-test.lock
# Versions alone: pip accepts no hashes next to an editable package or an extra that is not locked.
PINS   := build/constraints.txt
ATHERIS := build/atheris
PIP_QUIET := -m pip install --quiet --disable-pip-version-check
PIP_LOCKED := $(PIP_QUIET) --require-hashes -r
PIP_PINNED := $(PIP_QUIET) -c $(PINS)
# Two workers on two cores: more threads of linear algebra only wait for each other. Bytecode is kept even where the
# environment says otherwise: without it each of some 200 processes that tests start compiles 400 modules, half a second.
QUICKLY := OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help demo test laws test-long lint fuzz mutants proofs test-services test-versions docs notebook studies bench dist lock sbom wheelhouse clean

help:           ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "semidp needs Python 3.11 or newer; set PYTHON=python3.x"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(PINS): $(TESTLOCK)
	@mkdir -p build && sed -n 's/^\([a-z0-9].*\) \\$$/\1/p' $(TESTLOCK) > $@

$(STAMP): pyproject.toml $(LOCK) | $(BIN)/python
	$(BIN)/python $(PIP_LOCKED) $(LOCK)
	$(BIN)/python $(PIP_QUIET) --no-deps -e .
	@touch $@

$(TESTS): $(STAMP) $(TESTLOCK)
	$(BIN)/python $(PIP_LOCKED) $(TESTLOCK)
	@touch $@

demo: $(STAMP)  ## the main job on an embedded real table
	$(BIN)/semidp demo

lint: $(TESTS)  ## ruff and mypy --strict; whether benchmarks call what is there
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file benchmarks/mypy.ini --cache-dir .mypy_cache/benchmarks benchmarks

test: $(TESTS)  ## lint, and what needs no server: a case of every law but the heaviest (at most six minutes on two idle cores)
	$(MAKE) --no-print-directory -j 2 lint laws

laws: $(TESTS)
	$(QUICKLY) $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not services and not long'

test-long: $(TESTS)  ## all other cases: brute force, audits with the most samples, long pages, 200 kills (about an hour)
	$(QUICKLY) $(BIN)/python -m pytest -n 2 --dist worksteal -m long
	SEMIDP_EXAMPLES=300 $(QUICKLY) $(BIN)/python -m pytest -n 2 -m 'hypothesis and not services and not long'
	SEMIDP_KILLS=200 $(QUICKLY) $(BIN)/python -m pytest tests/cli/test_kills.py
	SEMIDP_KILLS=20 $(QUICKLY) $(BIN)/python -m pytest tests/partitions/test_unfinished.py -k kills

# atheris stays out of the environment that everything else runs in; it has wheels for Linux alone.
$(ATHERIS): | $(TESTS)
	$(BIN)/python $(PIP_QUIET) --target $@ 'atheris>=3,<4' || { rm -rf $@; echo "atheris does not install here: set ATHERIS= to fuzz without it"; exit 2; }

fuzz: $(TESTS) $(ATHERIS)  ## 100,000 hostile inputs, others every time (about a quarter of an hour on two cores), then five minutes by coverage
	SEMIDP_FUZZ=82 $(QUICKLY) $(BIN)/python -m pytest -n 2 tests/fuzz
ifneq ($(ATHERIS),)
	PYTHONPATH=$(ATHERIS) $(QUICKLY) $(BIN)/python -m tests.fuzz.guided releases build/fuzz/releases 240
	PYTHONPATH=$(ATHERIS) $(QUICKLY) $(BIN)/python -m tests.fuzz.guided workbooks build/fuzz/workbooks 60
endif

mutants: $(TESTS)  ## every arithmetic and comparison operator of costs, norms, scales, conversions and charges replaced: who notices? (more than an hour on an idle core)
	$(QUICKLY) $(BIN)/python -m tests.mutants.mutate

proofs:         ## the machine-checked proofs: installs Coq, checks all of them twice, prints the axioms used (at most five minutes)
	$(PYTHON) proofs/check.py

test-services: $(STAMP)  ## the same engines on real PostgreSQL and Spark, the report and the page in real Chromium, Tumult
	tests/services/run

$(VENV)/.installed-docs: $(STAMP) $(PINS)
	$(BIN)/python $(PIP_PINNED) -e '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs $(TESTS)  ## the documentation site, into build/site; its notebook and the long pages are executed again
	$(QUICKLY) $(BIN)/python -m pytest -q -n 2 -m long tests/test_tutorial.py
	mkdir -p build && $(BIN)/jupyter execute --output=../build/notebook docs/notebook.ipynb
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebook: $(VENV)/.installed-docs  ## execute docs/notebook.ipynb and keep its outputs (after a change of what results show)
	$(BIN)/python -c 'import nbclient, nbformat; page = "docs/notebook.ipynb"; cells = nbformat.read(page, 4); \
	  nbclient.execute(cells, cwd="docs", record_timing=False); nbformat.write(cells, page)'

studies: $(STAMP)  ## every figure of the paper at full size, into build/studies
	$(BIN)/semidp reproduce --out build/studies --force

$(VENV)/.installed-bench: $(TESTS) $(PINS)
	$(BIN)/python $(PIP_PINNED) -e '.[test,bench]'
	@touch $@

bench: $(VENV)/.installed-bench  ## side by side with peers, ratios against targets (installs Java and Spark for one row)
	tests/services/run --install
	$(BIN)/python benchmarks/run.py

dist: $(PINS)   ## wheel and sdist, built twice and compared byte for byte; the wheel runs the demo in an empty environment
	rm -rf dist build/dist
	$(PYTHON) -m venv build/dist/maker
	build/dist/maker/bin/python $(PIP_PINNED) 'build>=1.2,<2'
	build/dist/maker/bin/python -m build --outdir dist .
	build/dist/maker/bin/python -m build --outdir build/dist/again .
	for file in dist/*; do cmp $$file build/dist/again/$${file#dist/} || exit 1; done
	$(PYTHON) -m venv build/dist/empty
	build/dist/empty/bin/python $(PIP_LOCKED) $(LOCK)
	build/dist/empty/bin/python $(PIP_QUIET) --no-deps dist/*.whl
	cd build/dist && empty/bin/semidp demo --out demo

lock:           ## write both lock files anew (versions and hashes), from the newest versions that fit together
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python $(PIP_QUIET) uv
	build/lock/bin/uv $(COMPILE) --upgrade pyproject.toml -o $(LOCK)
	build/lock/bin/uv $(COMPILE) --upgrade pyproject.toml --extra test -o $(TESTLOCK)

COMPILE := pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-annotate

test-versions:  ## a smoke suite with the oldest versions that pyproject allows, and with the newest
	supply/test_versions $(PYTHON)

sbom: $(STAMP)  ## build/sbom.cdx.json (CycloneDX) from the lock, and docs/licenses.md
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python $(PIP_QUIET) 'cyclonedx-bom>=7,<8'
	build/sbom/bin/cyclonedx-py requirements $(LOCK) --pyproject pyproject.toml --output-reproducible --of JSON -o build/sbom.cdx.json
	$(BIN)/python supply/licenses.py

wheelhouse: dist ## dist/wheelhouse: semidp and all it needs, for machines without a network; tried with the network off
	$(PYTHON) -m pip download --quiet --require-hashes -r $(LOCK) -d dist/wheelhouse
	cp dist/*.whl dist/wheelhouse
	supply/try_wheelhouse dist/wheelhouse $(PYTHON)

clean:          ## remove everything that was built
	rm -rf $(VENV) .venv-services .venv-tumult .venv-peers build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
