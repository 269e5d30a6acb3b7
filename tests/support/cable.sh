# Sourced by tests of two hosts: network namespaces $a and $b with the addresses $net.1 and $net.2, joined by a cable (a veth
# pair, ${dev}a$$ and ${dev}b$$).  Before: weft, the command; dev, two letters; lan, a number, so that tests that run at once do not meet.
# Afterwards: $tmp, a folder; a token in it, named by WEFT_TOKEN_FILE; $bad, 0; what $pids names is killed at the end.  Exit 77: this machine lets us make no namespaces.
a=weft-${dev}a-$$ b=weft-${dev}b-$$ net=10.$lan.$(($$ % 250))
tmp=$(mktemp -d) bad=0 pids=

clean() {
    for p in $pids; do kill -9 "$p" 2>/dev/null; done
    ip netns del $a 2>/dev/null; ip netns del $b 2>/dev/null
    rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 1' INT TERM

skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
# the machine's ip (iproute2), else ours; WEFT_TEST_IPROUTE=own: ours
here=$(cd "$(dirname "$0")/../support" && pwd)
[ "${WEFT_TEST_IPROUTE:-}" = own ] && PATH=$here/iproute:$PATH || PATH=$PATH:$here/iproute
{ ip netns add $a && ip netns add $b &&
  ip link add ${dev}a$$ type veth peer name ${dev}b$$ &&
  ip link set ${dev}a$$ netns $a && ip link set ${dev}b$$ netns $b &&
  ip netns exec $a true; } 2>"$tmp/err" ||
    skip "no namespaces: $(head -1 "$tmp/err")"
ip -n $a addr add $net.1/24 dev ${dev}a$$; ip -n $b addr add $net.2/24 dev ${dev}b$$
ip -n $a link set lo up; ip -n $b link set lo up
ip -n $a link set ${dev}a$$ up; ip -n $b link set ${dev}b$$ up
"$weft" token "$tmp/token" >/dev/null 2>&1 || { echo "weft token failed"; exit 1; }
export WEFT_TOKEN_FILE="$tmp/token"
