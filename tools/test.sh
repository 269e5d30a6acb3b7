#!/usr/bin/env bash
# test.sh BUILD JOBS: what `make test` does once the packages are there.  Plain, sanitized and fuzz tree are built side
# by side, and the checks with them; then one ctest runs the tests of all three (plain/<name>, asan/<name>, fuzz/<name>),
# so that tests that wait for a clock or a peer of one tree run beside tests that compute of another.  At the end: wall
# and CPU seconds of each phase, then ctest's counts.  MAKE: the make that called; TESTS: a regular expression of tests.
build=$1 jobs=$2 make=${MAKE:-make}
suite=build-suite
rm -rf $suite && mkdir -p $suite || exit 1

# phase NAME COMMAND...: leaves "wall user sys" in $suite/NAME.time
phase() {
    local name=$1 TIMEFORMAT='%R %U %S'
    shift
    { time "$@" 2>&3; } 3>&2 2>"$suite/$name.time"
}

# wait_for_all PID...: fails where one failed.
wait_for_all() {
    local rc=0 pid
    for pid in "$@"; do wait "$pid" || rc=1; done
    return $rc
}

run_make() { $make --no-print-directory "$@"; }

build_and_check() {
    local pids=()
    phase build-plain run_make build & pids+=($!)
    phase build-asan run_make build-asan & pids+=($!)
    phase build-fuzz run_make build-fuzz & pids+=($!)
    phase checks run_make -j "$jobs" layers lines mirror headers plan-only model PLAN_OPT=-O0 & pids+=($!)
    wait_for_all "${pids[@]}" && run_make -j "$jobs" names installed
}

# list_tests TREE FOLDER: its tests, with the tree in front of their names.
list_tests() { sed -E "s|^(add_test\|set_tests_properties)\((\[=*\[)?|&$1/|" "$2/CTestTestfile.cmake"; }

run_tests() {
    { list_tests asan build-asan && list_tests fuzz build-fuzz && list_tests plain "$build"; } \
        >$suite/CTestTestfile.cmake || return 1
    # Five slots a core: tests/tests.cmake says how many a test takes.
    ctest --test-dir $suite --output-on-failure -j $((5 * jobs)) ${TESTS:+-R "$TESTS"} | tee $suite/ctest.log
    [ "${PIPESTATUS[0]}" = 0 ] || run_alone
}

# Tests that compare with the clock (label clock) and failed run once more, one at a time.  Fails where another test
# failed or one of these does again.
run_alone() {
    local name failed=$suite/Testing/Temporary/LastTestsFailed.log
    [ -s $failed ] || return 1
    ctest --test-dir $suite -N -L '^clock$' | sed -n 's/^ *Test *#[0-9]*: //p' >$suite/clock
    for name in $(cut -d: -f2 $failed); do grep -qx "$name" $suite/clock || return 1; done
    echo "test.sh: these compare with the clock and failed beside other tests; now alone: $(cut -d: -f2 $failed | xargs)"
    ctest --test-dir $suite --rerun-failed --output-on-failure -j 1 | tee $suite/alone.log
    return "${PIPESTATUS[0]}"
}

print_times() {
    local name
    echo "phase                wall s  CPU s"
    for name in build-plain build-asan build-fuzz checks build-and-check tests; do
        [ -f "$suite/$name.time" ] &&
            awk -v name="$name" '{ printf "%-20s %6.0f %6.0f\n", name, $1, $2 + $3 }' "$suite/$name.time"
    done
    printf '%-20s %6d\n' 'make test' $SECONDS
}

phase build-and-check build_and_check && phase tests run_tests
rc=$?
print_times
for log in ctest alone; do
    [ -f $suite/$log.log ] && sed -n '/tests passed/,$p' $suite/$log.log
done
exit $rc
