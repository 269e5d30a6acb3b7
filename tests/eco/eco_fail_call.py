"""What is done ahead of another view fails: the n-th descriptor for plans made ahead or for a brief, the n-th write to one, the n-th
request for pages of memory, once in all processes of a job that is resized.  Nothing is lost by it: the job gets its ranks, or says
that it is as before, and every loss and the weights are those of the undisturbed run, bit by bit; so where the view itself needs the
pages.  A rank whose message to its agent is none is dropped, named and replaced.

    WEFT_FAIL_CALLS  how many n of each call (2); more with WEFT_TEST_LONG"""
import os
import subprocess
import sys

from eco import LONG, SANITIZED, WEFT, Scratch, check, end, same
from eco_views import BASE, LIMIT_S, Job, bits, children, gone, incidents

MOST = int(os.environ.get("WEFT_FAIL_CALLS", "12" if LONG else "2"))
LIBRARY = os.path.join(os.path.dirname(WEFT), "libfail_call.so")
KEYS = dict(BASE, batch=4, seq=8, steps=16, dp=3)


def reference_of(scratch):
    job = Job(1, {k: v for k, v in KEYS.items() if k != "dp"}, scratch.path("reference"))
    result, text = job.end()
    check(result is not None, "undisturbed: " + text)
    return result["weights_xxh64"], bits(job.output)


def resize(job, n, what):
    try:
        p = subprocess.run([WEFT, "scale", str(n), job.output], capture_output=True, text=True, timeout=LIMIT_S)
        check(p.returncode in (0, 1, 2), "%s: scale %d: %r" % (what, n, p))
    except subprocess.TimeoutExpired:
        check(False, "%s: scale %d hangs" % (what, n))


def fail_call(scratch, call, nth, reference):
    """false: there is no n-th one."""
    what = "%s %d" % (call, nth)
    armed, once = (scratch.path("%s-%s-%d" % (f, call, nth)) for f in ("armed", "once"))
    job = Job("1:3", dict(KEYS, recover="on"), scratch.path("run-%s-%d" % (call, nth)), "--failure-timeout", "5",
              env=dict(LD_PRELOAD=LIBRARY, FAIL_CALL=call, FAIL_NTH=str(nth), FAIL_WHILE=armed, FAIL_ONCE=once))
    job.await_step(2)
    with open(armed, "w"):
        pass
    resize(job, 2, what)
    job.await_step(job.steps() + 2)
    resize(job, 3, what)
    pids = children(job.p.pid)
    result, text = job.end()
    if check(result is not None, "%s: ended with %r: %s" % (what, job.p.returncode, text[-2000:])):
        same((result["weights_xxh64"], bits(job.output)), reference, what + ": weights and losses")
    dropped = [i for i in incidents(job.output) if i["cause"] == "garbage"]
    check(len(dropped) == (call == "line" and os.path.exists(once)) and all("it sent what is no message" in i["what"] for i in dropped),
          "%s: incidents %r" % (what, dropped))
    check(gone(pids), what + ": processes are left")
    return os.path.exists(once)


def no_memory(scratch):
    """No rank gets any page more: the job ends, with that reason, after a few views."""
    armed = scratch.path("none-armed")
    job = Job("1:3", dict(KEYS, recover="on", steps=400), scratch.path("none"), "--failure-timeout", "5",
              env=dict(LD_PRELOAD=LIBRARY, FAIL_CALL="pages", FAIL_NTH="0", FAIL_WHILE=armed, FAIL_ONCE=armed))
    job.await_step(2)
    with open(armed, "w"):
        pass
    p = subprocess.run([WEFT, "scale", "2", job.output], capture_output=True, text=True, timeout=LIMIT_S)
    check(p.returncode != 0, "no memory: scale: %r" % p)
    pids = children(job.p.pid)
    _, text = job.end()
    views = text.count("waiting for the next view")
    check(job.p.returncode == 1 and "error: no memory for" in text and "back to 3 ranks" in text and views < 16,
          "no memory: ended with %r: %s" % (job.p.returncode, text[-2000:]))
    check(gone(pids), "no memory: processes are left")


def main():
    if SANITIZED:  # a library cannot come before theirs
        sys.exit(77)
    n = 0
    with Scratch("fail-call", memory=True) as scratch:
        reference = reference_of(scratch)
        for call in ("memfd", "write", "pages", "line"):
            of_view = [n for n in (8, 13, 19) if n > MOST and call == "pages"]  # those before are made ahead of it
            for nth in [*range(1, MOST + 1), *of_view]:
                hit = fail_call(scratch, call, nth, reference)
                check(hit or 1 < nth <= MOST, "%s: no call %d of it" % (call, nth))
                n += hit
                if not hit:
                    break
        no_memory(scratch)
        print("%d calls failed" % n)
    end()


if __name__ == "__main__":
    main()
