"""A job of two hosts, here agents on 127.0.0.1, whose ranks are killed by turns: after many views the descriptors and the memory of both
agents are as after 20, and losses and weights are those of one process, bit by bit.

    WEFT_MANY   how many views (40, sanitized 8, WEFT_TEST_LONG 2000)"""
import json
import os
import signal
import time

import eco_hosts
from eco import LONG, ROOT, SANITIZED, Scratch, check, end, same
from eco_hosts import LIMIT_S, Job
from eco_views import bits, check_sizes, size_of

MANY = int(os.environ.get("WEFT_MANY", "2000" if LONG else "8" if SANITIZED else "40"))
EARLY = min(20, MANY // 2)
APART = 6  # steps between kills: the same rank is not lost three times in ten
eco_hosts.BASE["model"] = os.path.join(ROOT, "tests", "fixtures", "narrow")  # in make long, too


def count_lines(path):
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except OSError:
        return 0


def kill_one(job, k):
    """A rank of either host by turns; true once a step was committed after it."""
    before = count_lines(os.path.join(job.output, "incidents.jsonl"))
    limit = time.monotonic() + LIMIT_S
    while not job.kill(k % 2) and time.monotonic() < limit:
        time.sleep(0.005)
    while count_lines(os.path.join(job.output, "incidents.jsonl")) == before and time.monotonic() < limit:
        time.sleep(0.005)
    job.await_step(job.steps() + APART)
    return time.monotonic() < limit


def main():
    with Scratch("many", memory=True) as scratch:
        keys = dict(seq=8, batch=4)
        job = Job(scratch, "many", "dp2", steps=1000000, **keys)
        job.await_step(APART)
        sizes, begun = [[], []], time.monotonic()
        for k in range(MANY):
            if not check(kill_one(job, k), "kill %d of %d" % (k, MANY)):
                break
            if k + 1 in (EARLY, MANY):
                for x, a in zip(sizes, job.agents):
                    x.append(size_of(a.p.pid))
        print("%d views in %.1f s: descriptors and pages %r" % (MANY, time.monotonic() - begun, sizes))
        for k, x in enumerate(sizes):
            check_sizes(x, "agent %d after %d and %d views" % (k, EARLY, MANY))
        job.agents[0].p.send_signal(signal.SIGINT)
        same(job.end(), [130, 130], "exit codes: " + job.text)
        with open(os.path.join(job.output, "incidents.jsonl")) as f:
            found = [i for i in map(json.loads, f) if i["cause"] == "kill"]
        same((len(found), {i["decided"] for i in found}), (MANY, {"replace"}), "incidents")
        check("back to step" not in job.text, "no step is run again: " + job.text)
        done = bits(job.output)
        same(done, eco_hosts.run_reference(scratch, len(done), **keys)[1], "losses")
    end()


if __name__ == "__main__":
    main()
