"""Another number of ranks on GPUs while a job runs (--nproc-per-node MIN:MAX, weft scale): what only ranks that leave hold is in a
snapshot of the step after which they leave, so no committed step is run again; new ranks get theirs from those that stay.
Losses and weights are bit by bit those of one undisturbed rank.

Over the driver without a GPU of tests/cuda/stub; with WEFT_TEST_GPU=1 over the machine's own.

    WEFT_SCALE_SEED  what kills are drawn from (drawn)"""
import os
import random
import re
import socket
import subprocess
import time

from cuda_stub import REAL, STUB, small_job
from eco_ahead import await_helper, let_helper_end
from eco import LONG, WEFT, Scratch, check, end, here, same, words
from eco_views import Job, bits, incidents

SEED = int(os.environ.get("WEFT_SCALE_SEED", str(random.SystemRandom().randrange(1 << 30))))
STEPS = 160 if REAL else 48
EVERY = 16  # snapshots are due each 8 steps
PLANS = {"zero1": (3, dict(dp=3, zero=1)), "pp2": (2, dict(pp=2)), "dp2": (2, dict(dp=2))}
# Where a rank is killed while the job shrinks: it is replaced, and at most EVERY steps are run again.
POINTS = ["resize.leave", "resize.left", "snapshot.begin", "snapshot.whole", "snapshot.read", "snapshot.filled", "snapshot.forget",
          "view.received", "view.connected", "view.prepared", "view.ready", "view.told"]


def start(scratch, base, name, plan, env=None, **more):
    most, keys = PLANS[plan]
    job = dict(base, share_gpu=True, recover="on", snapshot_every=EVERY, output=scratch.path(name), **keys, **more)
    flat = dict(x.split("=", 1) for x in words(job))
    return Job("1:%d" % most, flat, flat["output"], env=dict(STUB, WEFT_GPU_COMM="peer", **(env or {})))


def scale(job, n, good=True):
    p = subprocess.run([WEFT, "scale", str(n), job.output], capture_output=True, text=True, timeout=120)
    check((p.returncode == 0) == good, "scale %d: %d %s%s" % (n, p.returncode, p.stdout, p.stderr))
    return p.stderr


def ends_well(name, job, reference):
    result, text = job.end()
    if check(result is not None, "%s: ended with %r: %s" % (name, job.p.returncode, text[-3000:])):
        same(result["weights_xxh64"], reference[0], name + ": weights")
        same(bits(job.output), reference[1], name + ": losses")
    return incidents(job.output)


def resizes(scratch, base, reference, plan):
    """Fewer ranks and more, no step twice."""
    most, _ = PLANS[plan]
    job = start(scratch, base, "resizes-" + plan, plan)
    for n in (1, most, most - 1, most) if LONG or plan == "zero1" else (1, most):
        job.await_step(job.steps() + 3)
        scale(job, n)
    found = ends_well(plan, job, reference)
    for i in found:
        check(i["cause"] == "scale" and not i.get("back"), "%s: %r" % (plan, i))
    check(not re.search(r"of step \d+: back to|after step \d+: back to", job.text), "%s: went back: %s" % (plan, job.text))
    # the next view begins with the step after the one that was left
    left = [int(x.split("after step ")[1].split(":")[0]) for x in job.text.splitlines() if "another number of ranks" in x]
    same([i["next_step"] for i in found], [x + 1 for x in left], plan + ": first steps")


def lost_after_it(scratch, base, reference):
    """Right after a shrink the slots that left are given back; the rank that is left has another snapshot by then."""
    job = start(scratch, base, "lost-after", "zero1")
    job.await_step(3)
    scale(job, 1)
    time.sleep(0.05)
    check(job.kill(0), "there is a rank 0")
    found = [i for i in ends_well("lost after a shrink", job, reference) if i["cause"] == "kill"]
    shrunk = [i["next_step"] for i in incidents(job.output) if i["cause"] == "scale"][0]
    check(len(found) == 1 and found[0]["next_step"] >= shrunk, "lost after a shrink: %r, from step %d on" % (found, shrunk))


def killed_in_it(scratch, base, reference, draw, point):
    rank = draw.choice((0, 0, 1, 2)) if point.startswith("resize") else 0
    name = "%s:kill:rank=%d" % (point, rank)
    armed = scratch.path(point + "-armed")
    job = start(scratch, base, "killed-" + point, "zero1",
                env=dict(WEFT_FAILPOINT="%s:while=%s" % (name, armed), WEFT_FAILPOINT_ONCE=scratch.path("once-" + point)))
    job.await_step(3)
    open(armed, "w").close()
    p = subprocess.run([WEFT, "scale", "1", job.output], capture_output=True, text=True, timeout=120)
    found = ends_well("killed in a shrink at " + name, job, reference)
    check(os.path.exists(scratch.path("once-" + point) + ".0"), name + " was not reached: " + job.text)
    for i in found:
        if i["next_step"] < STEPS:
            check(i["step"] + 1 - i["next_step"] <= EVERY, "%s: %r %s" % (name, i, p.stdout + p.stderr))


def failed_growth(scratch, base, reference):
    """A new rank that ends before it has started: the job goes on as it was."""
    job = start(scratch, base, "growth", "zero1", env=dict(WEFT_FAILPOINT="prepare.done:exit:rank=1", WEFT_FAILPOINT_ONCE=scratch.path("grown")))
    job.await_step(3)
    scale(job, 1)
    check("as before" in scale(job, 2, good=False), "a growth fails")
    scale(job, 2)
    ends_well("failed growth", job, reference)


def lost_too_often(scratch, base, reference):
    """A slot whose rank dies three times in ten steps is left out; what it held is in the snapshot of the view before."""
    job = start(scratch, base, "often", "zero1", env=dict(WEFT_FAILPOINT="step.begin:kill:rank=2:nth=3+:while=" + scratch.path("dying")))
    open(scratch.path("dying"), "w").close()
    job.await_step(STEPS // 2)
    os.remove(scratch.path("dying"))
    found = ends_well("lost too often", job, reference)
    check([i for i in found if i["decided"] == "shrink"] and "2 ranks" in job.text, "lost too often: %r %s" % (found, job.text))


def made_ahead(scratch, base, reference):
    """A job that leaves its plan open: plans for other numbers of ranks are made while it trains, for this host's GPU as it was measured;
    without numbers of GPUs there are none."""
    cache = scratch.path("cache")
    os.makedirs(os.path.join(cache, "weft"))
    with open(os.path.join(cache, "weft", "cluster-%s-gpu.yaml" % socket.gethostname()), "w") as f:
        f.write("name: gpus\ndevice: [{name: own, like: h200-141g, flops: {f32: 1e8}, mem_Bps: 1e8}]\nnode: [{name: host, device: own}]\n")
    base = {k: v for k, v in base.items() if k != "plan"}
    for known in (True, False) if LONG else (True,):
        name = "ahead-%s" % known
        job = dict(base, share_gpu=True, device="cuda:0", recover="on", output=scratch.path(name))
        flat = dict(x.split("=", 1) for x in words(job))
        job = Job("1:2", flat, flat["output"],
                  env=dict(STUB, WEFT_GPU_COMM="peer", XDG_CACHE_HOME=cache if known else scratch.path("empty"),
                           WEFT_FAILPOINT="ahead.start:flip:nth=1,ahead.start:flip:nth=2"))
        check(await_helper(job), name + ": there is a helper")
        let_helper_end(job)
        job.await_step(job.steps() + 2)
        scale(job, 1)
        ends_well(name, job, reference)
        same("the plan for 1 ranks was made ahead" in job.text, known, name + ": " + job.text[-2000:])
        same("the plan is one for this host's CPUs" in job.text, not known, name + ": " + job.text[-2000:])


def main():
    draw = random.Random(SEED)
    print("seed %d" % SEED, flush=True)
    with Scratch("cuda_scale", memory=True) as scratch:
        base = small_job(scratch, steps=STEPS, batch=8, lanes=4)
        flat = dict(x.split("=", 1) for x in words(base))
        plain = Job(1, flat, scratch.path("plain"), env=STUB)
        result, text = plain.end()
        check(result is not None, "undisturbed: " + text)
        reference = result["weights_xxh64"], bits(plain.output)
        cases = [] if REAL else [lambda: made_ahead(scratch, base, reference)]
        cases += [lambda plan=plan: resizes(scratch, base, reference, plan) for plan in PLANS]
        cases += [lambda: lost_after_it(scratch, base, reference)]
        cases += [lambda point=point: killed_in_it(scratch, base, reference, draw, point)
                  for point in (POINTS if LONG else draw.sample(POINTS, 2))]
        cases += [lambda: failed_growth(scratch, base, reference), lambda: lost_too_often(scratch, base, reference)]
        for case in here(cases):
            case()
        end()


if __name__ == "__main__":
    main()
