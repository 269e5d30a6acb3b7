"""weft run --nnodes MIN:MAX -- PROGRAM: agents of several hosts, here processes on 127.0.0.1, start all ranks of another engine's program
anew, with torchrun's variables of the next view, when a rank fails, a host is lost, joins or leaves.  Where sizes are given, as many
ranks as these need."""
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

    def start(self, *options, program=PROGRAM):
        k = len(self.agents)
        err = open(os.path.join(self.folder, "err%d" % k), "wb")
        self.agents.append(subprocess.Popen([*self.words, *options, "--", "sh", "-c", program], stdout=subprocess.DEVNULL, stderr=err,
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
    metrics = os.path.join(run.folder, "metrics")
    run.start("--metrics-file", metrics)
    run.await_ranks("one host", 2, 1, 0)
    run.start()
    first = run.await_ranks("a host joins", 4, 2, 0)
    os.kill(int(first[3][0]), signal.SIGKILL)
    second = run.await_ranks("a rank is killed", 4, 2, 1)
    check(all(is_gone(int(x[0])) for x in first.values()), "a rank is killed: others have ended")
    run.agents[1].kill()
    run.await_ranks("a host is lost", 2, 1, 2)
    check(all(is_gone(int(x[0])) for x in second.values()), "a host is lost: its ranks have ended")
    limit = time.monotonic() + LIMIT_S
    while list(metric(metrics, "weft_restarts_total").values()) != [2] and time.monotonic() < limit:
        time.sleep(0.1)
    same(list(metric(metrics, "weft_restarts_total").values()), [2], "a host is lost: restarts")
    same(metric(metrics, "weft_incidents_total").get('cause="host",level="restart"'), 1, "a host is lost: incidents")
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


ONE_BY_ONE = """
echo "$$ $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT $MASTER_ADDR:$MASTER_PORT" >> $FOLDER/seen
[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
while [ ! -e $FOLDER/end-$GROUP_RANK ]; do sleep 0.05; done
exit $(cat $FOLDER/end-$GROUP_RANK)
"""


def done_before(scratch):
    """A rank fails when those of another host have ended with 0: with MIN hosts left its host starts again alone, else it ends with 1 at
    once, as torchrun's after its timeout.  The other agent waits until then, and ends with 0."""
    for nnodes, done in (("1:2", 0), ("1:2", 1), ("2", 0), ("2", 1)):
        what = "%s, host %d has done its work" % (nnodes, done)
        run = Run(scratch, "done-%s-%d" % (nnodes.replace(":", "-"), done), nnodes, "--max-restarts", "2")
        for k in range(2):
            run.start(*(() if ":" in nnodes else ("--node-rank", str(k))), program=ONE_BY_ONE)
            if not k and ":" in nnodes:
                run.await_ranks(what, 2, 1, 0)
        run.await_ranks(what, 4, 2, 0)
        for host, code in ((done, 0), (1 - done, 3)):
            with open(os.path.join(run.folder, "new"), "w") as f:
                f.write("%d" % code)
            os.rename(os.path.join(run.folder, "new"), os.path.join(run.folder, "end-%d" % host))
            time.sleep(3)  # longer than an agent of a job stays
        goes_on = ":" in nnodes
        same(run.codes(), [0 if k == done or goes_on else 1 for k in range(2)], what + ": " + run.text())
        if goes_on:
            run.await_ranks(what, 2, 1, 1)
        check(goes_on or "a rank failed when other hosts had done their work" in run.text(), what + ": " + run.text())


BOTH = """
touch $FOLDER/ready
while [ ! -e $FOLDER/go ]; do sleep 0.02; done
echo out; echo err >&2; touch $FOLDER/wrote
exec sleep 60
"""


def both_outputs(scratch):
    """A rank that has written on both its outputs, and then nothing, does not keep weft run from its signals."""
    folder = scratch.path("both")
    os.makedirs(folder)

    def await_file(name):
        limit = time.monotonic() + LIMIT_S
        while not os.path.exists(os.path.join(folder, name)) and time.monotonic() < limit:
            time.sleep(0.01)

    p = subprocess.Popen([WEFT, "run", "--nproc-per-node", "1", "--", "sh", "-c", BOTH], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=dict(os.environ, FOLDER=folder))
    await_file("ready")
    p.send_signal(signal.SIGSTOP)
    open(os.path.join(folder, "go"), "w").close()
    await_file("wrote")
    p.send_signal(signal.SIGCONT)
    time.sleep(0.3)
    p.send_signal(signal.SIGTERM)
    try:
        out, err = p.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        p.kill()
        out, err = p.communicate()
    same((p.returncode, out, b"err" in err), (143, b"out\n", True), "both outputs: %r" % err)


ORPHANS = """
echo $$ >> $FOLDER/seen
if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then (sleep 0.3 &) ; (sleep 0.1 &) ; exit 3; fi
sleep 1
for k in $(seq 200); do
    sleep 0.1
    grep -l '^State:.Z' /proc/[0-9]*/status > $FOLDER/zombies 2>/dev/null || exit 0
done
exit 4
"""


def orphans(scratch):
    """As the first process of a container the launcher gets what ranks have started and left: nothing stays a zombie."""
    if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], stderr=subprocess.DEVNULL).returncode:
        print("orphans: left out: no process namespaces")
        return
    folder = scratch.path("orphans")
    os.makedirs(folder)
    p = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", WEFT, "run", "--nproc-per-node", "1", "--max-restarts", "1",
                        "--log-dir", folder, "--", "sh", "-c", ORPHANS], env=dict(os.environ, FOLDER=folder), capture_output=True, text=True,
                       timeout=LIMIT_S)
    same(p.returncode, 0, "orphans: 4: zombies are left; " + p.stderr)


HANGS = """
[ $RANK = 0 ] && sh -c 'while [ ! -e $FOLDER/finish ]; do sleep 0.01; done' && exit 0
while [ ! -e $FOLDER/hang ]; do sleep 0.05; echo works; done
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 1000
while [ ! -e $FOLDER/finish ]; do echo works; sleep 0.05; done
"""


SIZES = """
echo "$$ $RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $WEFT_DP $WEFT_TP $WEFT_PP $WEFT_ACCUMULATION_STEPS" >> $FOLDER/seen
while [ ! -e $FOLDER/finish ]; do sleep 0.05; done
"""


def sizes(scratch):
    """tp=3 on hosts of two ranks: one replica of two hosts, with a rank idle; a third host makes two of it; it is lost.  A host without
    a rank ends when the others are done."""
    run = Run(scratch, "sizes", "2:3", "--max-restarts", "2")
    words = ("tp=3", "batch=12", "micro_batch=2")

    def await_line(what, n, text):
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit and len([x for x in run.seen() if x[2:] == text.split()]) < n:
            time.sleep(0.05)
        found = [x for x in run.seen() if x[2:] == text.split()]
        same(len(found), n, "%s: ranks with %s of %r\n%s" % (what, text, run.seen(), run.text()))
        return found

    run.start(*words, program=SIZES)
    run.start(*words, program=SIZES)
    await_line("two hosts", 2, "3 2 0 2 1 3 1 6")
    await_line("two hosts", 1, "3 1 1 2 1 3 1 6")
    run.start(*words, program=SIZES)
    for group in range(3):
        await_line("three hosts", 2, "6 2 %d 3 2 3 1 3" % group)
    run.agents[2].kill()
    await_line("a host is lost", 4, "3 2 0 2 1 3 1 6")
    check("dp=1 tp=3: 3 of 4 ranks run, 1 of 2 on this host" in run.text(), "sizes: " + run.text())
    same(run.finish(), [0, 0, -9], "sizes: " + run.text())
    idle = Run(scratch, "idle", "1:2")
    idle.start("dp=1", "tp=2", program=SIZES)
    limit = time.monotonic() + LIMIT_S
    while len(idle.seen()) < 2 and time.monotonic() < limit:
        time.sleep(0.05)
    idle.start("dp=1", "tp=2", program=SIZES)
    while "0 of 2 on this host" not in idle.text() and time.monotonic() < limit:
        time.sleep(0.05)
    same(idle.finish(), [0, 0], "a host without ranks: " + idle.text())
    same({tuple(x[2:]) for x in idle.seen()}, {("2", "2", "0", "1", "1", "2", "1")}, "a host without ranks: its variables")
    for words, text in ((["--nproc-per-node", "3", "tp=4"], "1 host of 3 ranks: the sizes need at least 4"),
                        (["--nproc-per-node", "4", "zero=1"], "'zero=1' before --: either a job, or sizes of the program"),
                        (["--nproc-per-node", "4", "dp=5:7", "batch=64"], "sizes: no dp from 5 to 7")):
        bad = subprocess.run([WEFT, "run", *words, "--", "true"], capture_output=True, text=True)
        check(bad.returncode == 2 and text in bad.stderr, "bad input: %r %s" % (words, bad.stderr))


def metric(path, name):
    try:
        with open(path) as f:
            return {",".join(line.split("{")[1].split("}")[0].split(",")[2:]): float(line.split()[-1]) for line in f if line.startswith(name)}
    except OSError:
        return {}


def hangs(scratch):
    """A rank that neither writes nor computes for --hang-timeout hangs, one that computes in a child without a word does not."""
    folder = scratch.path("hangs")
    os.makedirs(folder)
    metrics, err = os.path.join(folder, "metrics"), os.path.join(folder, "err")
    command = [WEFT, "run", "--nproc-per-node", "2", "--max-restarts", "2", "--hang-timeout", "1.5", "--metrics-file", metrics,
               "--log-dir", folder, "--", "sh", "-c", HANGS]
    with open(err, "wb") as f:
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=f, env=dict(os.environ, FOLDER=folder))
    time.sleep(2.5)
    check(p.poll() is None and not os.path.exists(os.path.join(folder, "incidents.jsonl")), "hangs: while both work: " + open(err).read())
    open(os.path.join(folder, "hang"), "w").close()
    limit = time.monotonic() + LIMIT_S
    while not metric(metrics, "weft_incidents_total") and time.monotonic() < limit and p.poll() is None:
        time.sleep(0.05)
    same(list(metric(metrics, "weft_restarts_total").values()), [1], "hangs: restarts: " + open(err).read())
    same(metric(metrics, "weft_incidents_total"), {'cause="hang",level="restart"': 1}, "hangs: incidents")
    same(metric(metrics, "weft_step") or metric(metrics, "weft_rank_step"), {}, "hangs: steps are not known")
    check(all('{job="%s",' % folder in x for x in open(metrics) if x[0] != "#"), "hangs: the label: " + open(metrics).read())
    status = subprocess.run([WEFT, "status", folder], capture_output=True, text=True)
    check(status.returncode == 2 and "a folder of logs (--log-dir), not the output of a job" in status.stderr, "hangs: weft status: %r" % status)
    open(os.path.join(folder, "finish"), "w").close()
    try:
        same(p.wait(LIMIT_S), 0, "hangs: " + open(err).read())
    except subprocess.TimeoutExpired:
        p.kill()
        check(False, "hangs: it does not end: " + open(err).read())
    with open(os.path.join(folder, "incidents.jsonl")) as f:
        found = [json.loads(line) for line in f]
    same([(i["rank"], i["cause"], i["noticed"], i["decided"]) for i in found], [(1, "hang", "hang", "restart")], "hangs: %r" % found)
    check("no output and no CPU time for" in found[0]["what"], "hangs: %r" % found)
    for words, text in ((["--hang-timeout", "-1", "--", "true"], "--hang-timeout: '-1' is not a number"),
                        (["--hang-timeout", "5", "job.yaml"], "--hang-timeout: of a program after --")):
        bad = subprocess.run([WEFT, "run", *words], capture_output=True, text=True)
        check(bad.returncode == 2 and text in bad.stderr, "bad input: %r %s" % (words, bad.stderr))


def main():
    with Scratch("restart", memory=True) as scratch:
        for case in (failures, leaves, exhausted, done_before, both_outputs, orphans, hangs, sizes):
            case(scratch)
    end()


if __name__ == "__main__":
    main()
