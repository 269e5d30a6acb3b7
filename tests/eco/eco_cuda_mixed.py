"""Ranks on a GPU and on CPUs in one job with recover: on: a rank of either kind is killed, stopped or crashes, at drawn moments and at
failpoints, or all of them are; the next view goes on.  What one kind holds is a replica of what the other has, bit by bit, so with
replicas no committed step is run again; without, all ranks go back to the newest snapshot.  Every loss and the hash of the weights
are those of the same plan undisturbed.

Over the driver without a GPU of tests/cuda/stub; with WEFT_TEST_GPU=1 over the machine's own.

    WEFT_MIXED_KILLS   kills of each plan, one job of each (2; make long: 12)
    WEFT_MIXED_POINTS  failpoints, drawn (3; make long: 100), each with one plan and rank
    WEFT_MIXED_SEED    what they are drawn from (drawn)"""
import os
import random
import re
import signal
import subprocess
import sys
import time

from cuda_stub import REAL, STUB, small_job
from eco import LONG, WEFT, Scratch, check, end, here, same, words
from eco_views import Job, bits, incidents, step_s

KILLS = int(os.environ.get("WEFT_MIXED_KILLS", "12" if LONG else "2"))
SEED = int(os.environ.get("WEFT_MIXED_SEED", str(random.SystemRandom().randrange(1 << 30))))
EVERY = 3  # steps that may be run again
APART = 10  # steps from one kill to the next: three of one slot in so many are too often
# keys, whether another rank holds the same; GPU first and CPU first
PLANS = {
    "dp2": (dict(dp=2, device="cuda:0,cpu", batch_split="7,1"), True),
    "dp2-cpu": (dict(dp=2, device="cpu,cuda:0", batch_split="1,7"), True),
    "dp3": (dict(dp=3, device="cpu,cuda:0,cpu", batch_split="1,6,1"), True),
    "pp2": (dict(pp=2, device="cuda:0,cpu"), False),
    "pp2-cpu": (dict(pp=2, device="cpu,cuda:0"), False),
    "zero1": (dict(dp=2, zero=1, device="cuda:0,cpu"), False),
    "zero3": (dict(dp=2, zero=3, device="cpu,cuda:0"), False),
    "pp2-copies": (dict(pp=2, copies=2, device="cuda:0,cpu"), True),
    "dp2-pp2": (dict(dp=2, pp=2, device="cuda:0,cuda:0,cpu,cpu"), True),
    "dp2-bf16": (dict(dp=2, device="cuda:0,cpu", dtype="bf16"), True),
}
USUAL = ["dp2", "dp2-cpu", "pp2", "zero1"]
LOSS = "step.begin:kill:rank=%d:nth=6"
# Where a rank is killed: before a first loss, or after one of the given rank.
POINTS = ("step.begin", "vote.begin", "vote.arrived", "vote.passed", "update.begin", "update.end", "update.marked", "update.told",
          "snapshot.begin", "snapshot.buffer", "snapshot.copied", "snapshot.await", "snapshot.whole", "snapshot.marked")
LATER = ("view.received", "view.connected", "view.words", "view.caught_up", "view.planned", "view.adopt", "snapshot.look", "snapshot.found",
         "replica.offered", "replica.copied", "snapshot.forget", "view.prepared", "view.ready")


def count(name):
    return PLANS[name][0]["device"].count(",") + 1


def start(scratch, base, name, folder, *options, env=None, **more):
    keys, _ = PLANS[name]
    flat = dict(x.split("=", 1) for x in words(dict(base, share_gpu=True, output=scratch.path(folder), **keys, **more)))
    return Job(count(name), flat, flat["output"], *options, env=dict(STUB, **(env or {})))


class References:
    """The same plan, undisturbed and without an agent."""
    def __init__(self, scratch):
        self.scratch, self.of = scratch, {}

    def get(self, name, base):
        key = name, base["steps"]
        if key not in self.of:
            job = start(self.scratch, base, name, "plain-%s-%d" % key)
            result, text = job.end()
            check(result is not None, "%s undisturbed: %s" % (name, text[-1500:]))
            self.of[key] = result and result["weights_xxh64"], bits(job.output)
        return self.of[key]


def ends_well(what, job, reference):
    """Its incidents; None: it ended otherwise."""
    result, text = job.end()
    if not check(result is not None, "%s: ended with %r: %s" % (what, job.p.returncode, text[-3000:])):
        return None
    same((result["weights_xxh64"], bits(job.output)), reference, what + ": weights and losses")
    return incidents(job.output)


def check_again(what, found, steps, replicas, text):
    """How many committed steps were run again: none where one rank was lost and another one holds the same."""
    for i in found:
        again = i["step"] + 1 - i["next_step"]
        alone = sum(x["next_epoch"] == i["next_epoch"] for x in found) == 1
        if i["next_step"] < steps:
            check(again <= (0 if replicas and alone else EVERY), "%s: committed steps are run again: %r %s" % (what, i, text[-2500:]))


def disturb(scratch, base, refs, name, seed):
    """One job, a kill each APART steps, one in four of all ranks; the first two of each kind of device."""
    n, draw = count(name), random.Random(seed)
    device = PLANS[name][0]["device"].split(",")
    base = dict(base, steps=APART * KILLS + 4)
    ref = refs.get(name, base)
    job = start(scratch, base, name, "%s-%d" % (name, seed), recover="on", snapshot_every=EVERY)
    killed = 0
    for k in range(KILLS):
        before = len(incidents(job.output))
        job.await_step(APART * k + draw.randint(1, APART - 2))
        time.sleep(draw.random() * 1.2 * step_s(job.output))
        kind = ["cuda:0", "cpu"][k % 2]
        of = [r for r in range(n) if device[r] == kind]
        all_ranks = k >= 2 and draw.randrange(4) == 0
        killed += sum(job.kill(r) for r in (range(n) if all_ranks else [draw.choice(of)]))
        limit = time.monotonic() + 60
        while job.p.poll() is None and len(incidents(job.output)) <= before and time.monotonic() < limit:
            time.sleep(0.02)
    found = ends_well("%s, seed %d" % (name, seed), job, ref)
    if found is None:
        return
    check(KILLS <= len(found) <= killed, "%s: %d incidents of %d ranks killed: %s" % (name, len(found), killed, job.text[-2000:]))
    check_again(name, found, base["steps"], PLANS[name][1], job.text)
    check("a lost rank ends the job" not in job.text, job.text)


def all_lost(scratch, base, refs, name):
    """All at once, after the first snapshots: all of it comes from those."""
    job = start(scratch, base, name, name + "-all", recover="on", snapshot_every=EVERY)
    job.await_step(8)
    for r in range(count(name)):
        job.kill(r)
    found = ends_well(name + ", all lost", job, refs.get(name, base))
    check(found and all(0 < i["next_step"] for i in found if i["next_step"] < base["steps"]), "%s: %r %s" % (name, found, job.text[-2000:]))
    check_again(name + ", all lost", found or [], base["steps"], False, job.text)
    check("nothing is left of step" not in job.text, job.text[-2000:])


def one_snapshot(scratch, base, refs, name, late):
    """All are lost when the newest snapshot is whole in one slot alone, which has all of the state: what the other one holds
    for it is filled, too."""
    once = scratch.path("late-%d" % late)
    job = start(scratch, base, name, "%s-one-%d" % (name, late), recover="on", snapshot_every=EVERY,
                env=dict(WEFT_FAILPOINT="snapshot.buffer:delay=60000:rank=%d:nth=2" % late, WEFT_FAILPOINT_ONCE=once))
    job.await_step(5)
    limit = time.monotonic() + 20
    while not os.path.exists(once + ".0") and time.monotonic() < limit:
        time.sleep(0.01)
    time.sleep(0.3)
    for r in range(count(name)):
        job.kill(r)
    found = ends_well("%s, rank %d has no newest snapshot" % (name, late), job, refs.get(name, base))
    check(found and found[0]["next_step"] == 5, "%s: %r %s" % (name, found, job.text[-2000:]))


def stopped(scratch, base, refs, name, rank):
    """SIGSTOP with --on-stop replace: the rank gets another process."""
    job = start(scratch, base, name, "%s-stopped-%d" % (name, rank), "--on-stop", "replace", recover="on", snapshot_every=EVERY)
    job.await_step(6)
    check(job.kill(rank, signal.SIGSTOP), "%s: there is a rank %d" % (name, rank))
    found = ends_well("%s, rank %d stopped" % (name, rank), job, refs.get(name, base))
    check(found and [i["cause"] for i in found] == ["stop"], "%s stopped: %r %s" % (name, found, job.text[-2000:]))
    check_again(name + " stopped", found or [], base["steps"], PLANS[name][1], job.text)


def hangs(scratch, base, refs, name, rank):
    """A rank that does not come to a step is missed, and replaced."""
    job = start(scratch, base, name, "%s-hang-%d" % (name, rank), "--failure-timeout", "1", recover="on", snapshot_every=EVERY,
                env=dict(WEFT_FAILPOINT="step.begin:delay=600000:rank=%d:nth=6" % rank,
                         WEFT_FAILPOINT_ONCE=scratch.path("hung-%s-%d" % (name, rank))))
    found = ends_well("%s, rank %d hangs" % (name, rank), job, refs.get(name, base))
    check(found and len(found) == 1 and found[0]["rank"] == rank, "%s hangs: %r %s" % (name, found, job.text[-2000:]))


def at_point(scratch, base, refs, name, point, rank, action="kill"):
    what = "%s, %s of rank %d at %s" % (name, action, rank, point)
    other = (rank + 1) % count(name)
    entry = "%s:%s:rank=%d" % (point, action, rank) if point in LATER else "%s:%s:rank=%d:nth=5" % (point, action, rank)
    before = LOSS % (other if point != "replica.offered" else rank) if point in LATER else ""
    once = scratch.path("once-%s-%s-%d-%s" % (name, point, rank, action))
    job = start(scratch, base, name, "at-%s-%s-%d-%s" % (name, point, rank, action), recover="on", snapshot_every=EVERY,
                env=dict(WEFT_FAILPOINT=",".join(filter(None, (before, entry))), WEFT_FAILPOINT_ONCE=once))
    found = ends_well(what, job, refs.get(name, base))
    if found is None:
        return
    if not os.path.exists("%s.%d" % (once, 1 if before else 0)):
        # a rank with a replica below it makes no snapshot
        check(point.startswith("snapshot") and PLANS[name][1], what + ": was not reached: " + job.text[-1500:])
        return
    check_again(what, found, base["steps"], PLANS[name][1] and not before, job.text)


def resizes(scratch, base, _, name):
    """Fewer ranks, of one kind alone, and more: no step is run twice.  Bits follow who computes what."""
    keys, _ = PLANS[name]
    n = count(name)
    base = dict(base, steps=36)
    flat = dict(x.split("=", 1) for x in words(dict(base, share_gpu=True, recover="on", snapshot_every=16, output=scratch.path(name + "-resizes"),
                                                    **{k: v for k, v in keys.items() if k != "batch_split"})))
    job = Job("1:%d" % n, flat, flat["output"], env=STUB)
    for k in (1, n):
        job.await_step(job.steps() + 3)
        p = subprocess.run([WEFT, "scale", str(k), job.output], capture_output=True, text=True, timeout=120)
        check(p.returncode == 0, "%s, scale %d: %s" % (name, k, p.stdout + p.stderr))
    result, text = job.end()
    check(result is not None and not re.search(r"step \d+: back to", text), "%s: ended with %r: %s" % (name, job.p.returncode, text[-3000:]))
    found = incidents(job.output)
    same([i["cause"] for i in found], ["scale"] * 2, name + ": resizes")
    check(all(i["next_step"] > i["step"] and not i.get("back") for i in found), "%s: %r" % (name, found))
    same([x[0] for x in bits(job.output)], list(range(1, 37)), name + ": rows")


def status_says(scratch, base, refs):
    """A job of both kinds is one that recovers: no warning; the incident has the kind of recovery, as of other jobs."""
    job = start(scratch, base, "dp2", "says", recover="on", snapshot_every=EVERY, env=dict(WEFT_FAILPOINT=LOSS % 1, WEFT_FAILPOINT_ONCE=scratch.path("said")))
    found = ends_well("says", job, refs.get("dp2", base))
    check(found and found[0]["decided"] == "replace" and found[0]["rank"] == 1, "says: %r" % found)
    check(not re.search("warning: recover", job.text) and re.search(r"rank 1: killed by signal 9 .* it is replaced", job.text), job.text)


def list_cases(draw):
    """Of each call its function and arguments after scratch, base and references."""
    names = list(PLANS) if LONG else draw.sample(USUAL, 3)
    cases = [(status_says,)]
    cases += [(resizes, name) for name in (("zero1", "pp2-cpu", "dp2-cpu") if LONG else ("dp2-cpu",))]
    cases += [(disturb, name, draw.randrange(1 << 20)) for name in names]
    cases += [(all_lost, name) for name in (names if LONG else ["dp2", "pp2"])]
    cases += [(one_snapshot, "pp2-copies", r) for r in ((0, 1) if LONG else (draw.randrange(2),))]
    some = [(name, r) for name in names for r in range(count(name))]
    cases += [(stopped, *x) for x in (some if LONG else [draw.choice(some)])]
    cases += [(hangs, *x) for x in ([x for x in some if x[0] in USUAL] if LONG else draw.sample([("dp2", 0), ("dp2", 1), ("pp2", 0), ("pp2", 1)], 1))]
    # the memory of a rank that crashes is not trusted, nor are its snapshots: there is a replica
    cases += [(at_point, "dp2", "update.begin", r, "abort") for r in ((0, 1) if LONG else (draw.randrange(2),))]
    points = [(point, *draw.choice(some)) for point in POINTS + LATER]
    if LONG:
        points = [(point, name, r) for point in POINTS + LATER for name, r in some if name in USUAL + ["dp3", "pp2-copies"]]
    n = int(os.environ.get("WEFT_MIXED_POINTS", "100" if LONG else "3"))
    return cases + [(at_point, name, point, r) for point, name, r in draw.sample(points, min(n, len(points)))]


def main():
    draw = random.Random(SEED)
    print("seed %d" % SEED, flush=True)
    with Scratch("cuda_mixed", memory=True) as scratch:
        base = small_job(scratch, steps=40 if REAL else 14, batch=8, lanes=8, micro_batch=1)
        refs = References(scratch)
        for f, *args in here(list_cases(draw)):
            if not sys.argv[1:] or f.__name__ in sys.argv[1:]:
                f(scratch, base, refs, *args)
        end()


if __name__ == "__main__":
    main()
