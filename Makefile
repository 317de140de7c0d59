# The two commands that matter are `make demo` and `make test`; each first installs what it needs, once, into one
# environment that grows: `make demo` needs no Spark, `make demo-spark` adds it, `make test` and `make env` add all the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
RUN_STAMP := $(VENV)/.installed-run
SPARK_STAMP := $(VENV)/.installed-spark
STAMP := $(VENV)/.installed

.PHONY: demo demo-compare demo-spark test test-unit test-extended test-rest test-full test-long test-long-kafka test-seeds test-seeds-of-simulation test-seeds-of-offset-map test-kills test-brokers test-seeds-of-workers test-seeds-of-failovers test-product test-versions test-compat compiled lint image-sbom bench bench-engines env lock clean

# The demos run from the source tree, so their environment needs no build tools. They start many processes, so Python
# keeps the bytecode of what they import even where PYTHONDONTWRITEBYTECODE is set.
FROM_SOURCE := env -u PYTHONDONTWRITEBYTECODE PYTHONPATH="$(CURDIR)" $(BIN)/python -m cli.main

demo: $(RUN_STAMP)
	$(FROM_SOURCE) demo $(ARGS)

# What the same kills do to weaker delivery modes.
demo-compare: $(RUN_STAMP)
	$(FROM_SOURCE) demo --compare $(ARGS)

demo-spark: $(SPARK_STAMP)
	$(FROM_SOURCE) demo-spark $(ARGS)

# What each of these holds and how long it takes stands in CONTRIBUTING.md; tests/running/tiers.py says how a test gets into
# one of them. Workers for two cores: tests wait more than they compute, and one worker is with the tests on real Kafka, whose
# brokers take a core while they start. Where there is no Docker there are no such brokers. ARGS chooses tests instead.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest
WORKERS ?= $(shell docker info > /dev/null 2>&1 && echo 4 || echo 6)
# A test that hangs in C code, where its own limit can't interrupt it, ends its worker with the stacks of all threads.
PARALLEL = --dist loadfile --progress -r fE -o faulthandler_timeout=1300 -o faulthandler_exit_on_timeout=true
KAFKA ?= 4.3.0
RECORD ?=

test-unit: $(STAMP)
	$(PYTEST) $(PARALLEL) -n 2 $(RECORD) -m unit $(or $(ARGS),tests)

ifdef ARGS
test: $(STAMP) lint
	$(PYTEST) $(ARGS)
else
test: $(STAMP)
	$(MAKE) -j2 lint compiled
	$(PYTEST) $(PARALLEL) -n $(WORKERS) $(RECORD) -m "unit or default"
endif

# pytest compiles each test file in its own way, and keeps it. In a new clone all workers would do that at the same time.
compiled: $(STAMP)
	$(PYTEST) --collect-only -qq > /dev/null || true

# What CI runs after `make test`.
test-extended: $(STAMP)
	$(PYTEST) $(PARALLEL) -n $(WORKERS) -m extended

# What `make test` leaves out of `make test-full`.
test-rest: $(STAMP)
	$(PYTEST) $(PARALLEL) -n $(WORKERS) $(RECORD) -m "extended or full"

# All parts, one after the other, whatever comes out. How long they took is kept in tests/durations.json, to be committed.
test-full: $(STAMP)
	failed=0; for part in test-unit test test-rest; do $(MAKE) $$part RECORD="--record $$part" || failed=1; \
	$(BIN)/python -m tests.running.table; done; exit $$failed

# All of it, and the searches go far: hours. What came out is kept in tests/long_results.json.
LONG = env EOS_TEST_BUDGET=long $(PYTEST) $(PARALLEL) --timeout 7200 --record-in tests/long_results.json --record
test-long: $(STAMP) lint
	$(LONG) "searches and embedded broker" -n 2 -m "not kafka"
	$(MAKE) test-long-kafka
	$(MAKE) test-versions MINUTES=600

# The seeds of long searches for so many MINUTES each: the embedded broker's simulation, the offset map, and reconcile without
# Spark and with it. A run goes on where the last one ended; what has passed with older code counts on, under its commit, unless the
# test itself has changed. tests/long_results.json says what came out, and how many tests are left. `make test-seeds-of-simulation` runs the first alone.
MINUTES ?= 30
SEEDS = env EOS_TEST_BUDGET=long $(PYTEST) -q --timeout 7200 --record-in tests/long_results.json --in-parts $(MINUTES) --keep-older --record
SEARCHED = tests/replicator/spark/reconcile
test-seeds-of-simulation: $(STAMP)
	$(SEEDS) "simulation: seeds" tests/embedded_broker/simulation/test_clean_seeds.py

test-seeds: test-seeds-of-simulation test-seeds-of-offset-map
	$(SEEDS) "reconcile: seeds without Spark" $(SEARCHED)/test_histories.py
	$(SEEDS) "reconcile: seeds with repair" integration_tests/spark/test_seeded_repair.py -m "not kafka"
	$(SEEDS) "reconcile: seeds on Spark" $(SEARCHED)/test_histories_on_spark.py $(SEARCHED)/test_generated.py \
	  integration_tests/spark/test_seeded.py -m "not kafka"

# In the same way: histories of the offset map.
test-seeds-of-offset-map: $(STAMP)
	$(SEEDS) "offset map: seeds" tests/model/test_offset_map.py

# In the same way: logs and maps on brokers, to which everything was done that the model knows: verdicts and repair without Spark, and
# what Spark says of them.
MAPPED = integration_tests/proof/test_local.py integration_tests/proof/test_repair.py
test-seeds-of-proof: $(STAMP)
	$(SEEDS) "proof: seeds without Spark" $(MAPPED) -k "no_verdict or what_was_lost or all_sizes" -m "not kafka"
	$(SEEDS) "proof: seeds on Spark" integration_tests/spark/test_by_map.py -k spark_says -m "not kafka"

# In the same way: the seeds of kills on a standalone Spark cluster.
test-kills: $(STAMP)
	$(SEEDS) "kills on a standalone Spark cluster" integration_tests/spark/test_cluster_kills.py -m "not kafka"

# Brokers of real Kafka die in turn, 50 rounds, in parts of so many MINUTES as above.
test-brokers: $(STAMP)
	$(SEEDS) "brokers die in turn" integration_tests/exactly_once/test_brokers_in_turn.py

# In the same way: schedules in which workers share a flow and join, leave, die, stand still and get other files, on the
# embedded broker, on real Kafka, and with three brokers that die, too. Those on the embedded broker are five series of a hundred, which
# mostly wait, so three can run side by side: make -j3 test-series-of-workers-1 test-series-of-workers-2 test-series-of-workers-3
# Those on Kafka are two series of 25.
SCHEDULES = integration_tests/exactly_once/test_workers.py -k any_schedule
test-series-of-workers-%: $(STAMP)
	EOS_WORKERS_SEEDS=$$(seq -s, $$((100 * $* - 99)) $$((100 * $*))) $(SEEDS) "workers: schedules, series $*" $(SCHEDULES) -m "not kafka"
test-series-of-workers-on-kafka-%: $(STAMP)
	EOS_WORKERS_SEEDS=$$(seq -s, $$((25 * $* + 476)) $$((25 * $* + 500))) $(SEEDS) "workers: schedules on Kafka, series $*" $(SCHEDULES) -m kafka
test-seeds-of-workers: $(foreach series,1 2 3 4 5 on-kafka-1 on-kafka-2,test-series-of-workers-$(series))
	$(SEEDS) "workers: schedules with three brokers" integration_tests/exactly_once/test_workers_on_a_cluster.py

# In the same way: failovers at any moment under load, while workers, both brokers and the command die, and on real Kafka.
FAILOVERS = integration_tests/groups/test_failover_seeds.py
test-seeds-of-failovers: $(STAMP)
	EOS_FAILOVER_SEEDS=$$(seq -s, 1 200) $(SEEDS) "failovers: seeds" $(FAILOVERS) -m "not kafka"
	EOS_FAILOVER_SEEDS=$$(seq -s, 501 520) $(SEEDS) "failovers: seeds on Kafka" $(FAILOVERS) -m kafka

# In the same way: what takes long of the product around the data path, on real Kafka: an older version and this one in turn, 50
# changes under load; takeovers from MirrorMaker 2, killed at each write and step; 1,000 subjects with references; chart and image.
test-product: $(STAMP)
	$(SEEDS) "versions in turn on Kafka" integration_tests/exactly_once/test_upgrade.py -m kafka
	$(SEEDS) "takeovers from MirrorMaker 2 on Kafka" integration_tests/test_adopt_mm2_killed.py -m kafka
	$(SEEDS) "schema registry on Kafka" integration_tests/test_schema_registry.py -m kafka
	$(SEEDS) "chart" integration_tests/kubernetes/test_chart.py
	$(SEEDS) "image" integration_tests/test_image.py

# Also with another version, if Docker has its image: make test-long-kafka KAFKA=4.1.0
test-long-kafka: $(STAMP)
	EOS_KAFKA_IMAGE=apache/kafka:$(KAFKA) $(LONG) "Kafka $(KAFKA)" -n 2 -m kafka integration_tests

# In the same way: contract tests and kills on pairs of Kafka's versions and transaction protocols, of which Docker has the images
# (integration_tests/harness/versions.py). tests/version_results.json and docs/operate/kafka-versions.md say what came out.
test-versions: $(STAMP)
	$(BIN)/python -m tests.running.kafka_versions --minutes $(MINUTES)

# In the same way: each client on the embedded broker. tests/compat_results.json and docs/compat.md say what came out.
test-compat: $(STAMP)
	$(BIN)/python -m tests.running.compat_page --minutes $(MINUTES)

lint: $(STAMP)
	began=$$(date +%s); $(BIN)/ruff check .; $(BIN)/ruff format --check .; $(BIN)/mypy --num-workers 2; $(BIN)/lint-imports; \
	echo $$(($$(date +%s) - began)) > $(VENV)/.seconds-lint

# The packages that are installed in an image, as a CycloneDX document. A container that is thrown away looks at them: the image has
# no tool for that. The Debian packages of its base are not in the document.
IMAGE ?= eos-replicate
SBOM ?= dist/image.sbom.json
image-sbom:
	mkdir -p $(dir $(SBOM))
	docker run --rm --user 0 --network host --entrypoint /bin/sh --volume "$(CURDIR)/constraints-sbom.txt:/constraints.txt:ro" $(IMAGE) -euc '\
	  python3 -m venv /tmp/tool; \
	  /tmp/tool/bin/python -m pip install --quiet --require-hashes --no-deps -r /constraints.txt >&2; \
	  /tmp/tool/bin/cyclonedx-py environment --output-reproducible /opt/eos/bin/python' > $(SBOM).part
	mv $(SBOM).part $(SBOM)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

bench-engines: $(STAMP)
	$(BIN)/python -m benchmarks.engines $(ARGS)

env: $(STAMP)

# The pip of the Python that makes the environment installs into it, too, if there is one that can (22.3 or later). An
# environment with a pip of its own takes several seconds longer to make.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=python3.12")'
	if $(PYTHON) -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))' 2>/dev/null; \
	then $(PYTHON) -m venv --without-pip $(VENV); else $(PYTHON) -m venv $(VENV); fi

PIP_INSTALL = $(shell test -x $(BIN)/pip && echo $(BIN)/python -m pip || \
  echo "$$(sed -n 's/^executable = //p' $(VENV)/pyvenv.cfg) -m pip --python $(BIN)/python") \
  install --quiet --disable-pip-version-check --no-compile

# Every package is pinned with its hash. For the demo Python compiles only what is imported. For the tests everything is
# compiled at once, on all cores (pip would use one); a file that isn't valid Python, such as a template, is passed over.

# Packages are installed by two pips, since most of the time goes into looking through the files of each package. They take
# turns with so many parts of the list, into which its packages are dealt out; each package's dependencies are in the list.
BY_TWO_PIPS = rm -f $(VENV)/.part-?; \
  awk '/^[[:alnum:]]/ { packages++ } { print > ("$(VENV)/.part-" packages % $(1)) }' $<; \
  printf '%s\n' $(VENV)/.part-? | xargs -n 1 -P 2 $(PIP_INSTALL) --require-hashes --no-deps -r

$(RUN_STAMP): constraints-run.txt | $(BIN)/python
	$(call BY_TWO_PIPS,2)
	touch $@

$(SPARK_STAMP): constraints-spark.txt | $(BIN)/python
	$(PIP_INSTALL) --require-hashes -r $<
	touch $(RUN_STAMP) $@

# Of the packages, what nothing here imports, or what is compiled to machine code: half of all sources.
UNUSED := /(tests|mypy|mypyc|setuptools|lexers)/

$(STAMP): constraints.txt pyproject.toml | $(BIN)/python
	date +%s > $(VENV)/.began
	$(call BY_TWO_PIPS,6)
	$(BIN)/python -m compileall -qq -j 0 -x '$(UNUSED)' $(VENV)/lib || true
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	echo $$(($$(date +%s) - $$(cat $(VENV)/.began))) > $(VENV)/.seconds-environment
	touch $(RUN_STAMP) $(SPARK_STAMP) $@

# Resolve again: for maintainers, needs uv. The two smaller lists are parts of the whole one, with the same versions.
LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet
lock:
	$(LOCK) --all-extras -o constraints.txt
	$(LOCK) --constraints constraints.txt --no-annotate -o constraints-run.txt
	$(LOCK) --constraints constraints.txt --no-annotate --extra spark -o constraints-spark.txt
	printf 'mkdocs\nmkdocs-material\n' | $(subst pyproject.toml,-,$(LOCK)) --constraints constraints.txt --no-annotate -o constraints-site.txt
	printf 'hatchling\nhatch-vcs\nsetuptools-scm\n' | $(subst pyproject.toml,-,$(LOCK)) --constraints constraints.txt --no-annotate -o constraints-build.txt
	echo cyclonedx-bom | $(subst pyproject.toml,-,$(LOCK)) --constraints constraints.txt --no-annotate -o constraints-sbom.txt

clean:
	rm -rf $(VENV)
