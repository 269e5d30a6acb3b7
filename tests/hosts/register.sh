#!/bin/sh
# Two hosts (network namespaces) with an agent each and a register in a folder that both see; no address is given.  The cable between them is
# cut: one goes on to the bits of one process, the other finds that view in the register, and ends.  Then the first host dies behind a cut cable,
# so that nothing tells the second one but silence: it goes on alone.
# usage: register.sh WEFT      exit 77: this machine lets us make no namespaces
weft=$(realpath "$1")
dev=wr lan=181
. "$(dirname "$0")/../support/cable.sh"

fail() { echo "FAILED: $1"; bad=1; for f in "$tmp"/[ab].err; do echo "-- $f"; cat "$f"; done; }
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }
rows() { cat "$tmp/$out/metrics.jsonl" 2>/dev/null | wc -l; }
await() { # $1 rows
    for i in $(seq 600); do [ "$(rows)" -ge "$1" ] && return; sleep 0.05; done
    fail "$1 steps: $(rows)"
}
job="model=tiny256 data=include seq=16 batch=8 micro_batch=1 lanes=2 steps=60 reduction=invariant init=random threads=1 plan=off eval.every=0
     checkpoint.every=100000"
"$weft" train $job output="$tmp/one" --json -q >"$tmp/one.out" 2>"$tmp/one.err" || cat "$tmp/one.err"
want=$(hash "$tmp/one.out")
start() { # namespace, name
    ip netns exec "$1" "$weft" run --nproc-per-node 1 --nnodes 1:2 --rdzv "file:$tmp/register-$out" --failure-timeout 1 --timeout 20 $job dp=2 recover=on \
        output="$tmp/$out" --json >"$tmp/$2.out" 2>"$tmp/$2.err" &
}
begin() { # the job's folder
    out=$1
    start $a a; pid_a=$!; pids=$pid_a
    await 1
    start $b b; pid_b=$!; pids="$pids $pid_b"
    for i in $(seq 600); do grep -q '2 hosts' "$tmp/a.err" && break; sleep 0.05; done
    grep -q "2 hosts (.* $net.1:[0-9]*, .* $net.2:[0-9]*)" "$tmp/a.err" || fail "the hosts' own addresses"
    await $(($(rows) + 5))
}

begin cut
ip -n $b link set ${dev}b$$ down
wait $pid_b; code_b=$?
wait $pid_a; code_a=$?
pids=
[ $code_a = 0 ] && [ "$(hash "$tmp/a.out")" = "$want" ] || fail "the first host: code $code_a, '$(hash "$tmp/a.out")' instead of $want"
[ $code_b = 1 ] && grep -q 'decided without this host' "$tmp/b.err" || fail "the second host: code $code_b"
echo "a cut cable: $(grep 'was lost' "$tmp/a.err" | head -1); $(grep 'decided without' "$tmp/b.err" | head -1)"

ip -n $b link set ${dev}b$$ up
begin lost
ip -n $b link set ${dev}b$$ down
kill -9 $pid_a
wait $pid_b; code_b=$?
pids=
[ $code_b = 0 ] && [ "$(hash "$tmp/b.out")" = "$want" ] || fail "the second host: code $code_b, '$(hash "$tmp/b.out")' instead of $want"
grep -q 'back to step' "$tmp/b.err" && fail "the second host has a replica"
echo "a lost first host: $(grep 'was lost' "$tmp/b.err" | head -1)"
[ $bad = 0 ] && echo "all right"
exit $bad
