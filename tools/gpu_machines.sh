#!/bin/bash
# gpu_machines.sh BUILD: ranks on several GPUs, of this machine or of several.
#
#   GPUS=N        GPUs of each machine (those that nvidia-smi lists)
#   HOSTS=FILE    a name a line, the first one rank 0's; reached by ssh without a password, with this tree and BUILD at the same
#                 path.  Without: this machine alone.
#   PORT=29600    of the rendezvous, at the first host, and the ports after it
#
# A rank a GPU: --check, then dp over all of them with reduction=invariant (the bits of one rank) and fixed (twice, the same bits)
# over every way of communication, gpt2 in bf16 for 30 steps over each, and a rank that is killed.  One line for each; exit 1
# where one is not as it should be.
set -u
build=$1 port=${PORT:-29600} bad=0
cd "$(dirname "$0")/.." || exit 2
weft=$PWD/$build/weft
gpus=${GPUS:-$(nvidia-smi -L | wc -l)}
host=(localhost)
[ -n "${HOSTS:-}" ] && mapfile -t host < <(grep -v '^ *\(#\|$\)' "$HOSTS")
world=$((gpus * ${#host[@]}))
tmp=$(mktemp -d "$PWD/gpu-machines.XXXXXX")
trap 'rm -rf "$tmp"' EXIT
"$weft" token "$tmp/token" >/dev/null 2>&1 || exit 1
[ -n "${HOSTS:-}" ] && for h in "${host[@]}"; do
    ssh "$h" mkdir -p "$tmp" && scp -q "$tmp/token" "$h:$tmp/token" || { echo "FAILED: $h is not reached by ssh"; exit 1; }
done

lanes=1
while [ $lanes -lt $world ]; do lanes=$((lanes * 2)); done
small="model=tests/fixtures/gpt2/init data=tests/fixtures/gpt2/tokens.bin seq=13 batch=$lanes micro_batch=1 lanes=$lanes steps=10
       eval.every=0 device=cuda"
large="model=gpt2 data=tests/fixtures/gpt2/tokens.bin init=random seq=256 batch=$((8 * lanes)) lanes=$lanes steps=30 dtype=bf16
       device=cuda"
hash() { sed -n 's/.*"weights_xxh64": "\([0-9a-f]*\)".*/\1/p' "$1"; }
fail() { echo "FAILED: $1"; tail -5 "$tmp"/*.err; bad=1; }

start() { # way, words of weft run: a launcher on each machine; pid[k]
    local way=$1 k; shift; port=$((port + 1))
    local common="WEFT_TOKEN_FILE=$tmp/token WEFT_PLUGINS=$PWD/$build WEFT_GPU_COMM=$way NCCL_DEBUG=${NCCL_DEBUG:-WARN}"
    for k in "${!host[@]}"; do
        local words="--nproc-per-node $gpus"
        [ ${#host[@]} -gt 1 ] && words="$words --nnodes ${#host[@]} --node-rank $k --rdzv ${host[0]}:$port"
        local line="cd $PWD && env $common $weft run $words $* --json"
        if [ -n "${HOSTS:-}" ]; then
            ssh "${host[k]}" "$line" >"$tmp/$k.out" 2>"$tmp/$k.err" &
        else
            bash -c "$line" >"$tmp/$k.out" 2>"$tmp/$k.err" &
        fi
        pid[k]=$!
    done
}
finish() { # code: that of the first that is not 0
    local k c; code=0
    for k in "${!host[@]}"; do
        wait "${pid[k]}"; c=$?
        [ $code = 0 ] && code=$c
    done
}

ways="nccl staged"
[ ${#host[@]} = 1 ] && ways="peer $ways"
echo "$world ranks: $gpus GPUs on each of ${host[*]}"
start "" --check; finish
[ $code = 0 ] && cat "$tmp/0.out" || fail "check: code $code"
WEFT_PLUGINS=$PWD/$build "$weft" train $small output="$tmp/one" --json -q >"$tmp/one.out" 2>"$tmp/one.err"
want=$(hash "$tmp/one.out")
[ -n "$want" ] && echo "one rank: $want" || fail "one rank"

for way in $ways; do
    start $way $small dp=$world reduction=invariant output="$tmp/$way"; finish
    got=$(hash "$tmp/0.out")
    [ "$got" = "$want" ] && echo "$way, dp $world, invariant: $got" || fail "$way, invariant: '$got' instead of $want, code $code"
    for time in first second; do
        start $way $small dp=$world reduction=fixed output="$tmp/$way-$time"; finish
        eval "$time=$(hash "$tmp/0.out")"
    done
    [ -n "$first" ] && [ "$first" = "$second" ] && echo "$way, dp $world, fixed: $first, twice" || fail "$way, fixed: $first $second"
    start $way $large dp=$world output="$tmp/$way-large"; finish
    [ $code = 0 ] && echo "$way, gpt2 on $world GPUs: $(grep -o 'step 30 of 30.*' "$tmp/0.err")" || fail "$way, gpt2: code $code"
done

# a rank that is killed: the first one of the last machine
start nccl $small dp=$world steps=1000000 output="$tmp/killed" --timeout 20
sleep 20
last=$((${#host[@]} - 1)) t0=$(date +%s)
kill_one="for p in \$(pgrep -x weft); do grep -q $tmp/killed /proc/\$p/cmdline && last=\$p; done; kill -9 \$last"
if [ -n "${HOSTS:-}" ]; then ssh "${host[last]}" "$kill_one"; else bash -c "$kill_one"; fi
finish
[ $code != 0 ] && [ $(($(date +%s) - t0)) -le 40 ] && echo "a killed rank, after $(($(date +%s) - t0)) s: $(grep -h error "$tmp"/*.err | head -1)" ||
    fail "a killed rank: code $code after $(($(date +%s) - t0)) s"
exit $bad
