# Every target sets up what it needs from an empty clone: the first one makes .venv.
#
#   make demo                 the main job, live in the terminal
#   make test                 lint, format, types, layers, then all tests but long ones; ARGS="-k join" narrows them
#   make test-all             the same with all cases, and all tests on Spark that take less than a minute or two
#   make test-fast            the tests without a JVM, without property tests and without those of documents
#   make test-connectors      all tests of connectors, the slow ones too, with a real Kafka broker where mvn can fetch it, and
#                             Spark's own Kafka source and Delta's with a PySpark that mvn has their packages for
#   make test-page            the page in a real Chromium ($EVERWHEN_CHROMIUM, else chromium on the path), the slow tests
#                             too; PICTURES=docs/pictures keeps the pictures that they make
#   make check                lint, format, types, layers
#   make docs                 the documentation site, into build/site
#   make explore SECONDS=60 [SEED=…] [WAYS=run,sessions,restore,migrate,spark]   generated queries against DuckDB
#   make bench [WORK=name]    our numbers beside the peers', into bench/out/latest.json
#   make clean                removes what the targets above have made

SHELL := /bin/bash
.DEFAULT_GOAL := test
.PHONY: demo test test-all test-fast test-connectors test-page check lint types layers docs explore bench clean setup

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
WORK  ?=
ARGS  ?=
PICTURES ?=
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
	$(BIN)/everwhen demo $(ARGS) --page

# Three on two cores: tests on Spark and those that kill processes wait more than they work.
PYTEST := $(BIN)/python -m pytest -q -n 3 --dist loadscope --no-loadscope-reorder

# The checks take seconds and the tests minutes: the first check that fails ends the run.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 check
	$(PYTEST) $(ARGS)

test-all: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 check
	EVERWHEN_EXAMPLES=12 $(PYTEST) -m 'not slow' $(ARGS)

test-fast: $(STAMP)
	$(PYTEST) -m 'not spark and not slow and not seldom and not property and not docs' $(ARGS)

# Maven copies the jars of a broker, and of Spark's Kafka and Delta packages.  It does not have both for every Spark: the
# tests that need them run in a virtualenv of their own, with the newest Spark of which it has both, and with some others
# that use what differs between Sparks.  Without Maven, a network or these versions they are left out.
KAFKA_JARS := .cache/kafka
SPARK_JARS := .cache/spark-jars
JARS_SPARK := 4.2.0
JARS_DELTA := 4.4.0
JARS_TOKEN := 4.0.0
JARS_VENV  := .cache/spark-$(JARS_SPARK)-venv
JARS_STAMP := $(SPARK_JARS)/.spark-$(JARS_SPARK)-delta-$(JARS_DELTA)
JARS_TESTS := tests/connectors/spark_jars $(patsubst %,tests/spark/test_%.py,\
  plan_cache plain_rows spark_job lost_jvm changelog_stream connectors_on_spark)
MVN_COPY   := mvn -q -B dependency:copy-dependencies
MVN_SPARK  := $(MVN_COPY) -f tests/connectors/spark_jars/pom.xml -DincludeScope=runtime \
  -DoutputDirectory=$(CURDIR)/$(SPARK_JARS) -Dspark=$(JARS_SPARK) -Ddelta=$(JARS_DELTA) -Ddelta.for=$(basename $(JARS_SPARK))
LEFT_OUT   := left out: the tests with Spark's own Kafka source and with Delta's, because

test-connectors: $(STAMP)
	@ls $(KAFKA_JARS)/kafka_2.13-*.jar >/dev/null 2>&1 \
	  || $(MVN_COPY) -f tests/connectors/broker/pom.xml -DoutputDirectory=$(CURDIR)/$(KAFKA_JARS) \
	  || echo "left out: the tests with a Kafka broker, because mvn could not fetch its jars"
	$(BIN)/python -m pytest -q -m 'slow or not slow' -rs tests/connectors --ignore tests/connectors/spark_jars $(ARGS)
	@$(MAKE) -s --no-print-directory $(JARS_VENV)/.installed 2>/dev/null || true
	@[ ! -e $(JARS_VENV)/.installed ] || { echo "with PySpark $(JARS_SPARK):"; \
	  $(JARS_VENV)/bin/python -m pytest -q -m 'slow or not slow' -rs $(JARS_TESTS) $(ARGS); }

# Maven has the token provider, which the Kafka source cannot do without, of fewer versions than the source itself.
$(JARS_STAMP):
	@rm -rf $(SPARK_JARS); $(MVN_SPARK) >/dev/null 2>&1 || { $(MVN_SPARK) -Dtoken=$(JARS_TOKEN) >/dev/null 2>&1 \
	  && echo "mvn has no Kafka token provider for Spark $(JARS_SPARK): that of $(JARS_TOKEN) is taken"; } \
	  || { echo "$(LEFT_OUT) mvn could not fetch their jars for Spark $(JARS_SPARK)"; exit 1; }
	@touch $@

$(JARS_VENV)/.installed: $(STAMP) $(if $(EVERWHEN_SPARK_JARS),,$(JARS_STAMP))
	@echo "installing with PySpark $(JARS_SPARK) into $(JARS_VENV)"; mkdir -p $(JARS_VENV); \
	sed 's/^pyspark==.*/pyspark==$(JARS_SPARK)/' constraints.txt >$(JARS_VENV)/constraints.txt; \
	{ $(BIN)/python -m venv $(JARS_VENV) \
	  && $(JARS_VENV)/bin/python -m pip install --quiet -e '.[dev]' -c $(JARS_VENV)/constraints.txt; } \
	  || { echo "$(LEFT_OUT) pip could not install PySpark $(JARS_SPARK)"; exit 1; }
	@touch $@

test-page: $(STAMP)
	EVERWHEN_PICTURES=$(PICTURES) EVERWHEN_EXAMPLES=200 $(BIN)/python -m pytest -q -m 'slow or not slow' -rs tests/serve $(ARGS)
	EVERWHEN_PICTURES=$(PICTURES) $(BIN)/python -m pytest -q -m 'slow or not slow' -rs tests/spark/test_spark_page.py $(ARGS)

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
