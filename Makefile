# What a person types.  CMake and Ninja do the building (CMakeLists.txt).
#
#   make            build/weft, build/libweft.a, the tests and the examples
#   make demo       install what is needed, build, train a small model end to end
#   make test       install what is needed, build, every check and every test
#   make long       the tests with all cases of their tables and draws, of which make test takes some (tests/README.md)
#   make check      gcc and clang without a warning, format, layers, lines, headers, names and types, tests' names, what documents name
#   make asan tsan  the tests under AddressSanitizer + UBSan, under ThreadSanitizer
#   make gpu-test   on a machine with a GPU: BLOCK=ops|reference|bits|ranks|sanitize|speed|predict|soak|survive|... (tools/gpu_run.sh)
#   make slurm-test installs Slurm and runs jobs on two nodes of it (so does make test where it is installed)
#   make model      the shared-memory barrier, the vote and the register, model-checked (spin)
#   make fuzz       every parser, FUZZ_SECONDS each (600)
#   make fault      kills, full disks and failing calls in all places, FAULTS (500) drawn faults: bench/results/fault*
#   make soak       no false alarm on an overloaded machine, SOAK_SECONDS (1800): bench/results/soak-detect.txt
#   make matrix     130 plans over 1 to 8 processes against one: bench/results/matrix.csv
#   make random-plans   PLANS (1000) random plans, seed SEED (1), each against one process: bench/results/random-plans.txt
#   make plan-only  compiler and planner with nothing but $(CC): build/plan/weft-plan
#   make install    PREFIX (/usr/local), DESTDIR
#   make format clean deps

BUILD        ?= build
PREFIX       ?= /usr/local
JOBS         ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_SECONDS ?= 600
CMAKE_ARGS   ?=
# Freed memory that AddressSanitizer keeps, and stacks that it notes: a twentieth less time than with its defaults.
export ASAN_OPTIONS ?= quarantine_size_mb=32:malloc_context_size=8

NINJA = ninja -j $(JOBS) --quiet
CMAKE = cmake -G Ninja -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_ARGS)
# Four slots a core, which most tests take, and three more for those that mostly wait (tests/tests.cmake).
CTEST = ctest --output-on-failure -j $(shell expr 4 '*' $(JOBS) + 3)

SOURCES = $(shell find include src tests examples tools -name '*.[ch]' 2>/dev/null)

.PHONY: all build configured configured-asan configured-fuzz deps demo test unit long check layers lines mirror headers names documents installed format \
        format-check build-asan asan tsan build-fuzz fuzz model fault soak slurm-test gcc clang plan-only install clean matrix random-plans
all: build

build: configured
	@$(NINJA) -C $(BUILD)

configured:
	@tools/need.sh cmake ninja
	@test -f $(BUILD)/build.ninja || $(CMAKE) -S . -B $(BUILD) >/dev/null

configured-asan:
	@tools/need.sh cmake ninja
	@test -f build-asan/build.ninja || $(CMAKE) -S . -B build-asan -DCMAKE_BUILD_TYPE=asan \
	    -DWEFT_SANITIZE=address,undefined >/dev/null

configured-fuzz:
	@tools/need.sh cmake ninja clang
	@test -f build-fuzz/build.ninja || CC=clang $(CMAKE) -S . -B build-fuzz -DWEFT_FUZZ=ON \
	    -DWEFT_SANITIZE=address,undefined >/dev/null

deps:
	@tools/deps.sh

demo: deps
	@echo "== make: $(BUILD)/weft (a minute on two cores)"
	@$(MAKE) --no-print-directory configured
	@$(NINJA) -C $(BUILD) weft
	@tools/demo.sh $(BUILD)/weft

# ---- tests -----------------------------------------------------------------------------------

test: deps
	@MAKE='$(MAKE)' tools/test.sh $(BUILD) $(JOBS)

matrix: build
	@WEFT_MATRIX=bench/results/matrix.csv $(BUILD)/test_plans

random-plans: build
	@tools/random_plans.py --weft $(BUILD)/weft --plans $${PLANS:-1000} --seed $${SEED:-1} --jobs 2 \
	    --out bench/results/random-plans.txt

unit: build
	@$(CTEST) --test-dir $(BUILD)

# Sanitized: WEFT_TEST_LONG=1 make asan.
long: build
	@WEFT_TEST_LONG=1 $(CTEST) --test-dir $(BUILD)

build-asan: configured-asan
	@$(NINJA) -C build-asan

asan: build-asan
	@$(CTEST) --test-dir build-asan

# die_after_fork: launchers and tests start processes from several threads.
tsan: export TSAN_OPTIONS = suppressions=$(CURDIR)/tests/tsan.supp:die_after_fork=0
tsan:
	@test -f build-tsan/build.ninja || $(CMAKE) -S . -B build-tsan -DWEFT_SANITIZE=thread >/dev/null
	@$(NINJA) -C build-tsan
	@$(CTEST) --test-dir build-tsan

build-fuzz: configured-fuzz
	@$(NINJA) -C build-fuzz fuzzers

# For long: a tree that tries twice as many inputs in a second, and takes three times as long to build.
fuzz: configured-fuzz
	@cmake -DWEFT_FUZZ_LEVEL=1 build-fuzz >/dev/null
	@$(NINJA) -C build-fuzz fuzzers
	@tools/fuzz.sh build-fuzz $(FUZZ_SECONDS) $(JOBS)

soak: build
	@python3 tools/soak.py $(BUILD)/weft --seconds $(or $(SOAK_SECONDS),1800) --out bench/results/soak-detect.txt

fault: build
	@tools/fault.sh $(BUILD) bench/results/fault.txt files
	@tools/fault.sh $(BUILD) bench/results/fault-ranks.txt ranks
	@tools/fault.sh $(BUILD) bench/results/fault-views.txt views
	@tools/fault.sh $(BUILD) bench/results/fault-scale.txt scale
	@tools/fault.sh $(BUILD) bench/results/fault-detect.txt detect
	@tools/fault.sh $(BUILD) bench/results/fault-failpoints.txt failpoints
	@tools/fault.sh $(BUILD) bench/results/fault-hosts.txt hosts
	@python3 tools/campaign.py $(BUILD)/weft --faults $(or $(FAULTS),500) --out bench/results/fault-campaign.csv
	@python3 tools/campaign.py $(BUILD)/weft --block large --faults 50 --out bench/results/fault-campaign-large.csv
	@python3 tools/campaign.py $(BUILD)/weft --block hosts --registers majority,file,etcd --faults 170 --out bench/results/fault-campaign-hosts.csv
	@python3 tools/campaign.py $(BUILD)/weft --block kernels --registers majority,file,etcd --faults 60 --out bench/results/fault-campaign-kernels.csv
	@test ! -f $(BUILD)/libweft_cuda.so || tools/fault.sh $(BUILD) bench/results/fault-gpu.txt gpu

slurm-test: build
	@tools/deps.sh slurm-wlm munge openmpi-bin
	@tests/hosts/slurm.sh $(BUILD)/weft
	@WEFT_SLURM_LONG=1 tests/hosts/slurm_agents.sh $(BUILD)/weft

model:
	@tools/model.sh

# ---- checks ----------------------------------------------------------------------------------

check: format-check layers lines mirror documents headers gcc clang names installed plan-only

gcc clang:
	@test -f build-$@/build.ninja || CC=$@ $(CMAKE) -S . -B build-$@ >/dev/null
	@$(NINJA) -C build-$@

layers:
	@python3 tools/check_layers.py

lines:
	@python3 tools/check_lines.py

mirror:
	@python3 tools/check_tests.py

documents:
	@python3 tools/check_docs.py

headers:
	@tools/check_headers.sh

names: build
	@for group in $$(cd src && ls -d */); do \
	    tools/check_names.sh $(BUILD)/CMakeFiles/objects_$${group%/}.dir/src/$$group || exit 1; done
	@tools/check_names.sh $(BUILD)/CMakeFiles/cli_objects.dir/src/app
	@python3 tools/check_types.py

# On a machine with a GPU: BLOCK=ops, reference, bits, ... (all of them: tools/gpu_run.sh without arguments).
# GPUS=N HOSTS=FILE: ranks on several GPUs of several machines (tools/gpu_machines.sh)
.PHONY: gpu-test
gpu-test: build
	@GPUS=$(GPUS) HOSTS=$(HOSTS) tools/gpu_run.sh -b $(BUILD) $(or $(BLOCK),$(if $(GPUS)$(HOSTS),machines),ops reference bits jobs steps)

installed: build
	@tools/check_install.sh $(BUILD)

format:
	@clang-format -i $(SOURCES)

format-check:
	@clang-format --dry-run -Werror $(SOURCES)

# ---- compiler and planner, by this file alone: no cmake, no root -------------------------

PLAN_GROUPS = core ir compiler planning
PLAN_OPT   ?= -O2
PLAN_SRC   = $(wildcard $(PLAN_GROUPS:%=src/%/*/*.c))
PLAN_DATA  = build/plan/embed/devices_yaml.o build/plan/embed/links_yaml.o \
             build/plan/embed/report_css.o build/plan/embed/report_js.o
PLAN_OBJ   = $(PLAN_SRC:src/%.c=build/plan/%.o) $(PLAN_DATA)

# weft-plan: the subcommands that commands_plan.c names.
PLAN_CLI   = main build option commands_plan spec graph lower sim sim_say sim_events cluster trace estimate check check_own plan
PLAN_MAIN  = $(patsubst src/%.c,build/plan/%.o,$(wildcard $(PLAN_CLI:%=src/app/cli/%.c)))

plan-only: build/plan/weft-plan

build/plan/weft-plan: $(PLAN_MAIN) build/plan/libweft-plan.a
	@$(CC) $^ -pthread -lm -o $@

# The link shows that nothing outside these groups, libc, its threads and libm is needed.
build/plan/libweft-plan.a: $(PLAN_OBJ)
	@rm -f $@ && $(AR) rcs $@ $^
	@echo 'int main(void) { return 0; }' >build/plan/whole.c
	@$(CC) build/plan/whole.c -Wl,--whole-archive $@ -Wl,--no-whole-archive -pthread -lm -o build/plan/whole

build/plan/embed/%_yaml.o: data/%.yaml tools/embed.sh
	@mkdir -p $(@D)
	@tools/embed.sh weft_cluster_$*_yaml $< >build/plan/embed/$*_yaml.c
	@$(CC) -std=c11 -O2 -c build/plan/embed/$*_yaml.c -o $@

build/plan/embed/report_%.o: data/report.% tools/embed.sh
	@mkdir -p $(@D)
	@tools/embed.sh weft_report_$* $< >build/plan/embed/report_$*.c
	@$(CC) -std=c11 -O2 -c build/plan/embed/report_$*.c -o $@

build/plan/%.o: src/%.c $(shell find include src -name '*.h' -o -name '*.def')
	@mkdir -p $(@D)
	@$(CC) -std=c11 -D_GNU_SOURCE $(PLAN_OPT) -Wall -Wextra -Iinclude $(PLAN_GROUPS:%=-Isrc/%) -Isrc/runtime -Isrc/app -Ibuild/plan -c $< -o $@

build/plan/app/cli/main.o: build/plan/cli/weft_build.h

build/plan/cli/weft_build.h: FORCE
	@mkdir -p $(@D)
	@tools/build_id.sh . $@

FORCE:

# ----------------------------------------------------------------------------------------------

install: build
	@$(CMAKE) -S . -B $(BUILD) >/dev/null
	@$(NINJA) -C $(BUILD)
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD)

clean:
	@rm -rf build build-asan build-tsan build-fuzz build-gcc build-clang build-suite
