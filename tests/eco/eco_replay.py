"""weft run --replay incidents.jsonl: a run that takes the views of a recorded one at the same steps has its bits, also where tp
changes on the way; and tp's change shows in no loss by more than rounding.

The recorded run of dp=2 tp=2 is resized 4 -> 2 -> 1 -> 2 while it trains, and ranks are killed in between: one rank has no tp."""
import json
import os
import subprocess

from eco import WEFT, Scratch, check, end, near, same
from eco_views import BASE, Job, bits, incidents, rows

KEYS = dict(BASE, reduction="fixed", dp=2, tp=2, steps=40, recover="on", **{"eval.every": 0, "checkpoint.every": 1000})


def scale(job, n):
    p = subprocess.run([WEFT, "scale", str(n), job.output], capture_output=True, text=True)
    check(p.returncode == 0, "weft scale %d: %s%s" % (n, p.stdout, p.stderr))


def record(scratch):
    job = Job("1:4", KEYS, scratch.path("recorded"))
    for step, act in ((5, lambda: scale(job, 2)), (10, lambda: job.kill(1)), (16, lambda: scale(job, 1)), (22, lambda: scale(job, 2)), (28, lambda: job.kill(0))):
        job.await_step(step)
        act()
    result, text = job.end()
    if not check(result is not None, "recorded: %r %s" % (job.p.returncode, text[-2000:])):
        end()
    return job, result


def find_sizes(job):
    """Axes of each plan that was recorded, in the order of epochs."""
    folder, found = os.path.join(job.output, "plans"), []
    for name in os.listdir(folder):
        with open(os.path.join(folder, name)) as f:
            found.append((int(name[5:-5]), {a["axis"]: a["size"] for a in json.load(f)["mesh"]}))
    return [sizes for _, sizes in sorted(found, key=lambda x: x[0])]


def bad_input(scratch, job):
    file = os.path.join(job.output, "incidents.jsonl")
    broken = scratch.write("broken.jsonl", '{"next_epoch": 2, "next_step": 3}\n')
    for n, path, text in (("3:4", file, "this run may have 3 to 4; set --nproc-per-node MIN:MAX"),
                          ("1:4", scratch.path("nothing.jsonl"), "nothing.jsonl: No such file"),
                          ("1:4", broken, "broken.jsonl:1: the view of epoch 2 has no number of ranks")):
        bad = Job(n, KEYS, scratch.path("bad"), "--replay", path)
        result, log = bad.end()
        check(result is None and text in log, "--replay %s with %s ranks: %r %s" % (path, n, bad.p.returncode, log[-500:]))


def main():
    with Scratch("replay", memory=True) as scratch:
        plain = Job(4, dict(KEYS, recover="off"), scratch.path("plain"))
        result, text = plain.end()
        check(result is not None, "undisturbed: " + text)
        job, recorded = record(scratch)
        found = incidents(job.output)
        sizes = [i["ranks"] for i in found if i["decided"] == "resize"]
        same(sizes, [2, 1, 2], "ranks of the resizes: %r" % found)
        same(len([i for i in found if "rank" in i]), 2, "ranks lost: %r" % found)
        same([p.get("tp", 1) for p in find_sizes(job)], [2, 2, 1, 2], "tp of the plans: %r" % find_sizes(job))
        replay = Job("1:4", KEYS, scratch.path("replayed"), "--replay", os.path.join(job.output, "incidents.jsonl"))
        again, text = replay.end()
        if check(again is not None, "replayed: %r %s" % (replay.p.returncode, text[-2000:])):
            same(again["weights_xxh64"], recorded["weights_xxh64"], "replayed: weights")
            same(bits(replay.output), bits(job.output), "replayed: losses")
            same([(i["next_step"], i["ranks"]) for i in incidents(replay.output)],
                 [(i["next_step"], i["ranks"]) for i in found if i["decided"] == "resize"], "replayed: views")
        a, b = rows(plain.output), rows(job.output)
        for i in found:
            if i["decided"] == "resize":
                near(b[i["next_step"] - 1]["loss"], a[i["next_step"] - 1]["loss"], 1e-5, "the first step with %d ranks" % i["ranks"])
        bad_input(scratch, job)
        check(bits(plain.output) != bits(job.output), "tp changes no bit: the test shows nothing")
    end()


if __name__ == "__main__":
    main()
