#!/bin/sh
# Agents under Slurm for real, one on each node (examples/slurm.sh): a node is drained, one is lost and downed, a second job joins the
# first, all processes are suspended; scancel, a time limit (its warning; with WEFT_SLURM_LONG=1 also its end, after 90 s) and preemption
# are one save-and-stop each, with exit code 143 and no host that leaves before.  Losses are those of one process, bit by bit.
# usage: slurm_agents.sh WEFT      exit 77: Slurm is not installed (make slurm-test installs it), or we are not root
. "$(dirname "$0")/../support/slurm.sh"

job="model=tiny256 data=include seq=16 batch=8 micro_batch=1 lanes=2 reduction=invariant init=random threads=1 plan=off eval.every=0 checkpoint.every=100000"
cat >"$tmp/agent.sh" <<EOF
#!/bin/sh
# name, steps, options: the agent of a node; its exit code by the node's name
name=\$1 steps=\$2; shift 2
[ \$SLURMD_NODENAME = n1 ] || sleep 1 # both nodes have the address of the first one here
trap : TERM USR1
$weft run --nnodes 1:2 --nproc-per-node 1 --failure-timeout 3 --grace 20 "\$@" $job dp=2 recover=on steps=\$steps output=$tmp/\$name 2>$tmp/\$name.\$SLURMD_NODENAME.err &
wait \$!; code=\$?; wait \$! && code=0 || { c=\$?; [ \$c = 127 ] || code=\$c; }
echo \$code >$tmp/\$name.\$SLURMD_NODENAME.code
exit \$code
EOF
chmod +x "$tmp/agent.sh"

rows() { cat "$tmp/$1/metrics.jsonl" 2>/dev/null | wc -l; }
await() { # what, command: until it is true; ends the test where it does not come true
    what=$1; shift
    for i in $(seq 900); do "$@" && return; sleep 0.1; done # a job that Slurm did not start at once waits a minute for its next look
    fail "$name: $what"
    squeue -l
    tail -n 20 "$tmp/$name".*.err "$tmp/$name.log" "$tmp/$name".second 2>/dev/null
    exit 1
}
has_rows() { [ "$(rows "$name")" -ge "$1" ]; }
has_text() { grep -q "$2" "$tmp/$name.$1.err" 2>/dev/null; }
has_code() { [ -s "$tmp/$name.$1.code" ]; }
is_over() { [ -z "$(squeue -h -j "$1" 2>/dev/null)" ]; }
losses() { sed -n 's/.*"loss": \([^,]*\),.*/\1/p' "$tmp/$1/metrics.jsonl"; }
begin() { # name, steps, sbatch's options
    name=$1 steps=$2; shift 2
    id=$(sbatch --parsable --no-kill -N2 -n2 --ntasks-per-node=1 --overcommit -o "$tmp/$name.log" "$@" \
        --wrap "srun --no-kill --kill-on-bad-exit=0 --overcommit --cpu-bind=none $tmp/agent.sh $name $steps") || fail "$name: sbatch"
    await "two hosts" has_text n1 ': 2 hosts'
    await "steps" has_rows $(($(rows "$name") + 5))
}
same_losses() { # the first 400, with those of one process
    losses "$name" | head -n 400 >"$tmp/got"
    losses one | head -n "$(wc -l <"$tmp/got")" | cmp -s - "$tmp/got" && [ -s "$tmp/got" ] || fail "$name: losses differ"
}
together() { # no host left before the job ended
    grep -h ': 1 host (' "$tmp/$name".*.err | grep -v 'begins' && fail "$name: a host left before the job ended"
}
codes() { # n1, n2
    await "the end of n1" has_code n1
    [ -z "$2" ] || await "the end of n2" has_code n2
    got="$(cat "$tmp/$name.n1.code") $(cat "$tmp/$name.n2.code" 2>/dev/null)"
    [ "$got" = "$1 $2" ] && echo "$name: exit codes $got after $(rows "$name") steps" || {
        fail "$name: codes $got"; cat "$tmp/$name".*.err "$tmp/$name.log"; }
}
saved() { # a checkpoint of the last step
    [ -f "$tmp/$name/checkpoints/MANIFEST-$(printf %08d "$(rows "$name")")" ] || {
        fail "$name: no checkpoint of step $(rows "$name")"; ls "$tmp/$name/checkpoints"; tail -n 20 "$tmp/$name".*.err; }
    same_losses
}

"$weft" train $job steps=400 output="$tmp/one" -q >"$tmp/one.out" 2>"$tmp/err" || fail "one process"

# ---- a node that is drained: Slurm gives it no further job, weft drain takes it out of this one; then it is added by a second job
begin drained 100000
scontrol update nodename=n2 state=drain reason=test
"$weft" drain n2 "$tmp/drained" >"$tmp/out" 2>"$tmp/err" || fail "weft drain n2"
await "the end of n2" has_code n2
[ "$(cat "$tmp/drained.n2.code")" = 0 ] || fail "drained: n2 ends with $(cat "$tmp/drained.n2.code")"
scontrol update nodename=n2 state=resume
await "steps of one host" has_rows $(($(rows drained) + 5))
at=$("$weft" status "$tmp/drained" --json | sed -n 's/.*"agents": \[{"host": "n1", "address": "\([^"]*\)".*/\1/p')
[ -n "$at" ] || fail "weft status names no agent"
second=$(sbatch --parsable -N1 -n1 -w n2 --overcommit -o "$tmp/drained.second" \
    --wrap "srun --overcommit --cpu-bind=none $tmp/agent.sh drained 100000 --rdzv $at --node-rank 1")
await "a second job joins" has_text n1 'view 4: 2 hosts'
await "steps of two hosts" has_rows $(($(rows drained) + 5))
rm "$tmp/drained.n2.code"
# ---- the second job is cancelled: one host is told to end, the other goes on
scancel "$second"
codes_n2() { await "the end of n2" has_code n2; [ "$(cat "$tmp/drained.n2.code")" = 0 ] || fail "the second job ends with $(cat "$tmp/drained.n2.code")"; }
codes_n2
await "steps of the first job" has_rows $(($(rows drained) + 5))
scancel "$id"
codes 143 0
await "its end" is_over "$id"
saved

# ---- all processes are stopped for longer than --failure-timeout: no failure; then scancel
begin suspended 100000
scontrol suspend "$id" || fail "scontrol suspend"
sleep 6
n=$(rows suspended); sleep 1
[ "$(rows suspended)" = "$n" ] || fail "suspended: it trains"
scontrol resume "$id"
await "steps after it" has_rows $((n + 5))
grep -h 'lost\|replaced' "$tmp"/suspended.*.err && fail "suspended: counts as a failure"
scancel "$id"
codes 143 143
together
saved

# ---- preemption, by a job with a higher priority
begin preempted 100000 -p low
other=$(sbatch --parsable -p high -N2 -n2 --exclusive -o /dev/null --wrap "true")
codes 143 143
together
saved
await "the other job" is_over "$other"

# ---- the warning of a time limit
begin limited 100000 --time=1 --signal=USR1@50
codes 143 143
together
saved

# ---- a time limit that is reached: Slurm ends all processes itself, SIGTERM and 30 s later SIGKILL; limits are whole minutes
if [ "${WEFT_SLURM_LONG:-0}" != 0 ]; then
    begin reached 100000 --time=1
    for i in $(seq 110); do has_code n1 && break; sleep 1; done
    codes 143 143
    together
    saved
    await "Slurm's end of it" is_over "$id"
    scontrol show job "$id" | grep -q 'JobState=TIMEOUT' || fail "reached: Slurm says $(scontrol show job "$id" | grep JobState)"
fi

# ---- a node that is lost: its agent and its daemons are killed, then Slurm hears of it
begin lost 300
kill -9 $slurmd_n2
kill -9 $(pgrep -f "slurmstepd.*$tmp/spool.n2" 2>/dev/null) 2>/dev/null
for p in $(ls /proc | grep '^[0-9]'); do
    grep -qz '^SLURMD_NODENAME=n2$' "/proc/$p/environ" 2>/dev/null && grep -qz "^SLURM_CONF=$conf" "/proc/$p/environ" 2>/dev/null && kill -9 "$p"
done
scontrol update nodename=n2 state=down reason=test
codes 0
same_losses
[ "$(rows lost)" = 300 ] || fail "lost: $(rows lost) steps"
grep -q 'host n2 was lost' "$tmp/lost.n1.err" || fail "lost: it is not named"

[ $bad = 0 ] && echo "all right"
exit $bad
