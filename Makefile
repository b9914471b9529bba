# `make` lists what there is. Everything runs in .venv, which makes itself and is renewed when
# pyproject.toml changes.

PYTHON ?= $(shell for p in python3.11 python3; do $$p -c '' 2>/dev/null && echo $$p && break; done)
PYTEST_ARGS ?=
# More than there are cores: much of the time they wait for what they have started.
PYTEST_WORKERS ?= 4
BENCH_ARGS ?=
MINUTES ?= 1
SOAK_ARGS ?=
MUTANTS_ARGS ?=

VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Enough to run stdiod, without the tools it takes to work on it.
RUNS := $(VENV)/.runs

# The suite starts a thousand Pythons; where they may not keep what they have compiled, each compiles
# the daemon anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

heading = @printf '\n== %s ==\n' '$(1)'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  PYTHON=python3.12       the interpreter that makes %s\n' '$(VENV)'
	@printf '  VENV=.venv-3.12         another place for it, to keep both\n'
	@printf '  PYTEST_ARGS="-k name"   goes to pytest\n'
	@printf '  PYTEST_WORKERS=0        runs the tests in one process\n'

.PHONY: setup
setup: $(READY) ## make .venv with all that is needed to work here

define install
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo 'stdiod needs Python 3.11 or newer; found: $(or $(shell $(or $(PYTHON),false) --version 2>&1),none).' >&2; \
		echo 'Say which one to use: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --editable '$(1)'
endef

$(READY): pyproject.toml
	$(call heading,set-up)
	$(call install,.[dev])
	@touch $(RUNS) $@

$(RUNS): pyproject.toml
	$(call heading,set-up)
	$(call install,.)
	@touch $@

.PHONY: test
test: $(READY) ## run the tests; PYTEST_ARGS is passed on
	$(call heading,tests)
	$(BIN)/python -m pytest --numprocesses $(PYTEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

GOLDEN_ARGS ?=

.PHONY: golden
golden: $(READY) ## play the scenarios of tests/golden; GOLDEN_ARGS="--record NAME" writes NAME down anew
	@$(BIN)/python -m tests.golden $(GOLDEN_ARGS)

.PHONY: test-mcp
test-mcp: $(READY) ## MCP servers and clients of others on both sides; installs them into .mcp-servers
	$(call heading,MCP servers)
	@$(BIN)/python -m scripts.foreign mcp
	STDIOD_TEST_MCP=1 $(BIN)/python -m pytest -n 0 -rs tests/mcp $(PYTEST_ARGS)

.PHONY: test-languages
test-languages: $(READY) ## try what `stdiod new` begins in all ten languages, of which none may be missing
	$(call heading,languages)
	STDIOD_TEST_LANGUAGES=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) tests/cli/test_new.py tests/mistakes/test_checked.py $(PYTEST_ARGS)

.PHONY: test-typescript
test-typescript: $(READY) ## compile and run clients with the TypeScript types; installs what that takes into .typescript
	$(call heading,TypeScript)
	@$(BIN)/python -m scripts.foreign typescript
	STDIOD_TEST_TYPESCRIPT=1 $(BIN)/python -m pytest -n 0 -rs tests/typescript $(PYTEST_ARGS)

.PHONY: typescript
typescript: $(READY) ## make schemas/stdiod.d.ts anew
	@$(BIN)/python -m scripts.generate_types

REQUIREMENTS ?= 2026-07-28

.PHONY: conformance
conformance: $(READY) ## hold /mcp to the official MCP suite; REQUIREMENTS=2025-11-25 for the older era
	$(call heading,MCP conformance)
	@$(BIN)/python -m scripts.mcp_conformance --requirements $(REQUIREMENTS) $(CONFORMANCE_ARGS)

.PHONY: test-amcp
test-amcp: $(READY) ## serve AMCP's own clients; installs them into .amcp-clients
	$(call heading,AMCP clients)
	@$(BIN)/python -m scripts.foreign amcp
	STDIOD_TEST_AMCP=1 $(BIN)/python -m pytest -n 0 -rs tests/amcp $(PYTEST_ARGS)

.PHONY: test-page
test-page: $(READY) ## try the page in a browser (chromium, chromium-driver); installs axe-core into .axe
	$(call heading,page)
	@$(BIN)/python -m scripts.foreign page
	STDIOD_TEST_PAGE=1 $(BIN)/python -m pytest -n 0 -rs tests/page $(PYTEST_ARGS)

.PHONY: fuzz-http
fuzz-http: $(READY) ## ask whatever the OpenAPI document describes; installs schemathesis into .schemathesis
	$(call heading,OpenAPI)
	@$(BIN)/python -m scripts.fuzz_http

.PHONY: check
check: format-check lint types imports size surface test package-test ## all that has to hold before a commit

.PHONY: format
format: $(READY) ## rewrite the code in the house's style
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: format-check
format-check: $(READY)
	$(call heading,format)
	$(BIN)/ruff format --check .

.PHONY: lint
lint: $(READY)
	$(call heading,lint)
	$(BIN)/ruff check .

.PHONY: types
types: $(READY)
	$(call heading,types)
	$(BIN)/mypy

.PHONY: imports
imports: $(READY)
	$(call heading,import contract)
	$(BIN)/lint-imports

.PHONY: size
size: $(READY) ## how large the code is, beside the ceilings in pyproject.toml
	$(call heading,size)
	@$(BIN)/python -m scripts.size

.PHONY: surface
surface: $(READY) ## hold all that a user can name to the lists in tests/surface/
	$(call heading,surface)
	@$(BIN)/python -m scripts.surface

.PHONY: package-test
package-test: $(READY) ## try the sdist and the wheel outside of the checkout
	$(call heading,packaging)
	$(BIN)/python -m scripts.package_test

.PHONY: coverage
coverage: $(READY) ## run the tests and show which lines they miss
	$(BIN)/coverage run -m pytest $(PYTEST_ARGS)
	$(BIN)/coverage report

.PHONY: demo
demo: $(RUNS) ## watch a small fleet being supervised
	@$(BIN)/python -m scripts.demo

.PHONY: run
run: $(RUNS) ## run the daemon on the sample modules, in the foreground
	@$(BIN)/stdiod run modules

.PHONY: bench
bench: $(READY) ## measure, beside the peers that are there; BENCH_ARGS is passed on
	@$(BIN)/python -m scripts.bench $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: $(READY) ## install the peers into .venv-peers, then measure beside them
	@$(BIN)/python -m scripts.bench.peers
	@$(BIN)/python -m scripts.bench $(BENCH_ARGS)

.PHONY: soak
soak: $(READY) ## kill, stop, flood and reload at random for MINUTES, and count what is lost
	@$(BIN)/python -m scripts.soak --minutes $(MINUTES) $(SOAK_ARGS)

.PHONY: mutants
mutants: $(READY) ## change the product at random and count what the seam tests notice
	@$(BIN)/python -m scripts.mutants $(MUTANTS_ARGS)

.PHONY: clean
clean: ## remove all that was made here, .venv too
	rm -rf .venv .venv-* .amcp-clients .axe .bench.json .pillow .mcp-conformance .mcp-servers .schemathesis .typescript build dist .coverage .hypothesis .import_linter_cache .mutants .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
