#!/bin/sh
# Ranks that others start, on two hosts (network namespaces joined by a veth pair): mpirun of Open MPI, its remote shell
# being ip netns exec; and torchrun's variables.  Each trains with the bits of one process.
# usage: launchers.sh WEFT      exit 77: no namespaces here
weft=$(realpath "$1")
dev=wl lan=178
. "$(dirname "$0")/../support/cable.sh"
fail() { echo "FAILED: $1"; bad=1; cat "$tmp/out" "$tmp/err" 2>/dev/null; }

job="model=tests/fixtures/gpt2/init data=tests/fixtures/gpt2/tokens.bin seq=13 batch=8 micro_batch=2 lanes=4 steps=5
     threads=1 eval.every=0"
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }
"$weft" train $job output="$tmp/one" --json -q >"$tmp/out" 2>"$tmp/err"; want=$(hash "$tmp/out")
[ -n "$want" ] || fail "one process"
same() {
    [ "$(hash "$tmp/out")" = "$want" ] && echo "$1: $want, as one process" ||
        fail "$1: '$(hash "$tmp/out")' instead of $want"
}

# ---- torchrun's variables, four processes on two hosts
for r in 3 2 1 0; do
    ns=$a; [ $r -ge 2 ] && ns=$b
    words="env RANK=$r WORLD_SIZE=4 LOCAL_RANK=$((r % 2)) LOCAL_WORLD_SIZE=2 GROUP_RANK=$((r / 2))
           MASTER_ADDR=$net.1 MASTER_PORT=24500 $weft run $job output=$tmp/torch --json -q"
    if [ $r = 0 ]; then
        ip netns exec $ns $words >"$tmp/out" 2>"$tmp/err"
    else
        ip netns exec $ns $words >/dev/null 2>&1 & pids="$pids $!"
    fi
done
wait $pids; pids=
same "torchrun's variables, 2 x 2"

# ---- mpirun
mpirun=$(command -v mpirun.openmpi) || { echo "no Open MPI: left out"; exit $bad; }
cat >"$tmp/agent" <<END
#!/bin/sh
shift # the host: there is but one other
exec ip netns exec $b sh -c "\$*"
END
chmod +x "$tmp/agent"
mpi() { # ranks, what they do
    n=$1; shift
    timeout 100 ip netns exec $a $mpirun --allow-run-as-root --oversubscribe -n $n \
        -H $net.1:$((n / 2)),$net.2:$((n / 2)) --mca plm_rsh_agent "$tmp/agent" \
        --mca oob_tcp_if_include $net.0/24 "$weft" run "$@" --json >"$tmp/out" 2>"$tmp/err"
}
for n in 2 4; do
    mpi $n --check
    grep -q "\"ranks\": $n, \"transport\": \"[a-z+]*tcp\"" "$tmp/out" || fail "check by mpirun on 2 x $((n / 2))"
    mpi $n $job output="$tmp/mpi-$n" -q
    same "mpirun on 2 x $((n / 2))"
done

[ $bad = 0 ] && echo "all right"
exit $bad
