# Sourced with dev and lan set (cable.sh): two hosts with an agent each that train one job with recover: on, beside one process.
# begin FOLDER RDZV [KEYS]: the job runs on both hosts, in $tmp/FOLDER; pid_a, pid_b: their agents, $tmp/[ab].{out,err}: what these say.
# check_end LETTER: this host ended with 0 and has the weights of one process.
. "$(dirname "$0")/../support/cable.sh"

fail() { echo "FAILED: $1"; bad=1; for f in "$tmp"/[ab].err; do echo "-- $f"; cat "$f"; done; }
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }
rows() { cat "$tmp/$folder/metrics.jsonl" 2>/dev/null | wc -l; }
await() { # $1 rows
    for i in $(seq 600); do [ "$(rows)" -ge "$1" ] && return; sleep 0.05; done
    fail "$1 steps: $(rows)"
}
job="model=tiny256 data=include seq=16 batch=8 micro_batch=1 lanes=2 steps=240 reduction=invariant init=random threads=1 plan=off eval.every=0
     checkpoint.every=100000"
"$weft" train $job output="$tmp/one" --json -q >"$tmp/one.out" 2>"$tmp/one.err" || cat "$tmp/one.err"
want=$(hash "$tmp/one.out")

start() { # namespace, letter
    ip netns exec "$1" "$weft" run --nproc-per-node 1 --nnodes 1:2 --rdzv "$rdzv" --failure-timeout 1 --timeout 20 $job $keys recover=on \
        output="$tmp/$folder" --json >"$tmp/$2.out" 2>"$tmp/$2.err" &
}
begin() {
    folder=$1 rdzv=$2 keys=${3:-dp=2}
    start $a a; pid_a=$!; pids=$pid_a
    await 1
    start $b b; pid_b=$!; pids="$pids $pid_b"
    for i in $(seq 600); do grep -q '2 hosts' "$tmp/a.err" && break; sleep 0.05; done
    await $(($(rows) + 5))
}
await_both() { # code_a, code_b
    wait $pid_b; code_b=$?
    wait $pid_a; code_a=$?
    pids=
}
check_end() {
    eval "code=\$code_$1"
    [ $code = 0 ] && [ "$(hash "$tmp/$1.out")" = "$want" ] || fail "host $1: code $code, '$(hash "$tmp/$1.out")' instead of $want"
}
