# Two commands matter: make demo, make test. Both make a virtual environment in .venv first, once.

PYTHON ?= python3
VENV ?= .venv
# PyTorch drives CPU ranks. Its build without CUDA is a tenth of the size; where pip is set up to find it, it is enough.
TORCH ?= torch==2.13.0
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Prints a dependency group; pip reads those itself only from 25.1 on, and Debian 12 has 23.0.
GROUP = $(BIN)/python -c 'import sys, tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"][sys.argv[1]], sep="\n")'

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench dist clean

help:
	@echo "make demo    fabtui on a lab of two nodes on this machine, with one dead and one slow pair"
	@echo "make test    all tests (ARGS='tests/unit -x' for some)"
	@echo "make lint    ruff, mypy, import-linter, vermin"
	@echo "make bench   the benchmarks"
	@echo "make dist    the wheel and the sdist, in dist/"
	@echo "make clean   takes away what these made"

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fabtui needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "the module venv is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	$(PIP) install --quiet $(TORCH)
	$(PIP) install --quiet --editable '.[torch,serve]'
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@$(GROUP) test > $(VENV)/test.txt
	$(PIP) install --quiet --requirement $(VENV)/test.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@$(GROUP) dev > $(VENV)/dev.txt
	$(PIP) install --quiet --requirement $(VENV)/dev.txt
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/fabtui --lab 2x4 --lab-fault 'n000:1>n001:2=drop' --lab-fault 'n000:3>n001:0=slow:20MB' $(ARGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vermin --quiet --no-tips --violations -t=3.8- probes

# What the benchmarks are made of.
BENCH_PARTS := $(patsubst %,bench/%.py,fanclient framecost gridapps loopback othergrids played synthetic terminal)
bench: $(VENV)/.test
	for script in $(filter-out $(BENCH_PARTS),$(wildcard bench/*.py)); do $(BIN)/python $$script || exit 1; done

dist: $(VENV)/.dev
	$(BIN)/python -m build

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
