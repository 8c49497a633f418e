# Every target sets up what it needs from an empty clone: the first one makes .venv.
#
#   make demo                 the main job, live in the terminal
#   make test                 lint, format, types, layers, then all tests but the slow ones; ARGS="-k join" narrows them
#   make test-fast            the tests without a JVM, without property tests and without those of documents
#   make test-connectors      all tests of connectors, the slow ones too, with a real Kafka broker where mvn can fetch it
#   make check                lint, format, types, layers
#   make docs                 the documentation site, into build/site
#   make explore SECONDS=60 [SEED=…] [WAYS=run,sessions,restore,migrate,spark]   generated queries against DuckDB
#   make bench [WORK=name]    our numbers beside the peers', into bench/out/latest.json
#   make clean                removes what the targets above have made

SHELL := /bin/bash
.DEFAULT_GOAL := test
.PHONY: demo test test-fast test-connectors check lint types layers docs explore bench clean setup

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
WORK  ?=
ARGS  ?=
WAYS  ?= run,sessions,restore
SEED  ?=
CASE  ?=
# bash counts up a variable of this name, so only one that was given to make is taken
SECONDS_ := $(if $(filter command line,$(origin SECONDS)),$(SECONDS),60)

# Compiled loops are kept here, so that they are compiled once.  Each is known by its code and that of all functions
# that are written into it: a change of the source makes nothing wrong.
export NUMBA_CACHE_DIR := $(CURDIR)/.cache/numba
# Tests start about two hundred Pythons: what they import is compiled once, whatever the caller's shell says.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export NO_MKDOCS_2_WARNING := 1

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

PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder

# The checks take seconds and the tests minutes: the first check that fails ends the run.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 check
	$(PYTEST) $(ARGS)

test-fast: $(STAMP)
	$(PYTEST) -m 'not spark and not slow and not property and not docs' $(ARGS)

# Maven copies the jars of a broker; without it, or without a network, the tests that need one are left out.
KAFKA_JARS := .cache/kafka

test-connectors: $(STAMP)
	@ls $(KAFKA_JARS)/kafka_2.13-*.jar >/dev/null 2>&1 \
	  || mvn -q -B -f tests/connectors/broker/pom.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(KAFKA_JARS) \
	  || echo "left out: the tests with a Kafka broker, because mvn could not fetch its jars"
	$(BIN)/python -m pytest -q -m 'slow or not slow' -rs tests/connectors $(ARGS)

check: lint types layers

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports --config layers.toml --cache-dir .cache/import_linter

$(DOCS_STAMP): $(STAMP)
	@echo "installing the documentation tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet -e '.[docs]' -c constraints.txt
	@touch $@

docs: $(DOCS_STAMP)
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "open build/site/index.html"

explore: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m generated --seconds $(SECONDS_) --ways $(WAYS) $(if $(SEED),--seed $(SEED)) \
	  $(if $(CASE),--case $(CASE)) $(ARGS)

bench: $(STAMP)
	$(BIN)/python bench/run.py $(WORK) $(ARGS)

clean:
	rm -rf $(VENV) .cache bench/out build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
