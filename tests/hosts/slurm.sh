#!/bin/sh
# Slurm for real: a controller and two nodes (two slurmd) on this machine, for the time of the test.  srun starts ranks on
# both nodes, which meet and train with the bits of one process; a killed rank ends all; scancel and the warning of a time limit save.
# usage: slurm.sh WEFT      exit 77: Slurm is not installed (make slurm-test installs it), or we are not root
weft=$(realpath "$1")
tmp=$(mktemp -d) bad=0 pids=
conf=$tmp/slurm.conf host=$(hostname)
export SLURM_CONF=$conf
port=$((17000 + $$ % 900 * 10))

clean() {
    for p in $pids; do kill "$p" 2>/dev/null; done
    sleep 0.3
    for p in $pids; do kill -9 "$p" 2>/dev/null; done
    rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 1' INT TERM
skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAILED: $1"; bad=1; cat "$tmp/out" "$tmp/err" 2>/dev/null; }

[ "$(id -u)" = 0 ] || skip "Slurm's daemons need root"
PATH=$PATH:/usr/sbin
for c in munged slurmctld slurmd srun; do command -v $c >/dev/null 2>&1 || skip "no $c (Debian: slurm-wlm, munge)"; done

# ---- the cluster
head -c 1024 /dev/urandom >"$tmp/key"; chmod 400 "$tmp/key"; chmod 755 "$tmp"
munged --force --foreground --socket="$tmp/munge" --key-file="$tmp/key" --pid-file="$tmp/munged.pid" \
    --log-file="$tmp/munged.log" --seed-file="$tmp/seed" >"$tmp/munged.out" 2>&1 & pids="$pids $!"
mkdir "$tmp/state" "$tmp/spool.n1" "$tmp/spool.n2" "$tmp/scratch.n1" "$tmp/scratch.n2"
cat >"$conf" <<END
ClusterName=weft$$
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$tmp/munge
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SlurmctldPidFile=$tmp/slurmctld.pid
SlurmdPidFile=$tmp/slurmd.%n.pid
SlurmdSpoolDir=$tmp/spool.%n
StateSaveLocation=$tmp/state
SlurmctldLogFile=$tmp/slurmctld.log
SlurmdLogFile=$tmp/slurmd.%n.log
TmpFS=$tmp/scratch.%n
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
InactiveLimit=0
KillWait=30
SchedulerType=sched/builtin
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=4 RealMemory=1000
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
END
for i in $(seq 50); do [ -S "$tmp/munge" ] && break; sleep 0.1; done
slurmctld -c -D >"$tmp/ctld.out" 2>&1 & pids="$pids $!"
slurmd -D -N n1 >"$tmp/n1.out" 2>&1 & pids="$pids $!"
slurmd -D -N n2 >"$tmp/n2.out" 2>&1 & pids="$pids $!"
for i in $(seq 150); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 0.2
done
if [ "$(sinfo -h -t idle -o %D 2>/dev/null)" != 2 ]; then
    sinfo 2>&1; tail -3 "$tmp"/*.out "$tmp"/*.log
    skip "Slurm does not come up here"
fi

go() { # srun's words: run, output in $tmp/{out,err}, code in $code
    timeout 120 srun -N2 --cpu-bind=none --overcommit "$@" >"$tmp/out" 2>"$tmp/err"; code=$?
}
"$weft" token "$tmp/token" >/dev/null 2>&1 || fail "weft token"
export WEFT_TOKEN_FILE="$tmp/token" # srun passes variables on
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
