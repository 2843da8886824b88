# Everything runs in .venv, from locked and hashed dependencies; nothing is installed globally.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two stamps of one environment: what `make up` needs, and with the tools of developers on top.
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= $(shell nproc)
# More than two cores' worth: scenarios wait for processes more than they compute.
TEST_WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help up test quick check fix bench lock clean deps

help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUNTIME): requirements.lock requirements-build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: Handfast needs Python 3.11 or newer, found " + sys.version.split()[0])'
	@test -x $(BIN)/python || { echo "Creating a Python environment in $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing what Handfast needs into $(VENV), from requirements.lock"
	@$(PIP) --require-hashes -r requirements.lock -r requirements-build.lock
	@echo "Installing Handfast into $(VENV), from this directory"
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMP): $(RUNTIME) requirements-dev.lock
	@echo "Installing the tools of developers into $(VENV), from requirements-dev.lock"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

up: $(RUNTIME) ## Start the control plane here (data in ./handfast-data); Ctrl-C stops it
	@echo "Starting Handfast"
	@exec $(BIN)/handfast up

deps: ## Install the Debian packages that tests use as real peers (needs root)
	@scripts/test-peers.sh

test: $(STAMP) deps ## Run every test against real peers, with coverage
	@$(BIN)/coverage erase
	MEASURE_WORKERS=1 $(BIN)/pytest -q -n $(TEST_WORKERS) --durations=15
	@$(BIN)/coverage combine -q
	@$(BIN)/python scripts/coverage_gate.py

# A process for each core, with its own share of the files, the largest first. Workers of xdist would each collect every
# test, and one process more would do nothing but take in ten thousand results. What they write goes to memory: these
# tests are about what is written, not about how long a disk takes.
FAST := tests/unit/test_*.py tests/unit/*/test_*.py tests/contract/test_*.py tests/test_*.py
MEMORY := $(firstword $(wildcard /dev/shm) /tmp)

quick: $(STAMP) ## Run the fast tests only: units and contracts (about half a minute on two cores)
	@$(MAKE) --no-print-directory --keep-going --output-sync -j $(WORKERS) $(addprefix quick-,$(shell seq $(WORKERS)))

# Bytecode is written even where the environment forbids it: pytest would rewrite every test anew each time.
quick-%:
	@env -u PYTHONDONTWRITEBYTECODE TMPDIR=$(MEMORY) $(BIN)/pytest -q -m "not slow" -o tmp_path_retention_policy=failed \
		$$(ls -S $(FAST) | awk 'NR % $(WORKERS) == $* - 1')

# The deciding half is what an auditor reads: its own unit tests alone must reach all of it.
DECIDING := handfast.api,handfast.pki,handfast.bootstrap,handfast.rules

check: $(STAMP) ## Lint, types, import contracts, coverage of the deciding half
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	@rm -f .coverage-check*
	$(BIN)/coverage run --data-file=.coverage-check --source=$(DECIDING) -m pytest -q -m "not slow" tests/unit/api tests/unit/pki tests/unit/bootstrap tests/unit/rules
	@$(BIN)/coverage combine -q --data-file=.coverage-check
	$(BIN)/coverage report --data-file=.coverage-check --fail-under=100

fix: $(STAMP) ## Let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## Measure server CPU per operation against the floor, and gate on the ratios
	$(BIN)/python -m bench

COMPILE = $(BIN)/pip-compile -q --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe

lock: $(STAMP) ## Make the lock files anew from pyproject.toml
	$(COMPILE) -o requirements.lock pyproject.toml
	$(COMPILE) --build-deps-for editable --only-build-deps -o requirements-build.lock pyproject.toml
	$(COMPILE) --extra dev -c requirements.lock -c requirements-build.lock -o requirements-dev.lock pyproject.toml

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
