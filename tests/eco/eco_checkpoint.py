"""Checkpoints that all ranks write while steps compute: the files are, byte for byte, those of a run that waits for
each of them; they are the same under every plan that has the same bits; a run goes on from any of them under
another plan; and ranks killed while a checkpoint is written leave an older one that is whole.

    WEFT_FAULT_KILLS  random kills (6)"""
import os
import random
import shutil
import signal
import subprocess
import time

from eco import (ROOT, SANITIZED, Scratch, WEFT, check, end, read, same, small_job, steps_of, weft, words)

KILLS = int(os.environ.get("WEFT_FAULT_KILLS", "2" if SANITIZED else "6"))
STEPS = 6
PLANS = [(1, "dp=1"), (2, "dp=2"), (3, "dp=3", "zero=1"), (2, "dp=2", "zero=3"), (2, "pp=2")]
OTHER = [(2, "tp=2"), (4, "dp=2", "tp=2", "zero=2")]  # rounding of their own


def job_of(s, output, **more):
    job = small_job(s, steps=STEPS, checkpoint=dict(every=2, keep=9, wait=60, **more), output=output)
    job.update(batch=6, micro_batch=1, lanes=4, threads=1)
    return job


def run(job, plan, *options):
    return weft("run", "--nproc-per-node", str(plan[0]), *words(job), *plan[1:], "--quiet", *options)


def files(output):
    """Every file of its checkpoints."""
    top = os.path.join(output, "checkpoints")
    found = {}
    for folder, _, names in os.walk(top):
        for n in names:
            path = os.path.join(folder, n)
            found[os.path.relpath(path, top)] = read(path)
    return found


def differing(a, b):
    return sorted(k for k in set(a) | set(b) if a.get(k) != b.get(k))


def the_same_bytes(s):
    first = None
    for plan in PLANS + OTHER:
        what = " ".join(plan[1:])
        got = []
        for mode in ("true", "false"):
            out = s.path("out-%s-%s" % ("-".join(plan[1:]), mode))
            job = job_of(s, out)
            job["checkpoint"]["async"] = mode == "true"
            r = run(job, plan)
            if not check(r.code == 0 and not r.err, "%s, async %s: %s" % (what, mode, r)):
                return None
            got.append(files(out))
        same(differing(*got), [], what + ": files that differ from those of a run that waits")
        same(sum("MANIFEST" in k for k in got[0]), STEPS // 2, what + ": checkpoints")
        if plan in OTHER:
            continue
        first = first or got[0]
        same(differing(first, got[0]), [], what + ": files that differ from those of one rank")
    return first


def where_host_code_cannot_read(s, whole):
    """On a device whose memory this process may not touch, on one rank and on several: a second state takes it."""
    for plan in PLANS[:3]:
        out = s.path("guard-%d" % plan[0])
        r = weft("run", "--nproc-per-node", str(plan[0]), *words(job_of(s, out)), *plan[1:], "--quiet",
                 env={"WEFT_DEVICE": "guard"})
        check(r.code == 0 and not r.err, "guard device, %s: %s" % (plan[1], r))
        same(differing(whole, files(out)), [], "guard device, %s: files that differ" % plan[1])


def goes_on_elsewhere(s, whole):
    """From step 4 of two ranks, on one rank and on three."""
    for plan in (PLANS[0], PLANS[2]):
        out = s.path("elsewhere-%d" % plan[0])
        shutil.copytree(s.path("out-dp=2-true"), out)
        top = os.path.join(out, "checkpoints")
        os.unlink(os.path.join(top, "MANIFEST-%08d" % STEPS))
        shutil.rmtree(os.path.join(top, "step-%08d" % STEPS))
        r = run(job_of(s, out), plan)
        check(r.code == 0, "resumed on %s: %s" % (plan, r))
        same(differing(whole, files(out)), [], "resumed on %s: files that differ" % (plan,))


def killed(s, whole):
    """One rank, killed at a random moment of a run that always writes; every other one on a device of its own memory."""
    rng = random.Random(5)
    had = 0
    for i in range(KILLS):
        out = s.path("killed-%d" % i)
        job = job_of(s, out)
        job["checkpoint"]["every"] = 1
        args = [WEFT, "run", "--nproc-per-node", "3", *words(job), "dp=3", "zero=1", "--quiet"]
        env = dict(os.environ, WEFT_DEVICE="guard") if i % 2 else None
        p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=env)
        path = os.path.join(out, "metrics.jsonl")
        until = time.time() + 60
        while not (os.path.exists(path) and os.path.getsize(path)) and p.poll() is None and time.time() < until:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.1)
        try:
            with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
                ranks = f.read().split()
            if ranks:
                os.kill(int(rng.choice(ranks)), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            pass
        p.wait(timeout=120)
        top = os.path.join(out, "checkpoints")
        saved = [f for f in os.listdir(top) if f.startswith("MANIFEST") and not f.endswith(".tmp")]
        had += bool(saved)
        if saved:
            v = weft("ckpt", "verify", top)
            check(v.code == 0, "kill %d: %s" % (i, v))
        r = run(job, PLANS[1])
        check(r.code == 0 and not r.err, "kill %d: goes on: %s" % (i, r))
        same(steps_of(out), list(range(1, STEPS + 1)), "kill %d: steps" % i)
        name = "step-%08d/model.safetensors" % STEPS
        same(files(out).get(name), whole[name], "kill %d: weights" % i)
    print("%d kills, %d of them with checkpoints there" % (KILLS, had))


with Scratch("checkpoint") as s:
    whole = the_same_bytes(s)
    if whole:
        where_host_code_cannot_read(s, whole)
        goes_on_elsewhere(s, whole)
        killed(s, whole)
    end()
