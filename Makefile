# make quick: runs the whole pipeline on scikit-learn's digits. make test: runs the tests in minutes; make test-all runs
# the long ones, too, such as every command of the docs (tests/tiers.py).
# make lint: checks style and types, and the files of .github by themselves with make lint-github. make env: creates only the environment; HASHES= does without hashes.txt, for an index
# with other files than PyPI.
# make bench: measures the engine and writes studies/pages/performance.md; BENCH="--quick" passes other options.
# make wheel: builds the file in dist/ that pip installs elsewhere (docs/installation.md). make check-wheel: also tries it in
# an empty environment. make check-version TAG=v1.0.0: whether a tag, CHANGELOG.md and CITATION.cff have this version.
# make docs: builds README.md, docs/ and the pages of studies/ as a site in build/docs; a broken link is an error.
# make fuzz: tries 100,000 random inputs, which takes hours; CASES=5000 tries another number.
# make audit: writes studies/pages/licences.md and hashes.txt, and looks for known vulnerabilities, which needs the internet.
# make clean: deletes the results and the site, not the stored baselines.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH ?= --out studies/pages/performance.md

HASHES ?= hashes.txt
CASES ?= 100000
AUDIT := build/audit

.PHONY: env quick test test-all fuzz audit lint lint-github bench docs wheel check-wheel check-version clean

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

lint: env lint-github
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Without the internet: the schemas are those of the package, and zizmor looks nothing up.
SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema
lint-github: env
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) custom.github-workflows-require-timeout .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff
	$(BIN)/zizmor --offline --quiet .github
	$(BIN)/pre-commit validate-config

bench: env
	@$(BIN)/python -m tests.benchmarks $(BENCH)

docs: env
	$(BIN)/sphinx-build -c docs -d build/doctrees --quiet --nitpicky --fail-on-warning --keep-going . build/docs
	@echo "open build/docs/README.html"

# build/lib may have files that are in the package no more.
wheel: env
	@rm -rf build/lib dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

EMPTY := build/empty
check-wheel: wheel
	$(PYTHON) -m venv --clear $(EMPTY)
	$(EMPTY)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/fedflat-*.whl
	rm -rf $(EMPTY)/project
	cd $(EMPTY) && bin/fedflat versions && bin/fedflat init project
	cd $(EMPTY)/project && PATH="$(CURDIR)/$(EMPTY)/bin:$$PATH" && fedflat check-method mine.py && \
		snakemake --cores all --config rounds=2 seeds=[0]

check-version: env
	@$(BIN)/python -m studies.release "$(TAG)"

clean:
	rm -rf results/store results/experiments results/reports results/logs results/partitions build .snakemake
