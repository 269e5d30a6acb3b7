"""Two hosts (network namespaces), one of which gets a slow cable while they train: it is named once, in the log and in
incidents.jsonl, and the job goes on to the bits of one process.  77: this machine lets us make no namespaces, or slow no cable."""
import os
import re
import sys
import time

import eco_hosts
from eco import ROOT, Scratch, check, end, hold, let_go, same
from eco_views import incidents

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from wires import Wires  # noqa: E402

PORT = 23457
MBIT = 40  # a step's gradients then take 50 ms


class Job(eco_hosts.Job):
    def __init__(self, wires, *args, **keys):
        self.wires = wires
        super().__init__(*args, rdzv="%s:%d" % (wires.address(0), PORT), **keys)

    def join(self, node=None):
        return super().join(len(self.agents))

    def command(self, number):
        return self.wires.command(number)


def named(job):
    return [i for i in incidents(job.output, slow=True) if i["cause"] == "slow_link"]


def run(scratch, wires):
    look = "links.look:flip:nth=every,links.crowding:flip:nth=every"  # every 20 steps, and whatever else this machine does
    reference = eco_hosts.run_reference(scratch, 400)
    job = Job(wires, scratch, "slow", "dp2", env=dict(WEFT_FAILPOINT=look), steps=400)
    job.await_step(100)
    check(not named(job), "a link that is as it was: %r" % named(job))
    wires.slow(1, MBIT)
    limit = time.monotonic() + 60
    while not named(job) and time.monotonic() < limit and job.steps() < 400:
        time.sleep(0.05)
    wires.slow(1, 0)
    eco_hosts.compare("a slow link", job, reference, [0, 0])
    found = named(job)
    check(found and all(i["decided"] == "continue" for i in found), "a slow link: %r\n%s" % (found, job.text))
    pairs = [re.match(r"the link from .* \(rank (\d)\) to .* \(rank (\d)\) is slow: [0-9.]+ MB/s, [0-9.]+(e\+\d+)? before or to other hosts$",
                      i["what"]) for i in found]
    check(all(pairs), "a slow link: %r" % found)
    same(len({m.groups()[:2] for m in pairs if m}), len(found), "each link is named once")
    check("is slow: " in job.text, "a slow link: the log: " + job.text)


def main():
    try:
        with Wires(2) as wires:
            try:
                wires.slow(0, MBIT)
                wires.slow(0, 0)
            except OSError as e:
                raise OSError("no cable can be made slow: %s" % e)
            with Scratch("slow-link", memory=True) as scratch:
                run(scratch, wires)
    except OSError as e:
        print("skipped: %s" % e)
        sys.exit(77)
    end()


if __name__ == "__main__":
    main()
