"""Plans that are made ahead beside training, better plans later, and machines that compute other bits: every loss and the
hash of the weights are those of one undisturbed process, bit by bit."""
import json
import os
import signal
import time

from eco import check, end, same, SANITIZED, Scratch, WEFT
from eco_detect import finish
from eco_hosts import Job as Hosts, compare, run_reference
from eco_scale import scale
from eco_views import BASE, Job, bits, children, incidents

OPEN = {k: v for k, v in BASE.items() if k != "plan"}  # the planner says how ranks share the work
STEPS, WAIT_STEPS = 60, 90
START = ",".join("ahead.start:flip:nth=%d" % k for k in (1, 2, 3))  # however little is left of the job
MACHINES = "4 x (1 x a100-80g)"  # that the job is planned for, wherever it runs


def reference_of(scratch, steps, **keys):
    job = Job(1, dict(BASE, steps=steps, **keys), scratch.path("-".join(["ref%d" % steps, *("%s%s" % x for x in sorted(keys.items()))])))
    result, text = job.end()
    check(result is not None, "undisturbed: " + text[-2000:])
    return (result or {}).get("weights_xxh64"), bits(job.output)


def start(scratch, name, more=""):
    return Job("1:4", dict(OPEN, recover="on", steps=STEPS, cluster=MACHINES), scratch.path(name),
               env=dict(WEFT_FAILPOINT=START + more))


def helpers(job):
    """Processes that ranks have started."""
    return [pid for rank in children(job.p.pid) for pid in children(rank)]


def await_helper(job):
    limit = time.monotonic() + 180
    while job.p.poll() is None and not helpers(job) and time.monotonic() < limit:
        time.sleep(0.002)
    return helpers(job)


def is_done(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def let_helper_end(job, seen=None):
    """The job is stopped, as a batch system does it, until the helper has made its plans."""
    pids = [job.p.pid] + children(job.p.pid)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    limit = time.monotonic() + 180
    while not all(is_done(pid) for pid in helpers(job)) and time.monotonic() < limit:
        for pid in helpers(job) if seen is not None else ():
            try:
                seen.add(os.sched_getscheduler(pid))
            except ProcessLookupError:
                pass
        time.sleep(0.005)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGCONT)


def made_ahead(scratch, reference):
    """The helper has the time that nobody else wants, and its plan is taken when ranks become fewer; when they become more again, the new rank
    reads it instead of searching while it prepares."""
    job = start(scratch, "ahead", ",prepare.search:kill")
    found = await_helper(job)
    check(len(found) == 1, "ahead: one helper: %r" % found)
    seen = set()
    let_helper_end(job, seen)
    check(os.SCHED_IDLE in seen, "ahead: scheduling policy of the helper: %r" % seen)
    code, text = scale(job, 3)
    check(code == 0, "ahead: scale: " + text)
    await_helper(job)
    let_helper_end(job)
    job.await_step(job.steps() + 2)  # the first rank tells its agent after a step
    code, text = scale(job, 4)
    check(code == 0 and text.startswith("4 ranks"), "ahead: grow: " + text)
    finish("ahead", job, reference)
    check("the plan for 4 ranks was made ahead" in job.text, "ahead: " + job.text[-2000:])
    check("the plan for 3 ranks was made ahead" in job.text, "ahead: " + job.text[-2000:])


def on_all_cores(scratch):
    """The helper is not held to the cores that its rank is pinned to."""
    job = Job("1:2", dict(OPEN, recover="on", steps=STEPS, threads=1, cluster=MACHINES), scratch.path("cores"),
              env=dict(WEFT_FAILPOINT=START))
    fine, limit = False, time.monotonic() + 60
    while job.p.poll() is None and not fine and time.monotonic() < limit:
        for pid in helpers(job):
            try:
                fine = fine or os.sched_getaffinity(pid) == os.sched_getaffinity(job.p.pid)
            except OSError:
                pass
        time.sleep(0.002)
    job.end()
    check(fine, "the helper was not seen on all cores of its agent")


def without_helper(scratch, reference):
    """The helper is killed as soon as it is there: a plan is found without it, and the job does not care."""
    job = start(scratch, "killed")
    for pid in await_helper(job):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    code, text = scale(job, 2)
    check(code == 0 and text.startswith("2 ranks"), "killed: scale: " + text)
    found = finish("killed", job, reference)
    same([i["what"] for i in found if i["decided"] == "resize"], ["from 4 to 2 ranks"], "killed: incidents")


def better_later(scratch, reference):
    """At the resize none is found, and the time for a search is over: fewer replicas; a better plan that is found later is taken after a
    step."""
    job = start(scratch, "later", ",ahead.find:flip,resize.late:flip,ahead.worth:flip:nth=2")
    await_helper(job)
    let_helper_end(job)
    code, text = scale(job, 3)
    check(code == 0, "later: scale: " + text)
    await_helper(job)
    let_helper_end(job)
    found = finish("later", job, reference)
    check("the plan for 3 ranks: the best of those that were priced within" in job.text, "later: " + job.text[-2000:])
    replans = [i for i in found if i["cause"] == "replan"]
    if check(len(replans) == 1 and replans[0]["decided"] == "replan", "later: %r" % found):
        check(replans[0]["what"].startswith("another plan for 3 ranks: ") and replans[0]["ms"]["total"] > 0,
              "later: %r" % replans)


def await_incident(p, output, is_done):
    """Until the job of that process has one.  What is slow is seen late where the machine is busy."""
    limit = time.monotonic() + 240
    while p.poll() is None and time.monotonic() < limit and not any(map(is_done, incidents(output, slow=True))):
        time.sleep(0.02)


def slow_host(scratch, name, is_done, us="200", without=(), **keys):
    """Two hosts of one rank each, the second one slow, until an incident says what was done about it; then all save and end."""
    job = Hosts(scratch, name, "dp2", nnodes="1:2", n_agent=0, steps=1000,
                env=dict(LD_PRELOAD=os.path.join(os.path.dirname(WEFT), "libhang_kernel.so"), SLOW_RANK="1", SLOW_US=us), **keys)
    job.keys = {k: v for k, v in job.keys.items() if k not in without}
    job.join()
    job.await_text(job.agents[0], ": 1 host")
    job.join()
    await_incident(job.agents[0].p, job.output, is_done)
    job.await_step(job.steps() + 3)
    for a in job.agents:
        if a.p.poll() is None:
            a.p.send_signal(signal.SIGINT)
    return job, job.end()


def less_work(scratch):
    """A rank that stays slow, of another host, gets less of the batch, after a step; the bits stay."""
    keys = dict(batch=8, lanes=8, seq=8)
    def gives_less(i):
        return i["cause"] == "replan" and " is slow (" in i["what"]

    job, codes = slow_host(scratch, "slow", gives_less, without=("plan", "dp"), cluster="2 x (1 x a100-80g)", **keys)
    found = [i for i in incidents(job.output) if gives_less(i)]
    if check(codes == [130, 130] and len(found) == 1 and found[0]["what"].startswith("rank 1 is slow ("), "slow: %r: %s" % (found, job.text)):
        with open(os.path.join(job.output, "status.json")) as f:
            check("batch_split=" in f.read(), "slow: weft status has the split")
    done = bits(job.output)
    same(done, reference_of(scratch, len(done), **keys)[1], "slow: losses")


def slow_host_leaves(scratch):
    """A job that names its plan has no less work for a slow rank of another host: that host leaves, as one less is predicted to be faster."""
    job, codes = slow_host(scratch, "slow-host", lambda i: i["decided"] == "resize" and i["cause"] == "drain", us="1000", seq=8)
    found = [i for i in incidents(job.output, slow=True) if i["decided"] in ("shrink", "resize") and i["cause"] != "join"]
    same([(i["cause"], i["decided"]) for i in found], [("slow", "shrink"), ("drain", "resize")], "slow host: %r %s" % (found, job.text))
    same(codes, [130, 0], "slow host: codes: " + job.text)
    if len(found) == 2:
        rejected = {r["level"]: r for r in found[0]["rejected"]}
        check(found[0]["rank"] == 1 and rejected["retry"]["cost_s"] > 1 and rejected["retry"]["why"] == "it costs more", "slow host: %r" % found[0])
        same(found[1]["ranks"], 1, "slow host: what follows")
    check("back to step" not in job.text, "slow host: a replica holds the state: " + job.text)
    done = bits(job.output)
    same(done, reference_of(scratch, len(done), seq=8)[1], "slow host: losses")


def slow_rank_of_host(scratch, slow=0):
    """Two hosts of two ranks each; one rank is slow, and is left out alone, also where it is the one that the others meet."""
    job = Hosts(scratch, "slow-rank-%d" % slow, "dp4", nnodes="1:2", n_agent=0, steps=1000, seq=8, lanes=8,
                env=dict(LD_PRELOAD=os.path.join(os.path.dirname(WEFT), "libhang_kernel.so"), SLOW_RANK=str(slow), SLOW_US="1000"))
    job.join()
    job.await_text(job.agents[0], ": 1 host")
    job.join()
    await_incident(job.agents[0].p, job.output, lambda i: i["decided"] == "resize" and i["cause"] == "cordon")
    job.await_step(job.steps() + 3)
    for a in job.agents:
        a.p.send_signal(signal.SIGINT)
    codes = job.end()
    found = [i for i in incidents(job.output, slow=True) if i["decided"] in ("shrink", "resize") and i["cause"] != "join"]
    same([(i["cause"], i["decided"]) for i in found], [("slow", "shrink"), ("cordon", "resize")], "slow rank: %r %s" % (found, job.text))
    same(codes, [130, 130], "slow rank: codes: " + job.text)
    if len(found) == 2:
        same((found[0]["rank"], found[1]["what"], found[1]["ranks"]), (slow, "from 4 to 3 ranks, without rank %d" % slow, 3), "slow rank: %r" % found)
    same([[a["ranks"] for a in v["agents"]] for v in views(job.output)][-1], [2, 1] if slow >= 2 else [1, 2], "slow rank: ranks of each host")
    check("back to step" not in job.text, "slow rank: replicas hold the state: " + job.text)
    done = bits(job.output)
    same(done, reference_of(scratch, len(done), seq=8, lanes=8)[1], "slow rank: losses")


def left_out(scratch):
    """A job that names its plan has no less work for a slow rank: it goes on without it, as that is predicted to be faster."""
    keys = dict(steps=1000, seq=8)
    job = Job("1:2", dict(BASE, dp=2, recover="on", **keys), scratch.path("left-out"),
              env=dict(LD_PRELOAD=os.path.join(os.path.dirname(WEFT), "libhang_kernel.so"), SLOW_RANK="0", SLOW_US="1000"))
    await_incident(job.p, job.output, lambda i: i["decided"] == "resize")
    job.await_step(job.steps() + 3)
    job.p.send_signal(signal.SIGTERM)
    job.end()
    found = [i for i in incidents(job.output, slow=True) if i["decided"] in ("shrink", "resize")]
    same([(i["cause"], i["decided"], i["noticed"]) for i in found], [("slow", "shrink", "busy time"), ("cordon", "resize", "slow")],
         "left out: %r %s" % (found, job.text[-1500:]))
    if len(found) == 2:
        check(found[0]["rank"] == 0 and found[0]["what"].startswith("rank 0 is slow ("), "left out: %r" % found[0])
        rejected = {r["level"]: r for r in found[0]["rejected"]}
        check(rejected["retry"]["cost_s"] > 1 and rejected["retry"]["why"] == "it costs more", "left out: %r" % rejected)
        same((found[1]["what"], found[1]["ranks"]), ("from 2 to 1 ranks, without slot 0", 1), "left out: what follows")
        same([v.get("slots") for v in views(job.output)], [None, [1]], "left out: slots")
    done = bits(job.output)
    same(done, reference_of(scratch, len(done), seq=8)[1], "left out: losses")


def views(output):
    with open(os.path.join(output, "views.jsonl")) as f:
        return [json.loads(line) for line in f]


def cordoned(scratch, reference, bad, slots):
    """A bit is another one once: the step is run again, its slot itself is left out, and the numbers are right."""
    job = Job("1:3", dict(BASE, dp=3, recover="on"), scratch.path("cordon%d" % bad),
              env=dict(WEFT_FAILPOINT="vote.norm:flip:rank=%d:nth=7" % bad))
    found = finish("cordon", job, reference)
    found.sort(key=lambda i: i["cause"] != "differs")  # two ranks tell at the same time
    same([(i["cause"], i["decided"]) for i in found],
         [("differs", "retry"), ("cordon", "cordon"), ("cordon", "resize")], "cordon: incidents")
    if len(found) == 3:
        same((found[1]["rank"], found[1]["noticed"]), (bad, "other bits"), "cordon: who")
        check("rank %d computed other numbers" % bad in found[1]["what"], "cordon: %r" % found[1])
        same([r["level"] for r in found[1]["rejected"]], ["retry", "replace", "replace_host", "wait", "checkpoint", "stop"],
             "cordon: rejected")
        same(found[2]["what"], "from 3 to 2 ranks, without slot %d" % bad, "cordon: what follows")
    same([(v["ranks"], v.get("slots")) for v in views(job.output)], [(3, None), (2, slots)], "cordon: who is left")
    check("its slot is cordoned" in job.text, "cordon: " + job.text[-1500:])


def kept(scratch, reference):
    """The number of ranks is fixed: the rank is named, and the job goes on with it."""
    job = Job(2, dict(BASE, dp=2, recover="on"), scratch.path("kept"),
              env=dict(WEFT_FAILPOINT="vote.norm:flip:rank=1:nth=7"))
    found = finish("kept", job, reference)
    found.sort(key=lambda i: i["cause"] != "differs")
    same([(i["cause"], i["decided"]) for i in found], [("differs", "retry"), ("cordon", "retry")], "kept: incidents")
    check(len(found) == 2 and {"level": "shrink", "why": "the job has a fixed number of ranks"} in found[1].get("rejected", []),
          "kept: %r" % found)


def cordoned_host(scratch, reference):
    """Of several hosts the one whose rank computed other bits leaves, and says why."""
    os.environ["WEFT_FAILPOINT"] = "vote.norm:flip:rank=1:nth=7"
    job = Hosts(scratch, "cordon-host", "dp2", nnodes="1:2")
    del os.environ["WEFT_FAILPOINT"]
    job.await_text(job.agents[0], ": 1 host", 2)  # at the start, and without the other one
    compare("cordoned host", job, reference, [0, 1])
    check("this host is cordoned: step " in job.agents[1].text, "cordoned host: " + job.text)
    found = [i for i in incidents(job.output) if i["cause"] == "cordon"]
    same([(i["decided"], i["noticed"]) for i in found], [("cordon", "other bits")], "cordoned host: incidents")


def waiting_host(scratch, reference):
    """A host that the job has no place for waits; it takes that of one that is lost, in the next view."""
    job = Hosts(scratch, "waits", "dp2", nnodes="1:2", steps=WAIT_STEPS)
    job.await_text(job.agents[0], ": 2 hosts")
    waits = job.join()
    check(job.await_text(waits, "as many as it may: this one waits"), "waiting host: " + waits.name)
    job.await_step(job.steps() + 3)
    job.agents[1].kill_all()
    compare("waiting host", job, reference, [0, -9, 0])
    found = {i["cause"]: i for i in incidents(job.output)}
    if check("host" in found and "join" in found, "waiting host: %r" % found):
        same(found["host"]["decided"], "replace_host", "waiting host: decided")
        rejected = {r["level"]: r["why"] for r in found["host"]["rejected"]}
        same((rejected.get("replace"), rejected.get("shrink"), rejected.get("wait")),
             ("the memory of its host is gone", "it costs more", "the others can go on meanwhile"),
             "waiting host: rejected")
    check("back to step" not in job.text, "waiting host: a replica holds the state: " + job.text)


def lose_host(scratch, name, recover, steps, **more):
    job = Hosts(scratch, name, "dp2", nnodes="1:2", recover=recover, steps=steps, **more)
    job.await_text(job.agents[0], ": 2 hosts")
    job.await_step(job.steps() + 3)
    job.agents[1].kill_all()
    job.await_text(job.agents[0], "was lost")  # on a busy machine a killed agent takes a while to end
    return job


def decision(job, name):
    """Of the line when all is over; where hosts are waited for there is one before, when that begins."""
    lines = [i for i in incidents(job.output) if i["cause"] == "host"]
    found = [i for i in lines if "next_step" in i or i["decided"] != "wait"]
    if not check(len(found) == 1 and len(lines) == (2 if found[0]["decided"] == "wait" else 1), "%s: %r" % (name, lines)):
        return None, {}
    return found[0]["decided"], {r["level"]: r["why"] for r in found[0]["rejected"]}


def recover_of_hosts(scratch, reference):
    """A lost host: what recover allows is done, fewer hosts, waiting for another one, or the end with the state saved."""
    job = lose_host(scratch, "fewer", "on", WAIT_STEPS)
    compare("fewer hosts", job, reference, [0, -9])
    decided, rejected = decision(job, "fewer hosts")
    same((decided, rejected.get("wait")), ("shrink", "the others can go on meanwhile"), "fewer hosts: decided")
    job = lose_host(scratch, "awaits", "replace,wait,checkpoint", WAIT_STEPS)
    limit = time.monotonic() + 60
    while not [i for i in incidents(job.output) if i["decided"] == "wait"] and time.monotonic() < limit:
        time.sleep(0.02)
    done = job.steps()
    time.sleep(0.5)
    check(job.steps() == done and job.agents[0].p.poll() is None, "awaited host: the job waits: %d, %d" % (done, job.steps()))
    job.join()
    compare("awaited host", job, reference, [0, -9, 0])
    decided, rejected = decision(job, "awaited host")
    same((decided, rejected.get("shrink")), ("wait", "recover does not allow it"), "awaited host: decided")
    job = lose_host(scratch, "ends", "replace,checkpoint", 100000)
    codes = job.end()
    check(codes[0] == 1 and "1 of at least 2 hosts are there, and recover allows no waiting" in job.text,
          "missed host: %r %s" % (codes, job.text))
    decided, rejected = decision(job, "missed host")
    same((decided, rejected.get("wait")), ("stop", "recover does not allow it"), "missed host: decided")
    saved = os.listdir(os.path.join(job.output, "checkpoints"))
    check(any(s.startswith("step-") for s in saved), "missed host: the state is saved: %r %s" % (saved, job.text))


def unlike_hosts(scratch, reference):
    """Two ranks on one host, one on the other; one of them is killed."""
    job = Hosts(scratch, "unlike", "dp2", n_agent=0, dp=3)
    for node, job.n in ((0, 2), (1, 1)):
        job.join(node)
    job.await_step(4)
    job.kill(2)
    compare("unlike hosts", job, reference, [0, 0])
    check(": 2 hosts" in job.agents[0].text and "3 ranks" in job.agents[0].text, "unlike hosts: " + job.text)


def main():
    with Scratch("ahead") as scratch:
        reference = reference_of(scratch, STEPS)
        made_ahead(scratch, reference)
        on_all_cores(scratch)
        without_helper(scratch, reference)
        better_later(scratch, reference)
        if not SANITIZED:  # whose library has to come before all others
            less_work(scratch)
            left_out(scratch)
            slow_host_leaves(scratch)
            slow_rank_of_host(scratch)
        short = reference_of(scratch, BASE["steps"])
        cordoned(scratch, short, 1, [0, 2])
        cordoned(scratch, short, 0, [2, 1])
        kept(scratch, short)
        of_hosts = run_reference(scratch, 24)
        cordoned_host(scratch, of_hosts)
        unlike_hosts(scratch, of_hosts)
        of_waits = run_reference(scratch, WAIT_STEPS)
        waiting_host(scratch, of_waits)
        recover_of_hosts(scratch, of_waits)
    end()


if __name__ == "__main__":
    main()
