# The C tests: each program with all of csrc, once per variant; and what they reach of csrc. Read by the Makefile.

.PHONY: c-test litmus asan tsan py-asan coverage

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

build/c/$(1)/%.o: %.c Makefile tests/c/c.mk
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

# What the C tests reach of csrc, except for test_log_damage, whose loops take minutes with counters in them; and failpoint.c is not in
# the product. Below these figures it fails. They only ever rise. The engine's figure is PY_COVERAGE, in the
# Makefile: py-test measures it.
COVERAGE := --fail-under-line 98 --fail-under-branch 92
UNCOUNTED := $(filter %/failpoint.c,$(CORE_C))

coverage: $(VENV)/stamp ## lines and branches of csrc that the C tests reach; fails below the figures here
	@$(MAKE) --no-print-directory -j$(JOBS) build-cov
	@find build/c/cov -name '*.gcda' -delete
	@JOBS=$(JOBS) sh tests/c/run.sh coverage $(filter-out %/test_log_damage,$(cov_BIN))
	@$(VENV)/bin/gcovr --root . --filter 'csrc/' $(UNCOUNTED:%=--exclude %) --gcov-ignore-parse-errors=suspicious_hits.warn_once_per_file \
	    --sort uncovered-percent --txt - --txt-metric branch --txt-summary $(COVERAGE) build/c/cov/csrc
