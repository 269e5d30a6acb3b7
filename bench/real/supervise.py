#!/usr/bin/env python3
"""supervise.py [--weft WEFT] [--python PYTHON] [--torchrun TORCHRUN] [--kills N] [--rounds N] [--ranks N] [--minutes M] [--out FILE]

A PyTorch program (gloo, a checkpoint after each step) under weft run -- and under torchrun's elastic agent, in turns:

    rank    one of N ranks of a host is killed: seconds until the last process has started again, and until the next step
    host    two agents of one rank each (--nnodes 1:2, both on 127.0.0.1), the second one is killed with its rank: the same, of
            the host that is left, which has torchrun's store.  torchrun as it comes waits 30 s for further hosts (last_call_timeout); tuned: 1 s

What lies between start and step is the program's own start (imports, process group, its load).  Both have --max-restarts 100; torchrun has its
own --monitor-interval unless --monitor-interval says another.  No round begins when --minutes are over; a row is in FILE once it is measured."""
import argparse
import csv
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "tests", "support")]
from processes import children

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
note("group")
width, every = (int(x) for x in (sys.argv + ["300", "1"])[3:5])
model = torch.nn.utils.skip_init(torch.nn.Linear, width, width)
path, step = os.path.join(folder, "checkpoint.pt"), 0
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    step = saved["step"]
else:
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.01)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
if step:
    optimizer.load_state_dict(saved["optimizer"])
    del saved
note("load")
wrapped = torch.nn.parallel.DistributedDataParallel(model)
while step < int(sys.argv[2]):
    begin = time.time()
    wrapped(torch.randn(8, width)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if rank == 0 and step % every == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
    note("step:%d:%.4f" % (step, time.time() - begin))
    time.sleep(0.02)
"""
# torchrun 2.15 keeps one store for all its restarts, and a restarted gloo finds addresses of the ranks before: connection refused, and after
# that it waits for ever.  With this it makes a new store for each.
ENVIRONMENT = dict(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


class Stuck(Exception):
    """The program made no progress in time, or ended."""


def read_times(folder):
    """Lines of all ranks so far: (rank, what, pid, seconds)"""
    try:
        lines = open(os.path.join(folder, "times")).read().splitlines()
    except FileNotFoundError:
        return []
    words = [x.split() for x in lines]
    return [(int(w[0]), w[1], int(w[2]), float(w[3])) for w in words if len(w) == 4]


def wait_for(folder, job, holds, limit_s):
    end = time.time() + limit_s
    while time.time() < end and job.poll() is None:
        found = holds(read_times(folder))
        if found:
            return found
        time.sleep(0.01)
    with open(os.path.join(folder, "log"), errors="replace") as f:
        text = f.read()
    raise Stuck("no progress within %d s; the job's end: %r\n%s" % (limit_s, job.poll(), text[-2000:]))


def first_step(n_rank, since):
    """(the last start, the end of the first step) of n ranks that have started after a moment, or None"""
    def find(times):
        started = {pid: at for _, what, pid, at in times if what == "start" and at > since}
        ends = {}
        for rank, what, pid, at in times:
            if what.startswith("step") and pid in started and rank not in ends:
                ends[rank] = (started[pid], at)
        return tuple(max(x) for x in zip(*ends.values())) if len(ends) == n_rank else None
    return find


def find_phases(times, since):
    """Of the rank that took longest after a moment: seconds of imports and process group, of its load, of its first step."""
    at = {}
    for _, what, pid, when in times:
        at.setdefault(pid, {}).setdefault(what.split(":")[0], when)
    new = [x for x in at.values() if x.get("start", 0) > since and "step" in x]
    x = max(new, key=lambda x: x["step"])
    return x["group"] - x["start"], x["load"] - x["group"], x["step"] - x["load"]


def descendants(pid):
    below = children(pid)
    return below + [x for p in below for x in descendants(p)]


def end_all(agents):
    """Agents of which each has 20 s; what they leave behind is killed."""
    below = [x for a in agents for x in descendants(a.pid)]
    for a in agents:
        a.terminate()
    for a in agents:
        try:
            a.wait(timeout=20)
        except subprocess.TimeoutExpired:
            a.kill()
            a.wait()
    for pid in below:
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                if b"program.py" in f.read():
                    os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def open_folder():
    return tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tmp-supervise-")  # no program waits for a disk


def start(words, folder, more=()):
    program = os.path.join(folder, "program.py")
    with open(program, "w") as f:
        f.write(PROGRAM)
    with open(os.path.join(folder, "log"), "ab") as log:
        return subprocess.Popen(words + [program, folder, "1000000", *more], stdout=log, stderr=log, env=dict(os.environ, **ENVIRONMENT))


def kill_one(words, n_rank, kills, more=(), limit_s=120, seconds=1e9):
    """Kills the last rank: (seconds to the start of the last new process, to the next step, steps that were run again, phases) of each
    kill; more: width of the model, steps from one checkpoint to the next.  Fewer where one takes longer than limit_s, or all of them than seconds."""
    out = []
    with open_folder() as folder:
        job = start(words, folder, more)
        try:
            since, until = 0, time.time() + seconds
            for _ in range(kills):
                wait_for(folder, job, first_step(n_rank, since), limit_s)
                if out and time.time() > until:
                    break
                time.sleep(0.3)
                times = read_times(folder)
                pid = [x[2] for x in times if x[0] == n_rank - 1][-1]
                before = [int(x[1].split(":")[1]) for x in times if x[1].startswith("step")][-1]
                since = time.time()
                os.kill(pid, signal.SIGKILL)
                started, stepped = wait_for(folder, job, first_step(n_rank, since), limit_s)
                times = read_times(folder)
                new = {x[2] for x in times if x[1] == "start" and x[3] > since}
                first = [int(x[1].split(":")[1]) for x in times if x[1].startswith("step") and x[2] in new][0]
                out.append((started - since, stepped - since, max(0, before + 1 - first), find_phases(times, since)))
        except Stuck as e:
            print("%s: %s" % (words[0], e), file=sys.stderr)
        finally:
            end_all([job])
    return out


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def kill_host(first, second, limit_s=120):
    """Two agents, the second one is lost: as kill_one, of the one that is left."""
    with open_folder() as folder:
        agents = [start(first, folder)]
        try:
            time.sleep(1)
            agents.append(start(second, folder))
            wait_for(folder, agents[0], first_step(2, 0), limit_s)
            time.sleep(0.3)
            lost = [agents[1].pid] + descendants(agents[1].pid)
            since = time.time()
            for pid in lost:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            agents.pop().wait()
            started, stepped = wait_for(folder, agents[0], first_step(1, since), limit_s)
            return [(started - since, stepped - since, 0, find_phases(read_times(folder), since))]
        except Stuck as e:
            print("%s: %s" % (first[0], e), file=sys.stderr)
            return []
        finally:
            end_all(agents)


def weft_words(o):
    return [o.weft, "run", "--max-restarts", "100"]


def torch_words(o):
    return [o.torchrun, "--max-restarts", "100"] + (["--monitor-interval", o.monitor_interval] if o.monitor_interval else [])


def measure_rank(o, way):
    n = ["--nproc-per-node", str(o.ranks)]
    words = weft_words(o) + n + ["--", o.python] if way == "weft run" else torch_words(o) + ["--standalone"] + n
    return kill_one(words, o.ranks, o.kills, limit_s=o.limit)


def measure_host(o, way):
    at = "127.0.0.1:%d" % free_port()
    n = ["--nnodes", "1:2", "--nproc-per-node", "1"]
    if way == "weft run":
        words = weft_words(o) + n + ["--rdzv", at, "--insecure-network", "--", o.python]
        return kill_host(words, words, o.limit)
    words = torch_words(o) + n + ["--rdzv-backend", "c10d", "--rdzv-endpoint", at, "--rdzv-id", at, "--local-addr", "127.0.0.1", "--rdzv-conf"]
    conf = ",last_call_timeout=1" if way == "torchrun tuned" else ""
    return kill_host(words + ["is_host=true" + conf], words + ["is_host=false" + conf], o.limit)


MEASURES = (("rank", "weft run", measure_rank), ("rank", "torchrun", measure_rank), ("host", "weft run", measure_host),
            ("host", "torchrun", measure_host), ("host", "torchrun tuned", measure_host))


def write_rows(o, got):
    rows = [[what, way, k, "%.3f" % x[0], "%.3f" % x[1], x[2], *("%.3f" % v for v in x[3])] for what, way, _ in MEASURES for k, x in enumerate(got[what, way])]
    with open(o.out, "w") as f:
        f.write("# bench/real/supervise.py --kills %d --rounds %d --ranks %d, torch %s, %d processors, load %.1f; launchers took turns\n" % (
            o.kills, o.rounds, o.ranks, o.version, os.cpu_count(), os.getloadavg()[0]))
        csv.writer(f, lineterminator="\n").writerows([["lost", "launcher", "kill", "started_s", "stepped_s", "steps_again", "import_s", "load_s", "step_s"]] + rows)


def find_version(python):
    p = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if p.returncode:
        raise SystemExit("supervise.py: %s: no torch there; --python names a Python that has it" % python)
    return p.stdout.strip()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", default="build/weft")
    p.add_argument("--torchrun", help="left out: that beside PYTHON")
    p.add_argument("--python", default=sys.executable, help="that has torch")
    p.add_argument("--monitor-interval")
    p.add_argument("--kills", type=int, default=3, help="of a rank in each round")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--limit", type=float, default=120, help="seconds for one start")
    p.add_argument("--minutes", type=float, default=8)
    p.add_argument("--out")
    o = p.parse_args()
    o.weft, o.version = os.path.abspath(o.weft), find_version(o.python)
    o.torchrun = o.torchrun or os.path.join(os.path.dirname(os.path.abspath(o.python)), "torchrun")
    until, longest = time.time() + 60 * o.minutes, {}
    got = {(what, way): [] for what, way, _ in MEASURES}
    for _ in range(o.rounds):
        for what, way, measure in MEASURES:
            begin = time.time()
            if begin + longest.get((what, way), 0) > until:
                continue
            got[what, way] += measure(o, way)
            longest[what, way] = time.time() - begin
            if o.out:
                write_rows(o, got)
    for what, way, _ in MEASURES:
        x = got[what, way]
        if x:
            print("%s, %-14s %d kills: started again after %.3f s (best %.3f), next step after %.2f s (best %.2f)" % (
                what, way, len(x), statistics.median(v[0] for v in x), min(v[0] for v in x), statistics.median(v[1] for v in x), min(v[1] for v in x)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
