# Two commands matter: make demo, make test. Both make a virtual environment in .venv first, once.

PYTHON ?= python3
VENV ?= .venv
# PyTorch drives CPU ranks. Its build without CUDA is a tenth of the size; where pip is set up to find it, it is enough.
# The lock has no hashes of it, as each build has its own.
TORCH ?= $(shell grep '^torch==' requirements.lock)
CORES = $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
# Test processes. Tests of the screen and of sessions wait half of their time, so there are twice as many as cores.
JOBS ?= $(shell expr 2 '*' $(CORES))
# Compiled modules are kept: tests start hundreds of interpreters, and compiling is most of what these do.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The versions that the tests passed with, with the hashes of their files; `make LOCKED=` takes the newest, unchecked.
LOCKED ?= requirements.lock
ifneq ($(LOCKED),)
PART = sed -n '/^\# $(1)$$/,/^\# /p' $(LOCKED)
# A source distribution would be built with packages that no hash stands for.
CHECKED = --require-hashes --no-deps --only-binary :all:
else
PART = $(BIN)/python tools/write_lock.py --declared $(1)
endif
# Installs what a part of the lock holds.
define install
@$(call PART,$(1)) > $(VENV)/$(1).txt
@$(PIP) install --quiet $(CHECKED) --requirement $(VENV)/$(1).txt
endef

.DEFAULT_GOAL := help
.PHONY: help demo replay fabric test test-fast lint docs images recordings reference bench dist check-release release check-dependencies audit lock clean

help:
	@echo "make demo       fabtui on a lab of two nodes on this machine, with one dead and one slow pair"
	@echo "make replay     a recorded session on real GPUs; needs neither PyTorch nor a node"
	@echo "make fabric     512 GPUs: a synthetic session with a dead NIC, a slow node, a cut rack and a lost node"
	@echo "make test       all tests (ARGS='tests/unit -x' for some)"
	@echo "make test-fast  the unit tests, in under a minute"
	@echo "make lint       ruff, mypy, import contracts, cycles, language, Python 3.8 on the node side, bandit, advisories"
	@echo "make docs       the documentation as a site in build/site, with a link check"
	@echo "make images     the pictures of the documentation, from recordings"
	@echo "make recordings the sessions that ship, on a machine with GPUs, in build/recordings"
	@echo "make reference  the tables in docs/reference, from the declarations in the code"
	@echo "make bench      the benchmarks"
	@echo "make dist       the wheel, the sdist, fabtui.pyz, its parts as fabtui.cdx.json, and SHA256SUMS, in dist/"
	@echo "make release    lint, all tests, dist, and its files checked and installed in each way"
	@echo "make check-dependencies   the tests with the lowest and with the newest dependencies"
	@echo "make lock       requirements.lock, from pyproject.toml (ARGS=--upgrade for the newest versions)"
	@echo "make audit      the known vulnerabilities of all packages in requirements.lock, asked over the network"
	@echo "make clean      remove what these made"

# Makes a file below, one make at a time: another one that runs at the same time waits, and finds it made.
define ready
@mkdir -p $(VENV) && flock $(VENV)/.lock $(MAKE) --silent $(1)
endef

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fabtui needs Python 3.11 or newer; try: make PYTHON=python3.11 demo" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "the module venv is missing; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

# The app alone, without PyTorch. No other stamp installs it.
$(VENV)/.app: $(VENV)/.python pyproject.toml requirements.lock
	@echo "installing fabtui in $(VENV), once; half a minute"
	$(call install,app)
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed: $(VENV)/.app
	@echo "installing PyTorch for CPU ranks in $(VENV), once; this takes minutes"
	$(call install,installed)
	@$(PIP) install --quiet $(TORCH)
	@touch $@

$(VENV)/.test: $(VENV)/.installed
$(VENV)/.dev: $(VENV)/.test
$(VENV)/.docs $(VENV)/.release: $(VENV)/.dev
# What the hosted workflow runs beside lint and tests.
$(VENV)/.hosted: $(VENV)/.python requirements.lock

$(VENV)/.test $(VENV)/.dev $(VENV)/.docs $(VENV)/.release $(VENV)/.hosted: $(VENV)/.%:
	$(call install,$*)
	@touch $@

# The faults are planted, so exit code 1 (something is bad) is the expected one.
demo:
	$(call ready,$(VENV)/.installed)
	@$(BIN)/fabtui --lab 2x4 --lab-fault 'n000:1>n001:2=drop' --lab-fault 'n000:3>n001:0=slow:20MB' $(ARGS) || [ $$? -eq 1 ]

replay:
	$(call ready,$(VENV)/.app)
	@$(BIN)/fabtui replay --demo $(ARGS) || [ $$? -eq 1 ]

build/fabric.jsonl.gz: bench/synthetic.py
	@echo "making up a session of 512 GPUs, with 261,632 pairs, once" && mkdir -p build && rm -f $@ $@.part
	@$(BIN)/python bench/synthetic.py $@.part --nodes 64 --rate 13000 > /dev/null
	@mv $@.part $@

fabric:
	$(call ready,$(VENV)/.app)
	$(call ready,build/fabric.jsonl.gz)
	@$(BIN)/fabtui replay build/fabric.jsonl.gz $(ARGS) || [ $$? -eq 1 ]

ifdef ARGS
test:
	$(call ready,$(VENV)/.test)
	$(BIN)/python -m pytest $(ARGS)
else
test:
	$(call ready,$(VENV)/.test)
	$(BIN)/python tools/run_tests.py $(JOBS)
endif

test-fast:
	$(call ready,$(VENV)/.test)
	@$(BIN)/python tools/run_tests.py compile
	$(BIN)/python -m pytest --forks $(JOBS) -m "not slow and not fuzz" tests/unit $(ARGS)

# All parts run side by side, the longest first; each prints at its end, and a failed one stops no other.
LINT := mypy bandit language vermin imports house weight docs codespell ruff format contracts lock
.PHONY: $(LINT:%=lint-%)
lint:
	$(call ready,$(VENV)/.dev)
	@$(MAKE) --no-print-directory --jobs $(CORES) --output-sync=target --keep-going $(LINT:%=lint-%)

lint-mypy:
	$(BIN)/mypy
lint-bandit:
	$(BIN)/bandit --quiet --configfile pyproject.toml --recursive fabtui probes tools docs
lint-language:
	$(BIN)/python tools/check_language.py
lint-vermin:
	$(BIN)/vermin --quiet --no-tips --violations -t=3.8- probes
lint-imports:
	$(BIN)/python tools/check_imports.py
lint-house:
	$(BIN)/python tools/measure_house.py
lint-weight:
	$(BIN)/python tools/weight.py --check
lint-docs:
	$(BIN)/python tools/generate_docs.py --check
lint-codespell:
	$(BIN)/codespell
lint-ruff:
	$(BIN)/ruff check .
lint-format:
	$(BIN)/ruff format --check .
lint-contracts:
	$(BIN)/lint-imports
lint-lock:
	$(BIN)/python tools/check_lock.py

reference:
	$(call ready,$(VENV)/.test)
	$(BIN)/python tools/generate_docs.py

docs:
	$(call ready,$(VENV)/.docs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

images:
	$(call ready,$(VENV)/.app)
	$(BIN)/python docs/make_images.py
	$(BIN)/python docs/make_animation.py
	$(BIN)/fabtui report recordings/h200x4-lab-2x2-faults.jsonl.gz --svg docs/images/matrix.svg --mode value || [ $$? -eq 1 ]

# The sessions that ship, again: on a machine with two or more GPUs and PyTorch.
recordings:
	$(call ready,$(VENV)/.installed)
	PYTHON=$(abspath $(BIN))/python tools/record.sh build/recordings

# What the benchmarks are made of, and one that needs the sources of other projects.
BENCH_PARTS := $(patsubst %,bench/%.py,fanclient known_errors loopback played synthetic terminal)
bench:
	$(call ready,$(VENV)/.test)
	for script in $(filter-out $(BENCH_PARTS),$(wildcard bench/*.py)); do $(BIN)/python $$script || exit 1; done

# The same commit gives the same bytes: nothing in these files depends on the time or the folder.
dist:
	$(call ready,$(VENV)/.release)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python tools/build_zipapp.py dist/*.whl dist/fabtui.pyz
	$(BIN)/python tools/write_sbom.py dist/fabtui.cdx.json
	cd dist && sha256sum *.whl *.tar.gz *.pyz *.cdx.json > SHA256SUMS

check-release:
	$(call ready,$(VENV)/.release)
	$(BIN)/python tools/check_release.py
	$(BIN)/python tools/check_installs.py

release: lint test dist check-release

# The tests with the oldest direct dependencies that pyproject.toml allows, and with the newest.
check-dependencies:
	$(call ready,$(VENV)/.hosted)
	$(BIN)/python tools/check_dependencies.py $(ARGS)

# pip-audit takes hashes of all packages or of none, and one version of each: the lowest of all, then the highest.
audit:
	$(call ready,$(VENV)/.hosted)
	@for order in V rV; do \
		grep -o '^[a-z0-9-]*==[^ ]*' requirements.lock | sort -$$order | sort -su -t= -k1,1 > $(VENV)/pins.txt && \
		$(BIN)/pip-audit --requirement $(VENV)/pins.txt --no-deps --disable-pip || exit 1; \
	done

lock:
	$(call ready,$(VENV)/.test)
	$(BIN)/python tools/write_lock.py $(ARGS) > requirements.lock.new
	mv requirements.lock.new requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
