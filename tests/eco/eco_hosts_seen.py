"""What is seen of a job of several hosts while they are lost, join and wait: lines of the start and of each view, incidents, weft status,
dumps.  Agents are processes on 127.0.0.1, as in eco_hosts.py; losses and weights are those of one process, bit by bit.

    WEFT_SEEN_CASE   one case alone, by its name"""
import json
import os
import re
import signal
import socket
import subprocess
import time

from eco import NARROW, WEFT, Scratch, check, end, same
from eco_hosts import BASE, LIMIT_S, Job, compare, free_port, run_reference
from eco_views import incidents, words

CASE = os.environ.get("WEFT_SEEN_CASE")


def status(job, *args):
    p = subprocess.run([WEFT, "status", *(args or [job.output]), "--json"], capture_output=True, text=True)
    return json.loads(p.stdout) if p.returncode == 0 else {}


def states_until(job, wanted):
    """The states that weft status gives, one after another, until one is as wanted, and what it says then."""
    limit, states, now = time.monotonic() + LIMIT_S, [], {}
    while now.get("state") != wanted and time.monotonic() < limit:
        now = status(job)
        states += [now.get("state")] if now.get("state") not in states[-1:] else []
    return states, now


def await_incidents(job, n):
    limit = time.monotonic() + LIMIT_S
    while len(incidents(job.output)) < n and time.monotonic() < limit and any(a.p.poll() is None for a in job.agents):
        time.sleep(0.02)
    return incidents(job.output)


def copies_named(scratch, ref):
    """Each view says by name which host's loss would cost what, and warns while there are fewer copies than the job asks for."""
    job = Job(scratch, "named", "zero1-copies", "1:2", steps=120)
    name = socket.gethostname()
    few = "WARN copies is 2, and of some of the state there is 1; host %s (ranks 0-1) holds what no other host does: where it is lost, " % name
    every = "every part of the state is in the memory of at least 2 of hosts %s (ranks 0-1), %s (ranks 2-3); the loss of one costs no step" % (name, name)
    check(job.await_text(job.agents[0], every), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    same(status(job).get("copies"), 2, "weft status of two hosts")
    with open(job.agents[0].name + ".log") as f:
        begun = f.read().count(few)  # both hosts may be there when ranks are started
    job.agents[1].kill_all()
    check(job.await_text(job.agents[0], few, begun + 1), "one host: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    same(status(job).get("copies"), 1, "weft status of one host")
    job.join()
    check(job.await_text(job.agents[0], "INFO copies are whole again: " + every), "two hosts again: " + job.agents[0].name)
    compare("copies that come and go", job, ref(120), [0, -9, 0])
    folders = sorted(os.listdir(os.path.join(job.output, "dumps")))
    check(len(folders) == 1 and folders[0].endswith("-1"), "dumps of the host that was lost, none of hosts that joined: %r" % folders)


def waited_for(scratch, ref):
    """The second of two hosts is stopped as a whole, and both are needed: while the first waits for another one, incidents and weft status
    say so.  The incident counts from when the host was noticed to be lost; how long it was silent before that is its first phase."""
    job = Job(scratch, "waited", "dp2", "2:2", ["--failure-timeout", "1"], steps=60)
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    before, lost = len(incidents(job.output)), job.agents[1]
    for pid in [lost.p.pid, *lost.ranks().values()]:
        os.kill(pid, signal.SIGSTOP)
    found = await_incidents(job, before + 1)[before:]
    why = "waiting for hosts: 1 of at least 2 is there"
    check([(i["cause"], i["decided"], i.get("why"), "next_step" in i) for i in found] == [("host", "wait", why, False)], "it waits: %r" % found)
    p = subprocess.run([WEFT, "status", job.output], capture_output=True, text=True)
    check(p.stdout.startswith("state       %s, process" % why) and "decided: wait, " + why in p.stdout, "weft status: %r" % p)
    same((status(job).get("state"), status(job).get("waiting")), ("waiting", why), "weft status --json")
    begun = time.time()
    lost.kill_all()
    job.join()
    compare("a host that is waited for", job, ref(60), [0, -9, 0])
    over = [i for i in incidents(job.output)[before:] if i["cause"] == "host"]
    same([(i["decided"], "next_step" in i) for i in over], [("wait", False), ("wait", True)], "it is over: %r" % over)
    first, ms = over[0], over[-1]["ms"]
    same(over[-1]["time"], first["time"], "it was noticed once")
    same(first["ms"], {"notice": ms["notice"]}, "what is known at once")
    check(ms["notice"] > 500 and over[-1]["time"] < begun and ms["total"] >= 1e3 * (begun - first["time"]), "phases: %r" % over)
    check(abs(sum(x for p, x in ms.items() if p not in ("notice", "total")) - ms["total"]) < 0.1, "phases add up: %r" % over)
    check("waiting" not in status(job), "it does not wait any more")


def rank_0_lost(scratch, ref):
    """The first of two hosts is lost, with rank 0, which writes status.json, and both are needed: the other agent says that the job waits,
    for what, since when, and that it leads; it takes requests.  Rank 0 of a view that was lost is no job that was killed; all agents lost
    is one."""
    job = Job(scratch, "rank-0", "dp2", "2:2", rdzv="file:" + scratch.path("register"), steps=60)
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    same(status(job).get("state"), "running", "weft status of two hosts")
    names = ["%s (%s)" % (a["host"], a["address"]) for a in status(job).get("agents", [])]
    begun = time.time()
    job.agents[0].kill_all()
    states, now = states_until(job, "waiting")
    check(states[-1:] == ["waiting"] and set(states) <= {"running", "recovering", "changing", "waiting"}, "rank 0's host is lost: %r" % states)
    why, at = "waiting for hosts: 1 of at least 2 is there", names[1].split("(")[-1].rstrip(")")
    same((now.get("waiting"), now.get("lost"), now.get("leader_at")), (why, names[0], at), "weft status: %r" % now)
    check(begun - 1 < now.get("since", 0) < time.time(), "since: %r" % now)
    p = subprocess.run([WEFT, "status", job.output], capture_output=True, text=True)
    for text in ("state       %s, process %d on " % (why, now.get("pid", 0)), " is gone, last heard of ", "\nsince       ", "\nlost        %s\n" % names[0],
                 "\nleader      %s at %s\n" % (socket.gethostname(), at)):
        check(text in p.stdout, "%r in %r" % (text, p))
    far = status(job, "--at", at, "--insecure-network")
    same((far.get("state"), far.get("lost")), ("waiting", names[0]), "weft status --at: %r" % far)
    p = subprocess.run([WEFT, "scale", "3", job.output], capture_output=True, text=True)
    check(p.returncode == 2 and "3 ranks: the job may have up to 2 on 2 hosts" in p.stderr, "weft scale, asked of the agent that is left: %r" % p)
    job.join()
    states, _ = states_until(job, "running")
    check("killed" not in states and states[-1] == "running", "another host joins: %r" % states)
    compare("rank 0's host is lost", job, ref(60), [-9, 0, 0])
    same(status(job).get("state"), "finished", "weft status at its end")
    job = Job(scratch, "all-lost", "dp2", "2:2", steps=100000)
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(4)
    for a in job.agents:
        a.kill_all()
    job.end()
    same(status(job).get("state"), "killed", "both agents are killed")


class Apart(Job):
    """Each agent runs in a folder of its own, in which its output is; this process in that of the first one."""
    def __init__(self, scratch, *args, **more):
        self.scratch = scratch
        for number in range(3):
            os.mkdir(scratch.path("apart-%d" % number))
        os.chdir(scratch.path("apart-0"))
        super().__init__(self, *args, **more)

    def path(self, name):
        return "/proc/self/cwd/" + name

    def command(self, number):
        return ["env", "-C", self.scratch.path("apart-%d" % number)]


def not_shared(scratch, ref):
    """A second host joins, and then another in its place, that do not see the first one's output: the view names it before anything is
    saved.  Rank 0 saves alone."""
    was = os.getcwd()
    try:
        job = Apart(scratch, "out", "dp2", "1:2", steps=60)
        text = "WARN host %s (rank 1) does not see /proc/self/cwd/out/checkpoints: rank 0 writes checkpoints alone, " % socket.gethostname()
        check(job.await_text(job.agents[0], text), "a host that does not see the output: " + job.agents[0].name)
        job.await_step(job.steps() + 4)
        job.agents[1].kill_all()
        check(job.await_text(job.agents[0], ": 1 host", 2), "it is lost: " + job.agents[0].name)
        job.join()
        check(job.await_text(job.agents[0], text, 2), "another host that does not see the output: " + job.agents[0].name)
        compare("output not shared", job, ref(60), [0, -9, 0])
        same(job.text.count("does not see"), 2, "it is said once a host: " + job.text)
    finally:
        os.chdir(was)


def dumped(scratch, ref):
    """A rank of the first of two hosts hangs in an instruction: ranks of both hosts have written what they did last into one folder, and
    weft doctor names the one that is missing, and what the other host's rank waits in."""
    library, flag = os.path.join(os.path.dirname(WEFT), "libhang_kernel.so"), scratch.path("hang-now")
    job = Job(scratch, "dumped", "dp2", "2", steps=60, options=["--timeout", "90"], env=dict(LD_PRELOAD=library, HANG_FILE=flag))
    job.await_step(6)
    with open(flag, "w"):
        pass
    folder = os.path.join(job.output, "dumps")
    found = await_incidents(job, 1)
    check([i["noticed"] for i in found] == ["hang"], "a rank of one host hangs: %r" % found)
    lost = found[0]["rank"] if found else -1
    limit, text = time.monotonic() + LIMIT_S, ""
    while "missing: rank %d\n" % lost not in text and time.monotonic() < limit:  # children write it
        text = subprocess.run([WEFT, "doctor", folder], capture_output=True, text=True).stdout
        time.sleep(0.02)
    check(text.startswith("first mismatch: ") and "missing: rank %d\n" % lost in text and re.search(r"^rank %d: .* runs for " % (1 - lost), text, re.M),
          "doctor over two hosts: " + text)
    compare("dumps of two hosts", job, ref(60), [0, 0])
    same(sorted(os.listdir(folder)), ["epoch-%d-1" % found[0]["epoch"]], "one folder for both hosts")


def cost_at_min(scratch, ref):
    """lanes and micro_batch are those of MAX; what that costs with MIN hosts is said at the start, and what MIN alone would choose is what
    a job of MIN hosts does choose."""
    for name, keys in (("keys", dict(plan="off")), ("open", {})):
        keys = dict(model=NARROW, data=BASE["data"], seq=16, batch=8, steps=1, reduction="invariant", init="random", threads=1, recover="on", **keys)
        texts = []
        for nodes in (["--nnodes", "1:2", "--rdzv", "127.0.0.1:%d" % free_port(), "--insecure-network"], []):
            p = subprocess.run([WEFT, "run", "--nproc-per-node", "2", *nodes, *words(dict(keys, output=scratch.path("cost-%s-%d" % (name, len(texts)))))],
                               capture_output=True, text=True)
            check(p.returncode == 0, "cost at MIN, %s: %r" % (name, p))
            texts.append(p.stderr)
        number = r"([0-9.e+-]+)"
        found = re.search("predicted for 1 host \\((\\d) ranks?\\): %s s a step and %s MB a rank with lanes (\\d+), micro_batch (\\d+), which are for 2; chosen for 1 "
                          "alone, lanes (\\d+), micro_batch (\\d+): %s s and %s MB" % ((number,) * 4), texts[0])
        if not check(found, "cost at MIN, %s: %s" % (name, texts[0])):
            continue
        n, *x = [float(v) for v in found.groups()]
        check("hosts from 1 to 2: %d lane" % x[2] in texts[0], "cost at MIN, %s: lanes: %s" % (name, texts[0]))
        taken = [[float(v) for v in re.search(r"micro_batch (\d+), lanes (\d+)", t).groups()][::-1] for t in texts]
        same(x[2:4], taken[0], "cost at MIN, %s: lanes and micro_batch of MAX" % name)
        if n == 2:  # on a busy machine the quick plan may have no use for the second rank
            same(x[4:6], taken[1], "cost at MIN, %s: those of MIN alone" % name)
        check(0 < x[6] <= x[0] < 1 and x[1] > 1 and x[7] > 1 and (n == 2 or name == "open"), "cost at MIN, %s: %r" % (name, found.group(0)))


def main():
    known = {}

    def ref(steps):
        if steps not in known:
            known[steps] = run_reference(scratch, steps)
        return known[steps]

    with Scratch("hosts-seen", memory=True) as scratch:
        for case in (copies_named, waited_for, rank_0_lost, not_shared, dumped, cost_at_min):
            if not CASE or case.__name__ == CASE:
                case(scratch, ref)
    end()


if __name__ == "__main__":
    main()
