#!/bin/sh
# fault.sh BUILD RESULTS: the long campaign of tests/eco and tests/fault.  Every call that changes a file is
# killed before and failed at, kills fall at random moments, disks of many sizes run full; on the disk that TMPDIR
# lies on, not in memory.  What came of it goes to RESULTS.
set -eu
build=$1
results=$2
export WEFT="$build/weft" TMPDIR="${TMPDIR:-/tmp}"
export WEFT_FAULT_KILLS="${WEFT_FAULT_KILLS:-200}" WEFT_FAULT_EVERY="${WEFT_FAULT_EVERY:-1}"
export WEFT_FAULT_SIZES="${WEFT_FAULT_SIZES:-64}" WEFT_FAULT_SEED="${WEFT_FAULT_SEED:-$(date +%j)}"

mkdir -p "$(dirname "$results")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
bad=0
{
    echo "# make fault, $(date -u +%Y-%m-%d), $(uname -sr), file system $(stat -f -c %T "$TMPDIR")"
    echo "# $WEFT_FAULT_KILLS random kills (seed $WEFT_FAULT_SEED), a call in $WEFT_FAULT_EVERY, $WEFT_FAULT_SIZES disks"
} >"$log"
for t in kill disk; do
    echo "== eco_$t" >>"$log"
    tests/eco/run.sh "$t" >>"$log" 2>&1 || bad=1
done
for t in test_ckpt_crash test_ckpt_powercut; do
    echo "== $t" >>"$log"
    "$build/$t" 2>&1 | grep -v 'RUN' >>"$log" || bad=1
    tail -1 "$log" | grep -q PASSED || bad=1
done
[ "$bad" = 0 ] && echo "all passed" >>"$log" || echo "FAILED" >>"$log"
cp "$log" "$results"
cat "$log"
exit "$bad"
