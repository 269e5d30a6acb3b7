#!/bin/sh
# fault.sh BUILD RESULTS files|ranks|views|scale|detect|failpoints|hosts|gpu: a long campaign of tests/eco and tests/fault; what came of it goes to RESULTS.
#   files   every call that changes a file is killed before and failed at, kills fall at random moments, disks of
#           many sizes run full; on the disk that TMPDIR lies on, not in memory
#   ranks   one of four ranks is killed at random moments, or stopped: in loops of collectives, in a training job
#   views   ranks of jobs with recover: on are killed at random moments, and replaced; one job has 2,000 views
#   scale   jobs get more and fewer ranks at random moments, some are killed on the way
#   detect  ranks of such jobs are stopped and continued at random moments, with every --on-stop
#   failpoints  every failpoint of the sources, with a kill and with a delay
#   hosts   agents of several hosts in a simulator: 100,000 schedules of lost messages, cut links, pauses, clock jumps and crashes; jobs whose
#           ranks and hosts are lost, with registers in a folder and in a real etcd of three, whose leader is lost, too
#   gpu     each call of the driver, cublasLt and cuDNN fails in a small job, once and from then on (tests/cuda/stub)
set -eu
build=$1
results=$2
export WEFT="$build/weft" TMPDIR="${TMPDIR:-/tmp}"
export WEFT_TEST_LONG=1
export WEFT_FAULT_KILLS="${WEFT_FAULT_KILLS:-200}" WEFT_FAULT_EVERY="${WEFT_FAULT_EVERY:-1}"
export WEFT_FAULT_SIZES="${WEFT_FAULT_SIZES:-64}" WEFT_FAULT_SEED="${WEFT_FAULT_SEED:-$(date +%j)}"
export WEFT_FAULT_RANK_KILLS="${WEFT_FAULT_RANK_KILLS:-100}"

case $3 in
files)
    eco="kill disk"
    unit="test_ckpt_crash test_ckpt_powercut"
    what="$WEFT_FAULT_KILLS random kills (seed $WEFT_FAULT_SEED), a call in $WEFT_FAULT_EVERY, $WEFT_FAULT_SIZES disks"
    ;;
ranks)
    eco="ranks"
    unit="test_shm"
    what="$WEFT_FAULT_RANK_KILLS kills of one of four ranks (seed $WEFT_FAULT_SEED), $(nproc) processors"
    ;;
views)
    eco="views"
    unit="test_member"
    export WEFT_VIEWS_SECONDS="${WEFT_VIEWS_SECONDS:-600}" WEFT_VIEWS_SEED="$WEFT_FAULT_SEED"
    export WEFT_VIEWS_MANY="${WEFT_VIEWS_MANY:-2000}"
    export WEFT_VIEWS_TABLE="${results%.txt}-pause.csv"
    what="random kills for $WEFT_VIEWS_SECONDS s (seed $WEFT_FAULT_SEED), $(nproc) processors"
    ;;
scale)
    eco="scale"
    unit="test_member test_state_table test_replan"
    export WEFT_SCALE_SECONDS="${WEFT_SCALE_SECONDS:-300}" WEFT_SCALE_SEED="$WEFT_FAULT_SEED"
    export WEFT_SCALE_TABLE="${results%.txt}-pause.csv"
    what="random resizes for $WEFT_SCALE_SECONDS s (seed $WEFT_FAULT_SEED), $(nproc) processors"
    ;;
detect)
    eco="detect"
    unit="test_detect"
    export WEFT_DETECT_SECONDS="${WEFT_DETECT_SECONDS:-300}" WEFT_DETECT_SEED="$WEFT_FAULT_SEED"
    what="random stops for $WEFT_DETECT_SECONDS s (seed $WEFT_FAULT_SEED), $(nproc) processors"
    ;;
failpoints)
    eco="failpoints"
    unit="test_failpoint"
    export WEFT_FAILPOINTS=all WEFT_FAILPOINTS_SEED="$WEFT_FAULT_SEED"
    export WEFT_FAILPOINTS_TABLE="${results%.txt}.csv"
    what="every failpoint with kill and delay (seed $WEFT_FAULT_SEED), $(nproc) processors"
    ;;
hosts)
    eco="hosts hosts_seen slots many rdzv"
    export WEFT_HOSTS_ROUNDS="${WEFT_HOSTS_ROUNDS:-20}"
    unit="test_hosts_cases test_hosts_sim"
    export WEFT_HOSTS_SCHEDULES="${WEFT_HOSTS_SCHEDULES:-100000}" WEFT_HOSTS_SEED="$WEFT_FAULT_SEED"
    what="$WEFT_HOSTS_SCHEDULES simulated schedules (from seed $WEFT_FAULT_SEED)"
    ;;
gpu)
    eco=""
    unit="test_cuda_fail"
    what="every call of a job on the GPU fails, without a GPU"
    export WEFT_TEST_FAILS=all
    ;;
esac

mkdir -p "$(dirname "$results")"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
bad=0
{
    echo "# make fault, $(date -u +%Y-%m-%d), $(uname -sr), file system $(stat -f -c %T "$TMPDIR")"
    echo "# $what"
} >"$log"
for t in $eco; do
    echo "== eco_$t" >>"$log"
    tests/eco/run.sh "$t" >>"$log" 2>&1 || bad=1
done
for t in $unit; do
    echo "== $t" >>"$log"
    "$build/$t" 2>&1 | grep -v 'RUN' >>"$log" || bad=1
    tail -1 "$log" | grep -q PASSED || bad=1
done
[ "$bad" = 0 ] && echo "all passed" >>"$log" || echo "FAILED" >>"$log"
cp "$log" "$results"
cat "$log"
exit "$bad"
