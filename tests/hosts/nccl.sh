#!/bin/sh
# Two hosts with a GPU each, over NCCL: network namespaces joined by a cable, a launcher of weft in each.  dp over both has
# the bits of one rank (reduction: invariant), NCCL's own sums train too (fixed, the default between GPUs), and a rank that
# is killed, or a launcher, ends the other host with a line that says who.
# Rows of experts that are on both hosts (ep=2) give the losses of one rank to rounding.
# usage: nccl.sh WEFT [bits] [fixed] [experts] [killed]      these parts, else all; exit 77: no namespaces here, or no plugin
# Without a GPU over the stub libraries beside WEFT; WEFT_TEST_GPU=1: over the machine's own, both hosts on one GPU.
weft=$(realpath "$1")
build=$(dirname "$weft")
shift
parts=${*:-bits fixed experts killed}
asked() { case " $parts " in *" $1 "*) ;; *) return 1 ;; esac; }
[ -e "$build/libweft_cuda.so" ] || { echo "skipped: built without nvcc"; exit 77; }
dev=wn lan=179
. "$(dirname "$0")/../support/cable.sh"
fail() { echo "FAILED: $1"; bad=1; for f in "$tmp"/[ab].err; do echo "-- $f"; cat "$f"; done; }

export NCCL_IB_DISABLE=1
if [ "${WEFT_TEST_GPU:-}" = 1 ]; then
    export WEFT_GPU_COMM=nccl
else
    export LD_LIBRARY_PATH="$build/stub_gpu" WEFT_CUDA_LIBS="$build/cuda_stub"
fi
job="model=tests/fixtures/gpt2/init data=tests/fixtures/gpt2/tokens.bin seq=13 batch=8 micro_batch=2 lanes=4 threads=1
     eval.every=0 device=cuda"
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }
port=24700
start() { # key=value...: a launcher on each host, with a rank
    port=$((port + 1))
    NCCL_HOSTID=a NCCL_SOCKET_IFNAME=${dev}a$$ WEFT_STUB_MACHINE=0 ip netns exec $a "$weft" run --nproc-per-node 1 --nnodes 2 \
        --node-rank 0 --rdzv $net.1:$port $job "$@" >"$tmp/a.out" 2>"$tmp/a.err" & pid_a=$!
    NCCL_HOSTID=b NCCL_SOCKET_IFNAME=${dev}b$$ WEFT_STUB_MACHINE=1 ip netns exec $b "$weft" run --nproc-per-node 1 --nnodes 2 \
        --node-rank 1 --rdzv $net.1:$port $job "$@" >"$tmp/b.out" 2>"$tmp/b.err" & pid_b=$!
    pids="$pid_a $pid_b"
}
gone() { # of $1, nothing is left
    for i in $(seq 100); do
        left=; for p in $1; do kill -0 "$p" 2>/dev/null && left="$left $p"; done
        [ -z "$left" ] && return
        sleep 0.05
    done
    fail "$2: still there: $left"
}
finish() { wait $pid_a; code_a=$?; wait $pid_b; code_b=$?; pids=; }

ranks_of() { cat "/proc/$1/task/$1/children" 2>/dev/null || pgrep -P "$1"; }

"$weft" train $job steps=5 output="$tmp/one" --json -q >"$tmp/one.out" 2>"$tmp/one.err" || cat "$tmp/one.err"
want=$(hash "$tmp/one.out")
[ -n "$want" ] || fail "one rank"

# ---- the bits of one rank
for keys in dp=2 "dp=2 zero=1" pp=2; do
    asked bits || break
    start $keys steps=5 reduction=invariant output="$tmp/two-$port" --json; finish
    got=$(hash "$tmp/a.out")
    [ "$got" = "$want" ] && [ $code_b = 0 ] && grep -q 'NCCL 2\.' "$tmp/a.err" &&
        grep -q 'communicate by.* nccl' "$tmp/a.err" && echo "$keys over two hosts: $got, as one rank" ||
        fail "$keys: '$got' instead of $want, codes $code_a $code_b"
done

# ---- NCCL's own sums
if asked fixed; then
    start dp=2 steps=5 reduction=fixed output="$tmp/fixed" --json; finish
    [ $code_a = 0 ] && [ $code_b = 0 ] && grep -q 'reduction: fixed' "$tmp/a.err" || fail "fixed: codes $code_a $code_b"
    echo "fixed over two hosts: $(hash "$tmp/a.out")"
fi

# ---- experts on both hosts: rows go to their owners by NCCL
if asked experts; then
    mkdir "$tmp/mixtral"
    cat >"$tmp/mixtral/config.json" <<-EOF
	{"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
	 "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 101, "num_local_experts": 4, "num_experts_per_tok": 2,
	 "max_position_embeddings": 64}
	EOF
    experts="model=$tmp/mixtral init=random reduction=invariant micro_batch=4 lanes=2 steps=5 plan=off"
    loss() { sed -n 's/.*"step": *5,.*"loss": *\([-0-9.e]*\).*/\1/p' "$1/metrics.jsonl"; }
    "$weft" train $job $experts output="$tmp/experts-one" -q >"$tmp/one.out" 2>"$tmp/one.err" || cat "$tmp/one.err"
    start ep=2 $experts output="$tmp/experts"; finish
    one=$(loss "$tmp/experts-one") two=$(loss "$tmp/experts")
    [ $code_a = 0 ] && [ $code_b = 0 ] && grep -q 'communicate by.* nccl' "$tmp/a.err" &&
        awk -v a="$one" -v b="$two" 'BEGIN { d = a / b - 1; exit !(a > 0 && d < 1e-5 && d > -1e-5) }' &&
        echo "ep=2 over two hosts: loss $two, one rank $one" || fail "ep=2: loss '$two' instead of '$one', codes $code_a $code_b"
fi

# ---- a rank, then a launcher, that is killed in the middle
for who in rank launcher; do
    asked killed || break
    start dp=2 steps=1000000 checkpoint.every=5 output="$tmp/killed-$who" --timeout 8
    for i in $(seq 300); do
        [ -d "$tmp/killed-$who/checkpoints/step-00000005" ] && break
        sleep 0.1
    done
    rank_a=$(ranks_of $pid_a) rank_b=$(ranks_of $pid_b)
    pids="$pids $rank_a $rank_b"
    t0=$(date +%s)
    if [ $who = rank ]; then kill -9 $rank_b; else kill -9 $pid_b; fi
    finish; took=$(($(date +%s) - t0))
    [ $code_a = 1 ] && grep -q 'error: .*rank 1' "$tmp/a.err" && [ $took -le 20 ] ||
        fail "killed $who: codes $code_a $code_b after $took s"
    gone "$rank_a $rank_b" "killed $who"
    echo "a killed $who, noticed after $took s: $(grep error "$tmp/a.err" | head -1)"
    pids=
done

[ $bad = 0 ] && echo "all right"
exit $bad
