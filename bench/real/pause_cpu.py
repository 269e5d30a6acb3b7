#!/usr/bin/env python3
"""Processor time of each phase of a pause, by the processes of the job: the agent, the new rank, the ranks that stay, children of the agent (dumps).

    bench/real/pause_cpu.py WEFT [--beside OTHER] [--ranks 4,8,16] [--kills N] [--rounds N] [--csv FILE]

tiny256 with one thread a rank (pauses.py), ranks killed one after another; perf samples the job's processes 5,000 times a second of processor time from each
kill to the next committed step, and a sample counts for the phase of incidents.jsonl that it is in.  So cores that are missing show in the time of a phase, and not
here: on a machine with few cores this says what a phase costs, pauses.py on one with enough says what it takes.  A spin of a rank that waits is counted, too.
With --beside both builds run in turns, in each round in the other order.  Figures of ranks that stay are their mean."""
import argparse
import collections
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tests", "support")]
import pauses
from processes import children

HZ = 5000
PHASES = pauses.PHASES[1:-2]  # "decide" to "move": the last one is the step itself
ROLES = ("agent", "children", "new", "stay")
PERF = ["perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", str(HZ), "-D", "-1"]


class Profiled(pauses.Job):
    """perf is off but for pauses."""

    def __init__(self, weft, n, folder):
        self.data = os.path.join(folder, "perf.data")
        self.fifo = [os.path.join(folder, x) for x in ("control", "ack")]
        for x in self.fifo:
            os.mkfifo(x)
        self.prefix = PERF + ["--control", "fifo:" + ",".join(self.fifo), "-o", self.data, "--"]
        super().__init__(weft, "tiny", n, 1, folder)
        self.control, self.ack = [os.open(x, os.O_RDWR) for x in self.fifo]
        while not children(self.p.pid):
            time.sleep(0.01)
        self.agent = children(self.p.pid)[0]

    def tell(self, what):
        os.write(self.control, what.encode() + b"\n")
        os.read(self.ack, 100)

    def end(self):
        os.kill(self.agent, signal.SIGKILL)
        self.p.wait()
        self.log.close()
        os.close(self.control)
        os.close(self.ack)


def kill_ranks(job, kills):
    """(incident, ranks before, ranks after) of each."""
    found = []
    for k in range(kills):
        job.await_steps(2)
        job.await_slack((k % job.n, (k + 1) % job.n))
        before, n = set(children(job.agent)), len(pauses.read_incidents(job.output))
        job.tell("enable")
        job.disturb("kill", k % job.n, random)
        job.await_more(lambda: len(pauses.read_incidents(job.output)) > n)
        job.tell("disable")
        found.append((pauses.read_incidents(job.output)[n], before, set(children(job.agent))))
    return found


def find_windows(found, offset):
    """(begin, end, phase, pause), on perf's clock."""
    windows = []
    for k, (i, _, _) in enumerate(found):
        at = i["time"] - offset
        for phase in PHASES:
            windows.append((at, at + 1e-3 * i["ms"].get(phase, 0), phase, k))
            at = windows[-1][1]
    return windows


def read_samples(job, found):
    """ms by (pause, phase, role)."""
    offset = time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    windows, ms = find_windows(found, offset), collections.Counter()
    text = subprocess.run(["perf", "script", "-i", job.data, "-F", "pid,time"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    for pid, at in re.findall(r"^\s*(\d+)\s+([\d.]+):", text, re.M):
        pid, at = int(pid), float(at)
        for begin, end, phase, k in windows:
            if begin <= at < end:
                _, before, after = found[k]
                role = "agent" if pid == job.agent else "stay" if pid in before & after else "new" if pid in after else "children"
                ms[k, phase, role] += 1e3 / HZ / (job.n - 1 if role == "stay" else 1)
                break
    return ms


def run(weft, n, kills):
    """Of each pause: {(phase, role): ms}; and {phase: ms on the clock}."""
    with tempfile.TemporaryDirectory(dir=pauses.find_folder(), prefix="tmp-pause-cpu-") as folder:
        job = Profiled(weft, n, folder)
        try:
            job.await_steps(6, 300)
            found = kill_ranks(job, kills)
        finally:
            job.end()
        ms = read_samples(job, found)
    return [({(p, r): ms[k, p, r] for p in PHASES for r in ROLES}, i["ms"]) for k, (i, _, _) in enumerate(found)]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("weft")
    a.add_argument("--beside", help="another build")
    a.add_argument("--ranks", default="4,8,16")
    a.add_argument("--kills", type=int, default=6, help="of a job")
    a.add_argument("--rounds", type=int, default=2)
    a.add_argument("--csv")
    o = a.parse_args()
    builds = [("weft", os.path.abspath(o.weft))] + ([("beside", os.path.abspath(o.beside))] if o.beside else [])
    lines = ["# bench/real/pause_cpu.py --ranks %s --kills %d --rounds %d, %d processors, load %.1f" % (
        o.ranks, o.kills, o.rounds, len(os.sched_getaffinity(0)), os.getloadavg()[0]), "ranks,build,phase,pauses,agent_ms,children_ms,new_ms,stay_ms,clock_ms"]
    for n in [int(x) for x in o.ranks.split(",")]:
        got = {name: [] for name, _ in builds}
        for k in range(o.rounds):
            for name, weft in builds[::1 if k % 2 else -1]:
                got[name] += run(weft, n, o.kills)
        for name, _ in builds[::-1]:
            total = [0] * len(ROLES)
            for phase in PHASES:
                cpu = [statistics.median(x[0][phase, r] for x in got[name]) for r in ROLES]
                total = [x + y for x, y in zip(total, cpu)]
                clock = statistics.median(x[1].get(phase, 0) for x in got[name])
                lines.append("%d,%s,%s,%d,%s,%.2f" % (n, name, phase, len(got[name]), ",".join("%.2f" % x for x in cpu), clock))
            print("%d ranks, %s: ms of a processor from decide to move: %s" % (n, name, ", ".join("%s %.1f" % x for x in zip(ROLES, total))), flush=True)
    if o.csv:
        with open(o.csv, "w") as f:
            f.write("\n".join(lines) + "\n")
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
