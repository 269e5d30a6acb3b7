#!/bin/sh
# Slurm for real, two nodes on this machine: srun starts ranks on
# both nodes, which meet and train with the bits of one process; a killed rank ends all; scancel and the warning of a time limit save.
# usage: slurm.sh WEFT      exit 77: Slurm is not installed (make slurm-test installs it), or we are not root
. "$(dirname "$0")/../support/slurm.sh"

go() { # srun's words: run, output in $tmp/{out,err}, code in $code
    timeout 120 srun -N2 --cpu-bind=none --overcommit "$@" >"$tmp/out" 2>"$tmp/err"; code=$?
}
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }

# ---- collectives, over both nodes
for n in 2 4 3; do
    go -n $n "$weft" run --check --json
    [ $code = 0 ] && grep -q "\"ranks\": $n, \"transport\": \"[a-z+]*tcp\"" "$tmp/out" || fail "check on $n ranks: $code"
done
# ---- on one node: shared memory
timeout 60 srun -N1 -n2 --overcommit "$weft" run --check --json >"$tmp/out" 2>"$tmp/err" &&
    grep -q '"transport": "shm"' "$tmp/out" || fail "two ranks on one node"
# ---- one launcher a node
go -n 2 --ntasks-per-node=1 sh -c "exec env -u SLURM_PROCID $weft run --nnodes 2 --node-rank \$SLURM_NODEID \
    --nproc-per-node 2 --rdzv 127.0.0.1:$((port + 5)) --check --json"
[ $code = 0 ] && grep -q '"ranks": 4, "transport": "[a-z+]*tcp"' "$tmp/out" || fail "a launcher on each node: $code"

# ---- training
job="model=tests/fixtures/gpt2/init data=tests/fixtures/gpt2/tokens.bin seq=13 batch=8 micro_batch=2 lanes=4 steps=5
     threads=1 eval.every=0"
"$weft" train $job output="$tmp/one" --json -q >"$tmp/one.out" 2>"$tmp/err"; want=$(hash "$tmp/one.out")
for n in 2 4; do
    go -n $n "$weft" run $job output="$tmp/slurm-$n" --json -q
    [ "$(hash "$tmp/out")" = "$want" ] && [ -n "$want" ] && echo "srun -N2 -n$n: $want, as one process" ||
        fail "training on $n ranks: $code, '$(hash "$tmp/out")' instead of '$want'"
done

# ---- a rank that dies
go -n 4 sh -c "if [ \$SLURM_PROCID = 3 ]; then timeout -s KILL 4 $weft run --check --seconds 60; else
    exec $weft run --check --seconds 60; fi"
[ $code != 0 ] && [ $code != 124 ] && [ "$(grep -c 'error: rank 3 died' "$tmp/err")" = 3 ] ||
    fail "a rank that dies: $code"
echo "a killed rank: $(grep -m1 'rank 3 died' "$tmp/err")"

# ---- signals: scancel, and a warning before the time limit.  Slurm signals the launcher and every rank
cat >"$tmp/step.sh" <<EOF
#!/bin/sh
trap : TERM USR1
$weft run --nproc-per-node 2 --grace 20 ${job%steps=5*} threads=1 eval.every=0 steps=1000000 output=$tmp/\$1 -q &
wait \$!; wait \$!
echo \$? >$tmp/\$1.code
EOF
chmod +x "$tmp/step.sh"
steps_of() { wc -l <"$tmp/$1/metrics.jsonl"; }
await() { # name, job: until it has ended
    for i in $(seq 600); do [ -s "$tmp/$1.code" ] && break; sleep 0.2; done
    n=$(printf %08d "$(steps_of "$1")")
    [ "$(cat "$tmp/$1.code")" = 143 ] && [ -f "$tmp/$1/checkpoints/MANIFEST-$n" ] &&
        echo "$1: exit code 143, a checkpoint of the last step, $n" || fail "$1: $(cat "$tmp/$1.code" 2>&1)"
}
begin() { # name, sbatch's words
    name=$1; shift
    id=$(sbatch --parsable -N1 -n1 -o "$tmp/$name.log" "$@" --wrap "srun --overcommit $tmp/step.sh $name") || fail "sbatch"
    for i in $(seq 300); do [ -s "$tmp/$name/metrics.jsonl" ] && break; sleep 0.2; done
}
begin cancelled
scancel "$id"
await cancelled
begin limited --time=1 --signal=USR1@55
await limited

[ $bad = 0 ] && echo "all right"
exit $bad
