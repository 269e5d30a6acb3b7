"""Ranks are killed while a job runs with recover: on: the job goes on with another process in their
place, and every loss and the hash of the weights are those of the undisturbed run, bit by bit.

    WEFT_VIEWS_SECONDS  how long to go on with random kills (3, sanitized 1)
    WEFT_VIEWS_SEED     what they are drawn from (drawn)
    WEFT_VIEWS_MANY     views of one job after which its agent is as after 16 of them (24, sanitized 6: as after 4)
    WEFT_VIEWS_TABLE    a file for kills by plan and pauses by phase, as CSV"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

from eco import LONG, NARROW, ROOT, SANITIZED, WEFT, Scratch, check, end, here, hold, let_go, paced, same

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from processes import children

SECONDS = float(os.environ.get("WEFT_VIEWS_SECONDS", "1" if SANITIZED else "2"))
SEED = int(os.environ.get("WEFT_VIEWS_SEED", str(random.SystemRandom().randrange(1 << 30))))
MANY = int(os.environ.get("WEFT_VIEWS_MANY", "6" if SANITIZED else "24"))
LIMIT_S = 120  # for a run that does not end

BASE = dict(model=NARROW, data=os.path.join(ROOT, "include"), seq=16, batch=8, micro_batch=1, lanes=4, steps=24,
            reduction="invariant", init="random", threads=1, plan="off")
PLANS = {
    "dp2": (2, dict(dp=2)),
    "dp4": (4, dict(dp=4)),
    "pp2": (2, dict(pp=2)),
    "dp2-pp2": (4, dict(dp=2, pp=2)),
    "zero1": (2, dict(dp=2, zero=1)),
    "zero3": (3, dict(dp=3, zero=3)),
    "zero1-late": (2, dict(dp=2, zero=1, overlap_param_gather=0.5)),
    "zero2": (2, dict(dp=2, zero=2, dtype="bf16")),
    "zero1-copies": (4, dict(dp=4, zero=1, copies=2)),
    "tp2": (2, dict(tp=2)),
    "pp2-copies": (2, dict(pp=2, copies=2)),
    "tp2-copies": (2, dict(tp=2, copies=2)),
    "pp2-lamb": (2, {"pp": 2, "optimizer.name": "lamb"}),
    "dp2-pp2-zero1": (4, dict(dp=2, pp=2, zero=1)),
}
EVAL = {"eval.data": os.path.join(ROOT, "examples"), "eval.every": 5, "eval.batches": 2}
WAITS = (None, "update.begin:delay=8", "update.chunk_made:delay=1")  # of a disturbed job, besides that of paced()


def words(keys):
    return ["%s=%s" % (k, v) for k, v in keys.items()]


def rows(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


def bits(folder):
    return [(r["step"], r["loss"], r["grad_norm"], r.get("eval_loss")) for r in rows(folder)]


def incidents(folder, slow=False):
    """Those that were reported; slow ranks and links are chance on a machine that is busy."""
    path = os.path.join(folder, "incidents.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [i for i in map(json.loads, f) if slow or i["cause"] not in ("slow", "slow_link")]


def rank_of(pid):
    """The rank of a process of weft run, or None where it has not become one yet."""
    try:
        with open("/proc/%d/environ" % pid, "rb") as f:
            for x in f.read().split(b"\0"):
                if x.startswith(b"WEFT_RANK="):
                    return int(x[10:])
    except OSError:
        pass
    return None


class RowCount:
    """Rows of metrics.jsonl so far; those that were counted before are not read again."""
    def __init__(self):
        self.bytes = self.rows = 0

    def count(self, folder):
        try:
            with open(os.path.join(folder, "metrics.jsonl"), "rb") as f:
                if os.fstat(f.fileno()).st_size < self.bytes:
                    self.bytes = self.rows = 0  # a new rank 0 has cut it off
                f.seek(self.bytes)
                more = f.read()
                self.bytes += len(more)
                self.rows += more.count(b"\n")
                return self.rows
        except OSError:
            return 0


def size_of(pid):
    """Open descriptors and resident pages of a process."""
    with open("/proc/%d/statm" % pid) as f:
        return len(os.listdir("/proc/%d/fd" % pid)), int(f.read().split()[1])


def check_sizes(sizes, what):
    """Two of the same process: it has no more descriptors and hardly more memory than before.  Sanitized, freed memory is kept for a
    while, and leaks are found at the end."""
    check(len(sizes) == 2 and sizes[1][0] <= sizes[0][0], "%s: descriptors and pages: %r" % (what, sizes))
    check(SANITIZED or sizes[1][1] <= sizes[0][1] + 300, "%s: descriptors and pages: %r" % (what, sizes))


class Job:
    def __init__(self, n, keys, output, *options, env=None):
        self.output = output
        self.log = open(output + ".log", "wb+")
        self.text = ""
        self.seen = RowCount()
        self.p = subprocess.Popen([WEFT, "run", "--nproc-per-node", str(n), "--json", *options,
                                   *words(dict(keys, output=output))], stdout=subprocess.PIPE, stderr=self.log,
                                  env=dict(os.environ, WEFT_CHECK_COPIES="1",
                                           **paced(env, hold(output), keys.get("steps", 1))))

    def steps(self):
        return self.seen.count(self.output)

    def await_step(self, step):
        limit = time.monotonic() + LIMIT_S
        while self.p.poll() is None and self.steps() < step and time.monotonic() < limit:
            time.sleep(0.002)

    def kill(self, rank, sig=signal.SIGKILL):
        """Kills the process that is that rank now; False: there is none."""
        for pid in children(self.p.pid):
            if rank_of(pid) == rank:
                try:
                    os.kill(pid, sig)
                    return True
                except ProcessLookupError:
                    return False
        return False

    def end(self):
        """Nothing more is done to it."""
        let_go(self.output)
        try:
            out, _ = self.p.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.kill(self.p.pid, signal.SIGKILL)
            self.p.communicate()
            return None, "it hung"
        self.log.seek(0)
        text = self.log.read().decode()
        self.log.close()
        self.text = text
        return (json.loads(out) if self.p.returncode == 0 and out.strip() else None), text


def same_as(name, job, reference, n_kill):
    """The job's result, losses and incidents against those of the undisturbed run."""
    result, text = job.end()
    if not check(result is not None, "%s: ended with %r: %s" % (name, job.p.returncode, text[-2000:])):
        return []
    same(result["weights_xxh64"], reference[0]["weights_xxh64"], name + ": weights")
    same(bits(job.output), reference[1], name + ": losses")
    found = incidents(job.output)
    check(len(found) <= n_kill, "%s: %d incidents of %d kills" % (name, len(found), n_kill))
    for i in found:
        check(i["decided"] in ("replace", "checkpoint") and i["next_epoch"] > i["epoch"] and i["ms"]["total"] > 0
              and {"shrink", "stop"} <= {x["level"] for x in i["rejected"]}, "%s: incident %r" % (name, i))
    return found


def went_back(found):
    """Incidents after which committed steps were run again; after the last step none follows."""
    return [i for i in found if i["next_step"] <= i["step"] and i["next_step"] < BASE["steps"]]


def run_plain(scratch, name):
    n, keys = PLANS[name]
    job = Job(n, dict(BASE, **keys, **EVAL, **{"checkpoint.every": 6}), scratch.path("ref-" + name))
    result, text = job.end()
    check(result is not None, "%s undisturbed: %s" % (name, text))
    return result, bits(job.output)


def step_s(folder):
    """Of the last step."""
    try:
        return rows(folder)[-1]["step_ms"] / 1e3
    except (OSError, IndexError, ValueError):
        return 0.03


def disturb(scratch, name, reference, draw, k):
    """One run with one to three random kills, one time in six of all ranks at once.  Steps that wait do so in their updates, too: else
    hardly a kill would be in one."""
    n, keys = PLANS[name]
    every = draw.choice((1, 6, 100))
    place = draw.choice(WAITS)
    job = Job(n, dict(BASE, **keys, **EVAL, **{"checkpoint.every": every, "recover": "on"}),
              scratch.path("%s-%d" % (name, k)), env=dict(WEFT_FAILPOINT=place + ":nth=every") if place and not LONG else None)
    kills, n_kill = draw.sample(list(range(n)) * 2, draw.randint(1, 3)), 0  # a third one of a rank could be the end
    if draw.randrange(6) == 0:
        kills = [-1]
    for step, rank in zip(sorted(draw.randint(0, BASE["steps"]) for _ in kills), kills):
        job.await_step(step)
        time.sleep(draw.random() * 1.2 * step_s(job.output))
        n_kill += sum(job.kill(r) for r in (range(n) if rank < 0 else [rank]))
    found = same_as("%s %d (every %d)" % (name, k, every), job, reference, n_kill)
    # before the first step weights may not be drawn yet: nothing is lost with them
    check(not went_back(found) and not re.search("back to step [1-9]", job.text),
          "%s: the agent's memory holds the state: %r" % (name, found))
    ended = len(re.findall(r"the updates of \d+ of \d+ ranks are ended", job.text))
    return found, n_kill, ended


# ---- cases that chance does not bring ----

def start(scratch, name, plan="dp2", *options, **keys):
    n, of_plan = PLANS[plan]
    return Job(n, dict(BASE, **of_plan, **dict({"recover": "on"}, **keys)), scratch.path(name), *options)


def gone(pids):
    """None of the processes is left, after a moment."""
    limit = time.monotonic() + 10
    while any(os.path.exists("/proc/%d" % p) for p in pids) and time.monotonic() < limit:
        time.sleep(0.01)
    return not any(os.path.exists("/proc/%d" % p) for p in pids)


def kill_often(job):
    """Rank 1, three times within ten steps."""
    for k in range(3):
        job.await_step(3 + 2 * k)
        while not job.kill(1):
            time.sleep(0.01)
        before = len(incidents(job.output))
        limit = time.monotonic() + 60
        while job.p.poll() is None and len(incidents(job.output)) == before and time.monotonic() < limit:
            time.sleep(0.01)


def lost_too_often(scratch):
    """The state is saved, and the job ends."""
    job = start(scratch, "often", steps=1000)
    kill_often(job)
    result, text = job.end()
    check(result is None and job.p.returncode == 1, "a rank lost three times in ten steps: %r" % job.p.returncode)
    check("rank 1 was lost too often" in text, "its reason: " + text[-1000:])
    last = (incidents(job.output) or [{}])[-1]
    check(last.get("decided") == "stop" and "too often" in last.get("why", ""), "its incident: %r" % last)
    saved = os.listdir(os.path.join(job.output, "checkpoints"))
    check("step-%08d" % len(rows(job.output)) in saved, "its state is saved: %r" % saved)


def cordoned(scratch):
    """Where the job may have fewer ranks it goes on with one less."""
    reference = Job(1, dict(BASE, dp=1), scratch.path("ref-cordon"))
    plain, text = reference.end()
    check(plain is not None, "undisturbed: " + text)
    job = Job("1:3", dict(BASE, dp=3, recover="on"), scratch.path("cordon"))
    kill_often(job)
    result, text = job.end()
    if check(result is not None, "cordoned: %r %s" % (job.p.returncode, text[-1000:])):
        same((result["weights_xxh64"], bits(job.output)), (plain["weights_xxh64"], bits(reference.output)), "cordoned: bits")
    found = incidents(job.output)
    same([i["decided"] for i in found], ["replace", "replace", "shrink", "resize"], "cordoned: %r" % found)
    check(found[-1]["what"] == "from 3 to 2 ranks, without slot 1" and found[-1]["cause"] == "cordon", "cordoned: %r" % found[-1:])


def never_starts(scratch):
    """A rank is killed in its update, and no other process of its slot gets as far as a step: the job goes on without it, at once, and the
    others end its updates."""
    for name, rank, keys in (("zero1", 1, dict(dp=3, zero=1)), ("pp2", 0, dict(pp=2)))[:2 if LONG else 1]:
        kills = ["update.chunk_made:kill:rank=%d:nth=40" % rank] + ["view.adopt:kill:rank=%d" % rank] * 3
        n = "1:%d" % (keys.get("dp", 1) * keys.get("pp", 1))
        job = Job(n, dict(BASE, recover="on", **keys), scratch.path("never-" + name),
                  env=dict(WEFT_FAILPOINT=",".join(kills), WEFT_FAILPOINT_ONCE=scratch.path("never-once-" + name)))
        reference = Job(1, dict(BASE, dp=1), scratch.path("ref-never-" + name))
        plain, _ = reference.end()
        result, text = job.end()
        if check(plain and result, "a slot that does not start: %r %s" % (job.p.returncode, text[-1500:])):
            same((result["weights_xxh64"], bits(job.output)), (plain["weights_xxh64"], bits(reference.output)), "a slot that does not start: bits")
        found = incidents(job.output)
        same([(i["cause"], i["decided"]) for i in found], [("kill", "replace")] * 2 + [("kill", "shrink")] * 2 + [("cordon", "resize")],
             "a slot that does not start: %r" % found)
        check("the updates of slot %d are ended by the plan before" % rank in text and " back to step" not in text,
              "a slot that does not start: " + text[-1500:])


def not_allowed(scratch):
    """recover: shrink, of a job with a fixed number of ranks: its state is saved."""
    job = start(scratch, "allowed", steps=1000, recover="shrink")
    job.await_step(3)
    job.kill(1)
    _, text = job.end()
    check(job.p.returncode == 1 and "recover allows no more than to stop" in text, "not allowed: %r %s" % (job.p.returncode, text[-500:]))
    found = incidents(job.output)
    check([i["decided"] for i in found] == ["stop"], "not allowed: %r" % found)
    check({"level": "replace", "cost_s": 0.2, "why": "recover does not allow it"} in found[0]["rejected"], "not allowed: %r" % found)


def crashed(scratch, reference, _):
    """Memory of a rank that crashed is not trusted: the state of its stage comes from the checkpoint."""
    job = start(scratch, "crash", "pp2", **EVAL, **{"checkpoint.every": 4})
    job.await_step(6)
    job.kill(1, signal.SIGABRT)  # sanitizers catch the others
    found = same_as("SIGABRT", job, reference, 1)
    check(found and all(i["next_step"] in (5, 9, 13, 17, 21) and i["decided"] == "checkpoint" for i in found), "SIGABRT: from a checkpoint: %r" % found)


def crashed_in_update(scratch, reference, _):
    """The others had committed the step, the lost rank had not: that all went back is what ranks say, not the step."""
    n, keys = PLANS["pp2"]
    job = Job(n, dict(BASE, **keys, **EVAL, recover="on", **{"checkpoint.every": 100}), scratch.path("crash-update"),
              env=dict(WEFT_FAILPOINT="update.chunk_made:abort:rank=1", WEFT_FAILPOINT_ONCE=scratch.path("once")))
    found = same_as("abort in an update", job, reference, 1)
    check([(i["decided"], i.get("back")) for i in found] == [("checkpoint", True)], "abort in an update: %r" % found)
    check(found and {"level": "replace", "cost_s": 0.2, "why": "no rank that is left holds all of the state"} in found[0]["rejected"],
          "abort in an update: %r" % found)
    check("back to step %d" % (found[0]["next_step"] - 1) in job.text if found else False, "abort in an update: " + job.text[-1500:])


def crashed_copies(scratch, _, draw):
    """With copies a crashed rank's shards come from the other copy: no committed step is run again."""
    reference = run_plain(scratch, "zero1-copies")
    for k in range(2 if LONG else 1):
        job = start(scratch, "crash-copies-%d" % k, "zero1-copies", **EVAL, **{"checkpoint.every": 100})
        job.await_step(draw.randint(3, 12))
        time.sleep(draw.random() * step_s(job.output))
        job.kill(draw.randrange(4), signal.SIGABRT)
        found = same_as("SIGABRT, copies", job, reference, 1)
        check(found and not went_back(found), "SIGABRT, copies: from the other copy: %r" % found)
    n, keys = PLANS["zero1-copies"]  # the others have made their updates, and cannot gather the lost shard
    job = Job(n, dict(BASE, **keys, **EVAL, recover="on", **{"checkpoint.every": 100}), scratch.path("crash-gather"),
              env=dict(WEFT_FAILPOINT="update.chunk_made:abort:rank=%d" % draw.randrange(4), WEFT_FAILPOINT_ONCE=scratch.path("once-gather")))
    found = same_as("abort in an update, copies", job, reference, 1)
    check([(i["decided"], i.get("back")) for i in found] == [("replace", None)], "abort in an update, copies: %r" % found)


def crashed_standby(scratch, pp2, draw):
    """Stages and tensor-parallel shards have a standby replica: a rank that crashes takes its state from there."""
    for plan in ("pp2-copies", "tp2-copies"):
        reference = run_plain(scratch, plan)
        if plan == "pp2-copies":
            same((reference[0]["weights_xxh64"], reference[1]), (pp2[0]["weights_xxh64"], pp2[1]), plan + ": the bits without replicas")
        for rank in range(2) if LONG else [draw.randrange(2)]:
            job = start(scratch, "crash-%s-%d" % (plan, rank), plan, **EVAL, **{"checkpoint.every": 100})
            job.await_step(draw.randint(1, 12))
            time.sleep(draw.random() * step_s(job.output))
            job.kill(rank, signal.SIGABRT)
            found = same_as("SIGABRT, " + plan, job, reference, 1)
            check(found and not went_back(found) and "back to step" not in job.text,
                  "SIGABRT, %s: from the standby replica: %r" % (plan, found))
            check("every part of the state is in the memory of at least 2 of ranks 0, 1;" in job.text, plan + ": the start says so: " + job.text[:2000])
    if SANITIZED:
        return
    n, keys = PLANS["pp2-copies"]  # device memory goes with its process
    job = Job(n, dict(BASE, **keys, **EVAL, **{"checkpoint.every": 100, "recover": "on"}), scratch.path("kill-guard"), env=dict(WEFT_DEVICE="guard"))
    job.await_step(draw.randint(2, 12))
    job.kill(1)
    found = same_as("guard device, pp2-copies", job, pp2, 1)
    check(found and not went_back(found) and "back to" not in job.text, "guard device: from the standby replica: %r" % found)


def all_lost(scratch, reference, _):
    """All ranks are killed at once: their memory is there, no checkpoint is read."""
    job = start(scratch, "all", "pp2", **EVAL, **{"checkpoint.every": 100})
    for step in (4, 13):
        job.await_step(step)
        job.kill(0), job.kill(1)
    found = same_as("all ranks", job, reference, 4)
    check(found and not went_back(found), "all ranks: from memory: %r" % found)


def two_at_once(scratch, reference, _):
    """Two ranks are lost before the agent has decided anything: no rank waits in a view that was overtaken.  The device is what auto
    finds."""
    n, keys = PLANS["dp4"]
    job = Job(n, dict(BASE, **keys, **EVAL, **{"recover": "on", "checkpoint.every": 100, "device": "auto"}), scratch.path("two"),
              env=dict(WEFT_FAILPOINT="agent.act:delay=300:rank=none:nth=8", WEFT_PLUGINS="/nonexistent"))  # 4 starts, a view; a start, a view, a start
    job.await_step(3)
    begin = time.monotonic()
    job.p.send_signal(signal.SIGSTOP)
    job.kill(1), job.kill(2)
    job.p.send_signal(signal.SIGCONT)
    found = same_as("two at once", job, reference, 2)
    check(len(found) == 2 and time.monotonic() - begin < 50, "two at once: %.1f s, %r" % (time.monotonic() - begin, found))


def history_kept(scratch):
    """A resume changes lanes (--allow).  Rank 0 is killed, then both ranks at once: the checkpoints after that say what the undisturbed
    run's say."""
    plain, output = scratch.path("history-plain"), scratch.path("history")
    keys = dict(BASE, dp=2, lanes=2, steps=6, recover="on")
    for o in (plain, output):
        result, text = Job(2, keys, o).end()
        check(result is not None, "history: " + text[-2000:])
    keys.update(lanes=4, steps=48, **{"checkpoint.every": 24})
    result, text = Job(2, keys, plain, "--allow", "lanes").end()
    check(result is not None, "history, undisturbed: " + text[-2000:])
    job = Job(2, keys, output, "--allow", "lanes")
    job.await_step(10)
    check(job.kill(0), "history: rank 0")
    job.await_step(28)
    for pid in children(job.p.pid):
        os.kill(pid, signal.SIGKILL)
    result, text = job.end()
    check(result is not None and "back to step" not in text, "history, disturbed: " + text[-2000:])
    states = []
    for o in (plain, output):
        for step in (24, 48):
            with open(os.path.join(o, "checkpoints", "step-%08d" % step, "state.json")) as f:
                states.append(json.load(f))
    same(states[2:], states[:2], "history: state.json")
    same([s.get("history") for s in states[2:]], 2 * [[{"step": 6, "key": "lanes", "from": 2, "to": 4}]], "history")


def agent_killed(scratch):
    job = start(scratch, "agent", steps=100000)
    job.await_step(2)
    job.kill(0)
    job.await_step(6)
    pids = children(job.p.pid)
    check(len(pids) == 2, "two ranks: %r" % pids)
    job.p.kill()
    job.p.communicate()
    check(gone(pids), "ranks outlive the agent")


def signalled(scratch):
    """SIGTERM after a replacement: a checkpoint, and 143."""
    job = start(scratch, "signal", steps=100000)
    job.await_step(3)
    job.kill(0)
    job.await_step(8)
    job.p.send_signal(signal.SIGTERM)
    _, text = job.end()
    same(job.p.returncode, 143, "exit code after SIGTERM: " + text[-500:])
    saved = [f for f in os.listdir(os.path.join(job.output, "checkpoints")) if "tmp" not in f]
    check(saved, "SIGTERM: a checkpoint is there")
    done = rows(job.output)
    same([r["step"] for r in done], list(range(1, len(done) + 1)), "SIGTERM: rows")


def signalled_in_vain(scratch):
    """A rank hangs: after --grace, or a second signal, all are killed, and none is replaced."""
    for sig, options in ((signal.SIGTERM, ("--grace", "1")), (signal.SIGINT, ())):
        hangs = scratch.path("vain%d" % sig)
        n, keys = PLANS["dp2"]
        job = Job(n, dict(BASE, **keys, recover="on", steps=100000), scratch.path("vain-%d" % sig), "--failure-timeout", "60", *options,
                  env=dict(WEFT_FAILPOINT="step.begin:delay=300000:rank=1:nth=4", WEFT_FAILPOINT_ONCE=hangs))
        limit = time.monotonic() + LIMIT_S
        while not os.path.exists(hangs + ".0") and time.monotonic() < limit:
            time.sleep(0.005)
        pids = children(job.p.pid)
        job.p.send_signal(sig)
        if not options:
            time.sleep(0.5)
            job.p.send_signal(sig)
        _, text = job.end()
        same(job.p.returncode, 128 + sig, "a rank that hangs: exit code: " + text[-1000:])
        check("it is replaced" not in text and gone(pids), "a rank that hangs: " + text[-1000:])
        check(("[rank 1] error: it did not end after the signal, and was killed" in text) == bool(options), "a rank that hangs: " + text[-1000:])


def signalled_in_recovery(scratch, draw):
    """SIGTERM while a lost rank is replaced: a checkpoint, and 143.  One of three cases, or all (make long)."""
    for k in range(3) if LONG else [draw.randrange(3)]:
        job = start(scratch, "recovery%d" % k, ("dp2", "pp2")[k % 2], steps=100000)
        job.await_step(3)
        for rank in ((0,), (1,), (0, 1))[k]:
            job.kill(rank)
        time.sleep(draw.random() ** 2 * 0.03)
        job.p.send_signal(signal.SIGTERM)
        _, text = job.end()
        same(job.p.returncode, 143, "SIGTERM in recovery: exit code: " + text[-500:])
        saved = [f for f in os.listdir(os.path.join(job.output, "checkpoints")) if "tmp" not in f]
        check(saved, "SIGTERM in recovery: a checkpoint is there: " + text[-1000:])


def many_views(scratch):
    """Views leave nothing behind: the agent's descriptors and memory are those of the beginning."""
    job = start(scratch, "many", "dp2", steps=100000, seq=8, batch=4, **{"checkpoint.every": 1000000})
    sizes = []
    for k in range(MANY):
        job.await_step(12 * (k // 2) + 6 * (k % 2) + 1)
        if k in (min(20, 2 * MANY // 3), MANY - 1):
            sizes.append(size_of(job.p.pid))
        check(job.kill(k % 2), "views: kill %d" % k)
    job.await_step(6 * MANY + 10)
    job.p.send_signal(signal.SIGTERM)
    _, text = job.end()
    same(job.p.returncode, 143, "views: exit code: " + text[-500:])
    check(len(incidents(job.output)) == MANY, "views: %d incidents" % len(incidents(job.output)))
    check_sizes(sizes, "views")


def write_table(found, by_plan):
    path = os.environ.get("WEFT_VIEWS_TABLE")
    if not path or not found:
        return
    phases = ["decide", "leave", "start", "connect", "build", "move", "step", "total"]
    with open(path, "w") as f:
        f.write("# eco_views.py, seed %d: losses and weights bit by bit, all copies compared after each loss\n" % SEED)
        f.write("plan,jobs,kills,updates_ended,back_to_checkpoint\n")
        for name, row in sorted(by_plan.items()):
            f.write("%s,%d,%d,%d,%d\n" % ((name,) + tuple(row)))
        f.write("\nphase,n,median_ms,p99_ms,max_ms\n")
        for p in phases:
            x = sorted(i["ms"].get(p, 0) for i in found)
            f.write("%s,%d,%.2f,%.2f,%.2f\n" % (p, len(x), x[len(x) // 2], x[min(len(x) - 1, len(x) * 99 // 100)], x[-1]))


def main():
    with Scratch("views", memory=True) as scratch:
        run_all(scratch)


def run_all(scratch):
    draw = random.Random(SEED)
    print("seed %d" % SEED, flush=True)
    if not sys.argv[1:]:
        lost_too_often(scratch)
        cordoned(scratch)
        never_starts(scratch)
        if not SANITIZED:
            not_allowed(scratch)
        pp2 = run_plain(scratch, "pp2")
        for case in here([crashed_copies, crashed_in_update, crashed_standby, all_lost, crashed, two_at_once]):
            case(scratch, pp2, draw)  # all plans have the same bits
        history_kept(scratch)
        if not SANITIZED:  # less of the same: a signal comes in a recovery, ranks outlive no agent in eco_failpoints.py
            agent_killed(scratch)
            signalled(scratch)
            signalled_in_vain(scratch)
        signalled_in_recovery(scratch, draw)
        many_views(scratch)
    until = time.monotonic() + SECONDS
    names = sys.argv[1:] or list(PLANS)
    draw.shuffle(names)
    reference, found, by_plan, k = {}, [], {}, 0
    while time.monotonic() < until or k < (1 if SANITIZED else 2):
        name = names[k % len(names)]
        if name not in reference:
            reference[name] = run_plain(scratch, name)
        more, n_kill, ended = disturb(scratch, name, reference[name], draw, k)
        row = by_plan.setdefault(name, [0, 0, 0, 0])
        for i, x in enumerate((1, n_kill, ended, len(went_back(more)))):
            row[i] += x
        found += more
        k += 1
    print("%d runs, %d incidents, %d of them with committed steps run again" % (k, len(found), len(went_back(found))))
    write_table(found, by_plan)
    end()


if __name__ == "__main__":
    main()
