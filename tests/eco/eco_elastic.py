"""--nnodes MIN:MAX as README.md has it, without a word about the plan: hosts join, are lost and leave, each that helps is used,
one that does not waits; every loss and the hash of the weights are those of one process with the same micro_batch and lanes."""
import json
import os
import signal
import subprocess

from eco import ROOT, WEFT, Scratch, check, end, same
from eco_hosts import Job, compare, free_port
from eco_views import RowCount, bits, incidents, words

# docs/job.md's job, whose steps are long enough that a second host shortens them
README = dict(model="tiny256", data=os.path.join(ROOT, "include"), seq=128, batch=16, threads=1, recover="on")
README["eval.every"] = 0
README["optimizer.clip"] = 1.0

# Hosts whose network is so slow that one alone is faster.
SLOW = """name: slow
device:
  - {name: cpu, flops: {f32: 5e10}, efficiency: 0.8, mem_Bps: 1e10, mem_bytes: 4000000000, launch_s: 2e-06}
link:
  - {name: net, scope: net, alpha_s: 1e-03, Bps: 1e6}
node:
  - {name: host, count: 4, device: cpu, n_device: 1, net: net, n_port: 1}
"""


class Elastic(Job):
    """Agents that join one after another, with no key of a plan but those given."""

    def __init__(self, scratch, name, nnodes, **keys):
        self.n, self.keys = 1, dict(README, **keys)
        self.output = scratch.path(name)
        self.nnodes, self.options, self.env, self.proof = nnodes, [], {"XDG_CACHE_HOME": scratch.path("cache")}, ["--insecure-network"]
        self.rdzv = "127.0.0.1:%d" % free_port()
        self.agents, self.seen = [], RowCount()
        self.join()
        self.await_text(self.agents[0], ": 1 host")

    def views(self):
        with open(os.path.join(self.output, "views.jsonl")) as f:
            return [json.loads(line)["ranks"] for line in f]


def run_reference(scratch, job):
    """One process, with the cut of the batch that the job has chosen."""
    with open(os.path.join(job.output, "job.json")) as f:
        chosen = json.load(f)
    output = job.output + "-one"
    keys = {k: v for k, v in job.keys.items() if k not in ("dp", "pp", "cluster")}
    keys.update(recover="off", output=output, micro_batch=chosen["micro_batch"], lanes=chosen["lanes"], reduction="invariant")
    p = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--json", "-q", *words(keys)], capture_output=True, text=True)
    check(p.returncode == 0, "one process: " + p.stderr)
    return json.loads(p.stdout)["weights_xxh64"], bits(output)


def come_and_go(scratch):
    """2:3 begins with two hosts, takes the third in, loses it, takes another in, and lets one go."""
    job = Elastic(scratch, "elastic", "2:3", steps=60, **{"checkpoint.every": 10})
    job.join()
    check(job.await_text(job.agents[0], "2 hosts"), "two hosts are enough to begin")
    job.await_step(2)
    job.join()
    check(job.await_text(job.agents[0], ": 3 hosts"), "the third host is taken in")
    job.await_step(job.steps() + 3)
    job.agents[2].kill_all()
    check(job.await_text(job.agents[0], ": 2 hosts", 2), "the job goes on without the third")
    job.await_step(job.steps() + 3)
    job.join()
    check(job.await_text(job.agents[0], ": 3 hosts", 2), "another host takes its place")
    job.await_step(job.steps() + 3)
    job.agents[1].p.send_signal(signal.SIGTERM)
    check(job.await_text(job.agents[0], ": 2 hosts", 3), "a host leaves")
    reference = run_reference(scratch, job)
    compare("come and go", job, reference, [0, 0, -9, 0])
    same([i["cause"] for i in incidents(job.output) if i["cause"] in ("join", "host", "drain", "idle")],
         ["join", "host", "join", "drain"], "come and go: incidents")
    check("this host leaves: it received a signal" in job.agents[1].text, "it says why it ends: " + job.agents[1].text)
    check("for 2 to 3 hosts: with 2 " in job.agents[0].text, "the start says what is predicted: " + job.agents[0].text[:3000])
    check(job.views()[0] == 2 and 3 in job.views() and 1 not in job.views(), "views: %r" % job.views())


def one_grows(scratch):
    """1:2, README's: the second host is used, and bits stay."""
    job = Elastic(scratch, "grows", "1:2", steps=30)
    job.await_step(2)
    job.join()
    check(job.await_text(job.agents[0], ": 2 hosts"), "the second host is taken in")
    job.await_step(job.steps() + 3)
    compare("one grows", job, run_reference(scratch, job), [0, 0])
    same(job.views(), [1, 2], "one grows: ranks of views")


def no_shorter(scratch):
    """A host with which a step is no shorter waits, and is in no view."""
    with open(scratch.path("slow.yaml"), "w") as f:
        f.write(SLOW)
    job = Elastic(scratch, "waits", "1:3", steps=30, cluster=scratch.path("slow.yaml"))
    job.await_step(2)
    job.join()
    check(job.await_text(job.agents[1], "a step is no shorter with this host: 1 of 2 ranks are of use; it waits"), "a host waits")
    job.await_step(job.steps() + 3)
    compare("no shorter", job, run_reference(scratch, job), [0, 0])
    same(job.views(), [1], "no shorter: ranks of views")
    same(incidents(job.output), [], "no shorter: incidents")
    check("the job has ended" in job.agents[1].text, "it hears of the end: " + job.agents[1].text)


def of_no_use(scratch):
    """Three hosts come at once to a plan of pipelines of two: the third leaves the view and waits, and is of use with a fourth."""
    job = Elastic(scratch, "idle", "2:4", steps=60, dp=2, pp=2)
    job.join()
    job.join()
    check(job.await_text(job.agents[0], ": a host that is of no use leaves"), "the third host leaves the view")
    job.await_step(2)
    job.join()
    check(job.await_text(job.agents[0], ": 4 hosts"), "with a fourth host it is of use")
    compare("of no use", job, run_reference(scratch, job), [0, 0, 0, 0])
    check(sum("it waits for another view" in a.text for a in job.agents) == 1, "it says that it waits: " + job.text)
    same(job.views(), [2, 4], "of no use: ranks of views")
    same([i["cause"] for i in incidents(job.output)], ["idle", "join", "join"], "of no use: incidents")


def too_few_for_the_plan(scratch):
    """Of three hosts, which the job needs, a plan of pipelines of two leaves one without a rank."""
    job = Elastic(scratch, "shape", "3:4", steps=4, dp=2, pp=2)
    job.join()
    job.join()
    codes = job.end()
    check(codes == [2, 2, 2] and "with 3 hosts the plan of this job has 2 ranks, so a host would have none: take --nnodes 2:4" in job.text,
          "too few for the plan: %r %s" % (codes, job.text))


def main():
    with Scratch("elastic", memory=True) as scratch:
        for case in (come_and_go, one_grows, no_shorter, of_no_use, too_few_for_the_plan):
            if os.environ.get("WEFT_ELASTIC_CASE", case.__name__) == case.__name__:
                case(scratch)
    end()


if __name__ == "__main__":
    main()
