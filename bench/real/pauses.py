#!/usr/bin/env python3
"""Pauses of a job whose ranks are lost, by phase, beside torchrun's restart in the same run.

    bench/real/pauses.py WEFT [--beside WEFT] [--cases tiny:4,tiny:16,large:2,..] [--faults N] [--minutes M] [--python PYTHON] [--csv FILE]

    tiny     tiny256, batch 16, seq 16, dp = ranks
    large    gpt2 124M, batch 4, seq 64, dp = ranks

tiny:4 is four ranks of one thread each, large:2x4 two ranks of four.

Faults of each twenty, in drawn order (--seed): 12 announced (kill 7, SIGBUS 3, exit 2), 5 silent (SIGSTOP with --on-stop replace 3, SIGSTOP without it 2: the
rank is lost after --failure-timeout 1), 2 of a second kill while the first one is recovered from, 1 hang (WEFT's folder has libhang_kernel.so; without it
there is neither hang nor exit).  Silent ones are of a second job.  Not here: OOM (a kill by the kernel), cut cables, faults while state moves, is saved or hosts join:
tools/campaign.py has them.  The pause is from the fault (not from its notice) to the next committed step, less one undisturbed step (the median
of those before the first fault).  Phases are those of incidents.jsonl, after notice: from the fault to its incident.  "hang after notice" is what a pause after a
hang has beside the limit.  With one size at two numbers of ranks the ratio of their medians of announced faults is printed.

torchrun runs two workers of a PyTorch program of as many parameters (supervise.py; one matrix, so that its steps compute little) that saves its state, 12 bytes
a parameter, after every step into memory (/dev/shm); its figure is kill to next step.  torchrun's own --monitor-interval is 0.1 s in torch 2.15 (5 s in 1.13;
--intervals 0.1,5 compares); steps that are run again (a kill while the state is saved) are counted.

--beside: another build, with the same faults, in turns with the first: two jobs of each and case, in each round in the other order.

A case takes no further fault when its part of --minutes is over; FILE is written after each.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy       the newest, which trains on CPUs too
    bench/real/pauses.py build/weft --python /tmp/torch/bin/python --csv FILE"""
import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tests", "support")]
import supervise
from processes import children
from scale import make_tokens, rows

SIZES = {"tiny": dict(model="tiny256", seq=16, batch=16, micro_batch=1, lanes=16), "large": dict(model="gpt2", seq=64, batch=4, micro_batch=1, lanes=4)}
WIDTH = {"tiny": 300, "large": 11136}  # of the PyTorch program: 0.09 and 124 million parameters
WORKERS = 2  # of torchrun
PHASES = ("notice", "decide", "leave", "start", "connect", "build", "move", "step", "total")
DECK = ["kill"] * 7 + ["bus"] * 3 + ["exit"] * 2 + ["stop"] * 3 + ["twice"] * 2 + ["hang"]
SILENT = 2  # for as many of DECK
ANNOUNCED = ("kill", "bus", "exit")
SIGNALS = {"bus": signal.SIGBUS, "stop": signal.SIGSTOP, "silent": signal.SIGSTOP}
PART = {"tiny": 1, "large": 3}  # of the time; torchrun's too


def read_incidents(output):
    try:
        with open(os.path.join(output, "incidents.jsonl")) as f:
            lines = f.read().splitlines(True)  # at once: a line that is being written has no end yet
        return [i for i in (json.loads(x) for x in lines if x.endswith("\n")) if i["cause"] != "slow" and "total" in i.get("ms", {})]
    except OSError:
        return []


class Stuck(Exception):
    """The job made no progress in time, or ended."""


class Job:
    prefix = ()  # of its command

    def __init__(self, weft, size, n, threads, folder, *options, plan="dp"):
        self.output, tokens = os.path.join(folder, "out"), os.path.join(folder, "tokens.bin")
        self.flags = {k: os.path.join(folder, k) for k in ("hang", "exit")}
        shutil.rmtree(self.output, ignore_errors=True)
        make_tokens(tokens)
        keys = dict(SIZES[size], data=tokens, data_format="u16", steps=1000000, init="random", reduction="invariant", recover="on", plan="off", device="cpu",
                    output=self.output, threads=threads, **{plan: n, "checkpoint.every": 10000000})
        preload = os.path.join(os.path.dirname(weft), "libhang_kernel.so")
        self.hangs = os.path.exists(preload)
        env = dict(os.environ, HANG_FILE=self.flags["hang"], EXIT_FILE=self.flags["exit"], LD_PRELOAD=preload) if self.hangs else None
        self.n = n
        self.log = open(os.path.join(folder, "log"), "wb+")
        self.p = subprocess.Popen([*self.prefix, weft, "run", "--nproc-per-node", str(n), "-q", *options, "--failure-timeout", "1",
                                   *("%s=%s" % x for x in keys.items())], stdout=subprocess.DEVNULL, stderr=self.log, env=env)
        self.agent = self.p.pid

    def await_more(self, holds, limit_s=120):
        end = time.monotonic() + limit_s
        while self.p.poll() is None and not holds() and time.monotonic() < end:
            time.sleep(0.002)
        if not holds():
            self.log.seek(0)
            raise Stuck("no progress; the job ended with %r: %s" % (self.p.poll(), self.log.read().decode()[-1500:]))

    def await_steps(self, n, limit_s=120):
        done = len(rows(self.output))
        self.await_more(lambda: len(rows(self.output)) >= done + n, limit_s)

    def await_slack(self, ranks):
        """A rank that is lost three times within ten steps would be the end."""
        while True:
            now = len(rows(self.output))
            lost = [i["rank"] for i in read_incidents(self.output) if i.get("rank", -1) in ranks and i["step"] > now - 11]
            if all(lost.count(r) < 2 for r in ranks):
                return
            self.await_steps(1)

    def hit(self, rank, sig):
        for pid in children(self.agent):
            try:
                if b"WEFT_RANK=%d\0" % rank in open("/proc/%d/environ" % pid, "rb").read():
                    os.kill(pid, sig)
                    return
            except OSError:
                pass

    def disturb(self, kind, rank, draw):
        """When it began, in seconds since 1970."""
        if kind in self.flags:  # the next rank that comes by
            open(self.flags[kind], "w").close()
            self.await_more(lambda: not os.path.exists(self.flags[kind]))
            return time.time()
        begin = time.time()
        self.hit(rank, SIGNALS.get(kind, signal.SIGKILL))
        if kind == "twice":
            time.sleep(draw.random() * 0.05)
            self.hit((rank + 1) % self.n, signal.SIGKILL)
        return begin

    def end(self):
        self.p.kill()  # SIGTERM would save
        self.p.wait()
        self.log.close()


def run_faults(job, kinds, draw, until, step_ms=None):
    """(kind, pause in ms, incident) of each fault, and the undisturbed step in ms."""
    found = []
    try:
        job.await_steps(6 if step_ms is None else 2, 300)
        step_ms = step_ms or statistics.median(r["step_ms"] for r in rows(job.output)[1:])
        for k, kind in enumerate(kinds):
            if time.monotonic() > until:
                break
            job.await_steps(2)
            job.await_slack(range(job.n) if kind in job.flags else (k % job.n, (k + 1) % job.n))
            time.sleep(draw.random() * 1e-3 * step_ms)
            before = len(read_incidents(job.output))
            begin = job.disturb(kind, k % job.n, draw)
            job.await_more(lambda: len(read_incidents(job.output)) > before)
            i = read_incidents(job.output)[before]
            i["ms"]["notice"] = 1e3 * (i["time"] - begin)
            found.append((kind, 1e3 * (i["time"] - begin) + i["ms"]["total"] - step_ms, i))
    except Stuck as e:
        print("%d ranks, fault %d: %s" % (job.n, len(found) + 1, e), file=sys.stderr)
    return found, step_ms


def deal(n, draw, hangs):
    """n faults, of each twenty as the issue has them."""
    kinds = []
    while len(kinds) < n:
        deck = [k for k in DECK if hangs or k not in ("hang", "exit")]
        draw.shuffle(deck)
        kinds += deck
    return kinds[:n]


def find_folder():
    """In memory, where a disk cannot be what a step waits for."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run_case(weft, size, n, threads, n_fault, draw, seconds):
    begin = time.monotonic()
    n_silent = max(1, n_fault * SILENT // 20)
    with tempfile.TemporaryDirectory(dir=find_folder(), prefix="tmp-pauses-") as folder:
        job = Job(weft, size, n, threads, folder, "--on-stop", "replace")
        try:
            found, step_ms = run_faults(job, deal(n_fault - n_silent, draw, job.hangs), draw, begin + 0.8 * seconds)
        finally:
            job.end()
        job = Job(weft, size, n, threads, folder)
        try:
            found += run_faults(job, ["silent"] * n_silent, draw, begin + seconds, step_ms)[0]
        finally:
            job.end()
    return found, step_ms


def percentile(x, part):
    x = sorted(x)
    return x[min(len(x) - 1, int(len(x) * part))]


def run_builds(o, builds, size, n, threads, seconds):
    """{build: (found, undisturbed step in ms)}."""
    rounds = len(builds)
    got = {way: [] for way, _ in builds}
    for k in range(rounds):
        for way, weft in builds[::-1 if k % 2 else 1]:
            seed = "%d %s %d %d" % (o.seed, size, n, k)
            got[way].append(run_case(weft, size, n, threads, -(-o.faults // rounds), random.Random(seed), seconds / rounds / len(builds)))
    steps = {way: [x[1] for x in got[way] if x[1]] for way in got}
    return {way: (sum((x[0] for x in got[way]), []), statistics.median(steps[way]) if steps[way] else None) for way in got}


def describe_weft(case, way, found, step_ms):
    """Lines of the table; a hang is apart: its limit is at least 1 s."""
    values = [("pause without hangs", [f[1] for f in found if f[0] != "hang"]), ("pause announced", [f[1] for f in found if f[0] in ANNOUNCED])]
    values += [("pause " + k, [f[1] for f in found if f[0] == k]) for k in sorted({f[0] for f in found})]
    values += [("hang after notice", [f[1] - f[2]["ms"]["notice"] for f in found if f[0] == "hang"])]
    values += [(ph, [f[2]["ms"][ph] for f in found if ph in f[2]["ms"]]) for ph in PHASES]
    values += [("undisturbed step", [step_ms])] if step_ms else []
    return [(case, way, what, x) for what, x in values if x]


def run_torch(o, size, interval, seconds):
    """(what, values) of torchrun's restarts."""
    words = [o.torchrun, "--standalone", "--nproc-per-node", str(WORKERS), "--max-restarts", "100"]
    words += ["--monitor-interval", interval] if interval else []
    got = supervise.kill_one(words, WORKERS, o.kills, [str(WIDTH[size]), "1"], limit_s=max(90, seconds), seconds=seconds)
    values = [("kill to start", [1e3 * x[0] for x in got]), ("kill to next step", [1e3 * x[1] for x in got]), ("steps run again", [x[2] for x in got])]
    return values + [(what, [1e3 * x[3][k] for x in got]) for k, what in enumerate(("imports and process group", "model, optimizer, load", "first step and save"))]


def write_table(o, lines):
    with open(o.csv, "w") as f:
        f.write("# bench/real/pauses.py --cases %s --faults %d --kills %d --seed %d --minutes %g, %d processors, load %.1f%s\n" % (
            o.cases, o.faults, o.kills, o.seed, o.minutes, len(os.sched_getaffinity(0)), os.getloadavg()[0],
            ", torch " + o.version if o.python else ""))
        f.write("case,way,what,n,median_ms,p99_ms,max_ms\n")
        for case, way, what, x in lines:
            f.write("%s,%s,%s,%d,%.1f,%.1f,%.1f\n" % (case, way, what, len(x), percentile(x, 0.5), percentile(x, 0.99), max(x)))


def parse_case(text):
    """size:ranks or size:ranks x threads."""
    size, _, shape = text.partition(":")
    n, _, threads = shape.partition("x")
    if size not in SIZES or not n.isdigit() or not (threads or "1").isdigit():
        sys.exit("--cases: %r is not SIZE:RANKS or SIZE:RANKSxTHREADS; sizes are %s" % (text, ", ".join(SIZES)))
    return size, int(n), int(threads or 1)


def compare_cases(lines, build):
    """(case, case of more ranks, ratio) of the medians of announced faults."""
    value = {case: percentile(x, 0.5) for case, way, what, x in lines if way == build and what == "pause announced"}
    return [(a, b, value[b] / value[a]) for a in value for b in value
            if a != b and parse_case(a)[0] == parse_case(b)[0] and parse_case(a)[1] < parse_case(b)[1] and value[a] > 0]


def print_case(case, build, found, step_ms, lines):
    both = [[f[1] for f in found if f[0] != "hang"], [f[1] for f in found if f[0] in ANNOUNCED]]
    print("%s, %s: step %.1f ms, %d faults; pauses without hangs %s, announced %s" % (case, build, step_ms, len(found), *(
        "none" if not x else "median %.0f ms, 99 %% %.0f ms" % (percentile(x, 0.5), percentile(x, 0.99)) for x in both)), flush=True)
    hangs = [f for f in found if f[0] == "hang"]
    if hangs:
        print("    hangs: %s" % ", ".join("%.2f s to its notice, %.2f s after it" % (
            1e-3 * f[2]["ms"]["notice"], 1e-3 * (f[1] - f[2]["ms"]["notice"])) for f in hangs), flush=True)
    phases = [(what, percentile(x, 0.5)) for c, way, what, x in lines if c == case and way == build and what in PHASES]
    print("    medians by phase: %s" % ", ".join("%s %.0f" % p for p in phases), flush=True)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("weft")
    a.add_argument("--beside")
    a.add_argument("--cases", default="tiny:4,tiny:16,large:2,large:4")
    a.add_argument("--faults", type=int, default=60, help="of a case, at most")
    a.add_argument("--python", help="that has torch; left out: no torchrun")
    a.add_argument("--torchrun", help="left out: that beside PYTHON")
    a.add_argument("--kills", type=int, default=3, help="of a case under torchrun, at most")
    a.add_argument("--intervals", default="", help="torchrun's --monitor-interval, one after another; empty: its own")
    a.add_argument("--minutes", type=float, default=7, help="a start that hangs may take two more")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--csv")
    o = a.parse_args()
    builds, cases = [("weft", os.path.abspath(o.weft))], [parse_case(x) for x in o.cases.split(",")]
    if o.beside:
        builds.append(("beside", os.path.abspath(o.beside)))
    if o.python:
        o.version = supervise.find_version(o.python)
        o.torchrun = o.torchrun or os.path.join(os.path.dirname(os.path.abspath(o.python)), "torchrun")
    intervals = o.intervals.split(",") if o.python else []
    parts = [PART[c[0]] for c in cases] + [PART[s] for s in {c[0] for c in cases} for _ in intervals]
    until, left, lines, compared = time.monotonic() + 60 * o.minutes, sum(parts), [], set()
    short = none = False

    def take_part(size):
        """Seconds: what those before did not need is shared out again."""
        nonlocal left
        left, was = left - PART[size], left
        return max(1.0, until - time.monotonic()) * PART[size] / was

    for (size, n, threads), case in zip(cases, o.cases.split(",")):
        for way, (found, step_ms) in run_builds(o, builds, size, n, threads, take_part(size)).items():
            lines += describe_weft(case, way, found, step_ms)
            short, none = short or len(found) < o.faults, none or not found
            if found:
                print_case(case, way, found, step_ms, lines)
        for interval in intervals if size not in compared else ():  # torchrun's figure is of a size
            way = "torchrun --monitor-interval " + interval if interval else "torchrun"
            values = run_torch(o, size, interval, take_part(size))
            lines += [(case, way, what, x) for what, x in values if x]
            if values[1][1]:
                print("%s: %s, kill to next step: median %.0f ms of %d" % (case, way, percentile(values[1][1], 0.5), len(values[1][1])), flush=True)
        compared.add(size)
        if o.csv:
            write_table(o, lines)
    for way, _ in builds:
        for few, many, ratio in compare_cases(lines, way):
            print("%s / %s, %s: %.2f (medians of announced faults)" % (many, few, way, ratio))
    if short:
        print("some cases have fewer than %d faults: --minutes %g" % (o.faults, o.minutes))
    sys.exit(1 if none else 0)


if __name__ == "__main__":
    main()
