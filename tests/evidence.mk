# What a release owes, what a night owes, and what runs beside a load. Read by the Makefile.

.PHONY: simulate night torture-long evidence torture-spark busy

simulate: N = 1000000
simulate: $(CORE) ## a million seeds of the simulated machine (N=..., JOBS=...)
	PYTHONPATH=tests $(PY) -m simulation -n $(N) -j $(JOBS)

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
night: $(CORE) ## one part of the night, PART=cuts|kills|busy, MINUTES=150; appends to tests/night.jsonl
	@PYTHONPATH=tests $(PY) -m night $(PART) --minutes $(MINUTES)

torture-long: N = 1000000
torture-long: S = 3600
torture-long: export HOLDFAST_EVIDENCE := $(CURDIR)/build/torture-long
torture-long: export PYTHONPATH := tests
torture-long: $(CORE) | tools ## all harnesses with the figures of a night; most of a day (N=1000000, S=3600: fuzz)
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
evidence: $(CORE) | tools ## what a release owes: run every harness, write EVIDENCE.md; at most 60 minutes
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
torture-spark: $(CORE) ## kill driver, JVM, workers and stores in an archive run, N=10 times each of 3 ways
	$(PY) -m pytest -q -n0 -m long tests/spark
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N)
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N) --java pip
	PYTHONPATH=tests $(PY) tests/spark/torture_archive.py --kills $(N) --master 'local-cluster[2,1,1024]'

RUNS = 5
busy: $(CORE) ## make test, RUNS=5 times in a row, beside stress-ng; stops at the first failure
	@command -v stress-ng >/dev/null || { echo "stress-ng is missing: install the Debian package stress-ng"; exit 1; }
	@stress-ng --quiet --cpu 4 --vm 1 --io 1 & load=$$!; trap 'kill $$load 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	    for run in $$(seq $(RUNS)); do \
	        echo "busy: run $$run of $(RUNS)"; $(MAKE) --no-print-directory test || exit 1; \
	        kill -0 $$load || { echo "busy: the load has ended by itself"; exit 1; }; done; \
    echo '{"evidence": "busy", "counts": {"runs": $(RUNS)}, "planted": [0, 0]}'
