"""Ranks are killed while a job runs with recover: on: the job goes on with another process in their
place, and every loss and the hash of the weights are those of the undisturbed run, bit by bit.

    WEFT_VIEWS_SECONDS  how long to go on with random kills (30)
    WEFT_VIEWS_SEED     what they are drawn from (drawn)
    WEFT_VIEWS_TABLE    a file for the pauses by phase, as CSV"""
import json
import os
import random
import signal
import subprocess
import sys
import time

from eco import ROOT, WEFT, Scratch, check, end, same

SECONDS = float(os.environ.get("WEFT_VIEWS_SECONDS", "30"))
SEED = int(os.environ.get("WEFT_VIEWS_SEED", str(random.SystemRandom().randrange(1 << 30))))
LIMIT_S = 120  # for a run that does not end

BASE = dict(model="tiny256", data=os.path.join(ROOT, "include"), seq=16, batch=8, micro_batch=1, lanes=4, steps=24,
            reduction="invariant", init="random", threads=1, plan="off")
PLANS = {
    "dp2": (2, dict(dp=2)),
    "dp4": (4, dict(dp=4)),
    "pp2": (2, dict(pp=2)),
    "dp2-pp2": (4, dict(dp=2, pp=2)),
    "zero1": (2, dict(dp=2, zero=1)),
    "zero3": (3, dict(dp=3, zero=3)),
    "zero1-late": (2, dict(dp=2, zero=1, overlap_param_gather=0.5)),
}
EVAL = {"eval.data": os.path.join(ROOT, "examples"), "eval.every": 5, "eval.batches": 2}


def words(keys):
    return ["%s=%s" % (k, v) for k, v in keys.items()]


def rows(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


def bits(folder):
    return [(r["step"], r["loss"], r["grad_norm"], r.get("eval_loss")) for r in rows(folder)]


def incidents(folder):
    path = os.path.join(folder, "incidents.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f]


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


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


class Job:
    def __init__(self, n, keys, output, *options):
        self.output = output
        self.log = open(output + ".log", "wb+")
        self.p = subprocess.Popen([WEFT, "run", "--nproc-per-node", str(n), "--json", *options,
                                   *words(dict(keys, output=output))], stdout=subprocess.PIPE, stderr=self.log)

    def steps(self):
        try:
            with open(os.path.join(self.output, "metrics.jsonl"), "rb") as f:
                return f.read().count(b"\n")
        except OSError:
            return 0

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
        try:
            out, _ = self.p.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.kill(self.p.pid, signal.SIGKILL)
            self.p.communicate()
            return None, "it hung"
        self.log.seek(0)
        text = self.log.read().decode()
        self.log.close()
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
        check(i["decided"] == "replace" and i["next_epoch"] > i["epoch"] and i["ms"]["total"] > 0,
              "%s: incident %r" % (name, i))
    return found


def run_plain(scratch, name):
    n, keys = PLANS[name]
    job = Job(n, dict(BASE, **keys, **EVAL, **{"checkpoint.every": 6}), scratch.path("ref-" + name))
    result, text = job.end()
    check(result is not None, "%s undisturbed: %s" % (name, text))
    return result, bits(job.output)


def disturb(scratch, name, reference, draw, k):
    """One run with one to three random kills."""
    n, keys = PLANS[name]
    every = draw.choice((1, 6, 100))
    job = Job(n, dict(BASE, **keys, **EVAL, **{"checkpoint.every": every, "recover": "on"}),
              scratch.path("%s-%d" % (name, k)))
    kills, n_kill = draw.sample(list(range(n)) * 2, draw.randint(1, 3)), 0  # a third one of a rank could be the end
    for step, rank in zip(sorted(draw.randint(0, BASE["steps"]) for _ in kills), kills):
        job.await_step(step)
        time.sleep(draw.random() * 0.03)
        n_kill += job.kill(rank)
    return same_as("%s %d (every %d)" % (name, k, every), job, reference, n_kill)


def write_table(found):
    path = os.environ.get("WEFT_VIEWS_TABLE")
    if not path or not found:
        return
    phases = ["decide", "leave", "start", "connect", "build", "move", "step", "total"]
    with open(path, "w") as f:
        f.write("phase,n,median_ms,p99_ms,max_ms\n")
        for p in phases:
            x = sorted(i["ms"].get(p, 0) for i in found)
            f.write("%s,%d,%.2f,%.2f,%.2f\n" % (p, len(x), x[len(x) // 2], x[min(len(x) - 1, len(x) * 99 // 100)], x[-1]))


def main():
    with Scratch("views", memory=True) as scratch:
        run_all(scratch)


def run_all(scratch):
    draw = random.Random(SEED)
    print("seed %d" % SEED, flush=True)
    until = time.monotonic() + SECONDS
    names = sys.argv[1:] or list(PLANS)
    draw.shuffle(names)
    reference, found, k = {}, [], 0
    while time.monotonic() < until or k < 2:
        name = names[k % len(names)]
        if name not in reference:
            reference[name] = run_plain(scratch, name)
        found += disturb(scratch, name, reference[name], draw, k)
        k += 1
    print("%d runs, %d incidents" % (k, len(found)))
    write_table(found)
    end()


if __name__ == "__main__":
    main()
