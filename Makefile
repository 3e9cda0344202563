# Everything a developer or an operator does by hand. `make` alone lists it.
#
# A target's work is remembered by a stamp in .venv, so a second `make serve` starts at once.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
TORCH := $(shell sed -n 's/^ *"\(torch==[^"]*\)",$$/\1/p' pyproject.toml)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
KERNELS := $(wildcard src/steelyard/models/native/csrc/*) src/steelyard/models/native/build.py

# Test processes compute on one thread, so that they do not fight each other for cores; engine
# processes set their own count.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest $(PYTEST_ARGS)

# Many tests wait for processes and sockets, so two at a time fit two cores. The slow ones compute
# or judge timing: one at a time.
TEST_WORKERS ?= 2

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET [NAME=VALUE ...]"
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r name text; do printf '  %-12s %s\n' "$$name" "$$text"; done
	@echo "names: PYTHON=/path/to/python, TORCH_ARGS='more arguments of pip for torch'"

.PHONY: install
install: $(VENV)/.kernels ## make .venv, install Steelyard, compile the CPU kernels

.PHONY: serve
serve: $(VENV)/.kernels ## serve a model: ARGS='MODEL --port 9000 ...'
	@exec $(BIN)/steelyard serve $(ARGS)

.PHONY: test
test: $(VENV)/.checks ## run the tests: PYTEST_ARGS='tests/gateway -x'
	$(PYTEST) -n $(TEST_WORKERS) --dist loadfile

.PHONY: test-slow
test-slow: $(VENV)/.checks ## run the slow tests alone
	$(PYTEST) -m slow

.PHONY: test-all
test-all: test test-slow ## run all tests

.PHONY: lint
lint: $(VENV)/.checks ## formatting, lint, types, floors, generated pages
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m steelyard.cli.reference --check

.PHONY: check
check: lint test ## lint, then the tests: what must pass before a commit

.PHONY: format
format: $(VENV)/.checks ## reformat, and fix what ruff can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

.PHONY: reference
reference: $(VENV)/.checks ## write docs/reference from the code
	$(BIN)/python -m steelyard.cli.reference

.PHONY: bench
bench: $(if $(BENCH),$(VENV)/.kernels) ## list the benchmarks, or run one: BENCH=scheduler/step_cost ARGS='...'
ifdef BENCH
	$(BIN)/python $(BENCH_SCRIPT) $(ARGS)
else
	@for file in $$(grep -l '^if __name__ ==' benchmarks/*/*.py); do \
		name=$${file#benchmarks/}; name=$${name%.py}; \
		printf '%-24s %s\n' "$${name%/__main__}" "$$(sed -n '1{s/^"""//;s/"""$$//;p;}' $$file)"; \
	done
endif

# Folders that are packages are run with -m, because their files import each other.
BENCH_SCRIPT = $(if $(wildcard benchmarks/$(firstword $(subst /, ,$(BENCH)))/__init__.py),\
	-m benchmarks.$(subst /,.,$(BENCH)),benchmarks/$(BENCH).py)

.PHONY: lock
lock: ## write requirements/*.txt from pyproject.toml: ARGS=--upgrade for the newest
	$(PYTHON) requirements/lock.py $(ARGS)

.PHONY: clean
clean: ## remove caches and build outputs
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## and the environment
	rm -rf $(VENV) src/*.egg-info

# The environment, step by step. --no-deps: the lock names everything, pip need not choose.

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Steelyard needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.python requirements/lock.txt pyproject.toml
	$(PIP) install --quiet --no-deps --require-hashes -r requirements/lock.txt
	$(PIP) install --quiet $(TORCH) $(TORCH_ARGS)
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.kernels: $(VENV)/.runtime $(KERNELS)
	$(BIN)/python -m steelyard.models.native
	@touch $@

$(VENV)/.checks: $(VENV)/.kernels requirements/dev.txt
	$(PIP) install --quiet --no-deps --require-hashes -r requirements/dev.txt
	@touch $@
