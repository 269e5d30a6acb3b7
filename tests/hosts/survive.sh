#!/bin/sh
# Two hosts (network namespaces) with an agent each: the cable between them is cut while a job with recover: on runs.  The first host
# goes on alone to the bits of one process, the second one, which is no majority, ends and says so.  With dp=2 it has a replica, with
# "pp=2 copies=2" a stage of its own and the standby replica of the other one.
# usage: survive.sh WEFT [KEYS]      exit 77: this machine lets us make no namespaces
weft=$(realpath "$1")
dev=ws lan=179
. "$(dirname "$0")/../support/two_agents.sh"

begin two $net.1:24100 "$2"
ip -n $b link set ${dev}b$$ down
await_both
check_end a
[ $code_b = 1 ] && grep -q 'no majority' "$tmp/b.err" || fail "the second host: code $code_b"
grep -q 'this host saves what it holds' "$tmp/b.err" || fail "the second host does not save"
grep -q 'back to step' "$tmp/a.err" && fail "the first host has a replica"
grep -q 'was lost' "$tmp/a.err" || fail "the first host does not name what it lost"
echo "a cut cable: $(grep 'was lost' "$tmp/a.err" | head -1); $(grep 'no majority' "$tmp/b.err" | head -1)"
[ $bad = 0 ] && echo "all right"
exit $bad
