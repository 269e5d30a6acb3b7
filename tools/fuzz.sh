#!/bin/sh
# fuzz.sh BUILD SECONDS JOBS [PARSER]: runs every BUILD/fuzz_<parser>, or that one, from its seeds in
# tests/fuzz/corpus/<parser>, JOBS at a time.  A crash leaves its input in BUILD/crash-<parser>-*.
# FUZZ_RUNS: at most as many inputs of each (no limit).
build=$1 seconds=$2 jobs=$3 parser=$4
one='
    name=${1##*/fuzz_} build=$2
    mkdir -p "$build/corpus/$name" "tests/fuzz/corpus/$name"
    if "$1" -max_total_time=$3 -runs=${FUZZ_RUNS:--1} -max_len=65536 -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
        -print_final_stats=1 -artifact_prefix="$build/crash-$name-" \
        "$build/corpus/$name" "tests/fuzz/corpus/$name" >"$build/fuzz-$name.log" 2>&1; then
        runs=$(sed -n "s/^stat::number_of_executed_units: *//p" "$build/fuzz-$name.log" | tail -n 1)
        echo "fuzz $name: at most $3 s, $runs inputs, no crash"
    else
        tail -40 "$build/fuzz-$name.log"; echo "fuzz $name: FAILED"; exit 255
    fi'
[ -z "$parser" ] || [ -x "$build/fuzz_$parser" ] || { echo "there is no $build/fuzz_$parser" >&2; exit 1; }
ls "$build"/fuzz_${parser:-*} 2>/dev/null | grep -v '\.log$' |
    xargs -r -P "$jobs" -I '{}' sh -c "$one" fuzz '{}' "$build" "$seconds"
