"""Slots of several hosts that are lost again and again, and steps that end each rank that runs them: the job goes on without the rank, or without
its host, or ends with that reason.  Agents are processes on 127.0.0.1, as in eco_hosts.py; losses and weights are those of one process,
bit by bit.

    WEFT_SLOTS_CASE   one case alone, by its name"""
import json
import os
import re
import time

import eco_hosts
from eco import LONG, SANITIZED, Scratch, check, end, same
from eco_hosts import LIMIT_S, Job, compare
from eco_scale import scale
from eco_views import bits, incidents, rows

CASE = os.environ.get("WEFT_SLOTS_CASE")
STEPS = 80


def views(output):
    """Ranks of each host in each view."""
    with open(os.path.join(output, "views.jsonl")) as f:
        return [[a["ranks"] for a in json.loads(line)["agents"]] for line in f]


def start(scratch, name, plan, rank, nnodes="1:2", more="", **keys):
    """Two hosts; once the file .go is there that rank is killed three times within ten steps."""
    go = scratch.path(name + ".go")
    kills = ",".join("step.begin:kill:rank=%d:nth=%d:while=%s" % (rank, nth, go) for nth in (1, 2, 2))
    job = Job(scratch, name, plan, nnodes, env=dict(WEFT_FAILPOINT=kills + more, WEFT_FAILPOINT_ONCE=scratch.path(name + "-once")),
              **dict(dict(steps=STEPS), **keys))
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 3)
    open(go, "w").close()
    return job


def found_of(job):
    return [i for i in incidents(job.output) if i["cause"] != "join"]


# ---- lost too often ----

def rank_left_out(scratch, ref):
    """Of two hosts with two ranks each: that rank alone, also where it is the one that the others meet."""
    for rank in (0, 2) if LONG else (0,):
        job = start(scratch, "often-%d" % rank, "dp4", rank)
        compare("lost too often, rank %d" % rank, job, ref(STEPS), [0, 0])
        found = found_of(job)
        same([(i["cause"], i["decided"]) for i in found], [("kill", "replace")] * 2 + [("kill", "shrink"), ("cordon", "resize")],
             "lost too often: %r %s" % (found, job.text))
        rejected = {r["level"]: r["why"] for r in found[2].get("rejected", [])} if len(found) == 4 else {}
        same(rejected.get("replace"), "its slot was lost too often", "lost too often: rejected")
        same((found[-1]["what"], found[-1]["noticed"], found[-1]["ranks"]), ("from 4 to 3 ranks, without rank %d" % rank, "lost too often", 3),
             "lost too often: %r" % found[-1])
        same(views(job.output)[-1], [2, 1] if rank else [1, 2], "lost too often: ranks of each host")
        check("it was lost too often; it is left out" in job.text and "back to step" not in job.text, "lost too often: " + job.text)


def host_left_out(scratch, ref):
    """The only rank of a host: the host is cordoned, with its state moved or saved first."""
    for plan in ("pp2", "dp2") if LONG else ("pp2",):
        job = start(scratch, "often-" + plan, plan, 1)
        compare("the only rank of a host, " + plan, job, ref(STEPS), [0, 1])
        found = found_of(job)
        same([(i["cause"], i["decided"]) for i in found], [("kill", "replace")] * 2 + [("kill", "shrink"), ("drain", "resize")],
             "the only rank of a host: %r %s" % (found, job.text))
        check("this host is cordoned: rank 1 was lost too often within few steps; check its hardware" in job.agents[1].text,
              "the only rank of a host: " + job.text)
        back = re.findall(r"after step (\d+): back to step (\d+)", job.text)
        check(all(a == b for a, b in back), "the only rank of a host: its state was saved: %r" % back)


def never_starts(scratch, ref):
    """No process of a slot gets as far as a step any more: its rank, or its host where that has no other, is left out at once."""
    for plan, rank, codes in (("dp4", 2, [0, 0]), ("dp2", 1, [0, 1]), ("zero1-copies", 0, [0, 0]), ("dp2", 0, [1, 0]))[:4 if LONG else 2]:
        name = "never-%s-%d" % (plan, rank)
        go = scratch.path(name + ".go")
        job = Job(scratch, name, plan, "1:2", steps=STEPS, env=dict(WEFT_FAILPOINT="view.adopt:kill:rank=%d:while=%s" % (rank, go)))
        check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
        job.await_step(job.steps() + 3)
        open(go, "w").close()
        job.kill(rank)
        compare(name, job, ref(STEPS), codes)
        found = [i for i in found_of(job) if i["cause"] == "kill"]
        same([i["decided"] for i in found], ["replace", "replace", "shrink", "shrink"], "%s: %r" % (name, found))
        check("it was lost too often; " + ("it is left out" if codes == [0, 0] else "its host is cordoned") in job.text, "%s: %s" % (name, job.text))
        check("back to step" not in job.text, "%s: the state is there: %s" % (name, job.text))
        same(views(job.output)[-1], {"dp2": [1]}.get(plan, [2, 1] if rank else [1, 2]), name + ": ranks of each host")


def no_fewer(scratch, ref):
    """A fixed number of hosts: the state is saved, and the job ends, on both."""
    job = start(scratch, "often-fixed", "dp2", 1, "2", steps=100000)
    codes = job.end()
    same(codes, [143, 1], "a fixed number of hosts: %r %s" % (codes, job.text))
    check("all ranks save and end: rank 1 was lost too often within few steps" in job.agents[0].text, "a fixed number of hosts: " + job.text)
    check("rank 1 was lost too often within few steps: the state after step" in job.agents[1].text, "a fixed number of hosts: " + job.text)
    found = found_of(job)
    same([i["decided"] for i in found], ["replace", "replace", "stop"], "a fixed number of hosts: %r" % found)
    saved = os.listdir(os.path.join(job.output, "checkpoints"))
    check("step-%08d" % len(rows(job.output)) in saved, "a fixed number of hosts: its state is saved: %r" % saved)
    done = bits(job.output)
    same(done[:24], ref(24)[1][:len(done)], "a fixed number of hosts: losses")


def not_left_out(scratch, ref):
    """The request to leave the rank out is lost, and the next view is another's: after it the job is no longer on its way to fewer ranks."""
    job = start(scratch, "ignored", "dp4", 0, more=",hosts.leave_out:flip:rank=none", steps=240)
    check(job.await_text(job.agents[0], "it was lost too often; it is left out"), "it is to be left out: " + job.agents[0].name)
    code, text = scale(job, 3)
    check(code == 2 and "the job is on its way to 3 ranks" in text, "on the way: %r %s" % (code, text))
    n = len(found_of(job))
    job.kill(3)
    limit = time.monotonic() + LIMIT_S
    while len(found_of(job)) == n and time.monotonic() < limit:
        time.sleep(0.01)
    code, text = scale(job, 3)
    check(code == 0 and "3 ranks from step" in text, "it was not left out: %r %s" % (code, text))
    compare("not left out", job, ref(240), [0, 0])


# ---- a step that ends each rank that runs it ----

def step_ends_ranks(scratch, ref):
    """Crashes, or want of memory, of ranks of two hosts in the same step, one after the other or at once: all hosts end with that reason,
    also one that lost none, and run the step no more."""
    oom = ",agent.oom:flip:rank=none"
    for name, n, points, once, why in (("crash", 3, "step.begin:abort:rank=1:nth=6,step.begin:abort:rank=2", True, "a crash"),
                                       ("at-once", 2, "step.begin:abort:nth=6", False, "a crash"),
                                       ("oom", 2, "step.begin:kill:rank=1:nth=6" + oom + ",step.begin:kill:rank=0" + oom, True, "want of memory")):
        env = dict(WEFT_FAILPOINT=points, **(dict(WEFT_FAILPOINT_ONCE=scratch.path(name + "-once")) if once else {}))
        job = Job(scratch, name, "dp2", str(n), n_agent=n, steps=100000, env=env, dp=n)
        codes = job.end()
        check(set(codes) <= {1, 134, 137}, "%s: %r %s" % (name, codes, job.text))
        reason = "step 6 ends each rank that runs it: two were lost in it, the last one by " + why
        check(all("error: " + reason in a.text for a in job.agents), "%s: %s" % (name, job.text))
        found = [i for i in found_of(job) if i["cause"] != "host"]  # an agent may see that another one has ended before it hears why
        same({(i["cause"], i["step"]) for i in found}, {(name if name == "oom" else "crash", 5)}, "%s: %r" % (name, found))
        check(len(found) == 2 and (found[-1]["decided"], found[-1]["why"]) == ("end", reason), "%s: %r" % (name, found))
        same(len(rows(job.output)), 5, name + ": steps")


CASES = [rank_left_out, host_left_out, never_starts, no_fewer, not_left_out, step_ends_ranks]
if SANITIZED and not LONG and not CASE:
    CASES = [host_left_out, step_ends_ranks]


def main():
    known = {}

    def ref(steps):
        if steps not in known:
            known[steps] = eco_hosts.run_reference(scratch, steps)
        return known[steps]

    with Scratch("slots", memory=True) as scratch:
        for case in CASES:
            if not CASE or case.__name__ == CASE:
                case(scratch, ref)
    end()


if __name__ == "__main__":
    main()
