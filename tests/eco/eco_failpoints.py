"""Every failpoint of src (base/failpoint.h), with a kill and with a delay: the job goes on, losses and weights are those of
the undisturbed run, bit by bit, each row of metrics.jsonl is there once, and no process is left.  Those of agents of several
hosts: failpoints_hosts.py; those of states on GPUs: failpoints_gpu.py.

    WEFT_FAILPOINTS       how many of them, drawn, each with a kill or a delay (5), one of several hosts and one of GPUs among them;
                          all: every one with both
    WEFT_FAILPOINTS_SEED  what they are drawn from (drawn)
    WEFT_FAILPOINTS_TABLE a file for the outcome of each, as CSV"""
import os
import random
import re
import subprocess
import sys
import time

import eco
from eco import ROOT, SANITIZED, WEFT, Scratch, check, end, left_in_shm, same
from eco_views import BASE, EVAL, LIMIT_S, Job, bits, children, gone, incidents
import eco_hosts
import failpoints_gpu
import failpoints_hosts

SAMPLE = os.environ.get("WEFT_FAILPOINTS", "5")
SEED = int(os.environ.get("WEFT_FAILPOINTS_SEED", str(random.SystemRandom().randrange(1 << 30))))
KEYS = dict(BASE, **dict(EVAL, **{"eval.every": 3}), batch=4, seq=8, steps=12, **{"checkpoint.every": 4})

# How a job gets to a failpoint: ranks, keys, faults before it, resizes.
UPDATE = "update.chunk_made:kill:rank=1:nth=20"
SCENES = {
    "run": (2, dict(dp=2), "", ()),
    "gather": (2, dict(dp=2, zero=1), "", ()),
    "lost": (2, dict(dp=2), UPDATE, ()),        # a rank was killed in its update
    "back": (2, dict(pp=2), "step.begin:abort:rank=1:nth=6", ()),  # its state is not trusted, and there is no copy
    "resize": ("1:3", dict(dp=3), "", (2, 3)),
    "batches": ("1:3", dict(dp=3, zero=1), "move.room:flip", (2,)),  # as if old and new states did not fit together
    "left": ("1:3", dict(dp=3), "resize.update:kill:rank=1", (2, 3)),  # a rank was killed in the update after which others leave
    "agent": (2, dict(dp=2), "step.begin:kill:rank=1:nth=4", ()),
    "agent-resize": ("1:3", dict(dp=3), "", (2,)),
    "agent-grow": ("1:3", dict(dp=3), "", (2, 3)),
}
# name: (phase, scene, ranks that get there, the last of its times to draw from)
ANY, FIRST, LOST = (0, 1), (0,), (1,)
POINTS = {
    "step.begin": ("step", "run", ANY, 10),
    "step.labels": ("step", "run", ANY, 10),
    "step.task": ("step", "run", ANY, 300),
    "step.finished": ("step", "run", ANY, 10),
    "vote.begin": ("vote", "run", ANY, 10),
    "vote.arrived": ("vote", "run", ANY, 10),
    "vote.summed": ("vote", "run", ANY, 10),
    "vote.passed": ("vote", "run", ANY, 10),
    "update.begin": ("update", "run", ANY, 10),
    "update.chunk_begun": ("update", "run", ANY, 100),
    "update.chunk_made": ("update", "run", ANY, 100),
    "update.chunk_done": ("update", "run", ANY, 100),
    "update.instr": ("update", "run", ANY, 100),
    "update.gather": ("update", "gather", ANY, 10),
    "update.end": ("update", "run", ANY, 10),
    "update.settled": ("update", "run", ANY, 10),
    "update.marked": ("update", "run", ANY, 10),
    "update.card": ("update", "run", ANY, 10),
    "update.told": ("update", "run", ANY, 10),
    "row.begin": ("update", "run", FIRST, 10),
    "row.written": ("update", "run", FIRST, 10),
    "row.noted": ("update", "run", ANY, 10),
    "eval.begin": ("evaluation", "run", ANY, 3),
    "eval.batch": ("evaluation", "run", ANY, 6),
    "eval.end": ("evaluation", "run", ANY, 3),
    "save.begin": ("save", "run", ANY, 3),
    "save.drafted": ("save", "run", ANY, 3),
    "save.started": ("save", "run", ANY, 3),
    "save.written": ("save", "run", ANY, 3),
    "save.summed": ("save", "run", ANY, 3),
    "save.commit": ("save", "run", FIRST, 3),
    "save.committed": ("save", "run", FIRST, 3),
    "save.end": ("save", "run", ANY, 3),
    "move.look": ("move", "lost", ANY, 1),
    "move.begin": ("move", "lost", ANY, 1),
    "move.chunk": ("move", "batches", ANY, 20),
    "move.there": ("move", "batches", ANY, 8),
    "move.all_there": ("move", "batches", ANY, 8),
    "move.gone": ("move", "batches", ANY, 8),
    "move.copied": ("move", "lost", ANY, 1),
    "move.marked": ("move", "lost", ANY, 1),
    "move.settle": ("move", "lost", ANY, 1),
    "move.settled": ("move", "lost", ANY, 1),
    "restore.begin": ("move", "back", ANY, 1),
    "restore.opened": ("move", "back", ANY, 1),
    "restore.filled": ("move", "back", ANY, 1),
    "resize.update": ("resize", "resize", (0, 1, 2), 1),
    "prepare.begin": ("joining", "resize", (2,), 1),
    "prepare.search": ("joining", "resize", (2,), 1),
    "prepare.compiled": ("joining", "resize", (2,), 1),
    "prepare.done": ("joining", "resize", (2,), 1),
    "memory_ahead.compiled": ("joining", "resize", ANY, 2),
    "memory_ahead.made": ("joining", "resize", ANY, 2),
    "resize.leave": ("resize", "resize", (0, 1, 2), 1),
    "resize.left": ("resize", "resize", (0, 1, 2), 1),
    "resize.plan": ("resize", "resize", FIRST, 1),
    "resize.planned": ("resize", "resize", ANY, 1),
    "view.left": ("view change", "lost", FIRST, 1),
    "view.await": ("view change", "lost", ANY, 1),
    "view.received": ("view change", "lost", ANY, 1),
    "view.connected": ("view change", "lost", ANY, 1),
    "view.words": ("view change", "lost", ANY, 1),
    "view.caught_up": ("view change", "lost", ANY, 1),
    "view.planned": ("view change", "lost", ANY, 1),
    "view.compiled": ("view change", "lost", ANY, 1),
    "view.adopt": ("view change", "lost", ANY, 1),
    "view.describe": ("resize", "resize", ANY, 1),
    "view.described": ("resize", "resize", ANY, 1),
    "resume.begin": ("view change", "lost", LOST, 1),
    "resume.ended": ("view change", "lost", LOST, 1),
    "resume.mark": ("view change", "lost", ANY, 1),
    "left.begin": ("view change", "left", LOST, 1),
    "left.ended": ("view change", "left", LOST, 1),
    "left.marked": ("view change", "left", LOST, 1),
    "view.prepared": ("view change", "lost", ANY, 1),
    "view.outputs": ("view change", "back", FIRST, 1),
    "view.ready": ("view change", "lost", ANY, 1),
    "view.told": ("view change", "lost", ANY, 1),
    "end.save": ("ending", "run", ANY, 1),
    "end.hash": ("ending", "run", ANY, 1),
    "end.publish": ("ending", "run", ANY, 1),
    "end.exported": ("ending", "run", FIRST, 1),
    "end.announced": ("ending", "run", FIRST, 1),
    "end.published": ("ending", "run", ANY, 1),
    "end.close": ("ending", "run", ANY, 1),
    "agent.lost": ("view change", "agent", "none", 1),
    "agent.act": ("view change", "agent", "none", 1),
    "agent.view": ("view change", "agent", "none", 1),
    "agent.dump": ("view change", "agent", "none", 1),
    "agent.committed": ("view change", "agent", "none", 1),
    "agent.prepare": ("joining", "agent-grow", "none", 1),
    "agent.resize": ("resize", "agent-resize", "none", 1),
    "agent.release": ("resize", "agent-resize", "none", 1),
}


def check_table():
    """It has exactly the failpoints of the sources."""
    found = []
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in names:
            if name.endswith(".c"):
                with open(os.path.join(folder, name)) as f:
                    found += re.findall(r'weft_failpoint\("([^"]+)"\)', f.read())
    same(sorted(found), sorted([*POINTS, *failpoints_hosts.POINTS, *failpoints_gpu.POINTS]), "failpoints of the sources and of the table")
    check(len(POINTS) >= 40, "%d failpoints" % len(POINTS))


def run_plain(scratch):
    job = Job(1, KEYS, scratch.path("reference"))
    result, text = job.end()
    check(result is not None, "undisturbed: " + text)
    return result["weights_xxh64"], bits(job.output)


def resize(job, sizes):
    for n in sizes:
        job.await_step(job.steps() + 2)
        try:
            subprocess.run([WEFT, "scale", str(n), job.output], capture_output=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            check(False, "scale %d hangs" % n)


def hit(scratch, k, name, action, draw, reference):
    """One run.  Returns its outcome: seconds, incidents."""
    phase, scene, ranks, most = POINTS[name]
    n, keys, before, sizes = SCENES[scene]
    rank, nth = ranks if ranks == "none" else draw.choice(ranks), draw.randint(1, most)
    entry = "%s:%s:rank=%s:nth=%d" % (name, action, rank, nth)
    what = "%d %s (%s)" % (k, entry, scene)
    once, begin = scratch.path("once-%d" % k), time.monotonic()
    job = Job(n, dict(KEYS, **keys, recover="on"), scratch.path("run-%d" % k), "--failure-timeout", "5",
              env=dict(WEFT_FAILPOINT=before + "," * bool(before) + entry, WEFT_FAILPOINT_ONCE=once))
    job.await_step(1)
    pids = children(job.p.pid)
    resize(job, sizes)
    result, text = job.end()
    reached = os.path.exists("%s.%d" % (once, 1 if before else 0))
    check(reached, what + ": was not reached: " + text[-1500:])
    if ranks == "none" and action == "kill":
        check(job.p.returncode == -9, "%s: the agent ended with %r" % (what, job.p.returncode))
        check(gone(pids), what + ": ranks outlive the agent")
    elif check(result is not None, "%s: ended with %r: %s" % (what, job.p.returncode, text[-2000:])):
        same((result["weights_xxh64"], bits(job.output)), reference, what + ": weights and losses")
        check(gone(pids), what + ": processes are left")
    found = incidents(job.output)
    lost = [i for i in found if "rank" in i]
    check(len(lost) <= bool(before) + (action == "kill"), "%s: incidents %r" % (what, found))
    return phase, scene, rank, nth, time.monotonic() - begin, len(lost), reached


class Kind:
    """Failpoints of one file: what is known of its undisturbed run, once one is hit."""
    def __init__(self, points, hit, run_plain):
        self.points, self.hit, self.run_plain = points, hit, run_plain
        self.reference = None

    def run(self, scratch, *of):
        self.reference = self.reference or self.run_plain(scratch)
        return self.hit(scratch, *of, self.reference)


KINDS = [Kind(POINTS, hit, run_plain),
         Kind(failpoints_hosts.POINTS, failpoints_hosts.hit, lambda scratch: eco_hosts.run_reference(scratch, failpoints_hosts.STEPS))]
if failpoints_gpu.IS_BUILT:
    KINDS.append(Kind(failpoints_gpu.POINTS, failpoints_gpu.hit, failpoints_gpu.run_plain))


def actions(name):
    return failpoints_gpu.actions(name) if name in failpoints_gpu.POINTS else ("kill", "delay=150")


def draw_runs(draw, runs):
    """One of each kind, and more of the first."""
    by_kind = [[r for r in runs if r[0] in kind.points] for kind in KINDS]
    own = 1 if SANITIZED else max(int(SAMPLE) - len(KINDS) + 1, 1)
    return draw.sample(by_kind[0], own) + [draw.choice(x) for x in by_kind[1:]]


def main():
    draw = random.Random(SEED)
    eco.PACE_MS = eco.PACE_MS or 8  # also where steps compute: the last ones wait until all has been done to a job
    names = sys.argv[1:] or [name for kind in KINDS for name in kind.points]
    runs = [(name, action) for name in names for action in actions(name)]
    if SAMPLE != "all" and not sys.argv[1:]:
        runs = draw_runs(draw, runs)
    print("seed %d" % SEED, flush=True)
    rows = []
    with Scratch("failpoints", memory=True) as scratch:
        check_table()
        before = set(os.listdir("/dev/shm"))
        for k, (name, action) in enumerate(runs):
            kind = next(x for x in KINDS if name in x.points)
            rows.append((name, action.split("=")[0]) + kind.run(scratch, k, name, action, draw))
        same(left_in_shm(before), [], "left in /dev/shm")
        print("%d failpoints, %d runs" % (len({r[0] for r in rows}), len(rows)))
        if os.environ.get("WEFT_FAILPOINTS_TABLE"):
            with open(os.environ["WEFT_FAILPOINTS_TABLE"], "w") as f:
                f.write("# tests/eco/eco_failpoints.py, seed %d\n" % SEED)
                f.write("failpoint,action,phase,scene,rank,nth,seconds,ranks_lost,reached\n")
                for r in rows:
                    f.write("%s,%s,%s,%s,%s,%d,%.2f,%d,%s\n" % (r[:6] + (r[6], r[7], "yes" if r[8] else "no")))
        end()


if __name__ == "__main__":
    main()
