#!/usr/bin/env python3
"""What the process that makes plans ahead costs steps: a job of two ranks of one thread on two cores, beside one whose build has none.

    bench/real/ahead_cost.py WEFT [--beside WEFT ...] [--model tiny256|gpt2] [--first N] [--rounds N] [--csv FILE]

The helper is started after the first step.  `ratio` is the median of steps 2 to N + 1, in which it works (lived_s, and cpu_s of processor
time, say whether that is so), to that of steps 2 N to 3 N of the same run: windows are the same for all builds, since a helper of lowest
priority ends when the machine has time, and a window that ended with it would be of slower steps.  cost is the ratio of a build to that
of the last one in the same round, less 1, in percent: give the build without a helper last.  Builds take turns."""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tests", "support")]
from processes import children, cpu_s
from scale import count_rows, make_tokens, rows

SIZES = {"tiny256": dict(model="tiny256", seq=64, batch=8, micro_batch=1, lanes=4), "gpt2": dict(model="gpt2", seq=64, batch=4, micro_batch=1, lanes=4)}


def run(o, weft, folder):
    """(ratio, cpu_s, lived_s)"""
    output, tokens = os.path.join(folder, "out"), os.path.join(folder, "tokens.bin")
    make_tokens(tokens)
    keys = dict(SIZES[o.model], data=tokens, data_format="u16", steps=1000000, init="random", reduction="invariant", recover="on",
                device="cpu", output=output, threads=1, **{"checkpoint.every": 10000000})
    p = subprocess.Popen([weft, "run", "--nproc-per-node", "1:2", "-q", *["%s=%s" % x for x in keys.items()]], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    cpu, begin, seen = 0.0, 0.0, 0.0
    try:
        while p.poll() is None and count_rows(output) < 3 * o.first:
            helpers = [c for r in children(p.pid) for c in children(r)]
            if helpers:
                cpu, seen = max(cpu, cpu_s(helpers[0])), time.monotonic()
                begin = begin or seen
            time.sleep(0.02)
        step = [x["step_ms"] for x in rows(output)]
    finally:
        p.kill()
        p.wait()
    ratio = statistics.median(step[1:1 + o.first]) / statistics.median(step[2 * o.first:3 * o.first])
    return ratio, cpu, seen - begin


def write_table(o, found):
    lines = ["model,build,n,ratio_median,ratio_least,ratio_most,cost_percent_median,cpu_s_median,lived_s_median"]
    for k, of in enumerate(found):
        ratio = [x[0] for x in of]
        cost = [100 * (x[0] / y[0] - 1) for x, y in zip(of, found[-1])]
        lines.append("%s,%d,%d,%.4f,%.4f,%.4f,%.1f,%.2f,%.2f" % (
            o.model, k, len(of), statistics.median(ratio), min(ratio), max(ratio), statistics.median(cost),
            statistics.median(x[1] for x in of), statistics.median(x[2] for x in of)))
    text = "# bench/real/ahead_cost.py --model %s --first %d --rounds %d, %d processors, load %.1f\n%s\n" % (
        o.model, o.first, len(found[0]), len(os.sched_getaffinity(0)), os.getloadavg()[0], "\n".join(lines))
    if o.csv:
        with open(o.csv, "w") as f:
            f.write(text)
    return text


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("weft")
    a.add_argument("--beside", action="append", default=[])
    a.add_argument("--model", default="tiny256", choices=sorted(SIZES))
    a.add_argument("--first", type=int, default=25)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--csv")
    o = a.parse_args()
    builds = [os.path.abspath(w) for w in [o.weft] + o.beside]
    found = [[] for _ in builds]
    for _ in range(o.rounds):
        for k, w in enumerate(builds):
            with tempfile.TemporaryDirectory(prefix="weft-ahead-") as folder:
                found[k].append(run(o, w, folder))
        write_table(o, found)
    print(write_table(o, found), end="")


if __name__ == "__main__":
    main()
