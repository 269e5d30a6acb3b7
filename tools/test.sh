#!/usr/bin/env bash
# test.sh BUILD JOBS: what `make test` does once the packages are there.  The plain, the sanitized and the fuzz tree are
# configured; then one ctest does the rest: it builds each tree (build/<tree>), checks (check/<name>) and runs the tests
# of all three (plain/<name>, asan/<name>, fuzz/<name>).  A tree's tests begin when it is built, so the plain tree is
# tested while the others are built, and what waits for a clock or a peer runs beside what computes.  At the end: wall and
# CPU seconds of each part, then ctest's counts; those of each test, the largest first, are in build-suite/times.txt.
# MAKE: the make that called; TESTS: a regular expression of tests, which brings the trees that they need.
#
# test.sh part FOLDER NAME COMMAND...: one of these commands; leaves "wall user sys" in FOLDER/NAME.time
if [ "$1" = part ]; then
    into=$2/$3.time TIMEFORMAT='%R %U %S'
    shift 3
    { time "$@" 2>&3 3>&-; } 3>&2 2>"$into"
    exit
fi

build=$1 jobs=$2 make=${MAKE:-make}
half=$(((jobs + 1) / 2))
export WEFT_TEST_SPLIT=1 # what takes long runs in one of the two trees (tests/support/test.h)
suite=build-suite
rm -rf $suite && mkdir -p $suite || exit 1

# configure TARGET TREE: also where files came or went since its last build, as ctest reads the list of its tests.
configure() { $make --no-print-directory "$1" && ninja --quiet -C "$2" build.ninja; }

configure_all() {
    local rc=0 pid pids=()
    configure configured "$build" & pids+=($!)
    configure configured-asan build-asan & pids+=($!)
    configure configured-fuzz build-fuzz & pids+=($!)
    for pid in "${pids[@]}"; do wait "$pid" || rc=1; done
    return $rc
}

# add_part NAME SLOTS COMMAND...: a test that is none of a tree's.
add_part() {
    local name=$1 slots=$2 word
    shift 2
    printf 'add_test("%s"' "$name"
    for word in "$PWD/tools/test.sh" part "$PWD/$suite" "${name//\//-}" "$@"; do printf ' "%s"' "$word"; done
    printf ')\nset_tests_properties("%s" PROPERTIES WORKING_DIRECTORY "%s" PROCESSORS %d TIMEOUT 3600)\n' \
        "$name" "$PWD" "$slots"
}

# add_build TREE TARGET CORES [AFTER]: the tree's build, which its tests need; AFTER: that of this tree comes first.
add_build() {
    add_part "build/$1" $((4 * $3)) "$make" --no-print-directory "$2" JOBS="$3"
    printf 'set_tests_properties("build/%s" PROPERTIES FIXTURES_SETUP %s COST 1000)\n' "$1" "$1"
    [ -z "$4" ] || printf 'set_tests_properties("build/%s" PROPERTIES DEPENDS "build/%s")\n' "$1" "$4"
}

# add_check NAME [TREE]: make NAME, once this tree is built.
add_check() {
    add_part "check/$1" 2 "$make" --no-print-directory "$1" PLAN_OPT=-O0
    printf 'set_tests_properties("check/%s" PROPERTIES COST 900)\n' "$1"
    [ -z "$2" ] || printf 'set_tests_properties("check/%s" PROPERTIES FIXTURES_REQUIRED %s)\n' "$1" "$2"
}

# add_tests TREE FOLDER: its tests, timed, with the tree in front of their names.
add_tests() {
    sed -E -e "s|^(add_test\|set_tests_properties)\((\[=*\[)?|&$1/|" \
        -e "s|^add_test\(([^ ]+) .*|&\nset_tests_properties(\1 PROPERTIES FIXTURES_REQUIRED $1)|" \
        -e "s|^(add_test\((\[=*\[)?$1/([a-zA-Z0-9_]+)[^ ]*) |\1 \"$PWD/tools/test.sh\" part \"$PWD/$suite\" $1-\3 |" \
        "$2/CTestTestfile.cmake"
}

list_all() {
    local name
    add_build plain build "$jobs"
    add_build asan build-asan "$jobs" plain # tests that wait run beside it
    add_build fuzz build-fuzz "$half" asan
    for name in model plan-only headers layers lines mirror documents; do add_check $name; done
    for name in names installed; do add_check $name plain; done
    add_tests asan build-asan && add_tests fuzz build-fuzz && add_tests plain "$build"
}

run_tests() {
    # Four slots a core and three more: tests/tests.cmake says how many a test takes.
    local which=(-LE '^long$') # tests/tests.cmake
    [ -z "$TESTS" ] || which=(-R "$TESTS")
    ctest --test-dir $suite --output-on-failure -j $((4 * jobs + 3)) "${which[@]}" | tee $suite/ctest.log
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

# sum_times NAME FILE...: one line for all of them.
sum_times() {
    local name=$1
    shift
    cat "$@" /dev/null 2>/dev/null |
        awk -v name="$name" '{ cpu += $2 + $3 } END { printf "%-20s %6s %6.0f\n", name, "", cpu }'
}

print_times() {
    local name
    for name in $suite/*.time; do
        [ ! -s "$name" ] || awk -v name="$(basename "$name" .time)" '{ printf "%8.1f %8.1f %s\n", $2 + $3, $1, name }' "$name"
    done | sort -rn >$suite/times.txt
    echo "part                 wall s  CPU s"
    for name in build-plain build-asan build-fuzz all; do
        [ ! -f $suite/$name.time ] ||
            awk -v name=$name '{ printf "%-20s %6.0f %6.0f\n", name, $1, $2 + $3 }' $suite/$name.time
    done
    for name in check plain asan fuzz; do sum_times "$name/*" $suite/$name-*.time; done
    printf '%-20s %6d\n' 'make test' $SECONDS
}

run_all() { configure_all && list_all >$suite/CTestTestfile.cmake && run_tests; }

TIMEFORMAT='%R %U %S'
{ time run_all 2>&3; } 3>&2 2>$suite/all.time
rc=$?
print_times
for log in ctest alone; do
    [ -f $suite/$log.log ] && sed -n '/tests passed/,$p' $suite/$log.log
done
exit $rc
