# What a release owes, what a night owes (tests/evidence_plan.py has both), and what runs beside a load. Read by the Makefile.

.PHONY: simulate soak night evidence coverage-seeds mutants torture-spark busy delays

simulate: N = 10000
simulate: $(CORE) ## 10,000 seeds of the product in a simulated world (N=..., JOBS=...)
	PYTHONPATH=tests $(PY) -m simulator -n $(N) -j $(JOBS)

PART = cuts
MINUTES = 150
night: $(CORE) | tools ## one part of the night, PART=cuts|kills|busy|..., MINUTES=150; appends to tests/night.jsonl
	@$(MAKE) --no-print-directory -j$(JOBS) build-plain build-fuzz-reach
	@PYTHONPATH=tests $(PY) -m night $(PART) --minutes $(MINUTES)

soak: MINUTES = 30
soak: SEED = 1
soak: $(CORE) ## MINUTES=30 of stores, sources, receivers under kills and wipes, beside every command (SEED=1)
	PYTHONPATH=tests $(PY) -m soak --minutes $(MINUTES) --seed $(SEED)

evidence: export HOLDFAST_EVIDENCE := $(CURDIR)/build/evidence
evidence: export PYTHONPATH := tests
evidence: $(CORE) | tools ## what a release owes: run every harness, write EVIDENCE.md; at most 60 minutes
	@rm -rf build/evidence && mkdir -p build/evidence && date +%s >build/evidence/begun
	@$(MAKE) --no-print-directory -j$(JOBS) build-plain build-asan build-tsan build-fuzz-reach
	-@$(PY) -m evidence_plan --jobs $(JOBS)
	$(PY) -m evidence_report build/evidence EVIDENCE.md

# What seeds of the simulator alone reach of the drivers: at least 80 % of the lines and branches of each (simulator/reach.py).
coverage-seeds: $(CORE)
	PYTHONPATH=tests $(PY) -m simulator.reach -j $(JOBS)

mutants: N = 300
mutants: SEED = 1
mutants: $(CORE) ## N=300 mutants of the rules, each of which a unit test or a seed must kill (SEED=1)
	PYTHONPATH=tests $(PY) -m mutants -n $(N) --seed $(SEED)

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

# The process tests where threads come late (support/delays_shim.c).
delays: $(CORE)
	@mkdir -p build/c && $(CC) -O2 -shared -fPIC -Wall -Wextra -o build/c/delays.so tests/support/delays_shim.c -ldl
	LD_PRELOAD=$(CURDIR)/build/c/delays.so $(PY) -m pytest -q -n 6 --no-cov tests/process
