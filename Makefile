# Everything the project does, each target from a fresh clone: needs python3 (3.11 or newer), make and git, and a package index.
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
# openai's recorded streams, which 13 tests of `make conformance` need; they are left out where there are none.
SNAPSHOTS ?= $(wildcard ../shared/conformance/snapshots)
# The first interpreter that is new enough; `make PYTHON=/path/to/python …` overrides it.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)

# A stamp's name holds a checksum of what decides the installation, so that an unchanged one is not repeated.
CHECKSUM := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
BENCH := $(VENV)/.installed-bench-$(CHECKSUM)
EVERYTHING := $(VENV)/.installed-everything-$(CHECKSUM)
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install bench bench-local test test-backends check docs conformance benchmarks fuzz

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | while IFS='|' read -r name what; do \
		printf '  make %-14s %s\n' "$$name" "$$what"; done

install: $(EVERYTHING) ## set up .venv with everything that the other targets need

bench: $(BENCH) ## A/B the default client and its plays on the embedded provider: no API key, no network (ARGS="--help" says more)
	$(BIN)/fastlane bench $(ARGS)

test: $(EVERYTHING) ## run all tests (ARGS="tests/plays -x" narrows)
	$(BIN)/python -m pytest $(ARGS)

test-backends: $(EVERYTHING) ## send traces and metrics to Phoenix, MLflow and Prometheus, and read them back (ARGS="-k phoenix")
	$(BIN)/python -m scripts.backends --install
	$(BIN)/python -m pytest tests/backends $(ARGS)

check: $(EVERYTHING) ## format, lint, types, import contracts, spelling
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

docs: $(EVERYTHING) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

conformance: $(EVERYTHING) ## run openai's own test suite with fastlane's clients, on the newest openai and on 2.54.0
	PYTHON=$(BIN)/python bash tests/conformance/run.sh fastlane $(SNAPSHOTS:%=--snapshots %) $(ARGS)
	PYTHON=$(BIN)/python bash tests/conformance/run.sh fastlane --openai 2.54.0 $(SNAPSHOTS:%=--snapshots %) $(ARGS)

fuzz: $(EVERYTHING) ## decode mutated answers of every type and compare with the stock client (ARGS="--seed 1 --cases 500")
	$(BIN)/python -m tests.fuzz $(ARGS)

bench-local: $(BENCH) ## bench real engines on this machine, with a model of random weights (ARGS="transformers"; installs 1.5 GB)
	$(BIN)/python -m scripts.engines $(ARGS)

benchmarks: $(EVERYTHING) ## run every benchmark of the README quickly
	$(BIN)/python -m benchmarks --quick

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "fastlane needs Python 3.11 or newer, and none of python3, python3.13, python3.12 and" \
		"python3.11 is one. Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) could not make a virtual environment." \
		"It needs its venv and ensurepip modules (on Debian and Ubuntu: the package python3-venv)." >&2; exit 1; }

$(BENCH): | $(BIN)/python
	$(PIP_INSTALL) '.[bench,charts,telemetry]'
	@touch $@

$(EVERYTHING): | $(BIN)/python
	$(PIP_INSTALL) '.[bench,charts,httpx,test,check,docs]'
	@touch $@ $(BENCH)
