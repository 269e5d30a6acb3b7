#!/usr/bin/env python3
"""campaign.py WEFT [--block NAME,..] [--seed N] [--faults N] [--seconds S] [--only JOB] [--out CSV]: real faults in running jobs.

A block draws jobs (2 to 8 processes, plans of data and pipeline parallelism and ZeRO) and faults from its seed, and runs them
one after another until it has had N faults or S seconds are over.  After each job: losses and weights are those of a run that nothing
disturbed, bit by bit; each row of metrics.jsonl is there once and in order; all copies of each part of the state were equal after
each recovery (WEFT_CHECK_COPIES); no process is left, nothing in /dev/shm, and the agent has no more descriptors than before.

  processes  ranks exit, are killed, stopped (SIGSTOP), crash (SIGSEGV, SIGBUS, SIGABRT), several at once
  phases     the same at failpoints of recovery, move, evaluation, save, resize and ending
  resize     `weft scale` up and down, ranks killed on the way
  oom        the kernel kills a rank in a control group whose memory is full (needs the right to make one)
  hang       an instruction does not end
  numeric    a rank computes NaN once
  flip       a bit of a rank's gradient norm is another one than its replicas', in one step
  disk       a call on the checkpoint's files says that the disk is full
  slow       a rank is slower than the others; and all processes are stopped for a while: nobody is lost
  agent      `weft run` is killed: nothing is left
  large      kills and stops with the state of gpt2 (124M parameters)
  hosts      two and three hosts: campaign_hosts.py (needs the right to make network namespaces)
  kernels    the same: ranks hang, or are slower than the others, on one of the hosts, besides half of the other faults

--only JOB: that job of the seed alone, as the table numbers them (with the same --block and --registers): each job draws from the seed
and its number.  Faults come at drawn moments of a running job, so that two runs of it are similar, not the same.
--registers: where agents of several hosts keep views: majority (of themselves), file (a folder), etcd (three servers, which lose
their leader).
Files that other programs put into /dev/shm meanwhile count as left behind: where they do, give the campaign its own
(unshare -m sh -c 'mount -t tmpfs tmpfs /dev/shm && exec tools/campaign.py ..')."""
import argparse
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "tests", "eco"), os.path.join(ROOT, "tests", "support")]
CGROUP = "/sys/fs/cgroup/memory"
OOM_BYTES = 1500 << 20

PLANS = {
    "dp2": (2, dict(dp=2)), "dp3": (3, dict(dp=3)), "dp4": (4, dict(dp=4)), "dp5": (5, dict(dp=5)), "dp8": (8, dict(dp=8)),
    "pp2": (2, dict(pp=2)), "dp2-pp2": (4, dict(dp=2, pp=2)), "dp3-pp2": (6, dict(dp=3, pp=2)), "dp4-pp2": (8, dict(dp=4, pp=2)),
    "zero1": (4, dict(dp=4, zero=1)), "zero1-8": (8, dict(dp=8, zero=1)), "zero2": (2, dict(dp=2, zero=2)), "zero1-2": (2, dict(dp=2, zero=1)),
    "zero3": (3, dict(dp=3, zero=3)), "zero3-6": (6, dict(dp=6, zero=3)), "dp2-pp2-zero1": (4, dict(dp=2, pp=2, zero=1)),
    "late": (4, dict(dp=4, zero=1, overlap_param_gather=0.5)),
    "zero1-copies": (4, dict(dp=4, zero=1, copies=2)), "zero3-copies": (8, dict(dp=8, zero=3, copies=2)),
    "pp2-copies": (2, dict(pp=2, copies=2)), "pp4-copies": (4, dict(pp=4, copies=2)),
}
KINDS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "segv": signal.SIGSEGV, "bus": signal.SIGBUS, "abort": signal.SIGABRT}
CRASHES = ("segv", "bus", "abort")
# Failpoints that a job reaches by itself, and those of the view after a first loss.
BY_ITSELF = ["eval.begin", "eval.batch", "eval.end", "save.begin", "save.drafted", "save.started", "save.written", "save.summed",
             "save.end", "vote.arrived", "vote.summed", "vote.passed", "update.begin", "update.chunk_kept", "update.chunk_made",
             "update.end", "update.marked", "end.save", "end.hash", "end.publish", "end.close"]
IN_RECOVERY = ["view.left", "view.await", "view.received", "view.connected", "view.words", "view.caught_up", "view.planned",
               "view.compiled", "view.adopt", "view.prepared", "view.ready", "view.told", "resume.mark", "move.look",
               "move.begin", "move.copied", "move.marked", "move.settle", "move.settled"]
IN_RESIZE = ["resize.leave", "resize.left", "resize.planned", "move.begin", "move.copied", "move.settle", "view.compiled"]


class Campaign:
    def __init__(self, scratch, draw):
        self.scratch, self.draw = scratch, draw
        self.references, self.rows, self.found = {}, [], []
        self.n_run = self.n_before = self.n_fault = 0
        self.n_host, self.register = 1, "memory"
        self.registers, self.failpoints = ["majority"], dict(itself=BY_ITSELF, recovery=IN_RECOVERY)
        self.keys = dict(views.BASE, lanes=8, **views.EVAL)

    # ---- jobs ----

    def reference(self, keys):
        """Of a job: one process, without an agent.  All plans have its bits."""
        name = json.dumps(keys, sort_keys=True)
        if name not in self.references:
            job = views.Job(1, keys, self.scratch.path("reference-%d" % len(self.references)))
            result, text = job.end()
            if not eco.check(result is not None, "undisturbed: " + text[-1000:]):
                eco.end()
            self.references[name] = result["weights_xxh64"], views.bits(job.output)
        return self.references[name]

    def start(self, plan, *options, env=None, n=None, **more):
        self.n_run += 1
        ranks, keys = PLANS[plan]
        every = self.draw.choice((1, 6, 100))
        self.plan, self.ranks, self.begin = plan, ranks, time.monotonic()
        self.n_host, self.register = 1, "memory"
        self.shm = set(os.listdir("/dev/shm"))
        self.more = more
        job = views.Job(n or ranks, dict(self.keys, **keys, **dict({"checkpoint.every": every, "recover": "on"}, **more)),
                        self.scratch.path("run-%d" % self.n_run), "--failure-timeout", "1", *options, env=env)
        job.await_step(1)
        self.fds = count_fds(job.p.pid)
        return job

    def finish(self, block, job, faults, lost_at_most=None, causes=None, good=True):
        """Checks all, adds a row.  lost_at_most: incidents of ranks; all causes must be of those given; good: what was checked before."""
        what = "%s %d, %s, %s" % (block, self.n_run, self.plan, "+".join(faults))
        fds = count_fds(job.p.pid)
        result, text = job.end()
        found = views.incidents(job.output)
        good &= eco.check(result is not None, "%s: ended with %r: %s" % (what, job.p.returncode, text[-2000:]))
        keys = dict(self.keys, **{k: v for k, v in self.more.items() if k in ("steps", "model", "tokenizer", "seq", "batch", "eval.every")})
        if result is not None:
            good &= eco.same((result["weights_xxh64"], views.bits(job.output)), self.reference(keys), what + ": weights and losses")
        lost = [i for i in found if "rank" in i and i["noticed"] not in ("report", "other bits")]
        most = len(faults) if lost_at_most is None else lost_at_most
        good &= eco.check(len(lost) <= most, "%s: %d ranks were lost: %r" % (what, len(lost), lost))
        if causes:
            good &= eco.check({i["cause"] for i in found} <= set(causes), "%s: %r" % (what, found))
        back = bool([i for i in found if i["decided"] == "checkpoint"])
        good &= eco.check(back == ("back to step" in text), "%s: decided %r, log %s" % (what, found, text[-3000:]))
        crash = any(f.split("@")[0] in CRASHES for f in faults)
        standby = self.plan in ("pp2-copies", "pp4-copies")  # what one rank alone held has a second holder
        good &= eco.check((crash and not standby) or not back, "%s: committed steps were run again: %r" % (what, found))
        good &= eco.check(fds <= self.fds + 2 * self.ranks, "%s: %d descriptors, %d before" % (what, fds, self.fds))
        good &= self.check_left(what, job)
        self.add_row(block, faults, found, good)
        return found

    def await_end(self, job):
        """What becomes of one that hangs is finish()'s."""
        try:
            job.p.wait(timeout=views.LIMIT_S)
        except subprocess.TimeoutExpired:
            pass

    def check_left(self, what, job):
        limit = time.monotonic() + 10
        while processes_of(job.output) and time.monotonic() < limit:
            time.sleep(0.02)
        good = eco.same(processes_of(job.output), [], what + ": processes are left")
        return good & eco.same(eco.left_in_shm(self.shm), [], what + ": left in /dev/shm")

    def add_row(self, block, faults, found, good):
        self.n_fault += len(faults)
        self.found += found
        back = sum(i["decided"] == "checkpoint" for i in found)
        pause = max([i["ms"].get("total", 0) for i in found if "ms" in i] or [0])
        self.rows.append((block, self.n_run, self.plan, self.ranks, self.n_host, self.register, "+".join(faults), len(found), back,
                          "%.0f" % pause, "%.2f" % (time.monotonic() - self.begin), "yes" if good else "NO"))
        print(",".join(map(str, self.rows[-1])), flush=True)

    def await_moment(self, job):
        """A random moment of one of the next steps."""
        job.await_step(job.steps() + self.draw.randint(1, 6))
        time.sleep(self.draw.random() * 1.2 * views.step_s(job.output))

    # ---- blocks: one job each ----

    def processes(self):
        plan = self.draw.choice(list(PLANS))
        stop = self.draw.random() < 0.7
        job = self.start(plan, *(("--on-stop", "replace") if stop else ()))
        faults, slots, crashed = [], list(range(self.ranks)) * 2, False
        for _ in range(self.draw.randint(1, 3)):
            if not slots:  # one that is lost a third time is left out
                break
            self.await_moment(job)
            kind = self.draw.choice(("kill", "kill", "kill", "stop") + CRASHES)
            if kind in CRASHES and crashed:  # two crashes in one step are the end
                kind = "kill"
            crashed |= kind in CRASHES
            rank = slots.pop(self.draw.randrange(len(slots)))
            if job.kill(rank, KINDS[kind]):
                faults.append(kind)
            if self.draw.random() < 0.2 and slots:  # one more at once
                rank = slots.pop(self.draw.randrange(len(slots)))
                if job.kill(rank):
                    faults.append("kill")
        self.finish("processes", job, faults)

    def phases(self):
        action = self.draw.choice(("kill", "kill", "stop", "exit", "abort"))
        where = self.draw.choice(("itself", "recovery", "recovery"))
        plan = self.draw.choice([p for p in PLANS if "pp" not in p or "copies" in p or action != "abort"])
        ranks = PLANS[plan][0]
        first = ""
        if where == "recovery":
            first = "update.chunk_made:kill:rank=%d:nth=%d," % (ranks - 1, self.draw.randint(1, 100))
        name = self.draw.choice(BY_ITSELF if where == "itself" else IN_RECOVERY)
        entry = "%s:%s:rank=%d" % (name, action, self.draw.randrange(ranks if name != "view.left" else ranks - 1))
        if where == "itself":
            entry += ":nth=%d" % (1 if name.startswith("end") else self.draw.randint(1, 3))
        once = self.scratch.path("once-%d" % (self.n_run + 1))
        job = self.start(plan, "--on-stop", "replace", env=dict(WEFT_FAILPOINT=first + entry, WEFT_FAILPOINT_ONCE=once),
                         **{"checkpoint.every": 6})
        self.await_end(job)
        faults = ["kill"] * os.path.exists(once + ".0") * bool(first)
        faults += ["%s@%s" % (action, name)] * os.path.exists("%s.%d" % (once, 1 if first else 0))
        self.finish("phases", job, faults)

    def resize(self):
        plan = self.draw.choice(("dp4", "zero1", "zero3", "dp2-pp2", "dp5", "zero1-copies"))
        n = PLANS[plan][0]
        once = self.scratch.path("once-%d" % (self.n_run + 1))
        env = None
        if self.draw.random() < 0.5:
            env = dict(WEFT_FAILPOINT="%s:kill:rank=%d" % (self.draw.choice(IN_RESIZE), self.draw.randrange(2)),
                       WEFT_FAILPOINT_ONCE=once)
        job = self.start(plan, n="1:%d" % n, env=env)
        faults = []
        for _ in range(self.draw.randint(1, 3)):
            p = subprocess.Popen([eco.WEFT, "scale", str(self.draw.randint(1, n)), job.output], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            if not env and self.draw.random() < 0.5:
                time.sleep(self.draw.random() * 0.1)
                if job.kill(self.draw.randrange(n)):
                    faults.append("kill@resize")
            p.wait(timeout=views.LIMIT_S)
            faults.append("resize")
        self.await_end(job)
        faults += ["kill@resize"] * os.path.exists(once + ".0")
        self.finish("resize", job, faults)

    def oom(self):
        group = "%s/weft-campaign-%d" % (CGROUP, os.getpid())
        try:
            os.mkdir(group)
            with open(group + "/memory.limit_in_bytes", "w") as f:
                f.write(str(OOM_BYTES))
        except OSError as e:
            print("oom: left out: no memory control group can be made (%s)" % e)
            return False
        plan = self.draw.choice(("dp2", "dp3", "pp2", "zero1"))
        rank, once = self.draw.randrange(PLANS[plan][0]), self.scratch.path("once-%d" % (self.n_run + 1))
        name = self.draw.choice(("step.begin", "vote.passed", "update.marked", "save.begin", "eval.begin"))
        env = dict(WEFT_FAILPOINT="%s:oom:rank=%d:nth=%d" % (name, rank, self.draw.randint(1, 2)), WEFT_FAILPOINT_ONCE=once)
        with open("/proc/self/cgroup") as f:
            home = [x.strip().split(":")[2] for x in f if ":memory:" in x]
        move_to(group)
        try:
            job = self.start(plan, env=env, **{"checkpoint.every": 6})
        finally:
            move_to(CGROUP + (home[0] if home else "/"))
        self.await_end(job)
        found = self.finish("oom", job, ["oom@" + name] * os.path.exists(once + ".0"), causes=("oom",))
        eco.same([i["cause"] for i in found], ["oom"], "oom: incidents")
        os.rmdir(group)
        return True

    def preload(self, **env):
        return dict(env, LD_PRELOAD=os.path.join(os.path.dirname(eco.WEFT), "libhang_kernel.so"))

    def hang(self):
        flag = self.scratch.path("flag-%d" % (self.n_run + 1))
        job = self.start(self.draw.choice(("dp2", "dp3", "pp2", "dp4")), env=self.preload(HANG_FILE=flag))
        self.await_moment(job)
        open(flag, "w").close()
        self.finish("hang", job, ["hang"], causes=("hang", "late", "silence"))  # on a busy machine its peers give up first

    def numeric(self):
        flag = self.scratch.path("flag-%d" % (self.n_run + 1))
        job = self.start(self.draw.choice(("dp2", "dp3", "pp2", "zero1")), env=self.preload(NAN_FILE=flag))
        self.await_moment(job)
        open(flag, "w").close()
        found = self.finish("numeric", job, ["nan"], lost_at_most=0, causes=("differs", "numeric", "cordon"))
        eco.check(all(i["decided"] == "retry" for i in found), "numeric: %r" % found)

    def flip(self):
        """The step is run again.  The rank whose bits changed is named; where the number of ranks may change, its slot is left out."""
        plan = self.draw.choice([p for p in PLANS if PLANS[p][0] > 1])
        n, elastic = PLANS[plan][0], self.draw.random() < 0.7
        rank, once = self.draw.randrange(n), self.scratch.path("once-%d" % (self.n_run + 1))
        env = dict(WEFT_FAILPOINT="vote.norm:flip:rank=%d:nth=%d" % (rank, self.draw.randint(2, 20)), WEFT_FAILPOINT_ONCE=once)
        job = self.start(plan, n="1:%d" % n if elastic else None, env=env, steps=48)
        self.await_end(job)
        found = sorted(views.incidents(job.output), key=lambda i: i["cause"] != "differs")  # two ranks tell at the same time
        what = [("cordon", "cordon"), ("cordon", "resize")] if elastic else [("cordon", "retry")]
        good = eco.same([(i["cause"], i["decided"]) for i in found], [("differs", "retry")] + what, "flip %d: %r" % (self.n_run, found))
        named = "rank %d computed other numbers" % rank
        good &= eco.check([(i["rank"], i["noticed"], named in i["what"]) for i in found[1:2]] == [(rank, "other bits", True)],
                          "flip %d: not %s: %r" % (self.n_run, named, found))
        self.finish("flip", job, ["flip"] * os.path.exists(once + ".0"), lost_at_most=0, good=good)

    def disk(self):
        """Asynchronous checkpoints: one is given up, training goes on."""
        at = self.draw.randint(30, 90)
        job = self.start(self.draw.choice(("dp2", "dp4", "pp2")), env=dict(WEFT_IO_FAIL="%d:ENOSPC" % at), **{"checkpoint.every": 3})
        result, text = job.end()
        found = views.incidents(job.output)
        good = eco.check(bool(found) or result is not None, "disk: ended with %r: %s" % (job.p.returncode, text[-1000:]))
        for i in found:
            good &= eco.check(i["cause"] == "disk", "disk: %r" % i)
        if result is not None:
            good &= eco.same((result["weights_xxh64"], views.bits(job.output)), self.reference(self.keys), "disk: weights and losses")
        good &= self.check_left("disk", job)
        self.add_row("disk", ["enospc"], found, good)

    def slow(self):
        plan = self.draw.choice(("dp2", "dp3", "dp4"))
        job = self.start(plan, env=self.preload(SLOW_RANK="1"), steps=60)
        self.await_moment(job)
        pids = views.children(job.p.pid)
        for sig, pause in ((signal.SIGSTOP, self.draw.uniform(0.5, 2)), (signal.SIGCONT, 0)):
            for pid in pids + [job.p.pid] if sig == signal.SIGSTOP else [job.p.pid] + pids:
                try:
                    os.kill(pid, sig)
                except ProcessLookupError:
                    pass
            time.sleep(pause)
        self.finish("slow", job, ["slow", "stop all"], lost_at_most=0)

    def agent(self):
        job = self.start(self.draw.choice(list(PLANS)), steps=100000)
        self.await_moment(job)
        if self.draw.random() < 0.5:
            job.kill(self.draw.randrange(self.ranks))
            time.sleep(self.draw.random() * 0.1)
        job.p.kill()
        job.p.communicate()
        good = self.check_left("agent", job)
        rows = [r["step"] for r in views.rows(job.output)]
        good &= eco.same(rows, list(range(1, len(rows) + 1)), "agent: rows")
        self.add_row("agent", ["kill agent"], [], good)

    def large(self):
        """Each rank twice: a third loss within ten steps would be the end."""
        plan = self.draw.choice(("dp2", "pp2", "zero1-2"))
        keys = dict(model="gpt2", tokenizer="bytes", seq=64, batch=4, steps=8)
        saved, self.keys, views.LIMIT_S = self.keys, dict(self.keys, lanes=2), 900
        job = self.start(plan, "--on-stop", "replace", **keys, **{"checkpoint.every": 100, "eval.every": 100})
        faults = []
        for rank in self.draw.sample([0, 0, 1, 1], 4):
            job.await_step(min(job.steps() + 1, keys["steps"] - 1))
            time.sleep(self.draw.random() * 1.2 * views.step_s(job.output))
            kind = self.draw.choice(("kill", "kill", "stop"))
            if job.kill(rank, KINDS[kind]):
                faults.append(kind)
        self.more = dict(keys, **{"eval.every": 100})
        self.finish("large", job, faults)
        self.keys = saved

    # ---- several hosts ----

    def token(self):
        path = self.scratch.path("token")
        if not os.path.exists(path):
            subprocess.run([eco.WEFT, "token", path], check=True, capture_output=True)
        return path

    def open_register(self, kind, wires):
        """What --rdzv is, and an etcd that is the caller's, or None."""
        if kind == "file":
            return "file:" + self.scratch.path("register-%d" % self.n_run), None
        if kind == "etcd":
            from etcd import Etcd
            cluster = Etcd(self.scratch.path("etcd-%d" % self.n_run), range(22379, 22385), wires.switch_address(), wires.at_switch())
            return cluster.where("campaign"), cluster
        return "%s:%d" % (wires.address(0), 20000 + self.n_run % 10000), None

    def hosts(self):
        import campaign_hosts
        return campaign_hosts.Block(self, "hosts").run()

    def kernels(self):
        import campaign_hosts
        return campaign_hosts.Block(self, "kernels").run()


def move_to(group):
    with open(group + "/cgroup.procs", "w") as f:
        f.write(str(os.getpid()))


def count_fds(pid):
    try:
        return len(os.listdir("/proc/%d/fd" % pid))
    except OSError:
        return 0


def processes_of(output):
    """Ranks and agents of the job with that folder."""
    found, word = [], ("output=" + output).encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                if word in f.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass
    return found


# Faults of a block in a whole campaign, in proportion.
BLOCKS = dict(processes=40, phases=25, resize=15, oom=4, hang=4, numeric=4, flip=4, disk=3, slow=3, agent=2, large=0, hosts=0, kernels=0)


def put_counts(f, what, counts):
    f.write("\n%s,faults\n" % what)
    for name, n in sorted(counts.items(), key=lambda x: (-x[1], str(x[0]))):
        f.write("%s,%d\n" % (name, n))


def count_by(rows, key):
    """Faults by what key() says of a row and one of its faults."""
    counts = {}
    for r in rows:
        for fault in filter(None, r[6].split("+")):
            counts[key(r, fault)] = counts.get(key(r, fault), 0) + 1
    return counts


def put_times(f, what, times):
    f.write("\n%s,n,median_ms,p99_ms,max_ms\n" % what)
    for name, x in times:
        x = sorted(x)
        if x:
            f.write("%s,%d,%.1f,%.1f,%.1f\n" % (name, len(x), x[len(x) // 2], x[min(len(x) - 1, len(x) * 99 // 100)], x[-1]))


def write_table(path, words, campaign):
    phases = ("notice", "decide", "leave", "start", "connect", "build", "move", "step", "total")
    ms = [(i["cause"], i["ms"]) for i in campaign.found if "ms" in i]
    with open(path + ".new", "w") as f:
        f.write("# tools/campaign.py %s, %s, %d processors: %d jobs, %d faults, %d incidents, %s\n" % (
            words, datetime.date.today(), os.cpu_count(), campaign.n_run - campaign.n_before, campaign.n_fault, len(campaign.found),
            "all as it should be" if not eco.failed else "%d checks FAILED" % len(eco.failed)))
        put_counts(f, "kind", count_by(campaign.rows, lambda r, fault: fault.split("@")[0]))
        put_counts(f, "when", count_by(campaign.rows, lambda r, fault: (fault.split("@") + ["training"])[1]))
        put_counts(f, "plan", count_by(campaign.rows, lambda r, fault: r[2]))
        put_counts(f, "processes", count_by(campaign.rows, lambda r, fault: r[3]))
        put_counts(f, "hosts", count_by(campaign.rows, lambda r, fault: r[4]))
        put_counts(f, "register", count_by(campaign.rows, lambda r, fault: r[5]))
        put_times(f, "cause", [(c, [m["total"] for cause, m in ms if cause == c and "total" in m]) for c in sorted({x[0] for x in ms})])
        put_times(f, "phase", [(p, [m[p] for _, m in ms if p in m]) for p in phases])
        f.write("\nblock,job,plan,ranks,hosts,register,faults,incidents,back_to_checkpoint,longest_pause_ms,seconds,good\n")
        for r in campaign.rows:
            f.write(",".join(map(str, r)) + "\n")
    os.replace(path + ".new", path)


def find_commit():
    p = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return p.stdout.strip() or "unknown"


def main():
    a = argparse.ArgumentParser()
    a.add_argument("weft")
    a.add_argument("--block", default="all")
    a.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    a.add_argument("--faults", type=int, default=100)
    a.add_argument("--seconds", type=float, default=1e9)
    a.add_argument("--only", type=int, metavar="JOB")
    a.add_argument("--registers", default="majority")
    a.add_argument("--narrow", action="store_true", help="jobs that wait in each step instead of computing: a short look, for make test")
    a.add_argument("--commit", default=find_commit(), help="what WEFT was built from, for the table")
    a.add_argument("--out")
    a = a.parse_args()
    if a.only is not None and a.only < 1:
        sys.exit("campaign.py: --only %d: jobs are counted from 1" % a.only)
    os.environ["WEFT"] = os.path.abspath(a.weft)
    global eco, views
    import eco
    import eco_hosts
    from etcd import has_etcd
    import eco_views as views
    if not a.narrow:  # faults come while ranks compute
        eco.PACE_MS = 0
        views.BASE["model"] = eco_hosts.BASE["model"] = "tiny256"
    print("seed %d" % a.seed, flush=True)
    weights = {b: w for b, w in BLOCKS.items() if w} if a.block == "all" else {b: 1 for b in a.block.split(",")}
    with eco.Scratch("campaign", memory=True) as scratch:
        campaign = Campaign(scratch, random.Random(a.seed))
        campaign.registers = [r for r in a.registers.split(",") if r != "etcd" or has_etcd()]
        if not campaign.registers:
            sys.exit("--registers %s: etcd or curl is not installed" % a.registers)
        words = "--block %s --seed %d --registers %s, commit %s" % (a.block, a.seed, ",".join(campaign.registers), a.commit)
        until = time.monotonic() + a.seconds
        campaign.n_run = campaign.n_before = a.only - 1 if a.only else 0
        while campaign.n_fault < a.faults and time.monotonic() < until and weights:
            campaign.draw.seed("%d job %d" % (a.seed, campaign.n_run + 1))
            block = campaign.draw.choices(list(weights), list(weights.values()))[0]
            before = len(eco.failed)
            if getattr(campaign, block)() is False:
                del weights[block]
            if not a.only and (len(eco.failed) > before + 200 or campaign.n_run > 20 + 5 * campaign.n_fault):
                eco.check(False, "nothing works")
                break
            if len(eco.failed) == before:  # what was right is not kept
                subprocess.run(["rm", "-rf", scratch.path("run-%d" % campaign.n_run)])
            if a.out:
                write_table(a.out, words, campaign)
            if a.only:
                break
        print("%d jobs, %d faults, %d incidents" % (campaign.n_run - campaign.n_before, campaign.n_fault, len(campaign.found)))
        eco.end()


if __name__ == "__main__":
    main()
