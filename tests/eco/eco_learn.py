"""Hosts that join learn the state while the others train (session/lesson.h): nothing is moved in the pause of their join, losses
and weights are those of one process, bit by bit; whatever is lost, late or changed meanwhile, the join moves the state as without it.
All runs compare the copies of the state in each view (WEFT_CHECK_COPIES).

    WEFT_LEARN_CASE     one case alone, by its name"""
import os
import re
import signal
import subprocess
import time

from eco import LONG, SANITIZED, WEFT, Scratch, check, end, here, same
from eco_hosts import BASE, LIMIT_S, PLANS, Job, compare, run_reference
from eco_views import bits, incidents

CASE = os.environ.get("WEFT_LEARN_CASE")
STEPS = 60
# state in 12 pieces or more, which take more than a step
KEYS = dict(model="tiny256", batch=8, lanes=4, steps=STEPS)
PACE = "step.begin:delay=30:nth=every"
PIECES = PACE + ",teach.piece:delay=15:nth=every"
PERCENT = r"learning \d+ %"
PACED = dict(WEFT_FAILPOINT=PACE)
LEARNED = "has learned the state after step"
PLANS.setdefault("dp3", (1, dict(dp=3)))
PLANS.setdefault("dp6", (2, dict(dp=6)))
PLANS.setdefault("zero1-three", (1, dict(dp=3, zero=1)))


def start(scratch, name, plan="dp3", nnodes="1:3", env=None, options=(), **keys):
    job = Job(scratch, name, plan, nnodes, options, n_agent=1, env=dict(env or PACED), **dict(KEYS, **keys))
    job.await_step(3)
    return job


def joins(job):
    return [i for i in incidents(job.output) if i["cause"] == "join"]


def join(job, hosts, env=None):
    """Another host joins; returns its agent."""
    job.env = dict(env or PACED)
    agent = job.join()
    check(job.await_text(job.agents[0], ": %d hosts" % hosts) or job.agents[0].p.poll() is not None, "no %d hosts" % hosts)
    job.await_step(job.steps() + 3)
    return agent


def check_learned(what, found, n):
    same([(i["move"]["bytes"], i["learned"] > 0) for i in found if "learned" in i], n * [(0, True)],
         what + ": bytes moved in the pause, and learned before: %r" % found)


def check_moved(what, found, n):
    check(len(found) == n and all(i["move"]["bytes"] > 0 and "learned" not in i for i in found), what + ": moved in the pause: %r" % found)


# ---- cases ----

def one_after_the_other(scratch, ref):
    """Pieces of one step and updates of later ones; two teachers for the second host."""
    job = start(scratch, "one", env=dict(WEFT_FAILPOINT=PIECES))
    join(job, 2, dict(WEFT_FAILPOINT=PIECES))
    join(job, 3)
    if compare("one after the other", job, ref(), [0, 0, 0]):
        check_learned("one after the other", joins(job), 2)
        check(job.text.count(LEARNED) == 2 and "learned before: " in job.text, "one after the other: log: " + job.text)


def together(scratch, ref):
    """Two hosts at once learn from one."""
    job = start(scratch, "together", env=dict(WEFT_FAILPOINT=PIECES))
    job.env = {}
    job.join()
    job.join()
    check(job.await_text(job.agents[0], ": 3 hosts"), "together: no 3 hosts")
    if compare("together", job, ref(), [0, 0, 0]):
        check(all(i["move"]["bytes"] == 0 and i["learned"] > 0 for i in joins(job)), "together: %r" % joins(job))
        same(job.text.count(LEARNED), 2, "together: ranks that have learned")


def ranks_of_a_host(scratch, ref):
    """Two ranks teach two."""
    job = start(scratch, "ranks", "dp4", "1:2")
    join(job, 2)
    if compare("ranks of a host", job, ref(), [0, 0]):
        check_learned("ranks of a host", joins(job), 1)


def encrypted(scratch, ref):
    token = scratch.path("token")
    subprocess.run([WEFT, "token", token], check=True, capture_output=True)
    job = start(scratch, "encrypted", options=["--encrypt"], proof=["--token-file", token])
    join(job, 2)
    if compare("encrypted", job, ref(), [0, 0]):
        check_learned("encrypted", joins(job), 1)


def other_shards(scratch, ref):
    """Under ZeRO ranks hold other parts in the plan to come: refused, with the reason."""
    job = start(scratch, "zero", "zero1-three")
    join(job, 2)
    if compare("other shards", job, ref(), [0, 0]):
        check_moved("other shards", joins(job), 1)
        check("does not learn the state while the others train: " in job.text, "other shards: " + job.text)


def switched_off(scratch, ref):
    job = start(scratch, "off", learn="false")
    join(job, 2)
    if compare("learn=false", job, ref(), [0, 0]):
        check_moved("learn=false", joins(job), 1)
        check(" learn" not in job.text, "learn=false: " + job.text)


def joiner_lost(scratch, ref):
    """Its rank is killed with some of the state, in an update, and when it has all of it; its agent and it are."""
    points = ("learn.piece:kill:nth=4", "learn.inputs:kill:nth=2", "prepare.done:kill", "learn.ended:kill", "learn.update:kill:nth=2")
    for point in points if LONG else points[::2]:
        name = point.split(":")[0]  # prepare.done: when it has all of it, before it is in a view
        job = start(scratch, "joiner-" + name, env=dict(WEFT_FAILPOINT=PIECES))
        once = scratch.path(name + "-once")
        join(job, 2, dict(WEFT_FAILPOINT=point, WEFT_FAILPOINT_ONCE=once))
        check(os.path.exists(once + ".0"), name + ": was not reached: " + job.agents[1].name)
        compare("joiner killed, " + name, job, ref(), [0, 0])
    job = start(scratch, "joiner-host", env=dict(WEFT_FAILPOINT=PIECES))
    job.env = dict(WEFT_FAILPOINT="learn.piece:host:nth=4")
    job.join().p.wait(LIMIT_S)
    before = job.steps()
    job.await_step(before + 5)
    join(job, 2)
    if compare("joining host lost", job, ref(), [0, -9, 0]):
        check_learned("joining host lost", joins(job), 1)


def teacher_lost(scratch, ref):
    """A rank that teaches, its host, and the leader's host are lost while a third host learns."""
    losses = (("rank", 1, "teach.piece:kill:nth=3"), ("host", 1, "teach.piece:host:nth=3"), ("inputs", 0, "teach.copied:kill:nth=2"),
              ("leader", 0, "teach.piece:host:nth=3"))
    for what, agent, point in losses if LONG else losses[1::2]:
        once, armed = scratch.path("teacher-once-" + what), scratch.path("teacher-armed-" + what)
        point = "%s:while=%s,%s" % (point, armed, PIECES)
        env = dict(WEFT_FAILPOINT=point, WEFT_FAILPOINT_ONCE=once)
        job = start(scratch, "teacher-" + what, env=env if agent == 0 else {}, options=["--failure-timeout", "2"],
                    rdzv="file:" + scratch.path("teacher-register-" + what))
        join(job, 2, env if agent == 1 else {})
        with open(armed, "w"):
            pass
        job.env = {}
        third = job.join()
        limit = time.monotonic() + LIMIT_S
        while not os.path.exists(once + ".0") and time.monotonic() < limit and third.p.poll() is None:
            time.sleep(0.01)
        check(os.path.exists(once + ".0"), "teacher lost, %s: was not reached" % what)
        lost = what in ("host", "leader")
        job.await_text(third, "view ", 2)
        compare("teacher lost, " + what, job, ref(), [-9 if lost and k == agent else 0 for k in range(3)])
        check("back to step" not in job.text, "teacher lost, %s: %s" % (what, job.text))


def slow_joiner(scratch, ref):
    """Training does not wait for one that lags."""
    job = start(scratch, "slow", steps=120)
    join(job, 2, dict(WEFT_FAILPOINT="learn.inputs:delay=1500:nth=every,learn.piece:delay=100:nth=every"))
    if compare("slow joiner", job, ref(120), [0, 0]):
        check_moved("slow joiner", joins(job), 1)
        check(re.search("lags, and training does not wait|with each step would take", job.text), "slow joiner: " + job.text)


def changed_meanwhile(scratch, ref):
    """A host leaves while a third one learns: another view, and the lesson begins anew."""
    job = start(scratch, "changed", env=dict(WEFT_FAILPOINT=PIECES))
    join(job, 2)
    job.env = dict(WEFT_FAILPOINT="learn.piece:delay=150:nth=every")
    third = job.join()
    job.await_text(third, "they prepare")
    status, limit = "", time.monotonic() + LIMIT_S
    while not re.search(PERCENT, status) and time.monotonic() < limit:
        status = subprocess.run([WEFT, "status", job.output], capture_output=True, text=True).stdout
    check(re.search(PERCENT, status), "weft status: what is learned: " + status)
    job.agents[1].p.send_signal(signal.SIGTERM)
    check(job.await_text(third, ": 2 hosts"), "changed meanwhile: the third host does not join: " + third.name)
    compare("changed meanwhile", job, ref(), [0, 0, 0])


def scaled_meanwhile(scratch, ref):
    """weft scale while a third host learns: its lesson is over, and the host joins with what follows.  The request may have an answer or
    not: the view may have the host, too, and then another number of ranks."""
    job = start(scratch, "scaled", "dp6", lanes=8)
    join(job, 2)
    job.env = dict(WEFT_FAILPOINT="learn.piece:delay=150:nth=every")
    third = job.join()
    job.await_text(third, "they prepare")
    job.await_step(job.steps() + 5)
    scale = subprocess.Popen([WEFT, "scale", "3", job.output], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    check(job.await_text(job.agents[0], ": 3 hosts"), "scaled meanwhile: no third host: " + third.name)
    scale.kill()
    scale.wait()
    compare("scaled meanwhile", job, ref(lanes=8), [0, 0, 0])


CASES = (one_after_the_other, together, ranks_of_a_host, encrypted, other_shards, switched_off, joiner_lost, teacher_lost, slow_joiner,
         changed_meanwhile, scaled_meanwhile)


def main():
    known = {}

    def run_cases(scratch):
        def ref(steps=STEPS, lanes=KEYS["lanes"]):
            if (steps, lanes) not in known:
                known[steps, lanes] = run_reference(scratch, steps, **dict({k: v for k, v in KEYS.items() if k != "steps"}, lanes=lanes))
            return known[steps, lanes]
        for case in CASES if CASE else here(CASES):
            if CASE and case.__name__ != CASE:
                continue
            begin = time.monotonic()
            case(scratch, ref)
            print("%s: %.1f s" % (case.__name__, time.monotonic() - begin), flush=True)

    with Scratch("learn", memory=True) as scratch:
        run_cases(scratch)
    end()


if __name__ == "__main__":
    main()
