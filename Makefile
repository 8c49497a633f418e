# Everything sets itself up from an empty clone: the first target that needs it makes .venv.
#
#   make demo                 the main job, live in the terminal
#   make test                 the tests and the doctests, without the slow ones
#   make check                lint, types, layering
#   make explore SECONDS=60 [SEED=…] [WAYS=run,sessions,restore,spark]   generated queries against DuckDB
#   make bench [WORK=name]    our numbers beside the peers', into bench/out/latest.json
#   make clean                removes what the targets above have made

SHELL := /bin/bash
.DEFAULT_GOAL := test
.PHONY: demo test check explore bench clean setup

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
WORK  ?=
ARGS  ?=
WAYS  ?= run,sessions,restore
SEED  ?=
CASE  ?=
# bash counts up a variable of this name, so only one that was given to make is taken
SECONDS_ := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)

# Compiled kernels are kept here, so that only the first run pays for them.  Numba looks at the file of a kernel alone, and
# not at those whose functions are written into it: so there is a folder for each state of all of them.
KERNELS := $(shell cat src/everwhen/operators/kernels/*.py src/everwhen/model/*.py | cksum | cut -d ' ' -f 1)
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba/$(KERNELS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

setup: $(STAMP)

# A candidate has to run (a version manager's shim may not), be new enough, and be able to make virtualenvs.
$(STAMP): pyproject.toml constraints.txt
	@python=; \
	for candidate in python3.11 python3 python3.12 python3.13; do \
	  if "$$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	  then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Everwhen needs Python 3.11 or newer with the venv module; found: $$(python3 --version 2>&1 || true)." >&2; \
	  echo "Install python3.11 (and python3.11-venv where that is a package of its own) and run make again." >&2; \
	  exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  echo "making $(VENV) with $$($$python --version)"; rm -rf $(VENV); "$$python" -m venv $(VENV); \
	fi
	@echo "installing into $(VENV)"
	@$(BIN)/python -m pip install --quiet -e '.[dev]' -c constraints.txt
	@touch $@

demo: $(STAMP)
	$(BIN)/everwhen demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup --no-loadscope-reorder $(ARGS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir .cache/import_linter

explore: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m generated --seconds $(SECONDS_) --ways $(WAYS) $(if $(SEED),--seed $(SEED)) \
	  $(if $(CASE),--case $(CASE)) $(ARGS)

bench: $(STAMP)
	$(BIN)/python bench/run.py $(WORK) $(ARGS)

clean:
	rm -rf $(VENV) .cache bench/out build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
