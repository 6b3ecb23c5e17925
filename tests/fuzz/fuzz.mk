# The fuzz targets, in C and in Python. Read by the Makefile, after tests/c/c.mk.

.PHONY: fuzz fuzz-corpus fuzz-long

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
fuzz: $(CORE) ## replay the corpora, mutate each for S=20 seconds (SEED=1), find the planted bugs
	@mkdir -p build/c
	@$(call SANITIZE_CHECK,address,libasan8 (gcc brings it))
	@$(MAKE) --no-print-directory -j$(JOBS) build-fuzz$(if $(filter-out 0,$(S)),-reach)
	@PYTHONPATH=tests $(PY) -m fuzz -j $(JOBS) --seconds $(S) --seed $(SEED)

# The committed corpora anew: valid objects and what mutants of them reach. Files with names of their own (findings) stay.
fuzz-corpus: S = 60
fuzz-corpus: $(CORE) ## grow the committed corpora for S=60 seconds each; keep the smallest inputs
	@$(MAKE) --no-print-directory -j$(JOBS) build-fuzz-reach
	@PYTHONPATH=tests $(PY) -m fuzz.corpus unpack
	@for t in $(FUZZ); do g=build/fuzz/grown/$$t c=build/fuzz/corpus/$$t r=build/fuzz/reach/$$t && mkdir -p $$g $$c && \
	    $$r --seeds $$g && $$r --seconds $(S) --keep $$g --finding build/fuzz/finding-$$t $$c $$g && \
	    find $$g -size +5k -delete && find $$c -name '????????????????' -delete && $$r --merge $$c $$g || exit 1; done
	@for t in $$(PYTHONPATH=tests $(PY) -c 'from fuzz.targets import TARGETS; print(*TARGETS)'); do \
	    PYTHONPATH=tests $(PY) -m fuzz.loop $$t --seeds build/fuzz/corpus/$$t || exit 1; done
	@PYTHONPATH=tests $(PY) -m fuzz.corpus pack

# Its crashes lie in build/fuzz/.
fuzz-long: S = 3600
fuzz-long: CLANG = clang-19
fuzz-long: | tools ## the fuzz targets in C under libFuzzer, S=3600 seconds each (CLANG=clang-19)
	@mkdir -p build/c build/fuzz/libfuzzer
	@echo 'int LLVMFuzzerTestOneInput(const char *, long); int LLVMFuzzerTestOneInput(const char *d, long n) { return !d && n; }' | \
	    $(CLANG) -fsanitize=fuzzer,address,undefined -xc - -o build/c/probe 2>/dev/null || { \
	    echo "$(CLANG) cannot link -fsanitize=fuzzer: install the Debian packages clang-19 and libclang-rt-19-dev"; exit 1; }
	@PYTHONPATH=tests $(PY) -m fuzz.corpus unpack
	@for t in $(FUZZ); do mkdir -p build/fuzz/libfuzzer/$$t.corpus && \
	    $(CLANG) -std=c11 -D_GNU_SOURCE -DHF_FAILPOINTS -Icsrc -Itests/c -pthread -O1 -g -fsanitize=fuzzer,address,undefined \
	    $(CORE_C) tests/fuzz/log_object.c tests/fuzz/fuzz_$$t.c -o build/fuzz/libfuzzer/$$t && \
	    build/fuzz/libfuzzer/$$t -timeout=2 -max_total_time=$(S) -max_len=65536 -artifact_prefix=build/fuzz/$$t- \
	    build/fuzz/libfuzzer/$$t.corpus build/fuzz/corpus/$$t || exit 1; done
