#!/usr/bin/env python3
"""soak.py WEFT [--seconds 1800] [--load 4] [--failure-timeout 1] [--out FILE]: no false alarm on an overloaded machine.

Jobs with recover: on run one after another while busy processes fill the machine up to LOAD threads a core; nobody is
killed. Now and then all processes of a job are stopped for some seconds, as a batch system does. Every rank that
is called lost is a false alarm. Prints one line a job, and writes all to FILE."""
import argparse
import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLANS = [(2, dict(dp=2)), (4, dict(dp=4)), (2, dict(pp=2)), (4, dict(dp=2, pp=2)), (2, dict(dp=2, zero=1)), (3, dict(dp=3, zero=3))]


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(x) for x in f.read().split()]
    except OSError:
        return []


def stop_all(p, seconds):
    """All processes of the job, the ranks first."""
    pids = children(p.pid) + [p.pid]
    for sig, pause in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0)):
        for pid in pids:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass
        time.sleep(pause)


def run_job(weft, draw, folder, timeout_s, until):
    n, keys = draw.choice(PLANS)
    seq = draw.choice((16, 64, 256))
    words = ["%s=%s" % i for i in dict(keys, model="tiny256", data=os.path.join(ROOT, "include"), seq=seq, batch=8, micro_batch=1,
                                       lanes=4, steps=draw.choice((50, 200)), init="random", threads=draw.choice((1, 2)), plan="off",
                                       recover="on", output=folder, **{"checkpoint.every": draw.choice((5, 50))}).items()]
    p = subprocess.Popen([weft, "run", "--nproc-per-node", str(n), "-q", "--failure-timeout", str(timeout_s), *words],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    stops, next_stop = 0, time.monotonic() + draw.uniform(1, 20)
    while p.poll() is None:
        time.sleep(0.1)
        if time.monotonic() > until + 120:
            p.kill()
        if time.monotonic() > next_stop:
            stop_all(p, draw.uniform(0.5, 3 * timeout_s))
            stops, next_stop = stops + 1, time.monotonic() + draw.uniform(5, 30)
    path = os.path.join(folder, "incidents.jsonl")
    found = [json.loads(x) for x in open(path)] if os.path.exists(path) else []
    return n, keys, stops, p.returncode, found, p.stderr.read()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("weft")
    a.add_argument("--seconds", type=float, default=1800)
    a.add_argument("--load", type=float, default=4)
    a.add_argument("--failure-timeout", type=float, default=1)
    a.add_argument("--seed", type=int, default=int(time.time()))
    a.add_argument("--out")
    o = a.parse_args()
    draw, until = random.Random(o.seed), time.monotonic() + o.seconds
    n_core = os.cpu_count()
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(max(0, round(o.load * n_core - os.getloadavg()[0])))]
    lines, alarms, bad, n_stop, k, loads = [], 0, 0, 0, 0, []
    try:
        while time.monotonic() < until:
            with tempfile.TemporaryDirectory() as folder:
                n, keys, stops, code, found, text = run_job(o.weft, draw, os.path.join(folder, "out"), o.failure_timeout, until)
            k, n_stop, alarms, bad = k + 1, n_stop + stops, alarms + len(found), bad + (code != 0)
            loads.append(os.getloadavg()[0] / n_core)
            line = "%s, %d ranks: exit code %d, %d stops, %d ranks called lost, load %.1f a core" % (
                " ".join("%s=%s" % i for i in keys.items()), n, code, stops, len(found), loads[-1])
            if code or found:
                line += "\n" + "\n".join(map(json.dumps, found)) + text[-500:]
            print(line, flush=True)
            lines.append(line)
    finally:
        for h in hogs:
            h.kill()
    summary = "%d jobs in %.0f s, %d stops of all processes, %d false alarms, %d jobs failed, load %.1f a core (median)" % (
        k, o.seconds, n_stop, alarms, bad, sorted(loads)[len(loads) // 2])
    print(summary)
    if o.out:
        with open(o.out, "w") as f:
            f.write("# make soak, %s, %d cores, %d busy processes, --failure-timeout %g, seed %d\n# %s\n" % (
                datetime.date.today(), n_core, len(hogs), o.failure_timeout, o.seed, summary))
            f.write("\n".join(lines) + "\n")
    return 1 if alarms or bad else 0


sys.exit(main())
