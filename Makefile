# Every target is a line or two; `setup` makes .venv, and the others call it first.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
export PYTHONPATH :=
# Where it is set, every process that a test starts compiles what it imports: seconds for Spark's.
export PYTHONDONTWRITEBYTECODE :=
# Several files at a time: many tests wait for a JVM, and keep no core busy meanwhile; those of
# `compat` and the long ones of `nightly` wait half of their time. They start in the order that tests/conftest.py gives them, not that
# of how many tests are in each.
FILES := 3
compat nightly: FILES := 4
SIDE_BY_SIDE = -n $(FILES) --dist loadfile --no-loadscope-reorder --durations 10 --durations-min 10

# What a wheel has: the request path compiled.
COMPILED := PYTHONPATH=$(CURDIR)/build/compiled $(BIN)/python

.PHONY: report-card release bench-controller bench-estimate bench-frames bench-groups bench-order bench-replication bench-stalls bench-transactions bench-whatif simulate docs help setup lock run test compiled compat nightly lint format bench bench-cold bench-large bench-log bench-broker
help:          ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/'
setup:         ## make .venv with the `cordwood` command, and what the tests need
	@$(PYTHON) tools/setup.py
lock:          ## refresh requirements/dev.lock from pyproject.toml
	$(BIN)/uv pip compile -q --universal --generate-hashes --no-header --all-extras --group dev --group docs pyproject.toml -o requirements/dev.lock
run: setup     ## clean a copy of the log directory that ships with the project, and show it
	@$(BIN)/python tools/demo.py
test: setup lint  ## lint and the tests of every change, in ten minutes
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) --randomly-seed=1 -m "not compat and not nightly"
compiled: setup  ## compile the request path, as a wheel has it, into build/compiled
	-@$(BIN)/python tools/build_modules.py build/compiled
compat: compiled  ## the rest of CI, over the compiled form: comparisons with Kafka and its clients, Spark
	@$(COMPILED) -m pytest $(SIDE_BY_SIDE) --randomly-seed=1 -m "compat or both"
# The day's number: tests with the mark `rotated` run in one of four nights. NIGHT=all runs them all.
NIGHT ?= $(shell echo $$(($$(date +%s) / 86400)))
nightly: export CORDWOOD_NIGHT := $(NIGHT)
nightly: setup lint  ## every test, in its full form; of long lists of seeds the quarter of the day
	@$(BIN)/python -m pytest $(SIDE_BY_SIDE) --report-log build/nightly.jsonl -m "nightly or not nightly"
simulate: setup  ## run a seed of the simulation, and show its history: SEED=17 BUG=a_planted_one
	@cd tests && ../$(BIN)/python -W ignore -m support.simulation $(or $(SEED),0) $(if $(BUG),--bug $(BUG))
report-card: compiled  ## run clients' tests at cordwood serve and a real Kafka, and write docs/report-card.md
	@$(BIN)/python tools/report_card.py
release: setup ## build and check what is published, into dist: the sdist, a plain wheel, a compiled one for each Python
	@$(BIN)/python tools/release.py
docs: setup    ## build the site of docs/ into build/site, and manual pages into build/man; a broken link fails
	@$(BIN)/mkdocs build --strict && $(BIN)/python tools/man_pages.py build/man
lint: setup    ## ruff, mypy, import contracts, import cycles
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check . && $(BIN)/python tools/import_cycles.py && $(BIN)/mypy --no-error-summary && $(BIN)/lint-imports --verbose >/dev/null || ($(BIN)/lint-imports; exit 1)
format: setup  ## let ruff mend what it can
	@$(BIN)/ruff check -q --fix . ; $(BIN)/ruff format -q .
bench: compiled   ## compare with Kafka's own cleaner
	@$(COMPILED) benchmarks/bench_clean.py
bench-cold: compiled  ## time single commands from a shell beside a Kafka that is started for it
	@$(COMPILED) benchmarks/bench_cold.py
bench-large: compiled  ## time the cleaning of 40 GB beside plain reads and writes
	@$(COMPILED) benchmarks/bench_large.py
bench-log: compiled  ## compare the log with plain files, and with Kafka's start
	@$(COMPILED) benchmarks/bench_log.py
bench-broker: compiled  ## compare the broker with Kafka, by Kafka's own performance tools
	@$(COMPILED) benchmarks/bench_broker.py
bench-controller: compiled  ## compare a controller with many partitions with Kafka's: creation, failover, memory
	@$(COMPILED) benchmarks/bench_controller.py
bench-estimate: compiled  ## compare the estimate of a dry run with what --exact measures
	@$(COMPILED) benchmarks/bench_estimate.py
bench-frames: compiled  ## compare full scans of DataFrames with Spark's Kafka source and Parquet
	@$(COMPILED) benchmarks/bench_frames.py
bench-whatif: compiled  ## compare the time that whatif says a cleaning takes with that of the cleaning
	@$(COMPILED) benchmarks/bench_whatif.py
bench-groups: compiled  ## compare groups with Kafka's: commits, joins, loads
	@$(COMPILED) benchmarks/bench_groups.py
bench-order: compiled  ## count what the orders of cleaning read until most is freed
	@$(COMPILED) benchmarks/bench_order.py
bench-replication: compiled  ## compare replication with Kafka's: acks=all, catch-up, failover
	@$(COMPILED) benchmarks/bench_replication.py
bench-stalls: compiled  ## show what other clients notice of one client's large request, beside a Kafka
	@$(COMPILED) benchmarks/bench_stalls.py
bench-transactions: compiled  ## compare transactions with Kafka's: rate, latency, load
	@$(COMPILED) benchmarks/bench_transactions.py
