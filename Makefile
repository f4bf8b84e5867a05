# Everything the project does, each target from a fresh clone: needs python3 (3.11 or newer), make and git, and a package index.
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
# Half of the time tests wait: for timeouts, for pauses, and for servers in processes of their own.
WORKERS ?= $(shell expr 2 '*' "$$(getconf _NPROCESSORS_ONLN)")
# openai's recorded streams, which 13 tests of `make conformance` need; they are left out where there are none.
SNAPSHOTS ?= $(wildcard ../shared/conformance/snapshots)
# The description of openai's API, by which a mock server answers most of its tests; they are left out where there is none.
SPEC ?= $(wildcard ../shared/conformance/openapi-3.3.1.yml)
CONFORMANCE = $(BIN)/python -m tests.conformance $(SNAPSHOTS:%=--snapshots %) $(SPEC:%=--spec %)
# The first interpreter that is new enough; `make PYTHON=/path/to/python …` overrides it.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$python"; break; }; done)

# A stamp's name holds a checksum of what decides the installation, so that an unchanged one is not repeated.
CHECKSUM := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
BENCH := $(VENV)/.installed-bench-$(CHECKSUM)
EVERYTHING := $(VENV)/.installed-everything-$(CHECKSUM)
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# Tests start hundreds of processes, and each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install bench test test-all test-backends check docs conformance faults frameworks conformance-release benchmarks fuzz soak nightly mutants audit wheel pythons

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | while IFS='|' read -r name what; do \
		printf '  make %-20s %s\n' "$$name" "$$what"; done

install: $(EVERYTHING) ## set up .venv with everything that the other targets need

bench: $(BENCH) ## A/B fastlane's clients against openai's on the embedded provider: no API key, no network (ARGS="--help" says more)
	$(BIN)/fastlane bench run $(ARGS)

test: $(EVERYTHING) ## run each test once, in parallel: some five minutes on two cores (ARGS="tests/plays -x" narrows)
	$(BIN)/python -m pytest --brief --numprocesses $(WORKERS) --dist loadfile $(ARGS)

test-all: $(EVERYTHING) ## run all tests with all of their parameters, one after the other
	$(BIN)/python -m pytest $(ARGS)

test-backends: $(EVERYTHING) ## send traces and metrics to Phoenix, MLflow and Prometheus, and read them back (ARGS="-k phoenix")
	$(BIN)/python -m scripts.backends --install
	$(BIN)/python -m pytest tests/backends $(ARGS)

check: $(EVERYTHING) ## format, lint, types, import contracts, layout, spelling, plain words, age of facts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(BIN)/python -m pytest --quiet tests/test_words.py tests/test_layout.py
	$(BIN)/python -m scripts.stale_facts

docs: $(EVERYTHING) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

conformance: $(EVERYTHING) ## run openai's own test suite with fastlane's clients, on the newest openai and on 2.54.0
	$(CONFORMANCE) $(ARGS)

conformance-release: $(EVERYTHING) ## all of it that must hold before a release, with the stock client beside ours
	$(CONFORMANCE) --self-check
	$(CONFORMANCE) --release $(ARGS)

fuzz: $(EVERYTHING) ## feed every parser with 10,000 inputs that nobody would send, beside an oracle (ARGS="-k h2")
	$(BIN)/python -m pytest tests/fuzz --hypothesis-profile=fuzz --timeout=0 $(ARGS)

soak: $(EVERYTHING) ## a mixed life of calls, faults, cancellations and forks for 30 minutes: nothing lost, doubled, crossed or leaked
	$(BIN)/python -m tests.soak $(ARGS)

nightly: $(EVERYTHING) ## all cases, and everything that takes long; tests/last_full_run.json keeps the results (ARGS="--short")
	$(BIN)/python -m tests.nightly $(ARGS)

mutants: $(EVERYTHING) ## break the core in 100 random places, and see how many of these the tests find: an hour (ARGS="--seed 7")
	$(PIP_INSTALL) '.[mutants]'
	$(BIN)/python -m tests.mutants $(ARGS)

audit: $(EVERYTHING) ## advisories, a wheel built twice, what an empty environment imports and opens (ARGS="--only import")
	$(BIN)/python -m scripts.audit $(ARGS)

wheel: $(EVERYTHING) ## build wheel and source distribution into dist/, the same bytes wherever and whenever that is done
	$(BIN)/python -m scripts.wheel $(ARGS)

pythons: $(EVERYTHING) ## run the tests with every Python from 3.11 on that is here (ARGS="--quick", ARGS="--python 3.13")
	$(BIN)/python -m scripts.pythons $(ARGS)

frameworks: $(EVERYTHING) ## run frameworks that stand on openai's client, really installed, through fastlane's (ARGS="--only instructor")
	$(BIN)/python -m scripts.frameworks $(ARGS)

faults: $(EVERYTHING) ## everything that can go wrong with a call, beside the stock client (ARGS="-k 'stall or GOAWAY'" for some of it)
	$(BIN)/python -m pytest tests/faults --every-fault -n 2 $(ARGS)

benchmarks: $(EVERYTHING) ## run every benchmark quickly, and print one table of what holds and what falls short
	$(BIN)/python -m benchmarks --quick

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "fastlane needs Python 3.11 or newer, and none of python3, python3.14, python3.13," \
		"python3.12 and python3.11 is one. Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) could not make a virtual environment." \
		"It needs its venv and ensurepip modules (on Debian and Ubuntu: the package python3-venv)." >&2; exit 1; }

$(BENCH): | $(BIN)/python
	$(PIP_INSTALL) '.[bench,charts,telemetry]'
	@touch $@

$(EVERYTHING): | $(BIN)/python
	$(PIP_INSTALL) '.[bench,charts,httpx,test,check,docs]'
	@touch $@ $(BENCH)
