#!/bin/sh
# Two hosts (network namespaces) with an agent each: the cable between them is cut while a job with recover: on runs.  The first host
# goes on alone to the bits of one process, the second one, which is no majority, ends and says so.  With dp=2 it has a replica, with
# "pp=2 copies=2" a stage of its own and the standby replica of the other one.
# usage: survive.sh WEFT [KEYS]      exit 77: this machine lets us make no namespaces
weft=$(realpath "$1") plan=${2:-dp=2}
dev=ws lan=179
. "$(dirname "$0")/../support/cable.sh"

fail() { echo "FAILED: $1"; bad=1; for f in "$tmp"/[ab].err; do echo "-- $f"; cat "$f"; done; }
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }
rows() { cat "$tmp/two/metrics.jsonl" 2>/dev/null | wc -l; }
await() { # $1 rows
    for i in $(seq 400); do [ "$(rows)" -ge "$1" ] && return; sleep 0.05; done
    fail "$1 steps: $(rows)"
}
job="model=tiny256 data=include seq=16 batch=8 micro_batch=1 lanes=2 steps=60 reduction=invariant init=random threads=1 plan=off eval.every=0
     checkpoint.every=100000"
"$weft" train $job output="$tmp/one" --json -q >"$tmp/one.out" 2>"$tmp/one.err" || cat "$tmp/one.err"
want=$(hash "$tmp/one.out")
start() { # namespace, name
    ip netns exec "$1" "$weft" run --nproc-per-node 1 --nnodes 1:2 --rdzv $net.1:24100 --failure-timeout 1 --timeout 20 $job $plan recover=on \
        output="$tmp/two" --json >"$tmp/$2.out" 2>"$tmp/$2.err" &
}
start $a a; pid_a=$!; pids=$pid_a
await 1
start $b b; pid_b=$!; pids="$pids $pid_b"
for i in $(seq 400); do grep -q '2 hosts' "$tmp/a.err" && break; sleep 0.05; done
await $(($(rows) + 5))
ip -n $b link set ${dev}b$$ down
wait $pid_b; code_b=$?
wait $pid_a; code_a=$?
pids=
[ $code_a = 0 ] && [ "$(hash "$tmp/a.out")" = "$want" ] || fail "the first host: code $code_a, '$(hash "$tmp/a.out")' instead of $want"
[ $code_b = 1 ] && grep -q 'no majority' "$tmp/b.err" || fail "the second host: code $code_b"
grep -q 'this host saves what it holds' "$tmp/b.err" || fail "the second host does not save"
grep -q 'back to step' "$tmp/a.err" && fail "the first host has a replica"
grep -q 'was lost' "$tmp/a.err" || fail "the first host does not name what it lost"
echo "a cut cable: $(grep 'was lost' "$tmp/a.err" | head -1); $(grep 'no majority' "$tmp/b.err" | head -1)"
[ $bad = 0 ] && echo "all right"
exit $bad
