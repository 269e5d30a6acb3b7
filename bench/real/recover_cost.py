"""What `recover: on` costs while nothing fails: gpt2 124M, batch 4, seq 64, pp=2 on this machine's CPUs.

    bench/real/recover_cost.py WEFT [--rounds N] [--minutes N] [--steps N] [--journal BENCH_JOURNAL]

Runs with `recover: on` and `off` in turns, as many rounds as the time is enough for.  Of each: processor milliseconds that both ranks took for a step, and its
wall time, of the steps after the third.  Then differences of pairs, the median with its interval of 95 % (the least and
most of fewer than nine).  BENCH_JOURNAL (build/bench_journal) times the journal alone: of all
parameters, so that each of two stages has about half of it."""
import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tests", "support")]
from processes import children, cpu_s
from scale import count_rows

FIRST = 3  # steps that do not count


def run(o, mode):
    """Processor and wall milliseconds of a step; a run lasts one step longer than is measured."""
    output = os.path.join(o.tmp, mode)
    shutil.rmtree(output, ignore_errors=True)
    p = subprocess.Popen([o.weft, "run", "--nproc-per-node", "2", "model=gpt2", "init=random", "tokenizer=bytes",
                          "data=" + o.data, "seq=64", "batch=4", "micro_batch=1", "lanes=1", "pp=2", "plan=off",
                          "threads=1", "steps=%d" % (o.steps + FIRST + 40), "checkpoint.every=1000000", "recover=" + mode,
                          "output=" + output], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seen = {}
    for at in (FIRST, FIRST + o.steps):
        while p.poll() is None and count_rows(output) < at:
            time.sleep(0.005)
        if p.poll() is not None:
            sys.exit(p.stderr.read())
        seen[at] = sum(cpu_s(c) for c in children(p.pid))
    p.kill()
    p.communicate()
    with open(os.path.join(output, "metrics.jsonl")) as f:
        ms = [json.loads(line)["step_ms"] for line in f][FIRST:FIRST + o.steps]
    shutil.rmtree(output, ignore_errors=True)
    return 1e3 * (seen[FIRST + o.steps] - seen[FIRST]) / o.steps, statistics.median(ms)


def interval(x):
    """The median, and between which of the pairs it is with 95 %: the signs of n pairs are those of n coins."""
    x, n = sorted(x), len(x)
    k = max([i for i in range(n // 2) if sum(math.comb(n, j) for j in range(i + 1)) <= 0.025 * 2 ** n], default=0)
    return statistics.median(x), x[k], x[-1 - k]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("weft")
    a.add_argument("--rounds", type=int, default=15)
    a.add_argument("--minutes", type=float, default=5.5)
    a.add_argument("--steps", type=int, default=8)
    a.add_argument("--data", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../include"))
    a.add_argument("--journal")
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as o.tmp:
        rows, longest, end = [], 0, time.time() + 60 * o.minutes
        for k in range(o.rounds):
            if k and time.time() + longest > end:
                break
            got, begin = {}, time.time()
            for mode in ("on", "off") if k % 2 else ("off", "on"):
                got[mode] = run(o, mode)
            rows.append(got)
            longest = max(longest, time.time() - begin)
            print("round %d: processor ms a step off %.1f, on %.1f; step ms off %.1f, on %.1f"
                  % (k, got["off"][0], got["on"][0], got["off"][1], got["on"][1]), flush=True)
    print("%d rounds of %d steps, load average %.1f" % (len(rows), o.steps, os.getloadavg()[0]))
    for i, what in enumerate(("processor ms of both ranks", "step ms")):
        off = statistics.median(r["off"][i] for r in rows)
        more = interval([100 * (r["on"][i] / r["off"][i] - 1) for r in rows])
        print("%s: off %.1f, on %.1f; difference of pairs %+.2f %% (%+.2f to %+.2f)"
              % (what, off, statistics.median(r["on"][i] for r in rows), *more))
    if o.journal:
        print(subprocess.run([o.journal], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


if __name__ == "__main__":
    main()
