#!/usr/bin/env python3
"""Effective time of a job with a kill at regular intervals, beside what weft sim --events predicts for it.

    bench/real/effective.py WEFT [--size large] [--ranks 2] [--every 60] [--minutes 5] [--plan dp] [--csv FILE]

Effective time = committed steps x undisturbed step / wall.  The undisturbed step is the mean of the steps that are not among the first two after a
kill (the mean, as a machine that is busy makes some longer, and those count, too).  The prediction gets the moments of the kills, that step, and the median pause of another, shorter run before it (three
kills): nothing of the run that it predicts but its step."""
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
from pauses import SIZES, Job, read_incidents
from scale import rows


def run_job(o, folder, every_s, seconds, kills_at_most, draw):
    """Moments of kills, seconds in all, committed steps in them."""
    job = Job(os.path.abspath(o.weft), o.size, o.ranks, 1, folder, plan=o.plan)
    kills, output = [], job.output
    try:
        job.await_steps(4, 300)
        begin, first = time.time(), len(rows(output))
        while time.time() < begin + seconds and len(kills) < kills_at_most:
            time.sleep(max(0, begin + (len(kills) + 1) * every_s - draw.random() * every_s / 4 - time.time()))
            if time.time() > begin + seconds:
                break
            before = len(read_incidents(output))
            kills.append(time.time() - begin)
            job.hit(len(kills) % o.ranks, signal.SIGKILL)
            job.await_more(lambda: len(read_incidents(output)) > before)
        time.sleep(max(0, min(begin + seconds, begin + (len(kills) + 1) * every_s) - time.time()))
        done, wall = len(rows(output)) - first, time.time() - begin
    finally:
        job.end()
    return kills, wall, done


def undisturbed_ms(output):
    """Steps that are not among the first two of a view."""
    first = {i.get("next_step") for i in read_incidents(output)}
    return statistics.mean(r["step_ms"] for r in rows(output)[2:] if r["step"] not in first and r["step"] - 1 not in first)


def predict(o, folder, kills, wall, step_s, incidents):
    trace = os.path.join(folder, "trace.csv")
    with open(trace, "w") as f:
        f.write("0,add,here\n" + "".join("%d,replace,here\n" % (1e3 * k) for k in kills) + "%d,replace,here\n" % (1e3 * wall))  # the end
    out = subprocess.run([o.weft, "sim", SIZES[o.size]["model"], "--events", trace, "--incidents", incidents, "--step", "%.6g" % step_s, "--failure-timeout",
                          "0", "--cluster", "1 x (1 x a100-80g)", "--batch", "4", "--seq", "64", "--json"], capture_output=True, text=True)
    if out.returncode:
        raise SystemExit("weft sim: " + out.stderr)
    return json.loads(out.stdout)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("weft")
    a.add_argument("--size", default="large")
    a.add_argument("--ranks", type=int, default=2)
    a.add_argument("--plan", default="dp", help="the key that gets the number of ranks: dp or pp")
    a.add_argument("--every", type=float, default=60)
    a.add_argument("--minutes", type=float, default=5)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--csv")
    o = a.parse_args()
    draw = random.Random(o.seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        output, before = (os.path.join(folder, x) for x in ("out", "before.jsonl"))
        run_job(o, folder, min(15, o.every), 60, 3, draw)
        shutil.copy(os.path.join(output, "incidents.jsonl"), before)
        kills, wall, done = run_job(o, folder, o.every, 60 * o.minutes, 10 ** 9, draw)
        step_s = 1e-3 * undisturbed_ms(output)
        pauses = [1e-3 * i["ms"]["total"] - step_s for i in read_incidents(output)]
        effective = done * step_s / wall
        predicted = predict(o, folder, kills, wall, step_s, before)["effective"]
    line = "%s,%s=%d,%g,%.1f,%d,%d,%.4f,%.3f,%.2f,%.2f,%.2f" % (o.size, o.plan, o.ranks, o.every, wall, len(kills), done, step_s, statistics.median(pauses),
                                                               100 * effective, 100 * predicted, 100 * (predicted - effective))
    head = "size,plan,kill_each_s,wall_s,kills,committed_steps,step_s,median_pause_s,effective_percent,predicted_percent,difference_points"
    print(head + "\n" + line)
    if o.csv:
        with open(o.csv, "w") as f:
            f.write("# bench/real/effective.py --minutes %g --seed %d, %d processors, load %.1f\n%s\n%s\n" % (o.minutes, o.seed, os.cpu_count(),
                                                                                                           os.getloadavg()[0], head, line))


if __name__ == "__main__":
    main()
