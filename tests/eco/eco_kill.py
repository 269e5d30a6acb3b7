"""A run that is killed, stopped or failed by its disk goes on to the very weights of a run that was not.

    killed      SIGKILL at random moments, a checkpoint every step; and right before the n-th call that changes a file
    stopped     SIGINT and SIGTERM: exit codes 130 and 143, with a checkpoint of the last step
    failed      the n-th call that changes a file finds the disk full, from there on or once: exit code 1, or a
                checkpoint that is given up with a warning while training goes on

Afterwards metrics.jsonl holds one line a step, with the losses of the undisturbed run.

    WEFT_FAULT_KILLS  random kills (20)     WEFT_FAULT_EVERY  distance between the n tried (7; 1: all)"""
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

from eco import (ROOT, SANITIZED, Scratch, WEFT, check, end, metrics, same, small_job, steps_of, train, weft,
                 words)

KILLS = int(os.environ.get("WEFT_FAULT_KILLS", "6" if SANITIZED else "20"))
EVERY = int(os.environ.get("WEFT_FAULT_EVERY", "41" if SANITIZED else "7"))
STEPS = 8
GIVEN_UP = re.compile(rb" WARN checkpoint of step \d+ (was given up|is there, but)")


def job_of(s, output, **more):
    job = small_job(s, steps=STEPS, checkpoint=dict(every=1, wait=60), output=output, shuffle=True, **more)
    job["optimizer"] = dict(name="adamw", lr=0.01, clip=1.0)
    job["lr_schedule"] = dict(name="cosine", warmup=2)
    return job


def start(job, env=None):
    return subprocess.Popen([WEFT, "train", *words(job), "--json", "--quiet"], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=ROOT,
                            env=dict(os.environ, **(env or {})))


def goes_on(job, whole, what):
    """The same command again: as if nothing had been."""
    r = train(job)
    if not r:
        return
    same(r["weights_xxh64"], whole["hash"], what + ": weights")
    same(steps_of(job["output"]), list(range(1, job["steps"] + 1)), what + ": steps in metrics.jsonl")
    same([m["loss"] for m in metrics(job["output"])], whole["loss"], what + ": losses")
    v = weft("ckpt", "verify", os.path.join(job["output"], "checkpoints"))
    check(v.code == 0, "%s: %s" % (what, v))
    left = [f for f in os.listdir(os.path.join(job["output"], "checkpoints")) if f.endswith(".tmp")]
    same(left, [], what + ": left over")


def killed(s, whole):
    rng = random.Random(int(os.environ.get("WEFT_FAULT_SEED", "1")))
    out, n_done, n_kill, n_mid, seconds = s.path("killed"), 0, 0, 0, whole["seconds"]
    while n_kill < KILLS:
        begin, p = time.time(), start(job_of(s, out))
        try:
            stdout, _ = p.communicate(timeout=rng.uniform(0, 1.1 * seconds))
            seconds = (seconds + time.time() - begin) / 2
        except subprocess.TimeoutExpired:
            p.kill()
            stdout, _ = p.communicate()
        if p.returncode == -signal.SIGKILL:
            n_kill += 1
            n_mid += os.path.isdir(os.path.join(out, "checkpoints"))
            continue
        same(p.returncode, 0, "after %d kills" % n_kill)
        same(json.loads(stdout)["weights_xxh64"], whole["hash"], "after %d kills: weights" % n_kill)
        goes_on(job_of(s, out), whole, "after %d kills" % n_kill)
        shutil.rmtree(out)
        n_done += 1
    goes_on(job_of(s, out), whole, "after the last of %d kills" % n_kill)
    check(n_mid > 0, "some kill fell between two checkpoints")
    print("%d random kills, %d of them with checkpoints there, %d runs" % (n_kill, n_mid, n_done + 1))


def sweep(s, whole, name, env, codes):
    """env(n) for n = 1, 1 + EVERY, ... until a run is not disturbed any more."""
    n, n_hit = 1, 0
    while True:
        out = s.path("%s-%d" % (name, n))
        p = start(job_of(s, out), env(n))
        _, err = p.communicate(timeout=120)
        if p.returncode == 0 and not err:
            check(n_hit > 0, name + ": nothing was disturbed")
            break
        n_hit += 1
        what = "%s %d" % (name, n)
        lines = err.splitlines()
        if p.returncode == 0:  # a checkpoint was given up, training went on
            lines.append(b"error: ")
            check(0 in codes, "%s: %r" % (what, err))
        elif not check(p.returncode in codes, "%s: exit code %d, %s" % (what, p.returncode, err)):
            break
        if p.returncode >= 0:
            check(b"error: " in lines[-1] and all(GIVEN_UP.search(x) for x in lines[:-1]), "%s: %r" % (what, err))
        goes_on(job_of(s, out), whole, what)
        shutil.rmtree(out, ignore_errors=True)
        n += EVERY
    print("%s: %d places, to call %d" % (name, n_hit, n))


def stopped(s, whole):
    for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        out = s.path("stopped-%d" % code)
        long = job_of(s, out, seq=32)
        long["steps"], long["checkpoint"] = 1 << 30, dict(every=0)
        long["lr_schedule"] = dict(name="constant")
        p = start(long)
        path = os.path.join(out, "metrics.jsonl")
        for _ in range(1000):
            if os.path.exists(path) and os.path.getsize(path) > 300:
                break
            time.sleep(0.02)
        p.send_signal(sig)
        stdout, err = p.communicate(timeout=120)
        what = sig.name
        if not same(p.returncode, code, what + ": exit code"):
            continue
        same(err, b"", what + ": standard error")
        r = json.loads(stdout)
        n = r["steps"]
        same(steps_of(out), list(range(1, n + 1)), what + ": steps in metrics.jsonl")
        check(os.path.isfile(os.path.join(out, "checkpoints", "MANIFEST-%08d" % n)), what + ": checkpoint")
        check(not os.path.exists(os.path.join(out, "final")), what + ": no final yet")
        long["steps"] = n + 3
        b = dict(long, output=s.path("straight-%d" % code))
        ra, rb = train(long), train(b)
        if ra and rb:
            same(ra["weights_xxh64"], rb["weights_xxh64"], what + ": weights")
            same(steps_of(out), list(range(1, n + 4)), what + ": steps in metrics.jsonl, resumed")


def soon(s):
    """A signal before the first step ends the run as well."""
    for delay in (0.0, 0.002, 0.005, 0.01, 0.02):
        out = s.path("soon")
        shutil.rmtree(out, ignore_errors=True)
        p = start(dict(job_of(s, out), steps=1 << 30))
        time.sleep(delay)
        p.terminate()
        p.communicate(timeout=120)
        check(p.returncode in (143, -signal.SIGTERM), "SIGTERM after %g s: exit code %d" % (delay, p.returncode))


with Scratch("kill", memory=True) as s:
    t = time.time()
    r = train(job_of(s, s.path("whole")))
    if r:
        whole = dict(hash=r["weights_xxh64"], seconds=time.time() - t,
                     loss=[m["loss"] for m in metrics(s.path("whole"))])
        stopped(s, whole)
        soon(s)
        killed(s, whole)
        sweep(s, whole, "killed before call", lambda n: dict(WEFT_IO_KILL=str(n)), (-signal.SIGKILL,))
        sweep(s, whole, "disk full from call", lambda n: dict(WEFT_IO_FAIL="%d:28:sticky" % n), (1,))
        sweep(s, whole, "disk full at call", lambda n: dict(WEFT_IO_FAIL="%d:28" % n), (0, 1))
    end()
