#!/bin/sh
# Two hosts (network namespaces) with an agent each and a register in a folder that both see; no address is given.  The cable between them is
# cut: one goes on to the bits of one process, the other finds that view in the register, and ends.  Then the first host dies behind a cut cable,
# so that nothing tells the second one but silence: it goes on alone.
# usage: register.sh WEFT      exit 77: this machine lets us make no namespaces
weft=$(realpath "$1")
dev=wr lan=181
. "$(dirname "$0")/../support/two_agents.sh"

begin cut "file:$tmp/register-cut"
grep -q "2 hosts (.* $net.1:[0-9]*, .* $net.2:[0-9]*)" "$tmp/a.err" || fail "the hosts' own addresses"
ip -n $b link set ${dev}b$$ down
await_both
check_end a
[ $code_b = 1 ] && grep -q 'decided without this host' "$tmp/b.err" || fail "the second host: code $code_b"
echo "a cut cable: $(grep 'was lost' "$tmp/a.err" | head -1); $(grep 'decided without' "$tmp/b.err" | head -1)"

ip -n $b link set ${dev}b$$ up
begin lost "file:$tmp/register-lost"
ip -n $b link set ${dev}b$$ down
kill -9 $pid_a
await_both
check_end b
grep -q 'back to step' "$tmp/b.err" && fail "the second host has a replica"
echo "a lost first host: $(grep 'was lost' "$tmp/b.err" | head -1)"
[ $bad = 0 ] && echo "all right"
exit $bad
