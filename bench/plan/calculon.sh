#!/bin/sh
# Calculon's search for 530B on 5,128 A100 beside ours (speed.c), both by processor time on one core.
#   bench/plan/calculon.sh CALCULON [SECONDS]
# CALCULON: a checkout of github.com/calculon-ai/calculon; it needs psutil and pandas. After SECONDS (600) it is stopped, and
# what it has used until then is a lower bound.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
dir=${1:?a checkout of Calculon}
limit=${2:-600}

"$here/build/bench_plan_speed" | grep 530B

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cd "$dir"
echo "Calculon, models/turing-530B.json on 5,128 of systems/a100_80g.json, batch 2,564:"
PYTHONPATH=. timeout -s INT "$limit" sh -c 'time python3 bin/calculon llm-optimal-execution \
    models/turing-530B.json 5128 2564 float16 systems/a100_80g.json "$0" -c 1' "$out/best.csv" ||
    echo "not done after $limit s"
