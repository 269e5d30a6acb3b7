"""weft run --replay incidents.jsonl: a run that takes the views of a recorded one at the same steps has its bits, also where tp, cp or
ep changes on the way; and no such change shows in the loss of the next step by more than 1e-5.

The recorded run of dp=2 tp=2 is resized 4 -> 2 -> 1 -> 2 while it trains, and ranks are killed in between: one rank has no tp.  Then its
agent is killed, and it is resumed from a checkpoint with cp=2 and resized 2 -> 1.
Another one begins on one rank, and a resume with other lanes has four.
Another one begins on one host, a second joins and is lost; it is replayed on one host, which is told nothing but the job and the file.

    WEFT_TEST_LONG   1: also ep=2 of a model with experts and cp=2 from the start, 2 -> 1 -> 2, resumed; lanes that
                     a resume has changed"""
import json
import os
import re
import subprocess
import time

import eco_hosts
from eco import WEFT, Scratch, check, end, near, same
from eco_views import BASE, Job, bits, incidents, rows, words

# A rate at which the rounding of one change does not grow until the next one is looked at.
KEYS = dict(BASE, reduction="fixed", steps=52, recover="on", **{"eval.every": 0, "checkpoint.every": 6, "optimizer.lr": 1e-4})
MAIN = dict(KEYS, dp=2, tp=2)
LONG = os.environ.get("WEFT_TEST_LONG", "0") not in ("", "0")
EXPERTS = dict(model_type="mixtral", architectures=["MixtralForCausalLM"], hidden_size=16, intermediate_size=24, num_hidden_layers=2,
               num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, vocab_size=256,
               max_position_embeddings=32)


def scale(job, n):
    p = subprocess.run([WEFT, "scale", str(n), job.output], capture_output=True, text=True)
    check(p.returncode == 0, "weft scale %d: %s%s" % (n, p.stdout, p.stderr))


def act(job, *acts):
    """Each at a step, or later."""
    for step, what, n in acts:
        job.await_step(step)
        what(job, n)


def end_job(job, what):
    result, text = job.end()
    if not check(result is not None, "%s: %r %s" % (what, job.p.returncode, text[-2000:])):
        end()
    return result


def find_saved(job):
    folder = os.path.join(job.output, "checkpoints")
    return max((int(f[5:]) for f in os.listdir(folder) if re.fullmatch("step-[0-9]+", f)), default=0)


def resume(job, ranks, keys):
    """The agent is killed once there is a checkpoint of its last view; another run goes on in its folder."""
    limit = time.monotonic() + 60
    while find_saved(job) < read_views(job)[-1]["first_step"] and time.monotonic() < limit:
        time.sleep(0.01)
    job.p.kill()
    job.end()
    return Job(ranks, keys, job.output)


def read_views(job):
    with open(os.path.join(job.output, "views.jsonl")) as f:
        return list(map(json.loads, f))


def find_sizes(job, *axes):
    """Of each view with other ranks or sizes than the one before: its ranks, and those sizes of its plan."""
    found = []
    for view in read_views(job):
        with open(os.path.join(job.output, view["plan"])) as plan:
            sizes = {a["axis"]: a["size"] for a in json.load(plan)["mesh"]}
        of = (view["ranks"], *(sizes.get(a, 1) for a in axes))
        if not found or found[-1] != of:
            found.append(of)
    return found


def check_replayed(scratch, name, job, result, ranks, keys):
    replay = Job(ranks, keys, scratch.path(name + "-replayed"), "--replay", os.path.join(job.output, "incidents.jsonl"))
    again = end_job(replay, name + " replayed")
    same(again["weights_xxh64"], result["weights_xxh64"], name + " replayed: weights")
    same(bits(replay.output), bits(job.output), name + " replayed: losses")
    return replay


def check_first_steps(name, job, plain):
    """The first step of each view is within 1e-5 of the undisturbed loss; some bit differs, or the test shows nothing."""
    a, b = rows(plain.output), rows(job.output)
    for view in read_views(job):
        k = view["first_step"] - 1
        near(b[k]["loss"], a[k]["loss"], 1e-5, "%s: step %d, the first with %d ranks" % (name, k + 1, view["ranks"]))
    check(bits(plain.output) != bits(job.output), name + ": no change of sizes changes a bit: the test shows nothing")


def run_plain(scratch, name, ranks, keys):
    job = Job(ranks, dict(keys, recover="off"), scratch.path(name + "-plain"))
    end_job(job, name + " undisturbed")
    return job


def replay_main(scratch):
    plain = run_plain(scratch, "main", 4, MAIN)
    job = Job("1:4", MAIN, scratch.path("main"))
    act(job, (5, scale, 2), (10, Job.kill, 1), (16, scale, 1), (22, scale, 2), (28, Job.kill, 0))
    job.await_step(34)
    job = resume(job, "1:2", dict(KEYS, cp=2))
    act(job, (40, scale, 1))
    result = end_job(job, "main")
    found = incidents(job.output)
    same([i["ranks"] for i in found if i["decided"] == "resize"], [2, 1, 2, 1], "ranks of the resizes: %r" % found)
    same(len([i for i in found if "rank" in i]), 2, "ranks lost: %r" % found)
    same(find_sizes(job, "tp", "cp"), [(4, 2, 1), (2, 2, 1), (1, 1, 1), (2, 2, 1), (2, 1, 2), (1, 1, 1)], "ranks, tp and cp of the views")
    replay = check_replayed(scratch, "main", job, result, "1:4", MAIN)
    same(find_sizes(replay, "tp", "cp"), find_sizes(job, "tp", "cp"), "replayed: views")
    check_first_steps("main", job, plain)
    bad_input(scratch, job)


def replay_sizes(scratch, axis, keys):
    """2 -> 1, resumed with one more: 2 -> 1 -> 2."""
    keys = {**KEYS, **keys, axis: 2}
    plain = run_plain(scratch, axis, 2, keys)
    job = Job("1:2", keys, scratch.path(axis))
    act(job, (6, scale, 1))
    job.await_step(20)
    job = resume(job, "1:2", keys)
    act(job, (28, Job.kill, 0), (34, scale, 1), (42, scale, 2))
    result = end_job(job, axis)
    same(find_sizes(job, axis), [(2, 2), (1, 1), (2, 2), (1, 1), (2, 2)], axis + ": ranks and sizes")
    check_replayed(scratch, axis, job, result, "1:2", keys)
    check_first_steps(axis, job, plain)


def replay_allowed(scratch):
    """The resume changed lanes and micro_batch, for twice the ranks."""
    keys = {k: v for k, v in KEYS.items() if k not in ("lanes", "micro_batch")}
    first = dict(keys, dp=2, lanes=2, micro_batch=4)
    job = Job(2, dict(first, steps=10), scratch.path("allowed"))
    end_job(job, "allowed, first part")
    job = Job(4, dict(keys, dp=4, steps=20), job.output, "--allow", "lanes,micro_batch")
    result = end_job(job, "allowed")
    replay = Job("2:4", dict(first, steps=20), scratch.path("allowed-replayed"), "--replay", os.path.join(job.output, "views.jsonl"))
    same(end_job(replay, "allowed replayed")["weights_xxh64"], result["weights_xxh64"], "allowed replayed: weights")
    same(bits(replay.output), bits(job.output), "allowed replayed: losses")


def replay_alone(scratch):
    """One rank, which a resume made four with other lanes: the first view has a plan, too."""
    keys = {k: v for k, v in KEYS.items() if k not in ("lanes", "micro_batch")}
    first = dict(keys, lanes=1, micro_batch=8)
    job = Job(1, dict(first, steps=6), scratch.path("alone"))
    end_job(job, "alone, first part")
    job = Job(4, dict(keys, dp=4, steps=12), job.output, "--allow", "lanes,micro_batch")
    result = end_job(job, "alone")
    same(find_sizes(job, "dp"), [(1, 1), (4, 4)], "alone: ranks and dp of the views")
    replay = Job("1:4", dict(first, steps=12), scratch.path("alone-replayed"), "--replay", os.path.join(job.output, "views.jsonl"))
    same(end_job(replay, "alone replayed")["weights_xxh64"], result["weights_xxh64"], "alone replayed: weights")
    same(bits(replay.output), bits(job.output), "alone replayed: losses")


def replay_hosts(scratch):
    """Two hosts of two ranks, micro_batch and lanes of two hosts: ranks of one host have its bits."""
    keys = {k: v for k, v in eco_hosts.BASE.items() if k not in ("micro_batch", "lanes")}
    eco_hosts.BASE = keys
    eco_hosts.PLANS["dp2-tp2"] = (2, dict(dp=2, tp=2, reduction="fixed"))
    job = eco_hosts.Job(scratch, "hosts", "dp2-tp2", "1:2", n_agent=1, steps=120)
    job.await_step(4)
    job.join()
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 6)
    job.agents[1].kill_all()
    job.await_text(job.agents[0], ": 1 host", 2)
    job.await_step(job.steps() + 6)
    scale(job, 1)
    codes = job.end()
    if not check(job.result is not None and codes == [0, -9], "hosts: %r %s" % (codes, job.text)):
        return
    same(find_sizes(job, "tp"), [(2, 2), (4, 2), (2, 2), (1, 1)], "hosts: ranks and tp")
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
    later = scratch.write("later/incidents.jsonl", '{"next_epoch": 2, "next_step": 3, "ranks": 2}\n')
    for n, path, text in (("3:4", file, "this run may have 3 to 4; leave --nproc-per-node out"),
                          ("1:4", scratch.path("nothing.jsonl"), "nothing.jsonl: No such file"),
                          ("1:2", later, "no view before step 3; views.jsonl of that run belongs beside it"),
                          ("1:4", broken, "broken.jsonl:1: the view of epoch 2 has no number of ranks")):
        bad = Job(n, MAIN, scratch.path("bad"), "--replay", path)
        result, log = bad.end()
        check(result is None and text in log, "--replay %s with %s ranks: %r %s" % (path, n, bad.p.returncode, log[-500:]))


def main():
    with Scratch("replay", memory=True) as scratch:
        replay_main(scratch)
        replay_hosts(scratch)
        replay_alone(scratch)
        if LONG:
            model = os.path.dirname(scratch.write("experts/config.json", json.dumps(EXPERTS)))
            replay_allowed(scratch)
            replay_sizes(scratch, "cp", dict(steps=100))
            replay_sizes(scratch, "ep", dict(model=model, steps=300))
    end()


if __name__ == "__main__":
    main()
