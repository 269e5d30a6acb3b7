#!/bin/sh
# Model-checks the protocols under tests/model with spin; a model that is broken on purpose must be caught.
command -v spin >/dev/null 2>&1 || { echo "model: spin is not installed, skipped (Debian: spin)"; exit 0; }
here=$(pwd)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# check NAME WANT [MACROS]: WANT is "holds" or "fails"
check() {
    level=1 && [ "$2" = holds ] || level=0 # an error is found before half of the compiler's work is worth it
    (cd "$dir" && spin $3 -a "$here/tests/model/$1.pml" >/dev/null &&
        ${CC:-cc} -O$level -w -DSAFETY -o pan pan.c && ./pan -m1000000 >out 2>&1) || { echo "model: $1 $3: cannot be run"; exit 1; }
    if grep -q 'errors: 0' "$dir/out"; then got=holds; else got=fails; fi
    [ $got = "$2" ] || { echo "model: $1 $3 $got, expected $2"; exit 1; }
    echo "model: $1 $3 $got ($(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$dir/out") states)"
}

check barrier holds
check barrier holds -DNO_DEADLINE
check barrier fails -DBROKEN_SWAP
check barrier fails "-DNO_DEADLINE -DBROKEN_SLEEP"
check barrier holds -DWORK
check barrier holds "-DWORK -DNO_DEADLINE"
check barrier fails "-DWORK -DBROKEN_SWAP"
check barrier fails "-DWORK -DBROKEN_LAST"
check barrier fails "-DWORK -DNO_DEADLINE -DBROKEN_ORDER"
check vote holds
check vote fails -DBROKEN_EARLY
check vote fails -DBROKEN_COUNT
check vote fails -DBROKEN_RULE
check vote fails -DBROKEN_TAIL
check register holds
check register holds -DN=2
check register fails -DBROKEN_PROMISE
check register fails -DBROKEN_VALUE
check register fails "-DN=2 -DBROKEN_QUORUM"
check register fails "-DN=4 -DBROKEN_QUORUM"
