# make quick: runs the whole pipeline on scikit-learn's digits. make test: runs the tests in minutes; make test-all runs
# the long ones, too, such as every command of the docs (tests/tiers.py).
# make lint: checks style and types. make env: creates only the environment; HASHES= does without hashes.txt, for an index
# with other files than PyPI.
# make bench: measures the engine and writes docs/performance.md; BENCH="--quick" passes other options.
# make wheel: builds the file in dist/ that pip installs elsewhere (docs/installation.md).
# make docs: builds README.md and docs/ as a site in build/docs; a broken link is an error.
# make fuzz: tries 100,000 random inputs, which takes hours; CASES=5000 tries another number.
# make audit: writes docs/licences.md and hashes.txt, and looks for known vulnerabilities, which needs the internet.
# make clean: deletes the results and the site, not the stored baselines.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH ?= --out docs/performance.md

HASHES ?= hashes.txt
CASES ?= 100000
AUDIT := build/audit

.PHONY: env quick test test-all fuzz audit lint bench docs wheel clean

env: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt hashes.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "FedFlat needs Python 3.11 or newer; try: make $(MAKECMDGOALS) PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(if $(HASHES),$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(HASHES))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs,slurm]'
	@touch $@

quick: env
	@$(BIN)/snakemake --cores all
	@$(BIN)/fedflat summary quick

# A process that has no tests left takes over half of another's, so that no core waits. The tests start many processes:
# without compiled files, each would compile the project anew.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
PARALLEL := -n auto --dist worksteal

test: env
	$(PYTEST) $(PARALLEL) -m 'not thorough'

test-all: env
	$(PYTEST) $(PARALLEL) --fuzz-cases 2000

fuzz: env
	$(PYTEST) -s tests/fuzz --fuzz-cases $(CASES)

audit: env $(AUDIT)/.installed
	@$(BIN)/python -m studies.audit $(AUDIT)/bin

# Their own environment, so that they are not among the packages that they check.
$(AUDIT)/.installed: Makefile
	@$(PYTHON) -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check 'pip-audit>=2.9,<3' 'pip-licenses>=5,<6' uv \
		2>$(AUDIT)/pip.log || { echo "audit: cannot install pip-audit, pip-licenses and uv (see $(AUDIT)/pip.log)" >&2; exit 2; }
	@touch $@

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: env
	@$(BIN)/python -m tests.benchmarks $(BENCH)

docs: env
	$(BIN)/sphinx-build -c docs -d build/doctrees --quiet --nitpicky --fail-on-warning --keep-going . build/docs
	@echo "open build/docs/README.html"

# build/lib may have files that are in the package no more.
wheel: env
	@rm -rf build/lib dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean:
	rm -rf results/store results/experiments results/reports results/logs results/partitions build .snakemake
