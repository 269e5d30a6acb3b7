"""weft run --replay incidents.jsonl: a run that takes the views of a recorded one at the same steps has its bits, also where tp
changes on the way; and tp's change shows in no loss by more than rounding.

The recorded run of dp=2 tp=2 is resized 4 -> 2 -> 1 -> 2 while it trains, and ranks are killed in between: one rank has no tp.
Another one begins on one host, a second joins and is lost; it is replayed on one host, which is told nothing but the job and the file."""
import json
import os
import subprocess

import eco_hosts
from eco import WEFT, Scratch, check, end, near, same
from eco_views import BASE, Job, bits, incidents, rows, words

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


def find_tp(job):
    """Of each view with another number of ranks than the one before: its ranks, and tp of its plan."""
    found = []
    with open(os.path.join(job.output, "views.jsonl")) as f:
        for view in map(json.loads, f):
            with open(os.path.join(job.output, view["plan"])) as plan:
                sizes = {a["axis"]: a["size"] for a in json.load(plan)["mesh"]}
            if not found or found[-1][0] != view["ranks"]:
                found.append((view["ranks"], sizes.get("tp", 1)))
    return found


def replay_hosts(scratch):
    """Two hosts of two ranks, micro_batch and lanes of two hosts: ranks of one host have its bits."""
    keys = {k: v for k, v in eco_hosts.BASE.items() if k not in ("micro_batch", "lanes")}
    eco_hosts.BASE = keys
    eco_hosts.PLANS["dp2-tp2"] = (2, dict(dp=2, tp=2, reduction="fixed"))
    job = eco_hosts.Job(scratch, "hosts", "dp2-tp2", "1:2", n_agent=1, steps=60)
    job.await_step(4)
    job.join()
    job.await_text(job.agents[0], "2 hosts")
    job.await_step(job.steps() + 6)
    job.agents[1].kill_all()
    job.await_text(job.agents[0], ": 1 host", 2)
    job.await_step(job.steps() + 6)
    scale(job, 1)
    codes = job.end()
    if not check(job.result is not None and codes == [0, -9], "hosts: %r %s" % (codes, job.text)):
        return
    same(find_tp(job), [(2, 2), (4, 2), (2, 2), (1, 1)], "hosts: ranks and tp")
    file, output = os.path.join(job.output, "incidents.jsonl"), scratch.path("of-hosts")
    p = subprocess.run([WEFT, "run", "--replay", file, "--json", *words(dict(job.keys, output=output))], capture_output=True, text=True)
    if check(p.returncode == 0, "hosts replayed: %r %s" % (p.returncode, p.stderr[-2000:])):
        same(json.loads(p.stdout)["weights_xxh64"], job.result["weights_xxh64"], "hosts replayed: weights")
        same(bits(output), bits(job.output), "hosts replayed: losses")
    p = subprocess.run([WEFT, "run", "--replay", file, "-q", *words(dict(job.keys, output=scratch.path("other"), batch=16))], capture_output=True, text=True)
    check(p.returncode != 0 and "batch" in p.stderr, "a job with another batch: %r %s" % (p.returncode, p.stderr[-500:]))
    p = subprocess.run([WEFT, "run", "--nnodes", "2", "--nproc-per-node", "2", "--replay", file, *words(job.keys)], capture_output=True, text=True)
    check(p.returncode == 2 and "--replay: on one host" in p.stderr, "--replay on two hosts: %r %s" % (p.returncode, p.stderr[-500:]))


def bad_input(scratch, job):
    file = os.path.join(job.output, "incidents.jsonl")
    broken = scratch.write("broken.jsonl", '{"next_epoch": 2, "next_step": 3}\n')
    for n, path, text in (("3:4", file, "this run may have 3 to 4; leave --nproc-per-node out"),
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
        same(find_tp(job), [(4, 2), (2, 2), (1, 1), (2, 2)], "ranks and tp of the views")
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
        replay_hosts(scratch)
    end()


if __name__ == "__main__":
    main()
