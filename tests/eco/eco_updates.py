"""Updates of several hosts that are broken off while the hosts change: a host is lost between its vote and the end of its step,
or a rank is killed in its update while a host joins or leaves.  Each rank that is left ends the updates of the plan before,
without its peers; what that plan would have gathered comes from who computed it.  No committed step is run again where
every part has a copy on another host, and losses and weights are those of one process, bit by bit.

    WEFT_UPDATES_LONG   1: all plans at all places
    WEFT_UPDATES_CASE   one alone: PLAN@PLACE, as the lines of the output name them"""
import os
import time

from eco import SANITIZED, SPLIT, Scratch, check, end
from eco_hosts import BASE, PLANS, Job, compare, run_reference

LONG = any(os.environ.get(name, "0") not in ("", "0") for name in ("WEFT_UPDATES_LONG", "WEFT_TEST_LONG"))
CASE = os.environ.get("WEFT_UPDATES_CASE")
STEPS = 40
ENDED = "are ended by the plan before"
BASE["model"] = "tiny256"  # whose gathers last long enough for a rank to be lost in them
PLANS.update({"zero2-copies": (2, dict(dp=4, zero=2, copies=2)), "zero2": (2, dict(dp=4, zero=2)), "zero3": (2, dict(dp=4, zero=3)),
              "zero1-bf16": (2, dict(dp=4, zero=1, copies=2, dtype="bf16")),
              "zero1-three": (2, dict(dp=6, zero=1, copies=2, lanes=8)), "zero2-three": (2, dict(dp=6, zero=2, copies=2, lanes=8))})
# Places, with the times that a rank has been there when it acts.
PLACES = {"vote.arrived": 5, "vote.passed": 5, "update.begin": 6, "update.chunk_begun": 70, "update.chunk_made": 71, "update.gather": 5,
          "update.end": 5, "update.settled": 6}
COPIES = ("zero1-copies", "zero2-copies", "zero3-copies")
THREE = ("zero1-three", "zero2-three")


def points(scratch, name, entry):
    return dict(WEFT_FAILPOINT=entry, WEFT_FAILPOINT_ONCE=scratch.path(name + "-once"))


def was_hit(scratch, name, k=0):
    return os.path.exists(scratch.path("%s-once.%d" % (name, k)))


def host_lost(scratch, ref, plan, place):
    """By its last rank: others are anywhere between the vote and the end of the step.  Of three hosts the second, which has ranks of
    both groups that gather."""
    hosts, rank = (3, 3) if plan in THREE else (2, 3)
    name = "%s@%s" % (plan, place)
    steps = STEPS * (hosts - 1)  # both others have prepared and joined well before the end
    job = Job(scratch, name, plan, "1:%d" % hosts, n_agent=hosts, steps=steps,
              env=points(scratch, name, "%s:host:rank=%d:nth=%d" % (place, rank, PLACES[place])))
    compare("a host lost at " + name, job, ref(plan, steps))
    codes = [a.p.returncode for a in job.agents]  # the second and third join in either order
    check(sorted(codes) == [-9] + [0] * (hosts - 1), "%s: codes %r: %s" % (name, codes, job.text))
    check(was_hit(scratch, name), "%s: not got there: %s" % (name, job.text))
    if plan in THREE and place not in ("vote.arrived", "update.end", "update.settled"):
        check(ENDED in job.agents[0].text, "%s: updates are ended by the plan before: %s" % (name, job.text))
    if "copies" in job.keys or plan == "dp4":
        check("back to step" not in job.text, "%s: a committed step is run again: %s" % (name, job.text))


def killed_while_one_joins(scratch, ref, plan, place):
    """A rank of the first host is killed in its update of the step after which another host joins."""
    name = "%s@joins" % plan
    job = Job(scratch, name, plan, "1:2", n_agent=1, steps=STEPS, env=points(scratch, name, "resize.update:kill:rank=1"))
    job.await_step(4)
    job.join()
    compare("a rank killed while a host joins, " + plan, job, ref(plan), [0, 0])
    check(was_hit(scratch, name), "%s: not got there: %s" % (name, job.text))
    check("back to step" not in job.text, "%s: a committed step is run again: %s" % (name, job.text))
    if plan in ("zero1", "zero2"):  # rank 0 waits in its gather
        check(ENDED in job.agents[0].text, "%s: updates are ended by the plan before: %s" % (name, job.text))


def killed_while_one_leaves(scratch, ref, plan, place):
    """A rank is killed in its update of the step after which the other host leaves."""
    name = "%s@leaves" % plan
    job = Job(scratch, name, plan, "1:2", steps=STEPS * 3, env=points(scratch, name, "resize.update:delay=1:rank=0,resize.update:kill:rank=1"))
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 4)
    job.agents[1].p.terminate()
    compare("a rank killed while a host leaves, " + plan, job, ref(plan, STEPS * 3), [0, 0])
    check(was_hit(scratch, name, 1), "%s: not got there: %s" % (name, job.text))
    check("back to step" not in job.text, "%s: a committed step is run again: %s" % (name, job.text))


def list_cases():
    """The first three take part of each path: shards on other hosts than those that gather, whole shards, a rank that is replaced."""
    short = [("zero1-three", "update.gather"), ("zero3-copies", "update.chunk_made"), ("zero2", "joins")]
    every = [(plan, place) for plan in COPIES + THREE for place in PLACES if place != "update.gather" or "zero3" not in plan]
    every += [("zero1", "update.gather"), ("zero3", "update.chunk_made"), ("dp4", "update.chunk_made"), ("pp4-copies", "update.chunk_made"),
              ("zero1-bf16", "update.chunk_made"), ("zero1-bf16", "update.gather")]
    every += [(plan, "joins") for plan in ("dp4", "zero1", "zero2", "zero3")]
    every += [(plan, "leaves") for plan in COPIES + ("dp4",)]
    if CASE:
        return [tuple(CASE.split("@"))]
    return every if LONG else short[:1] if SANITIZED else short[1:] if SPLIT else short


def main():
    with Scratch("updates", memory=True) as scratch:
        known = {}

        def ref(plan, steps=STEPS):
            keys = {k: v for k, v in PLANS[plan][1].items() if k in ("lanes", "dtype")}
            key = (steps, *sorted(keys.items()))
            if key not in known:
                known[key] = run_reference(scratch, steps, **keys)
            return known[key]

        for plan, place in list_cases():
            begun = time.monotonic()
            case = killed_while_one_joins if place == "joins" else killed_while_one_leaves if place == "leaves" else host_lost
            case(scratch, ref, plan, place)
            print("%s@%s: %.1f s" % (plan, place, time.monotonic() - begun), flush=True)
    end()


if __name__ == "__main__":
    main()
