# Sourced by tests of Slurm, with WEFT as $1: a controller and two nodes (two slurmd, n1 and n2) on this machine for the time of the test.
# Partitions: all (nodes are shared), low and high (high preempts low: SIGTERM, and SIGKILL after 30 s).
# Sets weft, tmp, port (and the 9 after it), bad; nodes n1, n2 have processes $slurmd_n1, $slurmd_n2.  exit 77: there is no Slurm, or we are not root.
weft=$(realpath "$1")
tmp=$(mktemp -d) bad=0 pids=
conf=$tmp/slurm.conf host=$(hostname)
export SLURM_CONF=$conf
port=$((17000 + $$ % 900 * 10))

clean() {
    for p in $(ls /proc | grep '^[0-9]'); do # what jobs have left
        [ "$p" != $$ ] && grep -qz "^SLURMD_NODENAME=" "/proc/$p/environ" 2>/dev/null && grep -qz "^SLURM_CONF=$conf" "/proc/$p/environ" 2>/dev/null && kill -9 "$p"
    done
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
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=4 RealMemory=1000
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE PreemptMode=OFF
PartitionName=low Nodes=n[1-2] MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=30 PreemptMode=CANCEL
PartitionName=high Nodes=n[1-2] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
END
for i in $(seq 50); do [ -S "$tmp/munge" ] && break; sleep 0.1; done
slurmctld -c -D >"$tmp/ctld.out" 2>&1 & pids="$pids $!"
slurmd -D -N n1 >"$tmp/n1.out" 2>&1 & slurmd_n1=$! pids="$pids $!"
slurmd -D -N n2 >"$tmp/n2.out" 2>&1 & slurmd_n2=$! pids="$pids $!"
for i in $(seq 150); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
    sleep 0.2
done
if [ "$(sinfo -h -t idle -o %D 2>/dev/null)" != 2 ]; then
    sinfo 2>&1; tail -3 "$tmp"/*.out "$tmp"/*.log
    skip "Slurm does not come up here"
fi
"$weft" token "$tmp/token" >/dev/null 2>&1 || fail "weft token"
export WEFT_TOKEN_FILE="$tmp/token" # srun passes variables on
