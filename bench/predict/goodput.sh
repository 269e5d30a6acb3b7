#!/bin/sh
# goodput.sh [WEFT]: traces of hosts through weft sim --events, as a table.  Steps are the planner's for GPT-2 XL on hosts with one
# A100 each, on fewer hosts those of the re-planner (micro_batch and lanes stay); the pause is the median that was measured after lost
# ranks of gpt2 (PAUSES), on one host.  A host that is killed is noticed at once (its connections are reset: 50 ms), one that is
# silent after 0.8 of --failure-timeout, 10 s unless said.
weft=${1:-build/weft} traces=${TRACES:-../shared/traces/oobleck_sosp23/tools/simulator/traces}
pauses=${PAUSES:-bench/results/pauses-2026-11-16.csv}
pause=$(awk -F, '$1 == "large:2" && $3 == "pause" { print $5 / 1000 }' "$pauses")
temp=$(mktemp -d)
trap 'rm -r "$temp"' EXIT
# 64 hosts, one of them lost each 10 minutes; and the same where it is back, or another one has come, after 5 minutes
awk 'BEGIN { for (n = 1; n <= 64; n++) print "0,add,n" n; for (k = 1; k <= 32; k++) print k * 600000 ",remove,n" 2 * k }' >"$temp/64.csv"
awk 'BEGIN { for (n = 1; n <= 64; n++) print "0,add,n" n
             for (k = 1; k <= 32; k++) { print k * 600000 ",remove,n" 2 * k; print k * 600000 + 300000 ",add,m" k } }' >"$temp/64-back.csv"
run() { # what, hosts, trace, options
    what=$1 hosts=$2 trace=$3
    shift 3
    printf '%-58s ' "$what"
    "$weft" sim gpt2-xl --cluster "$hosts x (1 x a100-80g)" --batch 256 --seq 1024 --pause "$pause" --events "$trace" "$@" >"$temp/out"
    sed -n '1s/:.*//p; 3s/^ */, /p' "$temp/out" | tr -d '\n'
    echo
}
echo "pause $pause s (median of $pauses, large:2)"
for hosts in 30 64 64-back; do
    case $hosts in
    30) trace=$traces/10m.csv n=30 ;;
    *) trace=$temp/$hosts.csv n=64 ;;
    esac
    run "a silent failure each 10 minutes, $hosts hosts" $n "$trace"
    run "... --failure-timeout 5" $n "$trace" --failure-timeout 5
    run "... the agent is killed (noticed in 50 ms)" $n "$trace" --failure-timeout 0.0625
done
run "a silent failure each 5 minutes, 30 hosts" 30 "$traces/5m.csv"
run "a silent failure an hour, 30 hosts" 30 "$traces/1h.csv"
for copies in 1 2 3; do run "spot p3 hosts without notice, $copies copies" 32 "$traces/p3-trace.csv" --copies $copies; done
run "spot p3 hosts, 120 s notice" 32 "$traces/p3-trace.csv" --notice 120
run "spot g4dn hosts, 120 s notice" 32 "$traces/g4dn-trace.csv" --notice 120
