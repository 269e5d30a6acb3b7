#!/usr/bin/env python3
"""supervise.py [--weft WEFT] [--torchrun TORCHRUN] [--kills N] [--ranks N] [--out FILE]

A killed rank of a PyTorch program (gloo, a checkpoint after each step) under weft run -- and under
torchrun, in turn: seconds from the kill until the processes have started again, and until the next
step.  What lies between the two is the program's own start (imports, process group, its load).
"""
import argparse
import csv
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = """
import os, sys, time
rank, folder = int(os.environ["RANK"]), sys.argv[1]
def note(what):
    with open(os.path.join(folder, "times"), "a") as f:
        f.write("%d %s %d %.6f\\n" % (rank, what, os.getpid(), time.time()))
note("start")
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
width, every = (int(x) for x in (sys.argv + ["300", "1"])[3:5])
model = torch.nn.Linear(width, width)
path, step = os.path.join(folder, "checkpoint.pt"), 0
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    step = saved["step"]
wrapped = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
if step:
    optimizer.load_state_dict(saved["optimizer"])
while step < int(sys.argv[2]):
    wrapped(torch.randn(8, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if rank == 0 and step % every == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
    note("step")
    time.sleep(0.02)
"""


def read_times(folder):
    """Lines of all ranks so far: (rank, what, pid, seconds)"""
    try:
        lines = open(os.path.join(folder, "times")).read().splitlines()
    except FileNotFoundError:
        return []
    words = [x.split() for x in lines]
    return [(int(w[0]), w[1], int(w[2]), float(w[3])) for w in words if len(w) == 4]


def wait_for(folder, job, holds, limit_s=600):
    end = time.time() + limit_s
    while time.time() < end and job.poll() is None:
        found = holds(read_times(folder))
        if found:
            return found
        time.sleep(0.01)
    with open(os.path.join(folder, "log"), errors="replace") as f:
        text = f.read()
    raise SystemExit("no progress within %d s; the job's end: %r\n%s" % (limit_s, job.poll(), text[-2000:]))


def steps_after(n_rank, since):
    """The end of the first step of all ranks after a moment, or None"""
    def find(times):
        ends = {}
        for rank, what, _, at in times:
            if what == "step" and at > since and rank not in ends:
                ends[rank] = at
        return max(ends.values()) if len(ends) == n_rank else None
    return find


def kill_one(words, n_rank, kills, more=()):
    """Seconds to the start of the last new process and to the next step, for each kill; more: width of the model, steps
    from one checkpoint to the next"""
    out = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # no program waits for a disk
        program = os.path.join(folder, "program.py")
        open(program, "w").write(PROGRAM)
        with open(os.path.join(folder, "log"), "wb") as log:
            job = subprocess.Popen(words + [program, folder, "1000000", *more], stdout=log, stderr=log)
        try:
            since = 0
            for _ in range(kills):
                wait_for(folder, job, steps_after(n_rank, since))
                time.sleep(0.3)
                last = [x for x in read_times(folder) if x[0] == n_rank - 1][-1]
                since = time.time()
                os.kill(last[2], signal.SIGKILL)
                stepped = wait_for(folder, job, steps_after(n_rank, since + 1e-3))
                started = max(x[3] for x in read_times(folder) if x[1] == "start")
                out.append((started - since, stepped - since))
        finally:
            job.terminate()
            job.wait()
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", default="build/weft")
    p.add_argument("--torchrun", default="torchrun")
    p.add_argument("--python", default=sys.executable, help="that has torch")
    p.add_argument("--kills", type=int, default=3, help="in each of two rounds")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--out")
    o = p.parse_args()
    n = ["--max-restarts", "100"]
    way = {"weft run": [o.weft, "run", "--nproc-per-node", str(o.ranks)] + n + ["--", o.python],
           "torchrun": [o.torchrun, "--standalone", "--nproc-per-node", str(o.ranks)] + n}
    got = {w: [] for w in way}
    for _ in range(2):
        for w in way:
            got[w] += kill_one(way[w], o.ranks, o.kills)
    rows = [[w, k, "%.3f" % a, "%.3f" % b] for w in way for k, (a, b) in enumerate(got[w])]
    if o.out:
        with open(o.out, "w") as f:
            csv.writer(f).writerows([["launcher", "kill", "started_s", "stepped_s"]] + rows)
    for w in way:
        print("%-9s %d kills: started again after %.3f s (best %.3f), next step after %.2f s (best %.2f)" % (
            w, len(got[w]), statistics.median(x[0] for x in got[w]), min(x[0] for x in got[w]),
            statistics.median(x[1] for x in got[w]), min(x[1] for x in got[w])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
