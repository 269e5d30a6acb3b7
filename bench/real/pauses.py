#!/usr/bin/env python3
"""Pauses of a job whose ranks are lost, by phase, beside torchrun's restart in the same run.

    bench/real/pauses.py WEFT [--cases tiny:4,tiny:16,large:2,..] [--faults N] [--python PYTHON --torchrun TORCHRUN] [--csv FILE]

    tiny     tiny256, batch 16, seq 16, dp = ranks
    large    gpt2 124M, batch 4, seq 64, dp = ranks

Faults are drawn (--seed): 60 % kill and SIGBUS, 30 % SIGSTOP with --on-stop replace, 10 % a second kill while the first one is recovered
from.  The pause is from the fault (not from its notice) to the next committed step, less one undisturbed step (the median of those before
the first fault).  Phases are those of incidents.jsonl.  torchrun runs two workers of a PyTorch program of as many parameters (supervise.py) that saves
its state after each step; its figure is kill to next step, as it has no undisturbed step to take off that matters.  Rounds of both alternate.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy       the newest, which trains on CPUs too
    bench/real/pauses.py build/weft --python /tmp/torch/bin/python --torchrun /tmp/torch/bin/torchrun --csv FILE"""
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

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import supervise
from scale import make_tokens, rows

SIZES = {"tiny": dict(model="tiny256", seq=16, batch=16, micro_batch=1, lanes=16), "large": dict(model="gpt2", seq=64, batch=4, micro_batch=1, lanes=4)}
WIDTH = {"tiny": 300, "large": 11136}  # of the PyTorch program: 0.09 and 124 million parameters
WORKERS = 2  # of torchrun
PHASES = ("decide", "leave", "start", "connect", "build", "move", "step", "total")


def read_incidents(output):
    try:
        with open(os.path.join(output, "incidents.jsonl")) as f:
            return [i for i in (json.loads(x) for x in f if x.endswith("\n")) if i["cause"] != "slow"]
    except OSError:
        return []


def await_more(p, holds, limit_s=120):
    end = time.monotonic() + limit_s
    while p.poll() is None and not holds() and time.monotonic() < end:
        time.sleep(0.002)
    if not holds():
        raise SystemExit("no progress; the job ended with %r" % p.poll())


def pid_of(p, rank):
    with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
        for pid in f.read().split():
            try:
                if b"WEFT_RANK=%d\0" % rank in open("/proc/%s/environ" % pid, "rb").read():
                    return int(pid)
            except OSError:
                pass
    return None


def hit(p, rank, sig):
    pid = pid_of(p, rank)
    if pid:
        os.kill(pid, sig)


def run_case(weft, size, n, n_fault, draw, folder):
    """(kind, pause in ms, incident) of each fault, and the undisturbed step in ms."""
    output, tokens = os.path.join(folder, "out"), os.path.join(folder, "tokens.bin")
    shutil.rmtree(output, ignore_errors=True)
    make_tokens(tokens)
    keys = dict(SIZES[size], data=tokens, data_format="u16", steps=1000000, init="random", reduction="invariant", recover="on", plan="off",
                output=output, threads=1, dp=n, **{"checkpoint.every": 10000000})
    p = subprocess.Popen([weft, "run", "--nproc-per-node", str(n), "-q", "--on-stop", "replace", "--failure-timeout", "1",
                          *("%s=%s" % x for x in keys.items())], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = []
    try:
        await_more(p, lambda: len(rows(output)) >= 6, 300)
        step_ms = statistics.median(r["step_ms"] for r in rows(output)[1:])
        between = max(3, 24 // n)  # a rank lost three times in ten steps would be the end
        for k in range(n_fault):
            done = len(rows(output))
            await_more(p, lambda: len(rows(output)) >= done + between)
            time.sleep(draw.random() * 1e-3 * step_ms)
            kind = draw.choices(("kill", "bus", "stop", "twice"), (45, 15, 30, 10))[0]
            before, begin = len(read_incidents(output)), time.time()
            hit(p, k % n, {"bus": signal.SIGBUS, "stop": signal.SIGSTOP}.get(kind, signal.SIGKILL))
            if kind == "twice":
                time.sleep(draw.random() * 0.05)
                hit(p, (k + 1) % n, signal.SIGKILL)
            await_more(p, lambda: len(read_incidents(output)) > before)
            i = read_incidents(output)[before]
            found.append((kind, 1e3 * (i["time"] - begin) + i["ms"]["total"] - step_ms, i))
    finally:
        p.terminate()
        p.wait()
    return found, step_ms


def percentile(x, part):
    x = sorted(x)
    return x[min(len(x) - 1, int(len(x) * part))]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("weft")
    a.add_argument("--cases", default="tiny:4,tiny:16,large:2,large:4")
    a.add_argument("--faults", type=int, default=12, help="of a case")
    a.add_argument("--python", help="that has torch; left out: no torchrun")
    a.add_argument("--torchrun", default="torchrun")
    a.add_argument("--kills", type=int, default=2, help="of a case under torchrun")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--csv")
    o = a.parse_args()
    draw, compared, lines = random.Random(o.seed), set(), ["case,way,what,n,median_ms,p99_ms,max_ms"]
    for case in o.cases.split(","):
        size, n = case.split(":")
        compares = o.python and size not in compared  # torchrun's figure is of a size
        compared.add(size)
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            found, step_ms = run_case(os.path.abspath(o.weft), size, int(n), o.faults, draw, folder)
        print("%s: step %.1f ms, pause median %.0f ms, 99 %% %.0f ms" % (case, step_ms, percentile([f[1] for f in found], 0.5),
                                                                       percentile([f[1] for f in found], 0.99)), flush=True)
        values = [("pause", [f[1] for f in found])]
        values += [("pause " + k, [f[1] for f in found if f[0] == k]) for k in sorted({f[0] for f in found})]
        values += [(ph, [f[2]["ms"][ph] for f in found if ph in f[2]["ms"]]) for ph in PHASES] + [("undisturbed step", [step_ms])]
        lines += ["%s,weft,%s,%d,%.1f,%.1f,%.1f" % (case, what, len(x), percentile(x, 0.5), percentile(x, 0.99), max(x)) for what, x in values if x]
        if compares:
            words = [o.torchrun, "--standalone", "--nproc-per-node", str(WORKERS), "--max-restarts", "100", "--monitor-interval", "0.1"]
            got = [1e3 * x[1] for x in supervise.kill_one(words, WORKERS, o.kills, [str(WIDTH[size]), "1"])]
            lines.append("%s,torchrun,kill to next step,%d,%.1f,%.1f,%.1f" % (case, len(got), percentile(got, 0.5), percentile(got, 0.99), max(got)))
            print("%s: torchrun, kill to next step: median %.0f ms" % (case, percentile(got, 0.5)), flush=True)
    if o.csv:
        with open(o.csv, "w") as f:
            f.write("# bench/real/pauses.py --faults %d --seed %d, %d processors, load %.1f\n" % (o.faults, o.seed, os.cpu_count(), os.getloadavg()[0]))
            f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
