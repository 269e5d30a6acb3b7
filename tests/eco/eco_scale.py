"""`weft scale` changes the number of ranks of a running job: every loss and the hash of the weights are those of a run
that nobody disturbed, bit by bit, for data, pipeline and sharded plans, with kills in between.

    WEFT_SCALE_SECONDS  how long to go on with random resizes and kills (0: the fixed cases alone)
    WEFT_SCALE_SEED     what they are drawn from (drawn)
    WEFT_SCALE_TABLE    a file for the resizes by phase, as CSV"""
import json
import os
import random
import signal
import subprocess
import sys
import time

from eco import SANITIZED, WEFT, Scratch, check, end, here, same
from eco_views import BASE, EVAL, Job, bits, children, incidents, rank_of

SECONDS = float(os.environ.get("WEFT_SCALE_SECONDS", "0"))
SEED = int(os.environ.get("WEFT_SCALE_SEED", str(random.SystemRandom().randrange(1 << 30))))
MAX = 4
LONGER = dict(EVAL, steps=100)  # a job that is still there after what is done to it
PLANS = {
    "dp": dict(dp=4),
    "zero1": dict(dp=4, zero=1),
    "zero3": dict(dp=4, zero=3),
    "pp": dict(pp=4),
    "dp2-pp2": dict(dp=2, pp=2),
    "dp2-pp2-zero1": dict(dp=2, pp=2, zero=1),
    "late": dict(dp=4, zero=1, overlap_param_gather=0.5),
    "full": dict(dp=4, recompute="full"),
}


def scale(job, n, wait=True):
    p = subprocess.Popen([WEFT, "scale", str(n), job.output], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not wait:
        return p
    out, err = p.communicate(timeout=120)
    return p.returncode, (out + err).decode().strip()


def start(scratch, name, keys, **more):
    job = dict(BASE, **dict(keys, **more))
    return Job("1:%d" % MAX, dict(job, recover="on"), scratch.path(name))


def run_plain(scratch, name, **more):
    """The reference: one rank, without an agent.  All plans have the bits of it."""
    job = Job(1, dict(BASE, **more), scratch.path("ref-" + name))
    result, text = job.end()
    check(result is not None, "undisturbed: " + text[-2000:])
    return result, bits(job.output)


def same_as(name, job, reference):
    result, text = job.end()
    if not check(result is not None, "%s: ended with %r: %s" % (name, job.p.returncode, text[-2000:])):
        return []
    same(result["weights_xxh64"], reference[0]["weights_xxh64"], name + ": weights")
    same(bits(job.output), reference[1], name + ": losses")
    return incidents(job.output)


def ranks_now(job):
    return sorted(r for r in map(rank_of, children(job.p.pid)) if r is not None)


# ---- fixed cases ----

def resized(scratch, reference, name):
    """2, 4, 3, 1, 2 ranks; each answer says so, and each resize is an incident with its phases."""
    job = start(scratch, name, PLANS[name], **LONGER, **{"checkpoint.every": 7})
    job.await_step(2)
    for n in (2, 4, 3, 1, 2):
        code, text = scale(job, n)
        if not check(code == 0 and text.startswith("%d rank" % n), "%s: scale %d: %d %s" % (name, n, code, text)):
            break
        same(ranks_now(job), list(range(n)), "%s: processes after scale %d" % (name, n))
    found = same_as(name, job, reference)
    same([i["what"] for i in found if i["decided"] == "resize"],
         ["from %d to %d ranks" % x for x in ((4, 2), (2, 4), (4, 3), (3, 1), (1, 2))], name + ": incidents")
    check(all(i["ms"]["total"] > 0 and "rank" not in i for i in found), "%s: phases: %r" % (name, found))
    # each byte once: new shards, and a replica of the parameters for each new rank; of replicas alone a shrink moves nothing
    moved = [i.get("move") for i in found if "move" in i or name not in ("dp", "full")]
    check(all(m and m["bytes"] > 0 and m["sent"] == 0 and m["predicted_s"] > 0 and m["seconds"] > 0 for m in moved),
          "%s: moves: %r" % (name, found))
    return found


def idle(scratch, reference):
    """Three ranks of two stages: one is of no use."""
    job = start(scratch, "idle", dict(dp=2, pp=2), **EVAL)
    job.await_step(2)
    code, text = scale(job, 3)
    check(code == 1 and "2 ranks, not 3, from step" in text and text.endswith("more are of no use"), "idle: %d %s" % (code, text))
    same_as("idle", job, reference)


def failed_growth(scratch, longer):
    """A new rank dies in its start: the job goes on as it was, and may grow later."""
    job = start(scratch, "growth", PLANS["zero1"], **LONGER)
    job.await_step(2)
    scale(job, 2)
    old = {rank_of(p): p for p in children(job.p.pid)}
    os.kill(old[0], signal.SIGSTOP)  # no view is ready without it
    asked = scale(job, 4, wait=False)
    limit = time.monotonic() + 30
    while ranks_now(job) != [0, 1, 2, 3] and time.monotonic() < limit:
        time.sleep(0.002)
    killed = job.kill(3)
    os.kill(old[0], signal.SIGCONT)
    out, err = asked.communicate(timeout=60)
    text = (out + err).decode()
    check(killed and asked.returncode == 1 and "as before" in text, "growth: %r %s" % (asked.returncode, text))
    code, text = scale(job, 3)
    check(code == 0 and text.startswith("3 ranks"), "growth: later: %d %s" % (code, text))
    found = same_as("growth", job, longer)
    check(any(i.get("rank") == 3 for i in found), "growth: incidents %r" % found)


def killed_on_the_way(scratch, longer):
    """Ranks are killed in the update after which they leave, and while the record of the only rank is replaced: the updates
    are ended by the ranks that they are of, then the number changes.  No committed step is run again."""
    cases = (("shrink", "zero1", (2,), "resize.update:kill:rank=3"),
             ("grow", "late", (2, 4), "resize.update:kill:rank=1:nth=2"),
             ("record", "zero3", (1,), "move.settled:kill:rank=0"))
    for name, plan, sizes, points in cases:
        once = scratch.path("once-" + name)
        job = Job("1:%d" % MAX, dict(BASE, **PLANS[plan], **LONGER, recover="on"), scratch.path("way-" + name),
                  env=dict(WEFT_FAILPOINT=points, WEFT_FAILPOINT_ONCE=once))
        job.await_step(2)
        for n in sizes:
            code, text = scale(job, n)
            check(code == 0 and text.startswith("%d rank" % n), "%s: scale %d: %d %s" % (name, n, code, text))
        found = same_as(name, job, longer)
        lost = [i for i in found if "rank" in i]
        check(len(lost) <= 1 and os.path.exists(once + ".0"), "%s: %r" % (name, found))
        same([i["decided"] for i in lost if i["decided"] != "replace"], [], name + ": committed steps were run again")
        same(len([i for i in found if i["decided"] == "resize"]), len(sizes), name + ": resizes")


def in_batches(scratch, _):
    """As if old and new states did not fit together: tensors are moved by batches, and what was moved gives its memory back.
    A rank is killed in the middle, and the next view, in batches too, goes on from what is there: no committed step is run
    again, and at no moment there is much more memory than all of the state takes once."""
    once, keys = scratch.path("once-batches"), dict(EVAL, model="tiny256", steps=16, micro_batch=2)  # whose state is large beside records and tables
    reference = run_plain(scratch, "batches", **keys)
    job = Job("1:%d" % MAX, dict(BASE, **dict(PLANS["zero3"], **keys), recover="on"), scratch.path("batches"),
              env=dict(WEFT_FAILPOINT="move.room:flip:rank=0,move.gone:kill:rank=1:nth=4,move.room:flip:rank=0",
                       WEFT_FAILPOINT_ONCE=once))
    job.await_step(2)
    code, text = scale(job, 2)
    check(code == 0 and text.startswith("2 ranks"), "batches: scale 2: %d %s" % (code, text))
    found = same_as("batches", job, reference)
    check(all(os.path.exists("%s.%d" % (once, k)) for k in range(3)), "batches: a failpoint was not reached")
    lost = [i for i in found if "rank" in i]
    same([i["decided"] for i in lost], ["replace"], "batches: incidents %r" % found)
    state, largest = 11.49e6, 0.53e6  # of tiny256: parameters and two moments; positions
    for i in found:
        move = i.get("move", dict(batches=2, peak_bytes=0))
        check(move["batches"] > 1 and move["peak_bytes"] < state + 2 * largest + 1.5e6,  # records, journals and tables
              "batches: %r" % move)
    check(any("move" in i for i in found), "batches: %r" % found)
    return found


def crashed_alone(scratch, reference):
    """The memory of the only rank is not trusted after a crash: back to the checkpoint, which log and incident say."""
    job = start(scratch, "alone", PLANS["dp"], **EVAL, **{"checkpoint.every": 2})
    job.await_step(2)
    code, text = scale(job, 1)
    check(code == 0, "alone: scale 1: %d %s" % (code, text))
    job.await_step(job.steps() + 1)
    check(job.kill(0, signal.SIGABRT), "alone: the only rank")
    result, text = job.end()
    if check(result is not None, "alone: ended with %r: %s" % (job.p.returncode, text[-2000:])):
        same((result["weights_xxh64"], bits(job.output)), (reference[0]["weights_xxh64"], reference[1]), "alone: weights, losses")
    same([i["decided"] for i in incidents(job.output) if "rank" in i], ["checkpoint"], "alone: incidents")
    check("nothing is left of step" in text and "back to step" in text, "alone: log " + text[-1500:])


def prepared(scratch, reference):
    """New ranks prepare while the others train: the pause does not wait for them."""
    job = Job("1:%d" % MAX, dict(BASE, **dict(PLANS["zero1"], recover="on", **LONGER)), scratch.path("prepared"),
              env=dict(WEFT_FAILPOINT="prepare.done:delay=400:rank=3"))
    job.await_step(1)
    scale(job, 2)
    step, begin = job.steps(), time.monotonic()
    code, text = scale(job, 4)
    seconds = time.monotonic() - begin
    check(code == 0 and text.startswith("4 ranks"), "prepared: scale 4: %d %s" % (code, text))
    found = [i for i in same_as("prepared", job, reference) if i["what"] == "from 2 to 4 ranks"]
    if check(len(found) == 1, "prepared: incidents %r" % found):
        check(found[0]["step"] >= step and found[0]["ms"]["total"] < 1e3 * seconds - 380,
              "prepared: asked after step %d, %.3f s: %r" % (step, seconds, found[0]))


def made_ahead(scratch, longer):
    """Ranks that stay make their memory while they train: sums of more lanes, a state of another layout."""
    for name, sizes in (("dp", (2, 1)), ("zero1", (2,))):
        job = start(scratch, "made-" + name, PLANS[name], **LONGER)
        job.await_step(2)
        for n in sizes:
            code, text = scale(job, n)
            check(code == 0, "made ahead: scale %d: %d %s" % (n, code, text))
        found = same_as("made-" + name, job, longer)
        same([i.get("made_bytes", 0) for i in found], [0] * len(sizes), "made ahead, %s: bytes of pages in pauses" % name)


def pages_of(pid):
    """512-byte blocks of the memory files of a process."""
    found = {}
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            if "memfd:" in os.readlink("/proc/%d/fd/%s" % (pid, fd)):
                st = os.stat("/proc/%d/fd/%s" % (pid, fd))
                found[st.st_ino] = st.st_blocks
        except OSError:
            pass
    return sum(found.values())


def given_back(scratch, longer):
    """Pages that were made for a number of ranks, and that nothing uses after a while, are given back; the job may grow again."""
    flag = scratch.path("unused")
    job = Job("1:%d" % MAX, dict(BASE, **dict(PLANS["zero1"], recover="on", **LONGER)), scratch.path("given"),
              env=dict(WEFT_FAILPOINT="memory_ahead.unused:flip:while=" + flag))
    job.await_step(2)
    code, text = scale(job, 2)
    check(code == 0, "given back: scale 2: %d %s" % (code, text))
    job.await_step(job.steps() + 2)
    before = pages_of(job.p.pid)
    with open(flag, "w"):
        pass
    limit = time.monotonic() + 120
    while pages_of(job.p.pid) >= before and time.monotonic() < limit:
        time.sleep(0.01)
    check(pages_of(job.p.pid) < before, "given back: %d blocks, %d before" % (pages_of(job.p.pid), before))
    code, text = scale(job, 4)
    check(code == 0, "given back: scale 4: %d %s" % (code, text))
    same_as("given", job, longer)


def planned(scratch, _):
    """A job that leaves plan, micro_batch and lanes to us; at last its only rank is killed."""
    keys = {k: v for k, v in dict(BASE, steps=60).items() if k not in ("plan", "micro_batch", "lanes")}
    job = Job("1:%d" % MAX, dict(keys, recover="on", **{"checkpoint.every": 2}), scratch.path("planned"))
    job.await_step(2)
    with open(os.path.join(job.output, "job.json")) as f:  # chosen for one to MAX ranks
        chosen = {k: v for k, v in json.load(f).items() if k in ("micro_batch", "lanes")}
    plain = Job(MAX, dict(keys, **chosen), scratch.path("ref-planned"))
    result, text = plain.end()
    if not check(result is not None, "planned, undisturbed: " + text[-1000:]):
        return
    for n in (2, 3, 1):
        code, text = scale(job, n)
        fine = code == 0 or (n == 3 and text.endswith("more are of no use"))  # lanes for two are shared no better by three
        check(fine, "planned: scale %d: %d %s" % (n, code, text))
    check(job.kill(0), "planned: the only rank")
    same_as("planned", job, (result, bits(plain.output)))


def cuts(job):
    """Of each view that trained: its ranks, lanes and micro_batch."""
    found = []
    with open(os.path.join(job.output, "views.jsonl")) as f:
        for view in map(json.loads, f):
            with open(os.path.join(job.output, view["plan"])) as plan:
                p = json.load(plan)
            found.append((view["ranks"], p["lanes"], p["micro_batch"]))
    return found


def beyond_lanes(scratch, _):
    """More data-parallel ranks than lanes.  Under reduction: fixed the plan has more lanes, which one line, plans and the
    checkpoint say, and the run is replayed to its bits; else ranks are of no use, and a line says what helps."""
    keys = {k: v for k, v in BASE.items() if k != "plan"}
    keys.update(lanes=2, seq=64, steps=60, cluster="1 x (4 x epyc-7763)", recover="on")
    fixed = dict(keys, reduction="fixed")  # of micro-batches of one sequence four replicas are the fastest
    once = scratch.path("once-beyond")  # a rank is killed in the update before the growth: it is ended with the lanes of then
    job = Job("1:%d" % MAX, fixed, scratch.path("beyond"),
              env=dict(WEFT_FAILPOINT="resize.update:kill:rank=0:nth=3", WEFT_FAILPOINT_ONCE=once))
    job.await_step(2)
    for n in (1, 2, 4, 3):
        code, text = scale(job, n)
        check(code == 0 and text.startswith("%d rank" % n), "beyond lanes: scale %d: %d %s" % (n, code, text))
    result, text = job.end()
    if not check(result is not None, "beyond lanes: ended with %r: %s" % (job.p.returncode, text[-2000:])):
        return
    lost = [i["decided"] for i in incidents(job.output) if "rank" in i]
    check(lost == ["replace"] and os.path.exists(once + ".0") and "are ended by the plan before" in text,
          "beyond lanes: incidents of lost ranks: %r: %s" % (lost, text[-2500:]))
    found = [c for k, c in enumerate(cuts(job)) if k]
    same(found, [(1, 2, 1), (2, 2, 1), (4, 4, 1), (3, 4, 1)], "beyond lanes: ranks, lanes and micro_batch of the views")
    same(text.count("WARN lanes is 4 from step "), 1, "beyond lanes: lines: " + text[-2000:])
    with open(os.path.join(job.output, "checkpoints", "step-00000060", "state.json")) as f:
        state = json.load(f)
    same([(h["key"], h["from"], h["to"]) for h in state.get("history", [])], [("lanes", 2, 4)], "beyond lanes: history")
    same(state["lanes"], 4, "beyond lanes: the checkpoint")
    again = Job("1:%d" % MAX, fixed, scratch.path("beyond-again"), "--replay", os.path.join(job.output, "views.jsonl"))
    same_as("beyond lanes, replayed", again, (result, bits(job.output)))
    same(cuts(again), cuts(job), "beyond lanes, replayed: views")
    result, text = Job(2, dict(fixed, dp=2, micro_batch=4, steps=62), job.output).end()
    check(result is not None and "WARN micro_batch is 4 and lanes 2 from step 61 on" in text, "beyond lanes, resumed: " + text[-1500:])
    result, text = Job("1:%d" % MAX, dict(fixed, dp=4, micro_batch=4, steps=2), scratch.path("beyond-start")).end()
    check(result is not None and text.count("WARN lanes is 4 and micro_batch 2, as") == 1, "beyond lanes at the start: " + text[-1500:])

    job = Job("1:%d" % MAX, dict(keys, micro_batch=4), scratch.path("within"))  # two micro-batches: no pipeline is faster
    job.await_step(2)
    for n, then in ((1, 1), (3, 2)):
        code, text = scale(job, n)
        check(code == (n != then) and "%d rank" % then in text, "within lanes: scale %d: %d %s" % (n, code, text))
    result, text = job.end()
    check(result is not None and "2 of 3 ranks are of use: with reduction: invariant at most as many are data parallel as there "
          "are lanes, 2;" in text, "within lanes: " + text[-2000:])


def refused(scratch, _):
    """One line each, and the job goes on."""
    job = start(scratch, "refused", PLANS["dp"], steps=100000)
    job.await_step(1)
    for n, why in ((5, "5 ranks: the job may have 1 to 4"), (4, "the job has 4 ranks"),
                   ("0", "'0' is not a number of ranks from 1 to 1024")):
        code, text = scale(job, n)
        check(code == 2 and text.count("\n") == 0 and why in text, "scale %s: %d %s" % (n, code, text))
    job.p.send_signal(signal.SIGTERM)
    _, text = job.end()
    same(job.p.returncode, 143, "refused: " + text[-500:])
    code, text = scale(job, 2)
    check(code == 2 and "the job does not run: it is stopped" in text, "scale of a job that has ended: " + text)
    fixed = Job(2, dict(BASE, dp=2, steps=100000, recover="on"), scratch.path("fixed"))
    fixed.await_step(1)
    code, text = scale(fixed, 1)
    check(code == 2 and "start it with --nproc-per-node MIN:MAX" in text, "scale of a fixed job: " + text)
    fixed.p.send_signal(signal.SIGTERM)
    fixed.end()


# ---- the campaign ----

def disturb(scratch, name, reference, draw, k):
    """One run with two to five resizes and, in half of the runs, a kill at any moment of one."""
    job = start(scratch, "%s-%d" % (name, k), PLANS[name], **EVAL,
                **{"checkpoint.every": draw.choice((1, 6, 100))})
    job.await_step(draw.randint(1, 4))
    n_kill = 0
    for n in [draw.randint(1, MAX) for _ in range(draw.randint(2, 5))]:
        asked = scale(job, n, wait=False)
        if draw.random() < 0.25 and n_kill < 2:
            time.sleep(draw.random() * 0.15)
            n_kill += job.kill(draw.choice(ranks_now(job) or [0]))
        out, err = asked.communicate(timeout=120)
        time.sleep(draw.random() * 0.05)
        if job.p.poll() is not None:
            break
    return same_as("%s %d (seed %d)" % (name, k, SEED), job, reference)


def write_table(found, n_run):
    path = os.environ.get("WEFT_SCALE_TABLE")
    if not path:
        return
    resizes = [i for i in found if i["decided"] == "resize"]
    with open(path, "w") as f:
        f.write("# tests/eco/eco_scale.py, seed %d: %d runs, %d resizes, %d ranks killed, all bits equal: %s\n" %
                (SEED, n_run, len(resizes), len(found) - len(resizes), "yes" if not failures() else "no"))
        f.write("phase,n,median_ms,p99_ms,max_ms\n")
        for p in ("decide", "leave", "start", "connect", "build", "move", "step", "total"):
            x = sorted(i["ms"].get(p, 0) for i in resizes) or [0]
            f.write("%s,%d,%.2f,%.2f,%.2f\n" % (p, len(x), x[len(x) // 2], x[min(len(x) - 1, len(x) * 99 // 100)], x[-1]))


def failures():
    import eco
    return eco.failed


def main():
    with Scratch("scale", memory=True) as scratch:
        run_all(scratch)


def run_all(scratch):
    draw = random.Random(SEED)
    reference, longer = run_plain(scratch, "all", **EVAL), run_plain(scratch, "longer", **LONGER)
    found, k = [], 0
    if not SECONDS:
        found += resized(scratch, longer, "zero1")
        of_longer = (failed_growth, made_ahead)  # asked for more than once, and the job is still there
        for case in here([in_batches, failed_growth, planned, beyond_lanes, idle, refused, crashed_alone, made_ahead]):
            found += case(scratch, longer if case in of_longer else reference) or []
        if not SANITIZED:
            killed_on_the_way(scratch, longer)
            prepared(scratch, longer)
            given_back(scratch, longer)
    else:
        print("seed %d" % SEED, flush=True)
        for name in PLANS:  # three ranks are no whole number of replicas of two stages
            if "pp2" not in name:
                found += resized(scratch, longer, name)
    until = time.monotonic() + SECONDS
    names = sys.argv[1:] or list(PLANS)
    while SECONDS and time.monotonic() < until:
        found += disturb(scratch, names[k % len(names)], reference, draw, k)
        k += 1
    if SECONDS:
        print("%d runs, %d incidents" % (k, len(found)))
    write_table(found, k)
    end()


if __name__ == "__main__":
    main()
