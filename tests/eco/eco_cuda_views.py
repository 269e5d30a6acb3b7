"""Ranks on a GPU are killed while a job runs with recover: on.  Device memory goes with its process: with replicas, or with copies: 2,
the new rank gets the state of a survivor, and no committed step is run again; without, all ranks go back to the newest snapshot
in the agent's memory.  Every loss and the hash of the weights are those of the undisturbed run, bit by bit.

Over the driver without a GPU of tests/cuda/stub; with WEFT_TEST_GPU=1 over the machine's own.

    WEFT_VIEWS_KILLS  kills in all (2), the plans in turn: a plan's are of one job
    WEFT_VIEWS_JOBS   jobs that run side by side (1)
    WEFT_VIEWS_SEED   what they are drawn from (drawn)"""
import os
import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from cuda_stub import REAL, STUB, small_job
from eco import Scratch, check, end, same, weft, words
from eco_views import Job, bits, incidents, step_s

KILLS = int(os.environ.get("WEFT_VIEWS_KILLS", "2"))
SEED = int(os.environ.get("WEFT_VIEWS_SEED", str(random.SystemRandom().randrange(1 << 30))))
JOBS = int(os.environ.get("WEFT_VIEWS_JOBS", "1"))
EVERY = 3  # steps that may be run again
APART = 10  # steps from one kill to the next: three of one slot in so many are too often
# ranks, keys, communication; a replica holds all
PLANS = {
    "dp2-peer": (2, dict(dp=2), "peer", True),
    "dp2-staged": (2, dict(dp=2, device="auto"), "staged", True),
    "zero1": (2, dict(dp=2, zero=1), "peer", False),
    "pp2": (2, dict(pp=2), "staged", False),
    "one": (1, dict(), "peer", False),
}
NAMES = sys.argv[1:] or list(PLANS)
# another rank holds the same state, as copies: 2 says
COPIES = {
    "pp2-copies": (2, dict(pp=2, copies=2), "staged", True),
    "tp2-copies": (2, dict(tp=2, copies=2), "peer", True),
    "zero3-copies": (4, dict(dp=4, zero=3, copies=2), "peer", True),
    "zero1-copies": (4, dict(dp=4, zero=1, copies=2), "staged", True),
    "zero2-copies": (4, dict(dp=4, zero=2, copies=2), "peer", True),
}
STEPS = max(40 if REAL else 12, APART * -(-KILLS // len(NAMES)) + 4)


def start(scratch, base, name, folder, env=None, **more):
    n, keys, comm, _ = {**PLANS, **COPIES}[name]
    job = dict(base, share_gpu=True, output=scratch.path(folder), **keys, **more)
    flat = dict(x.split("=", 1) for x in words(job))
    return Job(n, flat, flat["output"], env=dict(STUB, WEFT_GPU_COMM=comm, **(env or {})))


def run_plain(scratch, base):
    """One rank: plans change no bit."""
    job = start(scratch, base, "one", "plain")
    result, text = job.end()
    check(result is not None, "undisturbed: %s" % text[-1500:])
    return result, bits(job.output)


def await_recovery(job, n_before):
    """Until the incidents of the last kill are over: a step was committed after it."""
    limit = time.monotonic() + 60
    while job.p.poll() is None and len(incidents(job.output)) <= n_before and time.monotonic() < limit:
        time.sleep(0.02)


def disturb(scratch, base, name, reference, seed, n_kill):
    """One job, a kill each APART steps, one time in four of all ranks."""
    n, _, _, replicas = PLANS[name]
    draw, killed = random.Random(seed), 0
    job = start(scratch, base, name, "%s-%d" % (name, seed), recover="on", snapshot_every=EVERY)
    for k in range(n_kill):
        before = len(incidents(job.output))
        job.await_step(APART * k + draw.randint(1, APART - 2))
        time.sleep(draw.random() * 1.2 * step_s(job.output))
        all_ranks = draw.randrange(4) == 0
        killed += sum(job.kill(r) for r in (range(n) if all_ranks else [draw.randrange(n)]))
        await_recovery(job, before)
    result, text = job.end()
    if not check(result is not None, "%s: ended with %r: %s" % (name, job.p.returncode, text[-3000:])):
        return 0, []
    check(killed >= n_kill, "%s: %d of %d ranks were there to be killed: %s" % (name, killed, n_kill, text[-2000:]))
    same(result["weights_xxh64"], reference[0]["weights_xxh64"], name + ": weights")
    same(bits(job.output), reference[1], name + ": losses")
    found = incidents(job.output)
    check(n_kill <= len(found) <= killed, "%s: %d incidents of %d ranks killed %d times" % (name, len(found), killed, n_kill))
    for i in found:
        again = i["step"] + 1 - i["next_step"]
        alone = sum(x["next_epoch"] == i["next_epoch"] for x in found) == 1
        print("%s: %s lost after step %d, next %d, ms %s"
              % (name, "one" if alone else "several", i["step"], i["next_step"], i["ms"]), flush=True)
        if i["next_step"] >= STEPS:
            continue
        if replicas and alone:
            check(again <= 0, "%s: committed steps are run again: %r %s" % (name, i, text[-2000:]))
        check(again <= EVERY, "%s: more than %d steps are run again: %r %s" % (name, EVERY, i, text[-2000:]))
    return n_kill, found


def hang(scratch, base, name, reference):
    """Rank 1 does not come to the collectives of step 6: after 5 s rank 0 names the collective and who is missing, and so do
    the incident and what weft doctor says about the dumps."""
    job = start(scratch, base, name, name + "-hang", recover="on", snapshot_every=EVERY,
                env=dict(WEFT_FAILPOINT="step.begin:delay=60000:rank=1:nth=6", WEFT_FAILPOINT_ONCE=scratch.path("hung")))
    result, text = job.end()
    if not check(result is not None, "%s hangs: ended with %r: %s" % (name, job.p.returncode, text[-3000:])):
        return
    same(result["weights_xxh64"], reference[0]["weights_xxh64"], name + " hangs: weights")
    line = (r"rank 1 is silent: rank 0 waited 5 s in (all_reduce|reduce_scatter) '\S+' of step 6 by %s \(tag \d+, ranks 0, 1\) on "
            r"cuda:0; missing: 1" % PLANS[name][2])
    check(re.search("after step 5: .*" + line, text), "%s in %s" % (line, text[-3000:]))
    found = incidents(job.output)
    check(len(found) == 1 and found[0]["cause"] == "late" and re.search(line, found[0]["what"]), "incidents %r" % found)
    r = weft("doctor", os.path.join(job.output, "dumps"))
    check(r.code == 1 and re.search(r"first mismatch: (all_reduce|reduce_scatter) '\S+' of step 6 .*; missing: rank 1", r.out), str(r))


def back_twice(scratch, base, reference):
    """All go back to a snapshot, and while they do one more rank is lost: rank 0, which had come further, writes no row twice."""
    job = start(scratch, base, "zero1", "back-twice", recover="on", snapshot_every=EVERY,
                env=dict(WEFT_FAILPOINT="step.begin:kill:rank=1:nth=6,snapshot.forget:kill:rank=1", WEFT_FAILPOINT_ONCE=scratch.path("back")))
    result, text = job.end()
    if check(result is not None, "back twice: ended with %r: %s" % (job.p.returncode, text[-3000:])):
        same(result["weights_xxh64"], reference[0]["weights_xxh64"], "back twice: weights")
        same(bits(job.output), reference[1], "back twice: losses")
        same(len(incidents(job.output)), 2, "back twice: incidents %s" % text[-2000:])


def copies_survive(scratch, base, reference, draw):
    """Without any snapshot: a killed rank's shards or stage come from the rank that holds them too, and no committed step is run again."""
    for name in COPIES:
        gathers = name in ("zero1-copies", "zero2-copies")  # parameters, after the commit point: the others end their updates without them
        point = "vote.passed" if gathers else draw.choice(("step.begin", "vote.arrived", "vote.passed"))
        point += ":kill:rank=%d:nth=8" % draw.randrange(COPIES[name][0])
        job = start(scratch, base, name, name, recover="on", snapshot_every=1000,
                    env=dict(WEFT_FAILPOINT=point, WEFT_FAILPOINT_ONCE=scratch.path(name + "-once")))
        result, text = job.end()
        name += ", " + point
        if not check(result is not None, "%s: ended with %r: %s" % (name, job.p.returncode, text[-3000:])):
            continue
        found = incidents(job.output)  # the others end a step whose vote it has passed
        check(len(found) == 1 and found[0]["next_step"] > found[0]["step"] and not found[0].get("back"), "%s: %r: %s" % (name, found, text[-2000:]))
        same([i.get("move", {}).get("sent", 0) for i in found], [0], name + ": bytes between hosts")
        if "tp" not in name:  # whose bits are its own
            same(result["weights_xxh64"], reference[0]["weights_xxh64"], name + ": weights")
            same(bits(job.output), reference[1], name + ": losses")


def main():
    draw = random.Random(SEED)
    print("seed %d" % SEED, flush=True)
    with Scratch("cuda_views", memory=True) as scratch:
        base = small_job(scratch, steps=STEPS, batch=8, lanes=4)
        reference = run_plain(scratch, base)
        if not sys.argv[1:]:
            hang(scratch, base, draw.choice(["dp2-peer", "dp2-staged"]), reference)
            back_twice(scratch, base, reference)
            copies_survive(scratch, base, reference, draw)
        draw.shuffle(NAMES)
        todo = [(name, draw.randrange(1 << 20), KILLS // len(NAMES) + (k < KILLS % len(NAMES))) for k, name in enumerate(NAMES)]
        with ThreadPoolExecutor(JOBS) as pool:
            done = list(pool.map(lambda x: disturb(scratch, base, x[0], reference, *x[1:]), [x for x in todo if x[2]]))
        same(sum(n for n, _ in done), KILLS, "kills")
        print("%d kills, %d incidents" % (KILLS, sum(len(found) for _, found in done)))
        end()


if __name__ == "__main__":
    main()
