# Measuring. Read by the Makefile.

.PHONY: perf perf-spark perf-lab perf-report perf-scale perf-finished perf-tails perf-check

perf: $(CORE) ## measure; writes perf/results and perf/README.md (PERF=--no-gate: a missed floor is no error)
	$(PY) -m perf $(PERF)

perf-spark: $(CORE) ## measure the data source beside Parquet; writes perf/SPARK.md
	$(PY) -m perf.spark $(PERF)

perf-lab: $(CORE) ## measure beside other products; installs [lab], writes perf/LAB.md (PERF=--quick: a look)
	$(PY) -m pip install -q -e '.[lab]' --no-build-isolation
	$(PY) -m perf.lab $(PERF)

perf-report: $(CORE) ## measure how costs scale and where the time goes; plots in perf/results
	@failed=0; $(PY) -m perf.scale $(PERF) || failed=1; $(PY) -m perf.budget && $(PY) -m perf.plots && exit $$failed

perf-scale: $(CORE) ## measure how costs scale, as perf-report does, without where the time goes
	@failed=0; $(PY) -m perf.scale $(PERF) || failed=1; $(PY) -m perf.plots && exit $$failed

perf-finished: $(CORE) ## measure a store that has served 10,000 sources; writes perf/results (PERF="-n N": of N)
	$(PY) -m perf.finished --recv --json $(PERF)

# How late messages are at fixed rates; writes perf/results and perf/TAILS.md.
perf-tails: $(CORE)
	$(PY) -m perf.tails $(PERF)

# It fails, too, where too little can be compared; it is skipped where this machine class has no results.
perf-check: $(CORE) ## measure the main ratios again; fails if one is significantly slower than committed
	$(PY) -m perf.check || [ $$? -eq 77 ]
