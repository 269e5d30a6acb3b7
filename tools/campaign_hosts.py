"""Blocks `hosts` and `kernels` of campaign.py: agents on two or three hosts (network namespaces with a switch between them).

Ranks are killed, stopped and crash on any host, also at failpoints of the recovery; agents are killed and stopped; cables are cut
(the interface, the port, or silently), flap, lose frames or become slow; hosts join, are killed while they join, leave and are drained;
in `kernels` (with another logf()) also a rank of one host hangs, and those of one host are slower for a while.
With a majority of agents the first host goes on where there are two, any two where there are three; with the views in a folder
(file:) or in etcd, whose three servers lose their leader on the way, any host does.  Who is cut off or was stopped ends by itself
and says why; from etcd it is cut off, too, so its cable is mended."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
sys.path.insert(0, os.path.join(ROOT, "tests", "eco"))
import eco
import eco_hosts
import eco_views as views
from wires import Wires

STEPS = 60
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "segv": signal.SIGSEGV, "bus": signal.SIGBUS, "abort": signal.SIGABRT}
CRASHES = ("segv", "bus", "abort")
HUNG = ("hang", "late", "silence")  # on a busy machine the peers of a rank that hangs give up first
CUTS = ("down", "unplugged", "silent")
LOST = tuple("cut " + c for c in CUTS) + ("kill agent", "stop agent")
# hosts, ranks of each, keys; copies True: the loss of one host loses nothing
PLANS = {
    "dp2": (2, 1, dict(dp=2), True), "dp4": (2, 2, dict(dp=4), True), "dp8": (2, 4, dict(dp=8), True), "dp3": (3, 1, dict(dp=3), True),
    "dp6": (3, 2, dict(dp=6), True), "pp2": (2, 1, dict(pp=2), False), "dp2-pp2": (2, 2, dict(dp=2, pp=2), False),
    "zero1": (2, 2, dict(dp=4, zero=1), False), "zero3": (3, 1, dict(dp=3, zero=3), False),
    "zero1-copies": (2, 2, dict(dp=4, zero=1, copies=2), True), "zero1-copies6": (3, 2, dict(dp=6, zero=1, copies=2), True),
    "zero2-copies": (2, 2, dict(dp=4, zero=2, copies=2), True), "zero3-copies": (2, 2, dict(dp=4, zero=3, copies=2), True),
}


def local_rank_of(pid):
    """None: it is no rank."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as f:
            found = [x for x in f.read().split(b"\0") if x.startswith(b"WEFT_LOCAL_RANK=")]
        return int(found[0][16:]) if found else None
    except OSError:
        return None


def count_lines(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read().count(b"\n")


class Job(eco_hosts.Job):
    """Agent k is on host at[k]; members: agents that should be in the view, in its order.  library: of a logf() that hangs or is slow
    in ranks of the host of agent k, while or once flag() is there; or None."""

    def __init__(self, wires, output, n_rank, nnodes, keys, options, env, rdzv, library):
        self.wires, self.output, self.n, self.nnodes, self.keys = wires, output, n_rank, nnodes, keys
        self.options, self.env, self.rdzv, self.library = list(options), env, rdzv, library
        self.agents, self.at, self.members, self.expected = [], [], [], []
        self.seen = views.RowCount()

    def command(self, number):
        return self.wires.command(self.at[number])

    def flag(self, what, k):
        return "%s.%s-%d" % (self.output, what, k)

    def add(self, host, node=None):
        if self.library:
            flags = {w.upper() + "_FILE": self.flag(w, len(self.agents)) for w in ("hang", "slow")}
            self.env = dict(self.env, LD_PRELOAD=self.library, **flags)
        self.at.append(host)
        self.expected.append({0})
        self.members.append(len(self.agents))
        return self.join(node)

    def remove(self, k, *codes):
        self.members.remove(k)
        self.expected[k] = set(codes)

    def last_view(self):
        """Addresses of its hosts in their order, of the last view that one of the members reports."""
        found = (0, "")
        for k in self.members:
            with open(self.agents[k].name + ".log", errors="replace") as f:
                for epoch, hosts in re.findall(r"view (\d+): \d+ hosts? \((.*?)\)", f.read()):
                    found = max(found, (int(epoch), hosts))
        return re.findall(r" ([0-9.]+):\d+", found[1])

    def n_host(self):
        return len(self.last_view())

    def sort_members(self):
        order = self.last_view()
        place = {k: order.index(self.wires.address(self.at[k])) for k in self.members if self.wires.address(self.at[k]) in order}
        self.members.sort(key=lambda k: place.get(k, len(order)))

    def is_over(self):
        return all(self.agents[k].p.poll() is not None for k in self.members)

    def await_hosts(self, limit_s=60):
        limit = time.monotonic() + limit_s
        while time.monotonic() < limit and not self.is_over():
            if self.n_host() == len(self.members):
                return True
            time.sleep(0.02)
        return self.is_over()


class Block:
    """One job of the block: c is the campaign."""

    def __init__(self, c, name):
        self.c, self.draw, self.name = c, c.draw, name
        self.faults, self.hits, self.most_hits = [], {}, 2
        self.crashed = self.lost_host = self.to_name = False

    def run(self):
        c, draw = self.c, self.draw
        plan = draw.choice(list(PLANS))
        n_host, n_rank, of_plan, self.replicated = PLANS[plan]
        self.register = draw.choice(c.registers)
        self.elastic = draw.random() < 0.8 or self.register != "majority"
        relay = draw.randrange(n_host) if draw.random() < 0.3 else None
        c.n_run += 1
        c.plan, c.ranks, c.n_host, c.register, c.begin = plan, n_host * n_rank, n_host, self.register, time.monotonic()
        c.shm = set(os.listdir("/dev/shm"))
        try:
            wires = Wires(n_host, () if relay is None else (relay,))
        except (OSError, FileNotFoundError) as e:
            print("hosts: left out: no network namespaces (%s)" % e)
            return False
        with wires:
            self.relay, self.wires = relay, wires
            self.rdzv, self.etcd = c.open_register(self.register, wires)
            try:
                self.job = self.start(n_host, n_rank, of_plan)
                self.disturb(n_host)
                self.finish()
            finally:
                if self.etcd:
                    self.etcd.close()
                    shutil.rmtree(self.etcd.folder)  # 400 MB, where the scratch folder is in memory
        return True

    def start(self, n_host, n_rank, of_plan):
        c, draw = self.c, self.draw
        n_first = draw.randint(1, n_host) if self.elastic else n_host
        self.once, env = c.scratch.path("once-%d" % c.n_run), {}
        if draw.random() < 0.35:
            names = c.failpoints["recovery"] * 2 + c.failpoints["itself"]
            actions = ("kill", "kill", "exit", "stop") if n_first * n_rank > 1 else ("kill", "exit")  # all stopped is none lost
            self.point = "%s@%s" % (draw.choice(actions), draw.choice(names))
            self.most_hits = 1
            action, name = self.point.split("@")
            env = dict(WEFT_FAILPOINT="%s:%s:rank=%d" % (name, action, draw.randrange(c.ranks)), WEFT_FAILPOINT_ONCE=self.once)
        keys = dict(c.keys, **of_plan, **{"steps": STEPS, "recover": "on", "checkpoint.every": draw.choice((6, 25, 1000))})
        options = ["--failure-timeout", "1"] + ["--on-stop", "replace"] * (draw.random() < 0.7)
        self.kernels = self.name == "kernels"
        env.update(WEFT_TOKEN_FILE=c.token(), SLOW_US="1000")
        library = os.path.join(os.path.dirname(eco.WEFT), "libhang_kernel.so") if self.kernels else None
        job = Job(self.wires, c.scratch.path("run-%d" % c.n_run), n_rank, "1:%d" % n_host if self.elastic else str(n_host), keys, options,
                  env, self.rdzv, library)
        for k in range(n_first):
            job.add(k, None if self.elastic else k)
            if self.elastic and not k:
                job.await_text(job.agents[0], "view 1")
        job.await_hosts()
        job.await_step(1)
        return job

    # ---- faults ----

    def pick_rank(self):
        """Of a slot that was not hit twice: a third loss within ten steps is the end."""
        k = self.draw.choice(self.job.members)
        slots = {local_rank_of(p): p for p in views.children(self.job.agents[k].p.pid)}
        slots = {s: p for s, p in slots.items() if s is not None and self.hits.get((k, s), 0) < self.most_hits}
        if not slots:
            return None
        s = self.draw.choice(sorted(slots))
        self.hits[k, s] = self.hits.get((k, s), 0) + 1
        return slots[s]

    def hit_rank(self):
        kind = self.draw.choice(("kill", "kill", "kill", "stop") + CRASHES)
        if kind in CRASHES and self.crashed:
            kind = "kill"
        self.crashed |= kind in CRASHES
        pid = self.pick_rank()
        try:
            if pid:
                os.kill(pid, SIGNALS[kind])
                self.faults.append(kind)
        except ProcessLookupError:
            pass

    def hang_rank(self):
        """One rank of a host; any of its slots may be the one that is hit."""
        k = self.draw.choice(self.job.members)
        slots = [(k, local_rank_of(p)) for p in views.children(self.job.agents[k].p.pid)]
        slots = [s for s in slots if s[1] is not None]
        if not slots or any(self.hits.get(s, 0) >= self.most_hits for s in slots):
            return
        for s in slots:
            self.hits[s] = self.hits.get(s, 0) + 1
        flag, limit = self.job.flag("hang", k), time.monotonic() + 60
        open(flag, "w").close()
        while os.path.exists(flag) and time.monotonic() < limit and not self.job.is_over():
            time.sleep(0.01)
        if os.path.exists(flag):  # it had computed its last step
            eco.check(self.job.is_over(), "%s: no rank of agent %d hangs" % (self.what(), k))
            return
        self.faults.append("hang")
        self.job.await_step(self.job.steps() + 2)

    def slow_rank(self):
        """All ranks of a host, for some steps, often for as many as it takes until they are named: no rank is lost."""
        job = self.job
        k, n_step = self.draw.choice(job.members), self.draw.choice((3, 10, 30, 30))
        self.faults.append("slow")
        n_rank = job.n * len(job.members)
        judged = "pp" not in job.keys and job.keys["lanes"] % n_rank == 0 and len(job.members) > 1  # others have the same work
        first, view = job.steps(), count_lines(job.output, "views.jsonl")
        open(job.flag("slow", k), "w").close()
        job.await_step(first + n_step)
        stayed = job.steps() >= first + n_step and view == count_lines(job.output, "views.jsonl")
        os.unlink(job.flag("slow", k))
        self.to_name |= n_step > 20 and judged and stayed

    def pick_host(self, survives=True, ends=False):
        """A member whose loss the others survive; None: there is none.  ends: it is gone, and not only cut off: of two hosts that do not
        see each other the first goes on, with every register."""
        self.job.sort_members()
        members = self.job.members
        alone = 1 if len(members) == 2 and not (ends and self.register != "majority") else 0
        if survives and len(members) < 2:
            return None
        return self.draw.choice(members[alone:] if survives else members)

    def hit_agent(self):
        k = self.pick_host(ends=True)
        if k is None:
            return
        a = self.job.agents[k]
        if self.draw.random() < 0.5:
            self.faults.append("kill agent")
            a.p.kill()
            self.job.remove(k, -9)
            self.await_loss()
            return
        self.faults.append("stop agent")
        a.p.send_signal(signal.SIGSTOP)
        self.job.remove(k, 0, 1)  # 0: its ranks had done all steps before it was called lost
        self.await_loss()
        a.p.send_signal(signal.SIGCONT)

    def cut_cable(self):
        k = self.pick_host()
        if k is None:
            return
        how = self.draw.choice(CUTS)
        self.faults.append("cut " + how)
        self.wires.cut(self.job.at[k], how)
        self.job.remove(k, 1)
        self.await_loss()
        if self.draw.random() < 0.5 or self.etcd:
            self.wires.mend(self.job.at[k])
            self.job.expected[k] = {0, 1}  # 0: the others had done all steps before it could ask them

    def await_loss(self):
        self.lost_host = True
        eco.check(self.job.await_hosts(), "%s: %d hosts are in the view" % (self.what(), self.job.n_host()))

    def flap_cable(self):
        """Shorter than the timeout; on a busy machine the host may be lost all the same, if the others survive that."""
        k = self.pick_host()
        if k is None:
            return
        self.faults.append("flap")
        self.wires.cut(self.job.at[k], self.draw.choice(CUTS))
        time.sleep(self.draw.uniform(0.05, 0.5))
        self.wires.mend(self.job.at[k])
        self.may_be_lost(k)

    def lose_frames(self):
        self.job.sort_members()
        hosts = [self.job.at[k] for k in self.job.members]
        if self.relay not in hosts or len(hosts) < 2:
            return self.flap_cable()
        k = self.job.members[hosts.index(self.relay)]
        if len(hosts) == 2 and k == self.job.members[0]:
            return self.flap_cable()  # the other one would end, and this one may be the slower one to see it
        self.faults.append("lossy")
        self.wires.lose(self.relay, self.draw.uniform(0.02, 0.4))
        time.sleep(self.draw.uniform(0.5, 3))
        self.wires.lose(self.relay, 0)
        self.may_be_lost(k)

    def slow_link(self):
        k = self.pick_host(survives=False)
        try:
            self.wires.slow(self.job.at[k], self.draw.choice((5, 20, 80)))
        except OSError as e:
            print("slow link: left out: %s" % e)
            return
        self.faults.append("slow link")
        self.job.await_step(self.job.steps() + 3)
        self.wires.slow(self.job.at[k], 0)
        if len(self.job.members) > 1:
            self.may_be_lost(k)

    def may_be_lost(self, k):
        """It has come through or was lost, or a later one was: of two that do not hear each other the later one is left out.  Of two hosts
        the first goes on.  Who was lost ends by itself."""
        agents = self.job.members[self.job.members.index(k) if len(self.job.members) > 2 else 1:]
        self.lost_host = True
        for k in agents:
            self.job.expected[k] = {0, 1}
        before, limit = self.job.steps(), time.monotonic() + 60
        while self.job.steps() < before + 2 and time.monotonic() < limit and not self.job.is_over():
            time.sleep(0.02)
        there = self.job.last_view()
        for k in agents:
            if len(there) < len(self.job.members) and self.wires.address(self.job.at[k]) not in there:
                self.job.remove(k, 1)

    def lose_leader(self):
        """Of etcd's servers: those that are left elect another one, and the last one that was lost is back by then."""
        self.etcd.mend()
        if self.etcd.await_leader() is not None and self.etcd.lose_leader():
            self.faults.append("etcd leader")

    def join_host(self):
        free = [h for h in range(self.wires.n) if h not in [self.job.at[k] for k in self.job.members]]
        if not free or not self.elastic or (self.register == "majority" and 0 not in self.job.members):
            return self.hit_rank()
        host = self.draw.choice(free)
        self.wires.mend(host)
        a = self.job.add(host)
        if self.draw.random() < 0.4:
            time.sleep(self.draw.random() * 1.5)
            self.faults += ["kill@join"] * (a.p.poll() is None)
            a.p.kill()
            self.job.remove(len(self.job.agents) - 1, -9, 0)  # 0: the job had ended before
            return self.await_loss()
        self.faults.append("join")
        eco.check(self.job.await_hosts(), "%s: a host joins: %d" % (self.what(), self.job.n_host()))

    def leave_host(self):
        k = self.pick_host()
        if k is None:
            return
        a = self.job.agents[k]
        self.faults.append("leave")
        a.p.send_signal(self.draw.choice((signal.SIGTERM, signal.SIGUSR1)))
        self.job.remove(k, 0)
        if self.draw.random() < 0.3:
            time.sleep(self.draw.random() * 3)
            self.hit_rank()
        eco.check(self.job.await_hosts(), "%s: a host leaves: %d" % (self.what(), self.job.n_host()))

    def disturb(self, n_host):
        draw = self.draw
        for _ in range(draw.randint(1, 4)):
            if self.job.steps() > STEPS - 8 or self.job.is_over():
                break
            self.job.await_step(self.job.steps() + draw.randint(1, 5))
            time.sleep(draw.random() * 1.2 * views.step_s(self.job.output))
            kinds = [self.hit_rank] * 4 + [self.slow_link]
            if self.kernels:
                kinds += [self.hang_rank, self.slow_rank] * 10
            if self.elastic:
                kinds += [self.hit_agent, self.cut_cable] * 2 + [self.flap_cable, self.lose_frames, self.lose_frames, self.leave_host] + [self.join_host] * 3
            if self.etcd:
                kinds += [self.lose_leader] * 4
            draw.choice(kinds)()
            if draw.random() < 0.15:
                time.sleep(draw.random() * 0.1)
                self.hit_rank()

    # ---- the end ----

    def what(self):
        return "%s %d, %s, %s" % (self.name, self.c.n_run, self.c.plan, "+".join(self.faults))

    def finish(self):
        c, job = self.c, self.job
        codes = job.end()
        if os.path.exists(self.once + ".0"):
            self.faults.append(self.point)
        what = self.what()
        good = eco.check(job.result is not None, "%s: codes %r\n%s" % (what, codes, job.text))
        for k, a in enumerate(job.agents):
            if k and "view " not in a.text:
                job.expected[k] = job.expected[k] | {1}  # the job had ended before it could ask for a place
        good &= eco.check(all(x in e for x, e in zip(codes, job.expected)), "%s: codes %r, not %r\n%s" % (what, codes, job.expected, job.text))
        if job.result:
            keys = dict(c.keys, steps=STEPS)
            good &= eco.same((job.result["weights_xxh64"], views.bits(job.output)), c.reference(keys), what + ": weights and losses")
        back = "back to step" in job.text
        allowed = self.crashed or (self.lost_host and not self.replicated) or self.has_left()
        good &= eco.check(allowed or not back, "%s: committed steps were run again:\n%s" % (what, job.text))
        found = views.incidents(job.output)
        hung, n_hang = [i for i in found if i["cause"] in HUNG], self.faults.count("hang")
        good &= eco.check(len(hung) >= n_hang, "%s: %d hangs: %r" % (what, n_hang, found))
        if set(self.faults) <= {"hang", "slow"}:
            lost = [i for i in found if "rank" in i]  # hosts join at the start
            good &= eco.check(len(lost) <= n_hang, "%s: others were lost: %r" % (what, lost))
        if self.to_name:
            slow = [i for i in views.incidents(job.output, slow=True) if i["cause"] == "slow"]
            good &= eco.check(len(slow) > 0, what + ": no rank was called slow")
        good &= c.check_left(what, job)
        c.add_row(self.name, self.faults, found, good)

    def has_left(self):
        """A checkpoint is made of what only that host held: back to the step of that moment."""
        return "leave" in self.faults and not self.replicated
