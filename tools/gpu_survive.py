#!/usr/bin/env python3
"""gpu_survive.py WEFT [--seconds N] ...: GPT 1.3B on two ranks that share a GPU, with recover: on, for tools/gpu_run.sh.

Printed: how often snapshots are made and what they cost (steps while one is copied beside the others), the pause of one
rank killed (its replica gives it the state) and of both (they go back to the snapshot) by phase, what the first steps of each view take
(the first is issued plainly, the second captured), and how long a step of the undisturbed run waited for an asynchronous
checkpoint.  Exit code 1: a pause is above 5 s, snapshots cost more than 2 %, a checkpoint blocked a step for more
than 0.5 s or none was made, or the losses are not those of the undisturbed run, which goes on as far as the time lasts."""
import argparse
import array
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS = 5.0  # from the kill to the next committed step
COST = 0.02
BLOCKED_MS = 500.0  # of a step, by an asynchronous checkpoint

args = argparse.ArgumentParser()
args.add_argument("weft")
args.add_argument("--seconds", type=float, default=300, help="for all")
args.add_argument("--layers", type=int, default=24)
args.add_argument("--width", type=int, default=2048)
args.add_argument("--batch", type=int, default=16)
args.add_argument("--seq", type=int, default=1024)
args.add_argument("--vocab", type=int, default=50304)
args.add_argument("--checkpoint", type=int, default=40, help="steps between checkpoints of the undisturbed run; 0: none")
args.add_argument("--folder", help="for what it makes: twice the weights and optimizer states (of TMPDIR)")
args = args.parse_args()
OUT = tempfile.mkdtemp(prefix="weft-survive-", dir=args.folder)
BEGUN = time.monotonic()


def left():
    return args.seconds - (time.monotonic() - BEGUN)


def write_model():
    folder = os.path.join(OUT, "gpt-1.3b")
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=args.width, n_head=max(args.width // 128, 1),
                       n_layer=args.layers, vocab_size=args.vocab, n_positions=args.seq), f)
    draw = random.Random(1)
    with open(os.path.join(OUT, "tokens.bin"), "wb") as f:
        part = array.array("H", [draw.randrange(args.vocab) for _ in range(1 << 18)])
        for _ in range(8):
            part.tofile(f)
    return folder


def read_lines(path):
    try:
        with open(path) as f:
            return [json.loads(x) for x in f.read().splitlines(True) if x.endswith("\n")]
    except FileNotFoundError:
        return []


class Run:
    def __init__(self, name, *keys, ranks=2):
        self.out = os.path.join(OUT, name)
        self.log = self.out + ".log"
        self.p = subprocess.Popen(
            [args.weft, "run", "--nproc-per-node", str(ranks), "model=" + os.path.join(OUT, "gpt-1.3b"),
             "data=" + os.path.join(OUT, "tokens.bin"), "seq=%d" % args.seq, "batch=%d" % args.batch, "micro_batch=%d" % (args.batch // 4), "lanes=2",
             "dtype=bf16", "dp=2", "plan=off", "init=random", "steps=100000", "optimizer.clip=1.0", "device=cuda", "share_gpu=true",
             "output=" + self.out, *keys], stdout=subprocess.DEVNULL, stderr=open(self.log, "w"), start_new_session=True)

    def rows(self):
        return read_lines(os.path.join(self.out, "metrics.jsonl"))

    def incidents(self):
        return [x for x in read_lines(os.path.join(self.out, "incidents.jsonl")) if x["cause"] != "slow"]

    def text(self):
        return open(self.log).read()

    def wait(self, what, limit=1e9):
        """Until what() is true; False: not in time, or the job has ended."""
        until = time.monotonic() + min(limit, left())
        while time.monotonic() < until and self.p.poll() is None:
            if what():
                return True
            time.sleep(0.02)
        print("waited in vain after step %d: %s" % (len(self.rows()), self.text()[-600:]))
        return False

    def ranks(self):
        with open("/proc/%d/task/%d/children" % (self.p.pid, self.p.pid)) as f:
            pids = [int(x) for x in f.read().split()]
        found = {}
        for pid in pids:
            try:
                with open("/proc/%d/environ" % pid, "rb") as f:
                    for x in f.read().split(b"\0"):
                        if x.startswith(b"WEFT_RANK="):
                            found[int(x[10:])] = pid
            except OSError:
                pass
        return found

    def end(self):
        os.kill(self.p.pid, signal.SIGKILL)  # takes the ranks along; nothing has to be saved
        self.p.wait()


def kill(run, ranks, name):
    before, pids = len(run.incidents()), run.ranks()
    if not all(r in pids for r in ranks):
        print("%s: not there to be killed: %r" % (name, pids))
        return False
    step, begun = len(run.rows()), time.monotonic()
    for r in ranks:
        os.kill(pids[r], signal.SIGKILL)
    if not run.wait(lambda: len(run.incidents()) >= before + len(ranks), 120):
        return False
    i = run.incidents()[before]
    print("%s: killed after step %d, next step %d; %s; seen after %.2f s" % (name, step, i["next_step"], i["ms"], time.monotonic() - begun), flush=True)
    return i["ms"]["total"] <= 1e3 * SECONDS


def snapshot_cost(run):
    """Steps in which a snapshot was copied, against the others; the choice is in the log."""
    m = re.search(r"a snapshot of the state every (\d+) steps: it takes ([\d.e-]+) s, a step ([\d.e-]+) s", run.text())
    if not m:
        print("no snapshots were chosen: " + run.text()[-600:])
        return False
    every, takes, step = int(m.group(1)), float(m.group(2)), float(m.group(3))
    rows = {x["step"]: x["step_ms"] for x in run.rows() if x["step"] > 12}
    span = min(every - 1, int(takes / step) + 2) or 1
    during = [v for k, v in rows.items() if 1 <= k % every <= span]
    other = [v for k, v in rows.items() if k % every > span] or during
    if not during:
        print("no step was seen beside a snapshot")
        return False
    a, b = statistics.median(during), statistics.median(other)
    cost = span / every * (a - b) / b if every > span else a / b - 1
    print("snapshots every %d steps, %.3g s each: %d steps beside one %.2f ms, %d others %.2f ms: %.2f %% of all steps"
          % (every, takes, len(during), a, len(other), b, 100 * cost), flush=True)
    return cost <= COST


def print_first_steps(run, starts):
    """Of each view: a survivor captures its step again in the second, as the new rank has to."""
    rows = {x["step"]: x["step_ms"] for x in run.rows()}
    usual = statistics.median(rows.values())
    for name, step in starts:
        print("%s: steps %s ms; of all the median is %.1f"
              % (name, ", ".join("%.1f" % rows[k] for k in range(step, step + 4) if k in rows), usual), flush=True)


def checkpoint_cost(run):
    """How long a step waited for the longest one; true: that is little."""
    found = re.findall(r"checkpoint of step (\d+) in \S+: (\S+) MB written in (\S+) s, .* a step waited (\S+) ms for it", run.text())
    for x in found:
        print("checkpoint of step %s: %s MB in %s s, a step waited %s ms" % x, flush=True)
    rows = {x["step"]: x["step_ms"] for x in run.rows()}
    if not found:
        print("no checkpoint was made: " + run.text()[-600:])
        return False
    usual = statistics.median(rows.values())
    beside = [rows[int(x[0]) + k] for x in found for k in range(1, 11) if int(x[0]) + k in rows] or [usual]
    print("the ten steps after a checkpoint began: median %.2f ms, longest %.2f; of all steps %.2f"
          % (statistics.median(beside), max(beside), usual), flush=True)
    return max(float(x[3]) for x in found) <= BLOCKED_MS and max(beside) - usual <= BLOCKED_MS


def main():
    write_model()
    run, good, starts = Run("on", "recover=on"), False, [("at the start", 1)]
    try:
        if run.wait(lambda: len(run.rows()) >= 1):
            print("first step after %.1f s" % (time.monotonic() - BEGUN), flush=True)
            good = run.wait(lambda: "a snapshot of the state" in run.text())
            m = re.search(r"every (\d+) steps: it takes", run.text())
            every = int(m.group(1)) if m else 1
            first = len(run.rows())
            good = good and run.wait(lambda: len(run.rows()) >= first + max(2 * every, 20), left() / 3)
            good = snapshot_cost(run) and good
            good = kill(run, [1], "one rank") and good
            good = good and run.wait(lambda: len(run.rows()) >= run.incidents()[-1]["next_step"] + 3, 30)
            starts += [("after one rank was lost", x["next_step"]) for x in run.incidents()[-1:]]
            good = kill(run, [0, 1], "both ranks") and good
            good = good and run.wait(lambda: len(run.rows()) >= run.incidents()[-1]["next_step"] + 3, 30)
            starts += [("after both were lost", x["next_step"]) for x in run.incidents()[-1:]]
            print_first_steps(run, starts)
        for x in run.text().splitlines():
            if "snapshot" in x or "waited" in x or "warn" in x or "back to" in x:
                print("   " + x)
        kept = [(x["step"], x["loss"], x["grad_norm"]) for x in run.rows()]
    finally:
        run.end()
    if left() > 25:  # undisturbed, for its losses and for checkpoints
        keys = ["checkpoint.every=%d" % args.checkpoint] if args.checkpoint else []
        plain = Run("off", "recover=on", "snapshot_every=100000", *keys)
        try:
            plain.wait(lambda: len(plain.rows()) >= len(kept) and (not keys or "checkpoint of step" in plain.text()), left() - 5)
            other = [(x["step"], x["loss"], x["grad_norm"]) for x in plain.rows()]
            good = (checkpoint_cost(plain) or not args.checkpoint) and good
        finally:
            plain.end()
        n = min(len(kept), len(other))
        print("%d steps: losses and norms %s" % (n, "are those of the undisturbed run" if kept[:n] == other[:n] else "are OTHERS"))
        good = good and kept[:n] == other[:n]
    shutil.rmtree(OUT, ignore_errors=True)
    print("ok" if good else "FAILED")
    return 0 if good else 1


sys.exit(main())
