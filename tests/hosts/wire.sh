#!/bin/sh
# weft cluster calibrate between two hosts: network namespaces joined by a cable that is as fast as we say (tc, a token
# bucket) or as it comes.  What it measures is what the cable is, both hosts keep the same, and a plan of several hosts can be
# asked about it.
# usage: wire.sh WEFT      exit 77: this machine lets us make no namespaces, or slow no cable down
weft=$(realpath "$1")
dev=ww lan=176
. "$(dirname "$0")/../support/cable.sh"
command -v tc >/dev/null 2>&1 || skip "no tc command (iproute2)"

fail() { echo "FAILED: $1"; bad=1; for f in "$tmp"/[ab].err; do echo "-- $f"; cat "$f"; done; }
slow() { # NAMESPACE DEVICE MBIT
    ip netns exec $1 tc qdisc del dev $2 root 2>/dev/null
    ip netns exec $1 tc qdisc add dev $2 root tbf rate $3mbit burst 32kb latency 100ms 2>"$tmp/err"
}

# calibrations of the hosts by themselves, as if made before
for h in a b; do
    mkdir -p "$tmp/$h/weft"
    cat >"$tmp/$h/weft/cluster-$(hostname)-2.yaml" <<EOF
name: host-$h
device:
  - {name: cpu, flops: {f32: 1e11}, mem_Bps: 1e10, launch_s: 2e-06, mem_bytes: 8000000000}
link:
  - {name: memory, alpha_s: 1e-06, Bps: 5e9}
node:
  - {name: host, device: cpu, n_device: 2, link: memory}
EOF
done

port=24600
calibrate() { # WORDS...: on both hosts; what they say in $tmp/{a,b}.{out,err}, codes in $code_a, $code_b
    port=$((port + 1))
    XDG_CACHE_HOME=$tmp/a ip netns exec $a "$weft" cluster calibrate --ranks 2 --nnodes 2 --node-rank 0 \
        --rdzv $net.1:$port "$@" -o "$tmp/a.yaml" >"$tmp/a.out" 2>"$tmp/a.err" & pid_a=$!
    XDG_CACHE_HOME=$tmp/b ip netns exec $b "$weft" cluster calibrate --ranks 2 --nnodes 2 --node-rank 1 \
        --rdzv $net.1:$port "$@" -o "$tmp/b.yaml" >"$tmp/b.out" 2>"$tmp/b.err" & pid_b=$!
    pids="$pid_a $pid_b"
    wait $pid_a; code_a=$?
    wait $pid_b; code_b=$?
    pids=
}
measured() { # alpha_s and Bps of the link called net
    tr -d '{},"' <"$tmp/a.yaml" | awk '/name: net / {
        for (i = 1; i < NF; i++) { if ($i == "alpha_s:") a = $(i + 1); if ($i == "Bps:") b = $(i + 1) }
        print a, b }'
}

calibrate
[ $code_a = 0 ] && [ $code_b = 0 ] && [ -n "$(measured)" ] || fail "as it comes: codes $code_a $code_b"
echo "as it comes: $(measured | awk '{printf "%.1f us, %.0f MB/s", $1 * 1e6, $2 / 1e6}')"

for rate in 40 160; do
    slow $a wwa$$ $rate && slow $b wwb$$ $rate || skip "no token buckets: $(head -1 "$tmp/err")"
    calibrate
    [ $code_a = 0 ] && [ $code_b = 0 ] || fail "$rate Mbit/s: codes $code_a $code_b"
    cmp -s "$tmp/a.yaml" "$tmp/b.yaml" || fail "$rate Mbit/s: the hosts keep different clusters"
    # heads of packets and acknowledgements take 4 to 6 of a hundred
    measured | awk -v want=$rate '{ got = $2 * 8 / 1e6 }
        END { printf "%d Mbit/s: measured %.1f Mbit/s (%.2f of it), %.1f us\n", want, got, got / want, $1 * 1e6
              exit !(got > 0.8 * want && got < 1.05 * want) }' || fail "$rate Mbit/s: measured $(measured)"
done

# a long way: 5 ms in each direction, where the kernel can do that
for h in "$a wwa$$" "$b wwb$$"; do
    ip netns exec ${h% *} tc qdisc replace dev ${h#* } root netem delay 5ms 2>/dev/null || far=no
done
if [ -z "$far" ]; then
    calibrate
    measured | awk '{ a = $1 * 1e3 } END { printf "5 ms away: measured %.2f ms\n", a; exit !(a > 4.9 && a < 8) }' ||
        fail "5 ms away: measured $(measured)"
fi

# what was kept is found again, and priced
XDG_CACHE_HOME=$tmp/b "$weft" cluster discover --ranks 2 --nnodes 2 -o "$tmp/found.yaml" 2>"$tmp/a.err" &&
    cmp -s "$tmp/found.yaml" "$tmp/b.yaml" || fail "what was kept is not found"
"$weft" cluster show "$tmp/found.yaml" >"$tmp/a.out" 2>"$tmp/a.err" && grep -q 'net' "$tmp/a.out" || fail "show"

# mistakes
(unset WEFT_TOKEN_FILE; HOME=$tmp XDG_CONFIG_HOME=$tmp "$weft" cluster calibrate --nnodes 2 --rdzv 127.0.0.1:9 2>"$tmp/a.err")
[ $? = 2 ] && grep -q 'need a token' "$tmp/a.err" || fail "no token"
"$weft" cluster calibrate --nnodes 2 2>"$tmp/a.err"; [ $? = 2 ] && grep -q -e '--rdzv host:port says' "$tmp/a.err" || fail "no rdzv"
"$weft" cluster calibrate --nnodes 2 --node-rank 2 --rdzv x:1 2>"$tmp/a.err"; [ $? = 2 ] || fail "node-rank"

[ $bad = 0 ] && echo "all right"
exit $bad
