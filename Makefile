# Everything that a clone needs. The first `make demo` or `make test` sets up a virtual environment in .venv from
# requirements-dev.lock, and downloads the pinned jars into a cache outside the tree. Afterwards no target needs a
# network, unless it says so.
#
#   make demo          a demonstration on real servers, with pictures and numbers in build/demo
#   make demo-standalone   the same without YARN, on a pool of processes, in build/demo-standalone
#   make test          the gate, which CI runs: lint, types, imports, generated pages, then the phases of docs/testing.md
#   make test-all      the same with every other case on real servers: before you close an issue
#   make soak          random and long tests, and measurements
#   make unit          only the tests that need no server
#   make stalls        the tests of threads, each of which stands still at random: STALLS=7 for another seed
#   make simulate      random faults in virtual time: SEEDS=100000, or a range such as SEEDS=5000-6000; JOBS=2 processes
#   make mutants       small changes of the pure parts that no test notices: all, or MUTANTS=standby/replica/claim.py; hours
#   make prometheus    download Debian's Prometheus into the cache, for the tests that use a real one (needs a network)
#   make skein         rebuild Skein's jar (third_party/skein; needs Maven and a network)
#   make sbom          regenerate the list of all components and their licences, after a change of a lock
#   make scan          check the locked releases against a database of known vulnerabilities (needs a network)
#   make lock          pin the newest allowed versions of the Python packages (needs uv on the PATH)
#
# PYTHON=/path/to/python3.11 selects the Python for the virtual environment.
# PYTEST_OPTIONS='-k name -x' is passed to pytest.

MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo demo-standalone test test-all soak venv jars archive prometheus lint format types imports pages unit stalls simulate mutants lock skein sbom scan clean check-python check-java

# Where nothing keeps what is compiled, each of a test's many processes would compile the whole project again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PYTEST_OPTIONS ?=

# The newest suitable Python, unless PYTHON names one. Each candidate is run: with pyenv a name may exist and not run.
FITS := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 11))
PYTHON ?= $(shell for each in python3.11 python3.10 python3 python; do \
	if $$each -c '$(FITS)' 2>/dev/null; then command -v $$each; break; fi; done)

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^The newest/,$$d'

demo: jars archive
	$(BIN)/python -m demo

demo-standalone: jars archive
	$(BIN)/python -m demo --on pool

test: lint types imports pages jars archive prometheus
	$(BIN)/python -m tests.phases gate -- $(PYTEST_OPTIONS)

test-all: lint types imports pages jars archive prometheus
	$(BIN)/python -m tests.phases all -- $(PYTEST_OPTIONS)

soak: jars archive prometheus
	$(BIN)/python -m tests.phases soak -- $(PYTEST_OPTIONS)
	$(BIN)/python -m tests.simulation.run 100000 --jobs $(JOBS)

unit: venv
	$(BIN)/python -m pytest tests/unit tests/property tests/simulation tests/scenarios -m 'not acceptance and not soak' \
		--numprocesses 3 --dist worksteal $(PYTEST_OPTIONS)

# Most threads of these wait, so many tests run at once.
STALLS ?= 1
THREADED := tests/unit/standby tests/unit/embedded $(addprefix tests/unit/appmaster/,adapters changes code leadership)

stalls: venv
	$(BIN)/python -m pytest -p tests.stalls --stalls $(STALLS) $(THREADED) -m 'not acceptance and not soak' \
		--numprocesses 16 --dist worksteal $(PYTEST_OPTIONS)

SEEDS ?= 1000
JOBS ?= 2

simulate: venv
	@$(BIN)/python -m tests.simulation.run $(SEEDS) --jobs $(JOBS)

MUTANTS ?=
MUTANTS_PACKAGES := build/mutants/packages

mutants: $(MUTANTS_PACKAGES)/installed
	@nice $(BIN)/python -m tests.mutants $(MUTANTS)

# In a separate directory, so that the environment stays as in its lock.
$(MUTANTS_PACKAGES)/installed: requirements-dev-mutants.lock | venv
	@echo "installing the locked packages of the mutation run into $(MUTANTS_PACKAGES)"
	@rm -rf $(MUTANTS_PACKAGES)
	@$(BIN)/python -m third_party.packages install requirements-dev-mutants.lock --target $(MUTANTS_PACKAGES)
	@touch $@

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.lint_patience

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: venv
	$(BIN)/mypy

imports: venv
	$(BIN)/lint-imports --no-logo

pages: venv
	$(BIN)/python -m docs.generate --check
	$(BIN)/python -m third_party.sbom --check

# If the jars exist, it only compares their sizes.
jars: check-java venv
	@$(BIN)/python -m embedded.jars fetch

# If it exists, this does nothing. The package is unpacked, not installed: it would start a service.
prometheus: check-python
	@$(PYTHON) -m tests.prometheus

# Spark's classes in one file, next to pyspark: it halves the CPU time of each container's JVM start.
archive: $(VENV)/classes-archived

$(VENV)/classes-archived: $(VENV)/packages-installed | check-java
	@echo "archiving Spark's classes, once"
	@$(BIN)/python -m standby.feed.archive
	@touch $@

venv: $(VENV)/standfast-installed

# First the locked packages, each compared with its hash, without resolving; then this project. `pip check` verifies
# that all packages fit together. If one of them fails, the message says whether the lock, the network or the disk is
# at fault (third_party/packages.py).
$(VENV)/packages-installed: requirements-dev.lock | check-python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "make: $(PYTHON) cannot make a virtual environment: install its venv module" \
			"(Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@echo "installing the locked Python packages into $(VENV)"
	@$(BIN)/python -m third_party.packages install requirements-dev.lock
	@touch $@

$(VENV)/standfast-installed: pyproject.toml $(VENV)/packages-installed
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m third_party.packages check requirements-dev.lock
	@touch $@

check-python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.10 or 3.11 on the PATH: install one (Debian 12:" \
		"apt-get install python3 python3-venv) or name it, make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c '$(FITS)' || { echo "make: $(PYTHON) is not Python 3.10 or 3.11 ($$($(PYTHON) --version 2>&1 | head -1))." \
		"Skein needs the distutils that 3.12 dropped. Name another: make PYTHON=/path/to/python3.11" >&2; exit 1; }

check-java: check-python
	@$(PYTHON) -m embedded.java

lock:
	uv pip compile --quiet --universal --generate-hashes --python-version 3.10 --no-emit-index-url --upgrade \
		--custom-compile-command 'make lock' --output-file requirements.lock pyproject.toml
	uv pip compile --quiet --universal --generate-hashes --python-version 3.10 --no-emit-index-url --upgrade \
		--custom-compile-command 'make lock' --constraint requirements.lock --extra dev \
		--output-file requirements-dev.lock pyproject.toml
	uv pip compile --quiet --universal --generate-hashes --python-version 3.10 --no-emit-index-url --upgrade \
		--custom-compile-command 'make lock' --constraint requirements-dev.lock \
		--output-file requirements-dev-mutants.lock requirements-dev-mutants.in

skein: venv
	PYTHON=$(BIN)/python third_party/skein/build.sh

sbom: venv
	$(BIN)/python -m third_party.sbom

scan:
	@third_party/scan.sh

clean:
	rm -rf $(VENV) build dist .coverage .coverage.* htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache \
		.import_linter_cache
