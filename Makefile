# The two commands that matter are `make demo` and `make test`; both make the environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
STAMP := $(VENV)/.installed

.PHONY: demo demo-spark test test-kafka test-others test-fast lint bench env lock clean

demo: $(STAMP)
	$(BIN)/eos-replicate demo $(ARGS)

demo-spark: $(STAMP)
	$(BIN)/eos-replicate demo-spark $(ARGS)

# Tests on real Kafka mostly wait, so the others run beside them.
ifdef ARGS
test: $(STAMP) lint
	$(BIN)/pytest $(ARGS)
else
test: $(STAMP) lint
	$(MAKE) -j2 test-kafka test-others
endif

# Spark first: the others come to theirs at their end, and two at once are too much for a small machine.
test-kafka: $(STAMP)
	$(BIN)/pytest -m kafka integration_tests/spark 2>&1 | sed -u 's/^/kafka | /'
	$(BIN)/pytest -m kafka --ignore=integration_tests/spark 2>&1 | sed -u 's/^/kafka | /'

test-others: $(STAMP)
	$(BIN)/pytest -m "not kafka"

test-fast: $(STAMP) lint
	$(BIN)/pytest tests $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

env: $(STAMP)

# Every package is pinned with its hash; nothing is resolved at install time.
$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# Resolve again: for maintainers, needs uv.
lock:
	uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --quiet -o constraints.txt

clean:
	rm -rf $(VENV)
