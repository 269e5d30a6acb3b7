#!/bin/sh
# Two hosts: network namespaces joined by a cable (a veth pair).  Training on 2 x 1 and 2 x 2 ranks gives the bits of one
# process; a rank, a launcher or the cable that goes away ends everybody, with a line that says who.
# usage: netns.sh WEFT      exit 77: this machine lets us make no namespaces
weft=$(realpath "$1")
dev=wv lan=177
. "$(dirname "$0")/../support/cable.sh"

fail() { echo "FAILED: $1"; bad=1; for f in "$tmp"/[ab].err; do echo "-- $f"; cat "$f"; done; }
port=24000
# hosts N WORDS...: a launcher on each host with N ranks; output in $tmp/{a,b}.{out,err}, codes in $code_a, $code_b
start() {
    n=$1; shift; port=$((port + 1))
    ip netns exec $a "$weft" run --nproc-per-node "$n" --nnodes 2 --node-rank 0 --rdzv $net.1:$port "$@" \
        >"$tmp/a.out" 2>"$tmp/a.err" & pid_a=$!
    ip netns exec $b "$weft" run --nproc-per-node "$n" --nnodes 2 --node-rank 1 --rdzv $net.1:$port "$@" \
        >"$tmp/b.out" 2>"$tmp/b.err" & pid_b=$!
    pids="$pid_a $pid_b"
}
finish() {
    wait $pid_a; code_a=$?
    wait $pid_b; code_b=$?
    sed -i '/ INFO /d' "$tmp/a.err" "$tmp/b.err"
    pids=
}
ranks_of() { pgrep -P "$1" | tr '\n' ' '; }
at_work() { # until all ranks have done a round of collectives
    for i in $(seq 400); do
        grep -q 'INFO 4 ranks over .*: first round of collectives right' "$tmp/a.err" && break
        sleep 0.05
    done
    pids="$pids $(ranks_of $pid_a) $(ranks_of $pid_b)"
}
gone() { # of $1, nothing is left
    for i in $(seq 100); do
        left=; for p in $1; do kill -0 "$p" 2>/dev/null && left="$left $p"; done
        [ -z "$left" ] && return
        sleep 0.05
    done
    fail "$2: still there: $left"
}

start 2 --check --json; finish
[ $code_a = 0 ] && [ $code_b = 0 ] && grep -q '"ranks": 4, "transport": "[a-z+]*tcp".*"ok": true' "$tmp/a.out" ||
    fail "check on 2 x 2: $code_a $code_b"

# ---- the bits of one process
job="model=tests/fixtures/gpt2/init data=tests/fixtures/gpt2/tokens.bin seq=13 batch=8 micro_batch=2 lanes=4
     steps=5 threads=1 eval.every=0"
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }
"$weft" train $job output="$tmp/one" --json -q >"$tmp/one.out" 2>"$tmp/one.err" || cat "$tmp/one.err"
want=$(hash "$tmp/one.out")
[ -n "$want" ] || fail "one process"
for n in 1 2; do
    start $n $job output="$tmp/two-$n" --json -q; finish
    got=$(hash "$tmp/a.out")
    [ "$got" = "$want" ] && [ $code_b = 0 ] && echo "2 x $n ranks: $got, as one process" ||
        fail "2 x $n ranks: '$got' instead of $want, codes $code_a $code_b"
done

# ---- a rank that dies on the other host
start 2 --check --seconds 60; at_work
all="$(ranks_of $pid_a) $(ranks_of $pid_b)"
kill -9 $(ranks_of $pid_b | cut -d' ' -f2); finish
gone "$all" "killed rank"
[ $code_a = 1 ] && [ $code_b = 137 ] || fail "killed rank: codes $code_a $code_b"
[ "$(grep -c 'error: rank 3 died' "$tmp/a.err")" = 2 ] || fail "killed rank: not named on the other host"
head -1 "$tmp/b.err" | grep -q '^\[rank 3\] rank 3: error: killed by signal 9' || fail "killed rank: first line"
echo "a killed rank: $(head -1 "$tmp/a.err")"

# ---- a launcher that is killed: its ranks go with it, the others notice
start 2 --check --seconds 60; at_work
all="$(ranks_of $pid_a) $(ranks_of $pid_b)"
kill -9 $pid_b; finish
gone "$all" "killed launcher"
[ $code_a = 1 ] && grep -q 'error: rank [23] died' "$tmp/a.err" || fail "killed launcher: $code_a"
echo "a killed launcher: $(head -1 "$tmp/a.err")"

# ---- a rank that is stopped
start 2 --check --seconds 60 --timeout 2; at_work
all="$(ranks_of $pid_a) $(ranks_of $pid_b)"
kill -STOP $(ranks_of $pid_b | cut -d' ' -f1); finish
gone "$all" "stopped rank"
[ $code_a = 1 ] && grep -q 'error: rank 2 is silent' "$tmp/a.err" || fail "stopped rank: $code_a $code_b"
echo "a stopped rank: $(head -1 "$tmp/a.err")"

# ---- the cable is cut
start 2 --check --seconds 60 --timeout 4; at_work
all="$(ranks_of $pid_a) $(ranks_of $pid_b)"
t0=$(date +%s); ip -n $b link set wvb$$ down; finish; took=$(($(date +%s) - t0))
gone "$all" "cut cable"
[ $code_a = 1 ] && [ $code_b = 1 ] || fail "cut cable: codes $code_a $code_b"
[ $took -le 15 ] || fail "cut cable: noticed after $took s"
for h in a b; do # each rank one line
    [ "$(grep -c 'error: rank [0-3] \(died\|is silent\)' "$tmp/$h.err")" = 2 ] && [ "$(wc -l <"$tmp/$h.err")" = 2 ] ||
        fail "cut cable: what host $h says"
done
echo "a cut cable, after $took s: $(head -1 "$tmp/a.err")"

# ---- the wrong token, and none: the hosts do not find together, and both say why
ip -n $b link set wvb$$ up
"$weft" token "$tmp/other" >/dev/null 2>&1
port=$((port + 1))
ip netns exec $a "$weft" run --nproc-per-node 1 --nnodes 2 --node-rank 0 --rdzv $net.1:$port --check --timeout 3 \
    >"$tmp/a.out" 2>"$tmp/a.err" & pid_a=$!
ip netns exec $b "$weft" run --nproc-per-node 1 --nnodes 2 --node-rank 1 --rdzv $net.1:$port --check --timeout 3 \
    --token-file "$tmp/other" >"$tmp/b.out" 2>"$tmp/b.err" & pid_b=$!
finish
[ $code_a = 1 ] && [ $code_b = 2 ] && grep -q "turned away a connection from $net.2" "$tmp/a.err" &&
    grep -q 'it has another token' "$tmp/b.err" || fail "another token: $code_a $code_b"
echo "another token: $(head -1 "$tmp/b.err")"

# ---- nobody at the other end
start_alone=$(ip netns exec $a "$weft" run --nproc-per-node 1 --nnodes 2 --node-rank 0 --rdzv $net.1:23999 --check \
    --timeout 3.5 2>&1); code=$?
[ $code = 1 ] && echo "$start_alone" | grep -q 'rank 1 timed out: it did not come to' &&
    echo "$start_alone" | grep -q 'INFO waiting for rank 1 at' || fail "alone: $code $start_alone"

[ $bad = 0 ] && echo "all right"
exit $bad
