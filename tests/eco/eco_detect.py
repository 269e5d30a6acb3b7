"""Ranks of jobs with recover: on that are stopped, silent or stuck: who is lost after how long, that a stop of the whole job is
no failure, and that losses and weights are those of the undisturbed run, bit by bit.

    WEFT_DETECT_SECONDS  how long to go on with random stops (0)
    WEFT_DETECT_SEED     what they are drawn from (drawn)"""
import glob
import json
import os
import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from eco import ROOT, SANITIZED, WEFT, Scratch, check, end, same, weft
from eco_views import BASE, PLANS, Job, bits, children, incidents

SECONDS = float(os.environ.get("WEFT_DETECT_SECONDS", "0"))
SEED = int(os.environ.get("WEFT_DETECT_SEED", str(random.SystemRandom().randrange(1 << 30))))
KEYS = dict(BASE, dp=2, recover="on", batch=4, seq=8, steps=12, **{"checkpoint.every": 1000})


def start(scratch, name, *options, env=None, **keys):
    return Job(2, dict(KEYS, **keys), scratch.path(name), *options, env=env)


def finish(name, job, reference):
    result, text = job.end()
    if not check(result is not None, "%s: ended with %r: %s" % (name, job.p.returncode, text[-2000:])):
        return []
    same((result["weights_xxh64"], bits(job.output)), reference, name + ": weights and losses")
    return incidents(job.output)


def run_plain(scratch):
    job = Job(2, dict(KEYS, recover="off"), scratch.path("reference"))
    result, text = job.end()
    check(result is not None, "undisturbed: " + text)
    return result["weights_xxh64"], bits(job.output)


def stopped_alone(scratch, reference):
    """Lost after the timeout, which is shorter than --timeout."""
    job = start(scratch, "alone", "--failure-timeout", "0.3")
    job.await_step(3)
    begin = time.monotonic()
    job.kill(1, signal.SIGSTOP)
    found = finish("stopped alone", job, reference)
    check([(i["rank"], i["noticed"]) for i in found] == [(1, "stop")], "stopped alone: %r" % found)
    check(time.monotonic() - begin >= 0.3, "stopped alone: not before the timeout")
    check(found and found[0]["what"].startswith("stopped (SIGSTOP) for 0."), "stopped alone: %r" % found)


def replaced_at_once(scratch, reference):
    job = start(scratch, "replace", "--on-stop", "replace", "--failure-timeout", "1000")
    job.await_step(3)
    job.kill(0, signal.SIGSTOP)
    found = finish("--on-stop replace", job, reference)
    check([(i["rank"], i["noticed"]) for i in found] == [(0, "stop")], "--on-stop replace: %r" % found)


def stopped_at_the_end(scratch, reference):
    """The last process of the job that is left: all are stopped, and nothing is waited for."""
    job = Job(2, KEYS, scratch.path("end"), env=dict(WEFT_FAILPOINT="end.close:stop:rank=1"))
    same(finish("stopped at the end", job, reference), [], "stopped at the end: incidents")


def waited_for(scratch, reference):
    """Longer than every timeout: peers wait, too."""
    job = start(scratch, "wait", "--on-stop", "wait", "--failure-timeout", "0.2", "--timeout", "0.3")
    job.await_step(3)
    job.kill(1, signal.SIGSTOP)
    time.sleep(0.6)
    check(job.p.poll() is None, "--on-stop wait: it waits")
    job.kill(1, signal.SIGCONT)
    same(finish("--on-stop wait", job, reference), [], "--on-stop wait: incidents")


def stop_all(scratch, reference, how):
    """SIGTSTP to weft run alone, as Ctrl-Z, or SIGSTOP to every process, as a batch system."""
    job = start(scratch, "all-" + how, "--failure-timeout", "0.2", "--timeout", "0.4",
                *(("--on-stop", "replace") if how == "tstp" else ()))
    job.await_step(3)
    pids = children(job.p.pid)
    if how == "tstp":
        job.p.send_signal(signal.SIGTSTP)
    else:
        for pid in [job.p.pid] + pids:
            os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    before = job.steps()
    time.sleep(0.5)
    if how == "tstp":
        same(job.steps(), before, "%s: ranks are stopped with weft run" % how)
        job.p.send_signal(signal.SIGCONT)
    else:
        for pid in pids + [job.p.pid]:
            os.kill(pid, signal.SIGCONT)
    same(finish(how, job, reference), [], how + ": incidents")


def hangs(scratch, reference):
    """An instruction that does not end is named; its limit is 1 s, as it took less before."""
    library, flag = os.path.join(os.path.dirname(WEFT), "libhang_kernel.so"), scratch.path("hang-now")
    job = Job(2, KEYS, scratch.path("hang"), env=dict(LD_PRELOAD=library, HANG_FILE=flag))
    job.await_step(3)
    with open(flag, "w"):
        pass
    found = finish("hang", job, reference)
    check([i["noticed"] for i in found] == ["hang"], "hang: %r" % found)
    check(found and re.match(r"hangs in instruction '.*' for [1-9][.0-9]* s; the longest before took 0?\.?[-0-9.e]+ s$",
                             found[0]["what"]), "hang: %r" % found)
    folder = os.path.join(job.output, "dumps")
    limit = time.monotonic() + 30
    while not (glob.glob(folder + "/*/rank1.json") and weft("doctor", folder).code == 1) and time.monotonic() < limit:
        time.sleep(0.02)
    r = weft("doctor", folder)
    lost = found[0]["rank"] if found else -1
    check(r.code == 1 and r.out.startswith("first mismatch: ") and "missing: rank %d\n" % lost in r.out
          and re.search(r"^rank %d: .* runs for [0-9.]+ s$" % lost, r.out, re.M), "doctor: %s" % r)


def hangs_at_first(scratch, reference):
    """In its first evaluation, whose instructions have not run before: others of their kind have."""
    library, flag = os.path.join(os.path.dirname(WEFT), "libhang_kernel.so"), scratch.path("hang-first")
    held, once = scratch.path("hang-hold"), scratch.path("hang-once")
    open(held, "w").close()
    keys = dict(steps=6, **{"eval.data": os.path.join(ROOT, "examples"), "eval.every": 4, "eval.batches": 2})
    plain = Job(2, dict(KEYS, recover="off", **keys), scratch.path("first-reference"))
    result, text = plain.end()
    check(result is not None, "undisturbed: " + text)
    job = start(scratch, "first", env=dict(LD_PRELOAD=library, HANG_FILE=flag, WEFT_FAILPOINT_ONCE=once,
                                           WEFT_FAILPOINT="eval.begin:delay=60000:while=" + held), **keys)
    limit = time.monotonic() + 60
    while not os.path.exists(once + ".0") and time.monotonic() < limit:
        time.sleep(0.01)
    time.sleep(0.2)
    open(flag, "w").close()
    os.unlink(held)
    found = finish("hang at first", job, (result["weights_xxh64"], bits(plain.output)))
    same([i["noticed"] for i in found], ["hang"], "hang at first: %r" % found)
    check(found and re.match(r"hangs in instruction '.*' for [5-9][.0-9]* s; it runs for the first time, and is to take less than [-0-9.e]+ s$",
                             found[0]["what"]), "hang at first: %r" % found)


def slow(scratch, _):
    """A rank that takes longer than the other one for the same work is named, and nothing else happens."""
    library = os.path.join(os.path.dirname(WEFT), "libhang_kernel.so")
    job = Job(2, dict(KEYS, steps=28), scratch.path("slow"), env=dict(LD_PRELOAD=library, SLOW_RANK="1"))
    result, text = job.end()
    found = incidents(job.output, slow=True)
    check(result is not None and found, "slow: %s" % text[-1000:])
    same({(i["cause"], i["decided"]) for i in found}, {("slow", "continue")}, "slow")
    check(found and found[0]["what"].startswith("rank 1 is busy at least "), "slow: %r" % found)
    check(json.loads(weft("status", job.output, "--json").out)["slow_ranks"] == [1], "slow: weft status")


def causes(scratch, reference):
    """Of ranks that end: by what."""
    job = start(scratch, "causes", env=dict(WEFT_FAILPOINT=",".join((
        "agent.dump:delay=300:rank=none:nth=every",  # the next view is there before the dump
        "step.begin:delay=100:nth=every"))))  # and has not yet filled the records of 2,048 entries
    job.await_step(2)
    job.kill(1)
    job.await_step(6)
    job.kill(0, signal.SIGABRT if SANITIZED else signal.SIGBUS)  # sanitizers catch it
    found = finish("causes", job, reference)
    same([(i["rank"], i["cause"], i["noticed"]) for i in found],
         [(1, "kill", "waitpid"), (0, "crash" if SANITIZED else "bus", "waitpid")], "causes")
    for i in found:
        dumped(job, i)


def dumped(job, incident):
    """What both ranks did last in the view that ended, also the one whose slot another process has; nothing of the next view."""
    dumps, limit = [], time.monotonic() + 30
    while len(dumps) < 2 and time.monotonic() < limit:
        try:
            dumps = [json.load(open(x)) for x in glob.glob("%s/dumps/epoch-%d-1/*.json" % (job.output, incident["epoch"]))]
        except ValueError:  # it is being written
            time.sleep(0.02)
    same(sorted(d["rank"] for d in dumps), [0, 1], "dumps")
    for d in dumps:
        same((d["world"], d["epoch"], max((e["epoch"] for e in d["entries"]), default=None)), (2, incident["epoch"], incident["epoch"]), "dump of rank %d" % d["rank"])
        check(d["groups"] and any("seq" in e for e in d["entries"]), "dump of rank %d: its groups" % d["rank"])


def reported(scratch, _):
    """Of what ranks find themselves: an incident for all of them."""
    job = start(scratch, "numeric", **{"optimizer.name": "sgd", "optimizer.lr": 1e6})
    result, text = job.end()
    found = incidents(job.output)
    check(result is None and len(found) == 1, "not finite: %r %s" % (found, text[-500:]))
    same([(i["cause"], i["decided"], i["noticed"]) for i in found], [("numeric", "end", "report")], "not finite")
    job = Job(2, dict(KEYS, **{"checkpoint.every": 2}), scratch.path("disk"), env=dict(WEFT_IO_FAIL="40:ENOSPC"))
    job.end()
    found = incidents(job.output)
    check(found and all(i["cause"] == "disk" and "No space left" in i["what"] for i in found), "full disk: %r" % found)


def disturb(scratch, draw, k, reference):
    """Random stops and continues of one run."""
    name = draw.choice(list(PLANS))
    n, keys = PLANS[name]
    if name not in reference:
        plain = Job(n, dict(BASE, **keys), scratch.path("ref-" + name))
        result, text = plain.end()
        check(result is not None, "%s undisturbed: %s" % (name, text))
        reference[name] = result["weights_xxh64"], bits(plain.output)
    mode = draw.choice(("timeout", "replace", "wait"))
    options = ["--failure-timeout", "0.4"] + (["--on-stop", mode] if mode != "timeout" else [])
    job = Job(n, dict(BASE, **keys, recover="on", **{"checkpoint.every": draw.choice((1, 6, 100))}),
              scratch.path("%s-%d" % (name, k)), *options)
    stops = draw.sample(list(range(n)) * 2, draw.randint(1, 2))
    for step, rank in zip(sorted(draw.randint(0, BASE["steps"]) for _ in stops), stops):
        job.await_step(step)
        time.sleep(draw.random() * 0.03)
        job.kill(rank, signal.SIGSTOP)
        if mode == "wait" or draw.random() < 0.3:
            time.sleep(draw.random() * 0.8)
            job.kill(rank, signal.SIGCONT)
    found = finish("%s %d (%s)" % (name, k, mode), job, reference[name])
    check(mode != "wait" or not found, "%s %d: --on-stop wait: %r" % (name, k, found))
    return len(found)


def main():
    with Scratch("detect", memory=True) as scratch:
        reference = run_plain(scratch)
        cases = [(causes,), (reported,), (stopped_alone,), (replaced_at_once,), (stopped_at_the_end,), (waited_for,), (stop_all, "tstp"), (stop_all, "stop")]
        if not SANITIZED:  # a library cannot come before theirs
            cases = [(hangs,), (hangs_at_first,), (slow,)] + cases
        with ThreadPoolExecutor(len(cases)) as pool:  # they wait most of their time
            for done in [pool.submit(f, scratch, reference, *more) for f, *more in cases]:
                done.result()
        draw, until, n, k, others = random.Random(SEED), time.monotonic() + SECONDS, 0, 0, {}
        while time.monotonic() < until:
            n += disturb(scratch, draw, k, others)
            k += 1
        if k:
            print("seed %d: %d runs, %d ranks lost" % (SEED, k, n))
        end()


if __name__ == "__main__":
    main()
