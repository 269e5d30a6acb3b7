"""Agents of several hosts, here processes on 127.0.0.1: ranks are killed on either host, hosts are lost, join and leave
while a job runs with recover: on; every loss and the hash of the weights are those of one process, bit by bit.

    WEFT_TEST_LONG      all cases (make long)
    WEFT_HOSTS_ROUNDS   random kills of ranks after them (0)
    WEFT_HOSTS_SEED     what they are drawn from (drawn)
    WEFT_HOSTS_CASE     one case alone, by its name"""
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import time

from eco import LONG, NARROW, ROOT, SANITIZED, SPLIT, WEFT, Scratch, check, end, hold, let_go, paced, same
from eco_views import RowCount, bits, children, gone, incidents, rank_of, words

ROUNDS = int(os.environ.get("WEFT_HOSTS_ROUNDS", "0"))
SEED = int(os.environ.get("WEFT_HOSTS_SEED", str(random.SystemRandom().randrange(1 << 30))))
CASE = os.environ.get("WEFT_HOSTS_CASE")
LIMIT_S = 90  # for a run that does not end
BASE = dict(model=NARROW, data=os.path.join(ROOT, "include"), seq=16, batch=8, micro_batch=1, lanes=4, steps=24,
            reduction="invariant", init="random", threads=1, plan="off", recover="on")
BASE["eval.every"] = 0
BASE["checkpoint.every"] = 1000000
PLANS = {"dp2": (1, dict(dp=2)), "dp4": (2, dict(dp=4)), "pp2": (1, dict(pp=2)), "zero1": (2, dict(dp=4, zero=1)),
         "zero1-copies": (2, dict(dp=4, zero=1, copies=2)), "zero3-copies": (2, dict(dp=4, zero=3, copies=2)),
         "pp2-copies": (1, dict(pp=2, copies=2)), "pp4-copies": (2, dict(pp=4, copies=2)),
         "pp4-three": (1, dict(pp=4, copies=3)), "dp2-pp2-copies": (2, dict(dp=2, pp=2, copies=2))}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Agent:
    def __init__(self, job, number, n, nnodes, node, options):
        self.name = "%s-%d" % (job.output, number)
        self.log = open(self.name + ".log", "wb+")
        who = [] if node is None else ["--node-rank", str(node)]
        self.p = subprocess.Popen([*job.command(number), WEFT, "run", "--nproc-per-node", str(n), "--nnodes", nnodes, *who, "--rdzv",
                                   job.rdzv, *job.proof, "--json", "--timeout", "30", *options,
                                   *words(dict(job.keys, output=job.output))], stdout=subprocess.PIPE, stderr=self.log,
                                  env=dict(os.environ, WEFT_CHECK_COPIES="1",
                                           **paced(job.env, hold(job.output), job.keys["steps"], LONG)))

    def ranks(self):
        return {rank_of(pid): pid for pid in children(self.p.pid)}

    def kill_all(self):
        """The host is lost: its agent, and its ranks with it."""
        self.p.kill()

    def end(self):
        try:
            out, _ = self.p.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.p.kill()
            out, _ = self.p.communicate()
            self.p.returncode = "hung"
        self.log.seek(0)
        self.text = self.log.read().decode()
        self.log.close()
        self.result = json.loads(out) if out.strip() else None
        return self.p.returncode


class Job:
    """nnodes "2": two agents with --node-rank; "1:3": agents join by join().  rdzv: a register; None: a port."""
    proof = ()

    def __init__(self, scratch, name, plan, nnodes="2", options=(), n_agent=2, env=None, rdzv=None, proof=("--insecure-network",), **keys):
        self.n, of_plan = PLANS[plan]
        self.keys = dict(BASE, **dict(of_plan, **keys))
        self.output = scratch.path(name)
        self.nnodes, self.options, self.env, self.proof = nnodes, list(options), env or {}, list(proof)
        self.rdzv = rdzv or "127.0.0.1:%d" % free_port()
        self.agents = []
        self.seen = RowCount()
        for k in range(n_agent):
            self.join(k if nnodes.isdigit() and not rdzv else None)
            if not nnodes.isdigit() and k == 0:
                self.await_text(self.agents[0], ": 1 host")

    def join(self, node=None):
        self.agents.append(Agent(self, len(self.agents), self.n, self.nnodes, node, self.options))
        return self.agents[-1]

    def command(self, number):
        """What precedes `weft run` of an agent: here nothing."""
        return []

    def steps(self):
        return self.seen.count(self.output)

    def await_step(self, step):
        limit = time.monotonic() + LIMIT_S
        while self.steps() < step and time.monotonic() < limit and any(a.p.poll() is None for a in self.agents):
            time.sleep(0.005)

    def count_text(self, agent, text):
        with open(agent.name + ".log") as f:
            return f.read().count(text)

    def await_text(self, agent, text, n=1):
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit and agent.p.poll() is None:
            if self.count_text(agent, text) >= n:
                return True
            time.sleep(0.01)
        return False

    def kill(self, rank):
        for a in self.agents:
            pid = a.ranks().get(rank)
            if pid:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def end(self):
        """Nothing more is done to it."""
        let_go(self.output)
        codes = [a.end() for a in self.agents]
        self.text = "\n".join("---- agent %d: %r\n%s" % (k, a.p.returncode, a.text[-2500:])
                              for k, a in enumerate(self.agents))
        found = [a.result for a in self.agents if a.result and a.p.returncode == 0]
        self.result = found[0] if found else None
        return codes


def compare(name, job, reference, codes=None):
    got = job.end()
    fine = check(job.result is not None and (codes is None or got == codes), "%s: codes %r\n%s" % (name, got, job.text))
    if fine:
        same(job.result["weights_xxh64"], reference[0], name + ": weights")
        fine = same(bits(job.output), reference[1], name + ": losses")
    return fine


def await_file(path):
    limit = time.monotonic() + LIMIT_S
    while not os.path.exists(path) and time.monotonic() < limit:
        time.sleep(0.005)
    return os.path.exists(path)


def run_reference(scratch, steps, **keys):
    output = scratch.path("-".join(["ref%d" % steps, *words(keys)]))
    p = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--json", "-q",
                        *words(dict(BASE, steps=steps, recover="off", output=output, **keys))], capture_output=True, text=True)
    check(p.returncode == 0, "one process: " + p.stderr)
    return json.loads(p.stdout)["weights_xxh64"], bits(output)


# ---- cases ----

def undisturbed(scratch, ref):
    for plan in ("dp4", "pp2"):
        compare(plan + " undisturbed", Job(scratch, "plain-" + plan, plan), ref(24), [0, 0])


def rank_killed(scratch, ref):
    """On the other host, on the first one, rank 0 itself: replaced in place, no step is run again."""
    for plan, kills in (("pp2", (1, 0)), ("zero1", (3, 0)), ("dp2", (1, 0)))[:3 if LONG else 1]:
        job = Job(scratch, "kill-" + plan, plan)
        for k, rank in enumerate(kills):
            job.await_step(4 + 8 * k)
            job.kill(rank)
        compare("killed ranks, " + plan, job, ref(24), [0, 0])
        found = incidents(job.output)
        check(len(found) >= 1 and all(i["decided"] == "replace" and i["next_step"] > i["step"] for i in found),
              "killed ranks, %s: incidents %r\n%s" % (plan, found, job.text))
        check("back to step" not in job.text, "killed ranks, %s: the state is there: %s" % (plan, job.text))


def overtaken(scratch, ref):
    """A run whose rank 0 is replaced when a later one has taken the job over, where no lock says so: it leaves the files as they are,
    and ends.  A run that begins after both takes their place."""
    job = Job(scratch, "overtaken", "dp2", steps=1000)
    job.await_step(4)
    epoch, metrics = (os.path.join(job.output, f) for f in ("epoch", "metrics.jsonl"))
    with open(epoch, "w") as f:
        f.write("7\n")
    before = os.stat(metrics).st_ino
    job.kill(0)
    codes = job.end()
    check(0 not in codes and "view 7 of a later run of this job writes there" in job.text, "overtaken: %r %s" % (codes, job.text))
    same(os.stat(metrics).st_ino, before, "overtaken: metrics.jsonl is not replaced")
    again = Job(scratch, "overtaken", "dp2", steps=60)
    compare("a run after it", again, ref(60), [0, 0])
    check(read_epoch(job) > 7, "overtaken: the next run begins above it")


def read_epoch(job):
    with open(os.path.join(job.output, "epoch")) as f:
        return int(f.read().split()[0])


def started_again(scratch, ref):
    """The first of three hosts is killed, and its command is given again, as a supervisor does: it joins those that have gone on.
    One run writes the folder, each row once, and the number in `epoch` rises.  A command for one host is refused there."""
    job = Job(scratch, "again", "dp2", "1:3", n_agent=3, steps=200, dp=3)
    check(job.await_text(job.agents[0], ": 3 hosts"), "three hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    views = job.count_text(job.agents[1], ": 2 hosts")  # they may have come one after the other
    job.agents[0].kill_all()
    check(job.await_text(job.agents[1], ": 2 hosts", views + 1), "the others go on: " + job.agents[1].name)
    job.await_step(job.steps() + 4)
    before = read_epoch(job)
    p = subprocess.run([WEFT, "train", *words(dict(job.keys, output=job.output))], capture_output=True, text=True)
    check(p.returncode == 2 and p.stderr.count("\n") == 1 and "a run of 2 hosts writes there" in p.stderr and "step" in p.stderr
          and all(a in p.stderr for a in addresses(job)), "a run on one host: %r" % p)
    p = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--nnodes", "1:3", "--rdzv", "127.0.0.1:%d" % free_port(), "--insecure-network",
                        *words(dict(job.keys, output=job.output, seed=7))], capture_output=True, text=True, timeout=LIMIT_S)
    check(p.returncode == 1 and "a run of 2 hosts writes there" in p.stderr and "other job: seed is 1 on " in p.stderr and ", 7 on " in p.stderr,
          "another job at its output: %r" % p)
    job.join()
    check(job.await_text(job.agents[1], ": 3 hosts", 2), "the first host joins: " + job.agents[3].name)
    job.await_step(job.steps() + 4)
    views = job.count_text(job.agents[2], ": 2 hosts")
    job.agents[1].kill_all()  # rank 0's; the third host's rank takes its place
    check(job.await_text(job.agents[2], ": 2 hosts", views + 1), "the others go on once more: " + job.agents[2].name)
    job.await_step(job.steps() + 4)
    check(read_epoch(job) > before, "the epoch rises: %d" % read_epoch(job))
    compare("a first host that is started again", job, ref(200), [-9, -9, 0, 0])
    check("host %s begins" % socket.gethostname() not in job.agents[3].text and "asks to join it" in job.agents[3].text, "it begins nothing: " + job.agents[3].text)
    check("resumed from" not in job.agents[3].text and "back to step" not in job.text, "no step is run again: " + job.text)


def started_again_at_once(scratch, ref):
    """The same with two hosts, of which the second alone is no majority: it saves and ends.  The first one, started again meanwhile, waits
    for that, and begins where it has saved, above its epochs."""
    job = Job(scratch, "once-more", "dp2", "1:2", steps=100)
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    job.agents[0].kill_all()
    job.agents[0].p.wait()
    job.join()
    compare("a first host that is started again at once", job, ref(100), [-9, 1, 0])
    check("host %s begins" % socket.gethostname() in job.agents[2].text and "view 1:" not in job.agents[2].text and "resumed from" in job.agents[2].text,
          "it begins above the views before: " + job.agents[2].text)


def fixed_number_again(scratch, ref):
    """The same of a fixed number of hosts: the others wait for it, and it joins them with its --node-rank."""
    job = Job(scratch, "fixed-again", "dp2", "3", n_agent=3, steps=100, dp=3)
    job.await_step(6)
    job.agents[0].kill_all()
    job.agents[0].p.wait()
    job.join(0)
    compare("the first of three hosts again", job, ref(100), [-9, 0, 0, 0])
    check("back to step" not in job.text, "no step is run again: " + job.text)


def addresses(job):
    with open(os.path.join(job.output, "views.jsonl")) as f:
        return [a["address"] for a in json.loads(f.read().splitlines()[-1])["agents"]]


def lost_before_the_first_step(scratch, ref):
    """A host whose ranks have passed no step yet is in the next view."""
    job = Job(scratch, "early", "dp4", env=dict(WEFT_FAILPOINT="view.planned:kill:rank=3", WEFT_FAILPOINT_ONCE=scratch.path("early-once")))
    compare("lost before the first step", job, ref(24), [0, 0])


def host_lost(scratch, ref):
    """The second host of two: the first goes on alone with its replica, with ZeRO and copies with its copy of all shards, of a
    pipeline with the standby replicas of the other stages."""
    for plan in ("dp4", "zero1-copies", "zero3-copies", "pp4-copies"):
        job = Job(scratch, "lost-" + plan, plan, "1:2", steps=60)
        job.await_text(job.agents[0], ": 2 hosts")
        job.await_step(job.steps() + 6)
        job.agents[1].kill_all()
        compare("a lost host, " + plan, job, ref(60), [0, -9])
        check("back to step" not in job.text, "a lost host, %s: the state is in the first: %s" % (plan, job.text))


def lost_on_the_way_back(scratch, ref):
    """The second host of two is lost with its shards, and a rank of the first one while all go back to the newest checkpoint."""
    job = Job(scratch, "back", "zero1", "1:2", steps=40, env=dict(
        WEFT_FAILPOINT="restore.opened:kill:rank=0", WEFT_FAILPOINT_ONCE=scratch.path("back-once")), **{"checkpoint.every": 4})
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 6)
    job.agents[1].kill_all()
    compare("a rank lost on the way back", job, ref(40), [0, -9])
    check(os.path.exists(scratch.path("back-once.0")), "a rank is lost on the way back: " + job.text)


def copies_survive(scratch, ref):
    """ZeRO with copies: 2: each shard is on both hosts."""
    job = Job(scratch, "copies", "zero1", "1:2", steps=60, copies=2)
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 6)
    job.agents[1].kill_all()
    compare("a lost host with copies: 2", job, ref(60), [0, -9])
    check("back to step" not in job.text, "a lost host with copies: 2: the other holds the state: " + job.text)


def standby_survives(scratch, ref):
    """A stage on each of two hosts: the first one has the standby replica of the second, and goes on without a step run again."""
    job = Job(scratch, "standby", "pp2-copies", "1:2", steps=40)
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 4)
    with open(os.path.join(job.output, "status.json")) as f:
        status = f.read()
    check("pp=2 copies=2" in status and json.loads(status)["copies"] == 2, "a stage on each host: " + status)
    job.agents[1].kill_all()
    compare("a lost host with standby replicas", job, ref(40), [0, -9])
    check("back to step" not in job.text, "a lost host with standby replicas: the other holds the state: " + job.text)


def two_of_four_lost(scratch, ref):
    """A stage on each of four hosts, with copies: 3: two of them are lost at once, and every stage is on a third one."""
    job = Job(scratch, "three", "pp4-three", "1:4", n_agent=4, steps=40)
    job.await_text(job.agents[0], ": 4 hosts")
    check(job.await_text(job.agents[0], "is in the memory of at least 3 of hosts"), "copies: 3 of a pipeline: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    for agent in job.agents[1:3]:
        agent.kill_all()
    compare("two lost hosts with copies: 3", job, ref(40), [0, -9, -9, 0])
    check("back to step" not in job.text, "two lost hosts with copies: 3: another one holds the state: " + job.text)


def replicas_on_one_host(scratch, ref):
    """Data-parallel ranks inside hosts and a pipeline between them, as the job says: each host has standby replicas of the other one's
    stage, half of it in each rank."""
    job = Job(scratch, "inside", "dp2-pp2-copies", "1:2", steps=40)
    job.await_text(job.agents[0], ": 2 hosts")
    check(job.await_text(job.agents[0], "is in the memory of at least 2 of hosts"), "dp inside hosts, with copies: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    job.agents[1].kill_all()
    compare("a lost host with dp inside", job, ref(40), [0, -9])
    check("back to step" not in job.text, "a lost host with dp inside: the other holds the state: " + job.text)


def host_joins(scratch, ref):
    """One host begins, others join and get the state."""
    job = Job(scratch, "join", "dp2", "1:3", n_agent=1, steps=60, dp=3)
    job.await_step(5)
    job.join()
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 5)
    job.join()
    compare("hosts that join", job, ref(60), [0, 0, 0])
    check(": 3 hosts" in job.agents[0].text and "back to step" not in job.text, "hosts that join: " + job.text)


def joins_prepared(scratch, ref):
    """A host that joins prepares while the others train; one that is lost meanwhile, or cannot open the data, changes nothing; where
    a rank of it is lost it joins all the same."""
    data = scratch.path("join-data")
    shutil.copytree(BASE["data"], data)
    job = Job(scratch, "prepared", "dp2", "1:2", n_agent=1, steps=100000, data=data)
    job.await_step(3)

    def views():
        with open(os.path.join(job.output, "views.jsonl")) as f:
            return len(f.readlines())

    def end_joiner():
        a = job.agents.pop()
        return a.end(), a.text

    job.env = dict(WEFT_FAILPOINT="prepare.begin:delay=60000")
    job.join()
    check(job.await_text(job.agents[1], "they prepare"), "it prepares: " + job.agents[1].name)
    before = job.steps()
    job.await_step(before + 10)
    job.agents[1].kill_all()
    end_joiner()
    job.await_step(job.steps() + 10)
    same((views(), incidents(job.output)), (1, []), "a host lost while it prepares: views and incidents")
    os.rename(data, data + "-away")
    job.env = {}
    job.join()
    code, text = end_joiner()
    os.rename(data + "-away", data)
    check(code == 1 and "this host does not join: " in text and data in text, "a host without the data: %r %s" % (code, text))
    job.await_step(job.steps() + 10)
    same((views(), incidents(job.output)), (1, []), "a host without the data: views and incidents")
    job.env = dict(WEFT_FAILPOINT="prepare.begin:kill", WEFT_FAILPOINT_ONCE=scratch.path("prepared-once"))
    joiner = job.join()
    check(job.await_text(job.agents[0], ": 2 hosts") and job.await_text(joiner, "this host joins as it is"), "a rank lost: " + joiner.name)
    job.await_step(job.steps() + 5)
    joiner.p.send_signal(signal.SIGTERM)
    same(end_joiner()[0], 0, "it leaves")
    job.await_step(job.steps() + 5)
    job.env = dict(WEFT_FAILPOINT="prepare.done:delay=1500")
    joiner = job.join()
    job.await_text(joiner, "they prepare")
    before = job.steps()
    job.await_text(joiner, ": 2 hosts")
    job.await_step(job.steps() + 5)
    found = [i for i in incidents(job.output) if i["cause"] == "join"]
    check(len(found) == 2 and found[-1]["step"] >= before + 3, "training goes on while a host prepares: step %d: %r" % (before, found))
    for a in job.agents:
        a.p.send_signal(signal.SIGINT)
    codes = job.end()
    check(codes == [130, 130] and "back to step" not in job.text, "%r: %s" % (codes, job.text))
    same(bits(job.output)[:60], ref(60)[1], "hosts that prepare: losses")


def ended_before_they_joined(scratch, ref):
    """Hosts that prepare when the job ends end with 0 and say so."""
    job = Job(scratch, "late", "dp2", "1:4", n_agent=1, steps=60, dp=4)
    job.await_step(46)  # it is held
    job.env = dict(WEFT_FAILPOINT="prepare.done:delay=5000")
    late = [job.join() for _ in range(3)]
    for a in late:
        check(job.await_text(a, "they prepare"), "a host prepares: " + a.name)
    compare("hosts that were to join", job, ref(60), [0] * 4)
    check("has gone while it prepared" not in job.agents[0].text, "no host is missed: " + job.text)
    for a in late:
        check(a.text.count("weft run: the job has ended") == 1, "why a host did not join: " + a.text)


def lost_before_it_joined(scratch, ref):
    """The job's only host is lost while another one prepares: that one says why it ends.  Several jobs, as it may try
    to connect once more just before its end, or not."""
    jobs = [Job(scratch, "alone-%d" % k, "dp4", "1:2", n_agent=1, steps=60, options=["--timeout", str(5 + k / 10)]) for k in range(4)]
    for job in jobs:
        job.await_step(3)
        job.env = dict(WEFT_FAILPOINT="prepare.done:delay=500")
        check(job.await_text(job.join(), "they prepare"), "a host prepares: " + job.agents[1].name)
        job.agents[0].kill_all()
    for job in jobs:
        same(job.end(), [-9, 1], "a lost host and one that would join: " + job.text)
        check("error: no host of the job has answered for 5" in job.agents[1].text, "why it ends: " + job.agents[1].text)


def lost_at_its_end(scratch, ref):
    """A rank is stopped, or killed, when all is written: the job ends in order and prints its result once, also where that was the only
    rank of its host, or the first one, and where other ranks had not heard of it."""
    for k, (plan, nnodes, n_agent, point) in enumerate((
            ("dp4", "1:2", 1, "view.left:stop:rank=0"), ("dp2", "2", 2, "view.left:kill:rank=0"), ("dp4", "2", 2, "end.announced:kill:rank=0"),
            ("pp2", "2", 2, "end.announced:kill:rank=0"), ("dp4", "2", 2, "end.close:kill:rank=2"), ("dp2", "2", 2, "end.published:exit:rank=1"))):
        name = "%s of %s on %s" % (point, plan, nnodes)
        once = scratch.path("at-its-end-%d-once" % k)
        job = Job(scratch, "at-its-end-%d" % k, plan, nnodes, n_agent=n_agent, steps=24, options=["--failure-timeout", "1"], env=dict(
            WEFT_FAILPOINT=point, WEFT_FAILPOINT_ONCE=once))
        compare("lost at its end, " + name, job, ref(24), [0] * n_agent)
        check(os.path.exists(once + ".0"), "lost at its end, %s: %s" % (name, job.text))
        same([i["cause"] for i in incidents(job.output) if i["cause"] != "join"], [], "lost at its end, %s: incidents" % name)
        p = subprocess.run([WEFT, "status", job.output, "--json"], capture_output=True, text=True)
        same(json.loads(p.stdout).get("state") if p.returncode == 0 else p.stderr, "finished", "lost at its end, %s: weft status" % name)


def never_prepared(scratch, ref):
    """A host whose ranks do not prepare in time is named by both sides, ends, and delays no other."""
    job = Job(scratch, "never", "dp2", "1:2", n_agent=1, steps=100000, options=["--timeout", "3"])
    job.await_step(3)
    job.env = dict(WEFT_FAILPOINT="prepare.begin:delay=60000")
    code = job.join().end()
    text = job.agents[1].text
    check(code == 1 and "have not prepared within 3 s: it does not join" in text, "never prepared: %r %s" % (code, text))
    with open(job.agents[0].name + ".log") as f:
        named = re.search(r"host \S+ \(\S+\) (is not prepared to join after 3 s|has gone while it prepared to join): the job goes on without it", f.read())
    check(named, "never prepared: named in " + job.agents[0].name)
    with open(os.path.join(job.output, "views.jsonl")) as f:
        same(len(f.readlines()), 1, "never prepared: views")
    job.agents.pop()
    job.agents[0].p.send_signal(signal.SIGINT)
    same(job.end(), [130], "never prepared: " + job.text)
    same(bits(job.output)[:24], ref(60)[1][:24], "never prepared: losses")


def joins_in_batches(scratch, ref):
    """The state moves to the ranks of a host that joins, as if old and new did not fit together: by batches, over messages, too.
    A rank of the new host is killed in the middle, and the next view goes on from what is there."""
    once = scratch.path("batches-once")
    job = Job(scratch, "batches", "zero1", "1:2", steps=40, env=dict(
        WEFT_FAILPOINT="move.room:flip:rank=0,move.all_there:kill:rank=2:nth=4,move.room:flip:rank=0", WEFT_FAILPOINT_ONCE=once))
    compare("a move in batches", job, ref(40), [0, 0])
    check(all(os.path.exists("%s.%d" % (once, k)) for k in range(3)), "a move in batches: a failpoint was not reached: " + job.text)
    moves = [i["move"] for i in incidents(job.output) if "move" in i]
    check(any(m["batches"] > 3 and m["sent"] > 0 for m in moves), "a move in batches: %r" % moves)
    check("back to step" not in job.text, "a move in batches: " + job.text)


def host_leaves(scratch, ref):
    """SIGTERM to one agent: the others go on; to the last one: save and stop."""
    job = Job(scratch, "leave", "dp2", "1:2", steps=100000)
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 5)
    job.agents[1].p.send_signal(signal.SIGTERM)
    same(job.agents[1].end(), 0, "a drained host ends with 0: " + job.agents[1].text[-1000:])
    job.await_step(job.steps() + 5)
    job.agents[0].p.send_signal(signal.SIGTERM)
    job.agents.pop()
    same(job.end(), [143], "the last host saves: " + job.text)
    done = bits(job.output)
    same(done[:24], ref(24)[1], "a host that leaves: losses")
    saved = [f for f in os.listdir(os.path.join(job.output, "checkpoints")) if "tmp" not in f]
    check("step-%08d" % len(done) in saved, "the last host saves: %r" % saved)


def all_told(scratch, ref):
    """A signal to both agents within 2 s is one save-and-stop: the second one is none that means at once."""
    for sig, gap, codes in ((signal.SIGTERM, 0.3, {143}), (signal.SIGINT, 0.01, {130})):
        job = Job(scratch, "all-%d" % sig, "pp2", steps=100000)
        job.await_step(5)
        job.agents[0].p.send_signal(sig)
        time.sleep(gap)
        job.agents[1].p.send_signal(sig)
        begun, got = time.time(), job.end()
        check(set(got) <= codes and time.time() - begun < 15, "signal %d: %r after %.0f s: %s" % (sig, got, time.time() - begun, job.text))
        done = bits(job.output)
        saved = [f for f in os.listdir(os.path.join(job.output, "checkpoints")) if "tmp" not in f]
        check("step-%08d" % len(done) in saved, "signal %d: %d rows, %r" % (sig, len(done), saved))


def interrupted(scratch, ref):
    """SIGINT to one host, or to both where one agent is late: one save-and-stop, exit code 130 everywhere, no error, no further view;
    where the first host is lost meanwhile the second ends soon, with the reason."""
    for recover, both in (("on", True), ("on", False), ("off", False)):
        name = "recover: %s, SIGINT to %s" % (recover, "both" if both else "one")
        job = Job(scratch, "int-%s-%d" % (recover, both), "pp2", steps=100000, recover=recover)
        job.await_step(3)
        job.agents[1].p.send_signal(signal.SIGSTOP)
        job.agents[0].p.send_signal(signal.SIGINT)
        if both:
            job.agents[1].p.send_signal(signal.SIGINT)
        time.sleep(0.7)
        job.agents[1].p.send_signal(signal.SIGCONT)
        begun, got = time.time(), job.end()
        check(got == [130, 130] and time.time() - begun < 5, "%s: %r after %.1f s: %s" % (name, got, time.time() - begun, job.text))
        check("rror" not in job.text and "view 3" not in job.text, "%s: %s" % (name, job.text))
        check("step-%08d" % job.steps() in os.listdir(os.path.join(job.output, "checkpoints")), "%s: %d steps" % (name, job.steps()))
    job = Job(scratch, "int-lost", "pp2", steps=100000)
    job.await_step(3)
    os.kill(job.agents[0].ranks()[0], signal.SIGSTOP)
    for a in job.agents:
        a.p.send_signal(signal.SIGINT)
    time.sleep(0.3)
    job.agents[0].kill_all()
    begun, got = time.time(), job.end()
    check(got == [-9, 1] and time.time() - begun < 10, "SIGINT, a lost host: %r after %.1f s: %s" % (got, time.time() - begun, job.text))
    check("no majority" in job.text, "SIGINT, a lost host: " + job.text)


def grace_is_over(scratch, ref):
    """A rank hangs in a step.  A host that is to leave ends with it after --grace, and the other goes on; where the job is to end all
    ranks that are left are killed and named, and none is replaced."""
    def start(name, grace, **keys):
        hangs = scratch.path(name + ".hangs")
        job = Job(scratch, name, "dp2", "1:2", ["--grace", grace, "--failure-timeout", "60"],
                  env=dict(WEFT_FAILPOINT="step.begin:delay=300000:rank=1:while=" + hangs, WEFT_FAILPOINT_ONCE=hangs + "-once"), **keys)
        check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
        job.await_step(job.steps() + 4)
        open(hangs, "w").close()
        check(await_file(hangs + "-once.0"), "a rank hangs")
        return job, [pid for a in job.agents for pid in a.ranks().values()]

    job, pids = start("grace-host", "2.5", steps=60)
    leaves = job.agents.pop()
    leaves.p.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    same(leaves.end(), 1, "a host that does not leave: " + leaves.text)
    check(2.5 <= time.monotonic() - begun < 30, "after --grace: %.1f s" % (time.monotonic() - begun))
    check("error: this host did not leave within --grace" in leaves.text, "a host that does not leave: " + leaves.text)
    compare("a host that did not leave", job, ref(60), [0])
    check("back to step" not in job.text, "a host that did not leave: a replica holds the state: " + job.text)
    check(gone(pids), "a host that did not leave: ranks are left")
    job, pids = start("grace-all", "1", steps=100000)
    for a in job.agents:
        a.p.send_signal(signal.SIGINT)
    same(job.end(), [130, 130], "a job that does not end: " + job.text)
    check(all("[rank %d] error: it did not end after the signal, and was killed" % k in a.text for k, a in enumerate(job.agents)),
          "a job that does not end: " + job.text)
    check("it is replaced" not in job.text and gone(pids), "a job that does not end: " + job.text)


def stopped_and_killed(scratch, ref):
    """The only ranks of two of three hosts are stopped one after another, and a rank is killed as it settles its state after that: each is
    replaced in place, and no committed step is run again."""
    for replace in (True, False):
        name = "stopped-%d" % replace
        PLANS["zero3-three"] = (1, dict(dp=3, zero=3))
        job = Job(scratch, name, "zero3-three", "1:3", ["--failure-timeout", "1"] + ["--on-stop", "replace"] * replace, 3, steps=60, env=dict(
            WEFT_FAILPOINT="move.settle:kill:rank=1", WEFT_FAILPOINT_ONCE=scratch.path(name + "-once")))
        job.await_text(job.agents[0], ": 3 hosts")
        for k in (2, 0):
            job.await_step(job.steps() + 4)
            for pid in job.agents[k].ranks().values():
                os.kill(pid, signal.SIGSTOP)
        compare("stopped and killed ranks", job, ref(60), [0, 0, 0])
        check("back to step" not in job.text, "stopped and killed ranks: the state is there: " + job.text)
        check(os.path.exists(scratch.path(name + "-once.0")), "stopped and killed ranks: a rank is killed: " + job.text)


def slow_to_come(scratch, ref):
    """The only host of a job loses a rank, and the other one while the new process starts, which takes it 9 s of a core: it is waited for.
    One that hangs instead is not."""
    for name, how in (("works", "work=9000"), ("hangs", "delay=60000")):
        once = scratch.path("come-%s-once" % name)
        job = Job(scratch, "come-" + name, "dp4", "1:2", n_agent=1, steps=48, env=dict(
            WEFT_FAILPOINT="step.begin:kill:rank=1:nth=4,view.await:%s:rank=1" % how, WEFT_FAILPOINT_ONCE=once))
        limit = time.monotonic() + LIMIT_S
        while not os.path.exists(once + ".1") and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(0.3)
        job.kill(0)
        compare("slow to come, " + name, job, ref(48), [0])
        noticed = [(i["rank"], i["noticed"]) for i in incidents(job.output)]
        same(sorted(noticed), [(0, "waitpid")] + [(1, "no answer")] * (name == "hangs") + [(1, "waitpid")], "slow to come, %s: %r" % (name, noticed))


def come_and_go(scratch, ref):
    """Two hosts join, a rank is killed, then one host is lost and the other."""
    job = Job(scratch, "go", "dp2", "1:3", n_agent=1, steps=60, dp=3)
    job.await_step(3)
    job.join()
    job.join()
    check(job.await_text(job.agents[0], ": 3 hosts"), "three hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 3)
    job.kill(1)
    job.await_step(job.steps() + 3)
    job.agents[2].kill_all()
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 3)
    job.agents[1].kill_all()
    compare("hosts that come and go", job, ref(60), [0, -9, -9])
    check("back to step" not in job.text, "hosts that come and go: replicas hold the state: " + job.text)


def leader_lost(scratch, ref):
    """The first of three hosts, with rank 0: the two others are a majority and go on."""
    job = Job(scratch, "leader", "dp2", "2:3", n_agent=3, steps=60, dp=3)
    check(job.await_text(job.agents[1], ": 3 hosts"), "three hosts: " + job.agents[1].name)
    job.await_step(job.steps() + 4)
    job.agents[0].kill_all()
    compare("the first host is lost", job, ref(60), [-9, 0, 0])
    check("back to step" not in job.text, "the first host is lost: replicas hold the state: " + job.text)
    causes = [i["cause"] for i in incidents(job.output)]
    check("host" in causes, "the first host is lost: incidents %r" % causes)


def drained(scratch, ref):
    """weft drain by address; what only that host holds is saved first, and no step is run again."""
    job = Job(scratch, "drain", "pp2", "1:2", n_agent=2, steps=60)
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    with open(job.agents[0].name + ".log") as f:
        hosts = re.findall(r"2 hosts \((.*?)\)", f.read())[-1].split(", ")
    p = subprocess.run([WEFT, "status", job.output, "--json"], capture_output=True, text=True)
    now = json.loads(p.stdout) if p.returncode == 0 else {}
    check([a["host"] + " " + a["address"] for a in now.get("agents", [])] == hosts and now.get("copies") == 1 and now.get("epoch", 0) >= 2,
          "weft status: %r of %r" % (p, hosts))
    p = subprocess.run([WEFT, "status", job.output], capture_output=True, text=True)
    check("agent       %s at %s, 1 rank" % tuple(hosts[1].split()) in p.stdout and "copies      1: some" in p.stdout, "weft status: %r" % p)
    bad = subprocess.run([WEFT, "drain", "nowhere", job.output], capture_output=True, text=True)
    check(bad.returncode == 2 and "the job has no host nowhere" in bad.stderr, "drain of an unknown host: %r" % bad)
    p = subprocess.run([WEFT, "drain", hosts[1].split()[1], job.output], capture_output=True, text=True)
    check(p.returncode == 0 and "it has left: 1 host" in p.stdout, "weft drain: %r" % p)
    compare("a drained host", job, ref(60), [0, 0])
    back = re.findall(r"after step (\d+): back to step (\d+)", job.text)
    check(back and all(a == b for a, b in back), "a drained host: its state was saved: %r\n%s" % (back, job.text))


def listening_ports(pids):
    """Of TCP, on any address, of these processes."""
    inodes, found = set(), set()
    for pid in pids:
        for fd in os.listdir("/proc/%d/fd" % pid):
            try:
                inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, fd))))
            except OSError:
                pass
    with open("/proc/net/tcp") as f:
        for line in f.read().splitlines()[1:]:
            x = line.split()
            if x[3] == "0A" and x[9] in inodes:
                found.add(int(x[1].split(":")[1], 16))
    return sorted(found)


def pauses_of_kills(job, n):
    """Milliseconds of the next n kills of rank 1."""
    before = len(incidents(job.output))
    for k in range(n):
        job.await_step(job.steps() + 12)  # a third loss within ten steps would be the end
        job.kill(1)
        limit = time.monotonic() + LIMIT_S
        while len(incidents(job.output)) < before + k + 1 and time.monotonic() < limit:
            time.sleep(0.01)
    return [i["ms"]["total"] for i in incidents(job.output)[before:]]


def idle_connections(scratch, ref):
    """1,000 to every port of every process of the job delay no view change by 100 ms."""
    job = Job(scratch, "idle", "dp2", steps=100000)
    plain = pauses_of_kills(job, 3)
    pids = [a.p.pid for a in job.agents] + [pid for a in job.agents for pid in a.ranks().values()]
    ports = listening_ports(pids)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    idle = []
    for port in ports:
        for _ in range(1000):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
            idle.append(s)
    loaded = pauses_of_kills(job, 3)
    for s in idle:
        s.close()
    for a in job.agents:
        a.p.send_signal(signal.SIGTERM)
    job.end()
    print("%d ports, %d connections: pauses %r ms, %r ms before" % (len(ports), len(idle), loaded, plain))
    check(len(ports) >= 2 and len(plain) == len(loaded) == 3, "idle connections: ports %r, pauses %r and %r: %s" % (ports, plain, loaded, job.text))
    check(sorted(loaded or 3 * [1e9])[1] <= max(plain or [0]) + 100, "idle connections: pauses %r ms, %r ms before" % (loaded, plain))


def scaled(scratch, ref):
    """weft scale over hosts: a rank less on the second one, again all, then the second host leaves; what cannot be is refused.  A new
    rank prepares before the view: one that is lost meanwhile changes no view, and where a view is needed meanwhile it begins again."""
    def scale(n, code, text):
        p = subprocess.run([WEFT, "scale", str(n), job.output], capture_output=True, text=True)
        check(p.returncode == code and text in p.stdout + p.stderr, "weft scale %d: %r" % (n, p))

    def views():
        with open(os.path.join(job.output, "views.jsonl")) as f:
            return len(f.readlines())

    steps = 240  # enough for all of it
    # once rank 3 was in a view, as a rank of a host that joins, the next process that prepares to be it is lost, one after it slow
    job = Job(scratch, "scale", "dp4", "1:2", steps=steps, env=dict(
        WEFT_FAILPOINT="view.told:delay=1:rank=3,prepare.done:kill:rank=3,prepare.begin:delay=1500:rank=3", WEFT_FAILPOINT_ONCE=scratch.path("scale-once")))
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 3)
    scale(4, 2, "the job has 4 ranks")
    scale(5, 2, "5 ranks: the job may have up to 4 on 2 hosts")
    scale(3, 0, "3 ranks from step")
    job.await_step(job.steps() + 3)
    before = views()
    scale(4, 1, "3 ranks: a new rank failed, so it is as before")
    job.await_step(job.steps() + 3)
    same(views(), before, "a new rank lost while it prepared: views")
    more = subprocess.Popen([WEFT, "scale", "4", job.output], stdout=subprocess.PIPE, text=True)
    job.await_text(job.agents[1], "new ones prepare", 2)
    job.kill(0)
    out, _ = more.communicate(timeout=LIMIT_S)
    check(more.returncode == 0 and "4 ranks from step" in out, "weft scale 4: %r %s" % (more.returncode, out))
    same(views(), before + 2, "a rank killed, then a rank more: views")
    job.await_step(job.steps() + 3)
    scale(2, 0, "2 ranks from step")
    scale(3, 2, "3 ranks: the job has 1 host with up to 2; start weft run on another one, which joins")
    scale(1, 0, "1 rank from step")
    compare("weft scale over hosts", job, ref(steps), [0, 0])
    check("back to step" not in job.text, "weft scale over hosts: " + job.text)
    causes = [i["cause"] for i in incidents(job.output)]
    same(causes.count("scale"), 5, "weft scale over hosts: incidents %r" % causes)
    check("ranks up to 3 of this host: new ones prepare" in job.text, "weft scale over hosts: " + job.text)
    job = Job(scratch, "scale-min", "dp2", "2:2", steps=100000)
    job.await_step(3)
    scale(1, 2, "1 rank would be on 1 host: the job needs at least 2")
    job.agents[0].p.send_signal(signal.SIGINT)
    job.end()


def scale_missed(scratch, ref):
    """The host of the new rank is lost while that prepares: weft scale says how many ranks there are instead, and why."""
    job = Job(scratch, "missed", "dp4", "1:2", steps=120, env=dict(WEFT_FAILPOINT="prepare.begin:delay=2000:rank=3"))
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 3)
    p = subprocess.run([WEFT, "scale", "3", job.output], capture_output=True, text=True)
    same(p.returncode, 0, "weft scale 3: %r" % p)
    asked = subprocess.Popen([WEFT, "scale", "4", job.output], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    job.await_text(job.agents[1], "new ones prepare")
    job.agents[1].kill_all()
    out, err = asked.communicate(timeout=LIMIT_S)
    text = r"weft scale: error: 2 ranks, not 4, from step \d+ on, after [0-9.]+ s: host %s was lost meanwhile\n" % re.escape(socket.gethostname())
    check(asked.returncode == 1 and not out and re.fullmatch(text, err), "weft scale 4: %r" % ((asked.returncode, out, err),))
    compare("weft scale that is overtaken", job, ref(120), [0, -9])


def history_handed_on(scratch, ref):
    """A resume changes lanes (--allow), a second host joins, and the first one leaves: a rank that was not there when the job resumed
    writes the checkpoint, which says what was changed."""
    job = Job(scratch, "history", "dp2", "1:2", n_agent=1, steps=6, lanes=2, rdzv="file:" + scratch.path("history-1"))
    same(job.end(), [0], "the run before: " + job.text)
    job = Job(scratch, "history", "dp2", "1:2", ["--allow", "lanes"], steps=240, rdzv="file:" + scratch.path("history-2"))
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 3)
    job.agents[0].p.send_signal(signal.SIGTERM)
    same(job.end(), [0, 0], "the first host leaves: " + job.text)
    with open(os.path.join(job.output, "checkpoints", "step-00000240", "state.json")) as f:
        state = json.load(f)
    same((state["lanes"], state.get("history")), (4, [{"step": 6, "key": "lanes", "from": 2, "to": 4}]), "history of the checkpoint")


def made_ahead(scratch, ref):
    """Ranks of several hosts that stay make their memory while they train: for a rank less, and before a host leaves."""
    job = Job(scratch, "made", "dp4", "1:2", steps=120)
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 3)
    p = subprocess.run([WEFT, "scale", "3", job.output], capture_output=True, text=True)
    check(p.returncode == 0, "made ahead: weft scale 3: %r" % p)
    job.await_step(job.steps() + 3)
    job.agents[1].p.send_signal(signal.SIGTERM)
    job.await_text(job.agents[0], ": 1 host", 2)
    job.await_step(job.steps() + 3)
    compare("made ahead", job, ref(120), [0, 0])
    found = [(i["cause"], i.get("made_bytes", 0)) for i in incidents(job.output)]
    same([x for x in found if x[0] in ("scale", "drain")], [("scale", 0), ("drain", 0)], "made ahead: bytes of pages in pauses")


def bad_input(scratch, ref):
    for words_, text in ((["--nnodes", "4:2"], "--nnodes 4:2: MIN is from 1 to MAX"),
                         (["--nnodes", "1:2", "--rdzv", "127.0.0.1:1", "recover=off"], "--nnodes MIN:MAX needs a job with recover=on")):
        p = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--insecure-network", *words_, "model=tiny256",
                            "data=" + BASE["data"], "batch=8", "steps=1", "seq=16"], capture_output=True, text=True)
        check(p.returncode == 2 and text in p.stderr, "%r: %r" % (words_, p))
    p = subprocess.run([WEFT, "run", "--nnodes", "1:2", "model=tiny256"], capture_output=True, text=True)
    check(p.returncode == 2 and "have no agent" in p.stderr, "MIN:MAX without an agent: %r" % p)
    p = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--nnodes", "2:3", "--rdzv", "127.0.0.1:%d" % free_port(), "--insecure-network",
                        "--timeout", "2", *words(dict(BASE, output=scratch.path("few")))], capture_output=True, text=True)
    check(p.returncode == 1 and "1 of at least 2 hosts are there after 2 s: start weft run on another host" in p.stderr, "fewer than MIN: %r" % p)


CASES = [rank_killed, overtaken, started_again, started_again_at_once, standby_survives, two_of_four_lost, replicas_on_one_host, lost_before_the_first_step, lost_on_the_way_back,
         come_and_go, joins_prepared, ended_before_they_joined, lost_before_it_joined, lost_at_its_end, drained, host_leaves, all_told,
         grace_is_over, scaled, scale_missed, history_handed_on, made_ahead, interrupted, bad_input]
OF_SANITIZED = [rank_killed, come_and_go, scaled, bad_input]
if SANITIZED and not LONG and not CASE:
    CASES = OF_SANITIZED
elif SPLIT:
    CASES = [c for c in CASES if c not in OF_SANITIZED]
if LONG or CASE:
    CASES += [undisturbed, fixed_number_again, host_lost, host_joins, joins_in_batches, never_prepared, leader_lost, copies_survive, idle_connections, stopped_and_killed, slow_to_come]


def run_cases(scratch):
    draw = random.Random(SEED)
    known = {}

    def ref(steps):
        if steps not in known:
            known[steps] = run_reference(scratch, steps)
        return known[steps]

    for case in CASES:
        if not CASE or case.__name__ == CASE:
            case(scratch, ref)
    for k in range(0 if CASE else ROUNDS):
        plan = draw.choice(sorted(PLANS))
        job = Job(scratch, "random-%d" % k, plan)
        kills = sorted((draw.randint(1, 22), draw.randrange(2 * job.n)) for _ in range(draw.randint(1, 2)))
        for step, rank in kills:
            job.await_step(step)
            time.sleep(draw.random() * 0.04)
            job.kill(rank)
        compare("random %d (seed %d): %s, kills %r" % (k, SEED, plan, kills), job, ref(24), [0, 0])


def main():
    with Scratch("hosts", memory=True) as scratch:
        run_cases(scratch)
    end()


if __name__ == "__main__":
    main()
