"""weft run --nnodes MIN:MAX -- PROGRAM: agents of several hosts, here processes on 127.0.0.1, start all ranks of another engine's program
anew, with torchrun's variables of the next view, when a rank fails, a host is lost, joins or leaves."""
import json
import os
import signal
import subprocess
import time

from eco import WEFT, Scratch, check, end, same
from eco_hosts import free_port

LIMIT_S = 40
PROGRAM = """
echo "$$ $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR:$MASTER_PORT" >> $FOLDER/seen
[ ! -e $FOLDER/fail ] || exit 3
while [ ! -e $FOLDER/finish ]; do sleep 0.05; done
"""


class Run:
    def __init__(self, scratch, name, nnodes, *options):
        self.folder = scratch.path(name)
        os.makedirs(self.folder)
        self.words = [WEFT, "run", "--nnodes", nnodes, "--nproc-per-node", "2", "--rdzv", "127.0.0.1:%d" % free_port(),
                      "--insecure-network", "--failure-timeout", "2", "--log-dir", self.folder, *options]
        self.agents = []

    def start(self, *options):
        k = len(self.agents)
        err = open(os.path.join(self.folder, "err%d" % k), "wb")
        self.agents.append(subprocess.Popen([*self.words, *options, "--", "sh", "-c", PROGRAM], stdout=subprocess.DEVNULL, stderr=err,
                                            env=dict(os.environ, FOLDER=self.folder)))
        return self.agents[-1]

    def text(self):
        return "".join("-- %d\n%s" % (k, open(os.path.join(self.folder, "err%d" % k)).read()) for k in range(len(self.agents)))

    def seen(self):
        try:
            with open(os.path.join(self.folder, "seen")) as f:
                return [line.split() for line in f.read().splitlines()]
        except OSError:
            return []

    def await_ranks(self, what, world, n_host, restart):
        """All ranks of a view have started; their lines by rank."""
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            found = {int(x[1]): x for x in self.seen() if len(x) == 9 and x[2] == str(world) and x[7] == str(restart)}
            if len(found) == world:
                break
            time.sleep(0.05)
        fine = same(sorted(found), list(range(world)), "%s: ranks with restart %d\n%s" % (what, restart, self.text()))
        for rank, x in found.items() if fine else ():
            same([int(v) for v in x[3:7]], [rank % 2, 2, rank // 2, n_host], what + ": variables of rank %d" % rank)
        same(len({x[8] for x in found.values()}), 1, what + ": one address for all")
        return found

    def finish(self):
        open(os.path.join(self.folder, "finish"), "w").close()
        return self.codes()

    def codes(self):
        got = []
        for a in self.agents:
            try:
                got.append(a.wait(LIMIT_S))
            except subprocess.TimeoutExpired:
                a.kill()
                got.append("hung")
        return got

    def incidents(self):
        path = os.path.join(self.folder, "incidents.jsonl")
        return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def is_gone(pid):
    limit = time.monotonic() + 5
    while os.path.exists("/proc/%d" % pid) and time.monotonic() < limit:
        time.sleep(0.05)
    return not os.path.exists("/proc/%d" % pid)


def failures(scratch):
    """A host joins, a rank is killed, the host is lost: all ranks start again, and end with 0."""
    run = Run(scratch, "failures", "1:2", "--max-restarts", "3")
    run.start()
    run.await_ranks("one host", 2, 1, 0)
    run.start()
    first = run.await_ranks("a host joins", 4, 2, 0)
    os.kill(int(first[3][0]), signal.SIGKILL)
    second = run.await_ranks("a rank is killed", 4, 2, 1)
    check(all(is_gone(int(x[0])) for x in first.values()), "a rank is killed: others have ended")
    run.agents[1].kill()
    run.await_ranks("a host is lost", 2, 1, 2)
    check(all(is_gone(int(x[0])) for x in second.values()), "a host is lost: its ranks have ended")
    same(run.finish(), [0, -9], "failures: " + run.text())
    found = run.incidents()
    same([(i["cause"], i["decided"]) for i in found if i["cause"] != "join"], [("kill", "restart"), ("host", "restart")], "incidents %r" % found)


def leaves(scratch):
    """SIGTERM to one agent: the other goes on, and no restart is counted; SIGINT to that one: it ends."""
    run = Run(scratch, "leaves", "1:2")
    run.start()
    run.await_ranks("one host", 2, 1, 0)
    run.start()
    run.await_ranks("a host joins", 4, 2, 0)
    n = len(run.seen())
    run.agents[1].send_signal(signal.SIGTERM)
    same(run.agents[1].wait(LIMIT_S), 0, "a host leaves: " + run.text())
    limit = time.monotonic() + LIMIT_S
    while len(run.seen()) < n + 2 and time.monotonic() < limit:
        time.sleep(0.05)
    same([(x[2], x[7]) for x in run.seen()[n:]], [("2", "0")] * 2, "a host leaves: " + run.text())
    run.agents[0].send_signal(signal.SIGINT)
    same(run.codes(), [130, 0], "SIGINT: " + run.text())


def exhausted(scratch):
    """A program that always fails: both hosts end with 1 after --max-restarts, with one line."""
    run = Run(scratch, "exhausted", "2", "--max-restarts", "1")
    open(os.path.join(run.folder, "fail"), "w").close()
    run.start("--node-rank", "0")
    run.start("--node-rank", "1")
    same(run.codes(), [1, 1], "exhausted: " + run.text())
    same(run.text().count("no restart is left: --max-restarts is 1"), 2, "exhausted: " + run.text())
    same(sorted({x[7] for x in run.seen()}), ["0", "1"], "exhausted: %r" % run.seen())


def main():
    scratch = Scratch("restart", memory=True)
    for case in (failures, leaves, exhausted):
        case(scratch)
    end()


if __name__ == "__main__":
    main()
