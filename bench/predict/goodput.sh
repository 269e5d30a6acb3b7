#!/bin/sh
# goodput.sh [WEFT]: published traces of hosts through weft sim --events, as a table.  Steps are the
# planner's for GPT-2 XL on hosts with one A100 each; pauses are the options' (nothing is measured here).
weft=${1:-build/weft} traces=${TRACES:-../shared/traces/oobleck_sosp23/tools/simulator/traces}
run() { # what, trace, options
    what=$1 trace=$2
    shift 2
    printf '%-46s ' "$what"
    "$weft" sim gpt2-xl --cluster "32 x (1 x a100-80g)" --batch 256 --seq 1024 --events "$traces/$trace" "$@" | head -1 |
        cut -d: -f1
}
run "one failure each 10 minutes, 30 hosts" 10m.csv
run "... noticed after 1 s" 10m.csv --failure-timeout 1
run "one failure each 5 minutes" 5m.csv
run "one failure an hour" 1h.csv
for copies in 1 2 3; do run "spot p3 hosts without notice, $copies copies" p3-trace.csv --copies $copies; done
run "spot p3 hosts, 120 s notice" p3-trace.csv --notice 120
run "spot g4dn hosts, 120 s notice" g4dn-trace.csv --notice 120
