# The front door. `make` lists what can be done; nothing needs to be installed first but python3 (3.11+) and make.

SHELL := /bin/bash
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
# Spark's Python workers must be the interpreter that has our dependencies.
export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Workers and slots import functions of tests and examples by their module's name.
export PYTHONPATH := $(CURDIR)

.DEFAULT_GOAL := help
.PHONY: help setup java browser kafka hdfs reference demo dist docs test test-fast chaos chaos-kafka chaos-spark lint format bench bench-full bench-state bench-runtime bench-checkpoint bench-coordinator bench-recovery bench-evolution bench-query bench-page bench-web bench-latency bench-kafka bench-barriers clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## create .venv, install everything, find or install Java 17+
	@scripts/setup.sh

java: setup
	@scripts/ensure_java.sh

browser: setup
	@scripts/ensure_browser.sh

kafka: java
	@scripts/ensure_kafka.sh

hdfs: java
	@scripts/ensure_hdfs.sh

demo: java ## run the guided demonstration on a local Spark
	$(PY) -m tidemark.demo

reference: setup
	@$(PY) scripts/fetch_pyflink.py

test test-fast chaos: export TMPDIR := $(shell scripts/test_tmp.sh)

test: java browser kafka hdfs reference ## run every test: first those without a JVM, in parallel, then those on Spark
	$(PYTEST) -n 3 -m "not spark and not cluster and not hdfs"
	$(PYTEST) -p no:xdist -m "spark or cluster or hdfs"

test-fast: setup reference ## run the tests that need neither a JVM nor a browser nor a broker
	$(PYTEST) -n 2 -m "not spark and not cluster and not slow and not browser and not kafka and not hdfs"

# A new seed each time; the same one again with `make chaos SEED=...`. FACTOR times the examples of `make test`.
ifndef SEED
SEED := $(shell shuf -i 1-999999999 -n 1)
endif
FACTOR ?= 10
CHAOS := tests/property tests/recovery/test_random_schedules.py tests/recovery/test_threaded_chaos.py \
	tests/recovery/test_file_sink.py tests/programs/test_rule_matching.py tests/unit/state_processor/test_damage.py tests/storages/test_jobs.py

chaos: setup hdfs ## search at random for what breaks (no JVM; SEED=n replays, FACTOR=n times make test)
	@echo "make chaos SEED=$(SEED) FACTOR=$(FACTOR)"
	TIDEMARK_CHAOS=$(SEED) TIDEMARK_CHAOS_FACTOR=$(FACTOR) $(PYTEST) -n 2 --hypothesis-seed=$(SEED) $(ARGS) $(CHAOS) \
		|| { echo "again: make chaos SEED=$(SEED) FACTOR=$(FACTOR)"; exit 1; }

chaos-kafka: kafka ## kill drivers and brokers over commits of the Kafka sink (SEED=n replays, KILLS=n, FIRST=n)
	$(PY) -m tests.kafka.campaign --seed $(SEED) --kills $(or $(KILLS),100) --first $(or $(FIRST),0)

chaos-spark: java ## kill and freeze what jobs on Spark consist of (SEED=n, KILLS=n, ONLY="slot ...", MODE=epochs, BACKEND=rocksdb)
	$(PY) -m tests.integration.spark_chaos --seed $(SEED) --kills $(or $(KILLS),20) --mode $(or $(MODE),continuous) \
		--backend $(or $(BACKEND),heap) $(if $(ONLY),--only $(ONLY))

.PHONY: soak
soak: java ## run jobs on Spark for an hour and say what of them grows (ARGS="--minutes 60 --backend both --rate 2000")
	$(PY) -m tests.soak.campaign $(ARGS)

lint: setup ## check style, formatting and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: setup ## rewrite the sources in the project's format
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

bench: java ## compare with PyFlink, Spark's own state and Bytewax, quickly (report in benchmarks/results)
	$(PY) benchmarks/run.py --mode quick

bench-full: java ## the same with every case and every query; takes hours
	$(PY) benchmarks/run.py --mode full

bench-state: setup ## benchmark the state backends
	$(PY) benchmarks/bench_state.py

.PHONY: bench-columns
bench-columns: setup ## benchmark state by column beside state by record
	$(PY) benchmarks/bench_columns.py

.PHONY: bench-totals
bench-totals: java ## running totals per key: both styles of state beside Flink in Java and a bare loop
	$(PY) benchmarks/bench_totals.py

.PHONY: bench-styles
bench-styles: setup ## where each style wins: rates of a slot against keys and sizes of batches, with a plot
	$(PY) benchmarks/bench_styles.py

.PHONY: bench-nexmark
bench-nexmark: java ## Nexmark: our queries by record and by column beside Flink SQL in the JVM
	$(PY) benchmarks/bench_nexmark.py

.PHONY: bench-transform
bench-transform: java ## running totals per key on RocksDB beside Spark's transformWithState in Scala
	$(PY) benchmarks/bench_transform.py

.PHONY: bench-growth
bench-growth: java ## rates against keys, bytes of state, slots and depth, with a plot
	$(PY) benchmarks/bench_growth.py

.PHONY: bench-window
bench-window: java ## benchmark windows: by record, by column, beside Spark's own streaming aggregation
	$(PY) benchmarks/bench_window.py
	$(PY) benchmarks/bench_window_spark.py

.PHONY: bench-start
bench-start: java ## benchmark the first minute: from `python job.py` to the first record
	$(PY) benchmarks/bench_start.py

bench-latency: java ## benchmark latency: continuous beside epochs and PyFlink
	$(PY) benchmarks/bench_latency.py

bench-barriers: java ## benchmark barriers: checkpoints of a million keys, alignment under back-pressure
	$(PY) benchmarks/bench_barriers.py

bench-kafka: kafka ## benchmark the Kafka connectors against a broker
	$(PY) benchmarks/bench_kafka.py

bench-runtime: java ## benchmark whole jobs on Spark
	$(PY) benchmarks/bench_runtime.py

bench-checkpoint: java ## benchmark checkpoints, restore and rescaling
	$(PY) benchmarks/bench_checkpoint.py

bench-coordinator: setup ## benchmark the driver's load with 10,000 simulated slots
	$(PY) benchmarks/bench_coordinator.py

bench-recovery: java ## benchmark the time from a slot's death until a million keys are back
	$(PY) benchmarks/bench_recovery.py

bench-evolution: setup ## benchmark schema evolution of a million keys
	$(PY) benchmarks/bench_evolution.py

bench-web: setup ## benchmark the web server: large jobs, and what looking costs
	$(PY) benchmarks/bench_web.py

bench-query: java ## benchmark queryable state
	$(PY) benchmarks/bench_query.py

bench-page: browser ## benchmark the web page with a large job in a browser
	$(PY) benchmarks/bench_page.py

dist: setup ## build wheel and source distribution into dist/, reproducibly
	@$(PY) scripts/make_dist.py

docs: setup ## build the documentation site into build/site; open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo build/site/index.html

clean: ## remove .venv, caches and build products
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
