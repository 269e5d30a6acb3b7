"""Failpoints of agents of several hosts (eco_failpoints.py): one agent gets there, and is killed or delayed; the others go on, and
every loss and the weights are those of one process, bit by bit.  The views are in a register in a folder, so any host can go on."""
import os
import signal
import subprocess
import time

from eco import WEFT, check, same
from eco_hosts import LIMIT_S, Job
from eco_views import bits, children, gone, incidents

STEPS = 48
FIRST, SECOND, BOTH, THIRD = (0,), (1,), (0, 1), (2,)
# plan, keys, hosts that begin; what happens once all of them train is scene_<name>.
SCENES = {
    "host-lost": ("dp2", {}, 2),
    "host-drain": ("dp2", {}, 2),
    "host-join": ("dp2", dict(dp=3), 2),
    "host-scale": ("dp4", {}, 2),
    "host-grow": ("dp4", {}, 2),
    "host-idle": ("dp4", dict(dp=2, pp=2), 2),  # three ranks of two stages: one is of no use
    "host-end": ("dp2", {}, 2),
}
# name: (phase, scene, agents that get there)
POINTS = {
    "register.write": ("view change", "host-lost", FIRST),
    "register.written": ("view change", "host-lost", FIRST),
    "hosts.stop": ("view change", "host-lost", BOTH),
    "hosts.stopping": ("view change", "host-lost", BOTH),
    "hosts.stopped": ("view change", "host-lost", BOTH),
    "hosts.tell_view": ("view change", "host-lost", FIRST),
    "hosts.view": ("view change", "host-lost", BOTH),
    "hosts.key": ("view change", "host-lost", FIRST),
    "hosts.take_key": ("view change", "host-lost", SECOND),
    "hosts.entered": ("view change", "host-lost", BOTH),
    "hosts.ready": ("view change", "host-lost", BOTH),
    "hosts.drain": ("leaving", "host-drain", SECOND),
    "hosts.leave": ("leaving", "host-drain", SECOND),
    "hosts.prepare": ("joining", "host-join", THIRD),
    "hosts.give_brief": ("joining", "host-join", FIRST),
    "hosts.take_brief": ("joining", "host-join", THIRD),
    "hosts.prepared": ("joining", "host-join", THIRD),
    "teach.meet": ("learning", "host-join", FIRST),
    "teach.begin": ("learning", "host-join", FIRST),
    "teach.piece": ("learning", "host-join", BOTH),
    "teach.inputs": ("learning", "host-join", BOTH),
    "teach.copied": ("learning", "host-join", FIRST),
    "learn.meet": ("learning", "host-join", THIRD),
    "learn.begin": ("learning", "host-join", THIRD),
    "learn.piece": ("learning", "host-join", THIRD),
    "learn.inputs": ("learning", "host-join", THIRD),
    "learn.update": ("learning", "host-join", THIRD),
    "learn.ended": ("learning", "host-join", THIRD),
    "hosts.scale": ("resize", "host-scale", FIRST),
    "hosts.ahead": ("resize", "host-scale", BOTH),
    "hosts.ahead_done": ("resize", "host-scale", BOTH),
    "hosts.shrink": ("resize", "host-scale", SECOND),
    "hosts.grown": ("resize", "host-grow", SECOND),
    "hosts.use": ("resize", "host-idle", FIRST),
    "hosts.take_use": ("resize", "host-idle", BOTH),
    "hosts.done": ("ending", "host-end", BOTH),
}


def is_of_rank(name):
    return name.split(".")[0] in ("teach", "learn")


class Hosts(Job):
    """Agent `which`, or its rank, has the failpoint, which acts while the file `armed` is there."""

    def __init__(self, scratch, name, scene, which, point, action, once):
        plan, keys, n_agent = SCENES[scene]
        self.which, self.armed = which, scratch.path(name + "-armed")
        who = "" if is_of_rank(point) else ":rank=none"
        self.of_one = dict(WEFT_FAILPOINT="%s:%s%s:while=%s" % (point, action, who, self.armed), WEFT_FAILPOINT_ONCE=once)
        self.unanswered = False
        super().__init__(scratch, name, plan, "1:3" if scene == "host-join" else "1:2",
                         ["--failure-timeout", "2"], n_agent, rdzv="file:" + scratch.path(name + "-register"), steps=STEPS, **keys)

    def join(self, node=None):
        self.env = self.of_one if len(self.agents) == self.which else {}
        return super().join(node)

    def arm(self):
        with open(self.armed, "w"):
            pass

    def scale(self, n):
        """The agent that is asked may be the one that is killed; else there is an answer, also where a host is lost meanwhile."""
        try:
            p = subprocess.run([WEFT, "scale", str(n), self.output], capture_output=True, text=True, timeout=LIMIT_S)
            self.unanswered = "the job has ended" in p.stderr
        except subprocess.TimeoutExpired:
            check(False, "scale %d hangs" % n)


def disturb(job, scene, draw):
    if scene == "host-grow":
        job.scale(3)
        job.await_step(job.steps() + 2)
    job.arm()
    if scene == "host-lost":
        job.kill(draw.choice((0, 1)))
    elif scene == "host-drain":
        job.agents[1].p.send_signal(signal.SIGTERM)
    elif scene == "host-join":
        job.await_text(job.join(), "view", 2)
    elif scene in ("host-scale", "host-idle"):
        job.scale(3)
    elif scene == "host-grow":
        job.scale(4)


def await_hit(job, once):
    """The job is not let go before its agent has come there."""
    limit = time.monotonic() + LIMIT_S
    while not os.path.exists(once + ".0") and time.monotonic() < limit and any(a.p.poll() is None for a in job.agents):
        time.sleep(0.01)


def hit(scratch, k, name, action, draw, reference):
    """One run, as eco_failpoints.hit()."""
    phase, scene, agents = POINTS[name]
    which = draw.choice(agents)
    what = "%d %s:%s, agent %d (%s)" % (k, name, action, which, scene)
    once, begin = scratch.path("hosts-once-%d" % k), time.monotonic()
    job = Hosts(scratch, "hosts-%d" % k, scene, which, name, action, once)
    check(job.await_text(job.agents[0], ": 2 hosts"), what + ": no two hosts")
    job.await_step(job.steps() + 3)
    pids = sum((children(a.p.pid) for a in job.agents), [])
    disturb(job, scene, draw)
    if scene != "host-end":
        await_hit(job, once)
        job.await_step(job.steps() + 3)
    codes = job.end()
    reached = os.path.exists(once + ".0")
    check(reached, "%s: was not reached: %s" % (what, job.text))
    killed = action == "kill" and not is_of_rank(name)
    check(codes == [-9 if killed and n == which else 0 for n in range(len(codes))], "%s: codes %r\n%s" % (what, codes, job.text))
    found = [a.result["weights_xxh64"] for a in job.agents if a.result]
    check(found or (killed and scene == "host-end"), "%s: no result\n%s" % (what, job.text))
    same((set(found) | {reference[0]}, bits(job.output)), ({reference[0]}, reference[1]), what + ": weights and losses")
    check(gone(pids), what + ": processes are left")
    lost = [i for i in incidents(job.output) if i["cause"] == "host"]
    check(not (which and job.unanswered and lost and lost[-1]["next_step"] < STEPS - 2), what + ": weft scale has no answer\n" + job.text)
    return phase, scene, "agent %d" % which, 1, time.monotonic() - begin, sum("-9" == str(c) for c in codes), reached
