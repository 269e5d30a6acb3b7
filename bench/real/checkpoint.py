"""What an asynchronous checkpoint costs: gpt2 124M on this machine's CPUs.

    bench/real/checkpoint.py WEFT [--minutes N] [--ranks N] [--torch PYTHON] [KEY=VALUE ...]

First the processor seconds of a checkpoint as a share of ten steps at seq 256: what it slows them by where every core
computes.  Of two runs that differ by four checkpoints, and two that differ by two steps.  Then rounds until the time is
used, each of them in turn:

    steps       9 steps (batch 4, seq 64) with checkpoints after the 4th and the 8th: how long an update waits until the
                state may change, how much longer the steps after a checkpoint take than the others, GB/s of a
                checkpoint until its blocks are synced
    waiting     the same GB/s where training waits (checkpoint.async=false), so that nothing else computes
    raw         O_DIRECT writes of 4 MB + fsync into room that was reserved: of one buffer over and over, of as much
                memory as a checkpoint has, and of one buffer while steps compute
    read        weft ckpt verify of the last checkpoint, cold, and O_DIRECT reads of the same files, in turns first
    torch       torch.save + fsync and torch.load, cold, of as many bytes, in every third round

Rates are printed as best and median of all rounds; a ratio is of medians, of bests, and the median of rounds' ratios."""
import argparse
import json
import mmap
import os
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

BLOCK = 4 << 20
TORCH_EVERY = 3  # rounds
LOG = re.compile(r"checkpoint of step (\d+) in .*: ([\d.e+]+) MB written in ([\d.]+) s, verified after "
                 r"([\d.]+) s, a step waited ([\d.]+) ms")


def start(o, output, seq, batch, steps, every, *keys):
    shutil.rmtree(output, ignore_errors=True)
    args = [o.weft, "run", "--nproc-per-node", str(o.ranks), "model=gpt2", "init=random", "data=%s/tokens.bin" % o.tmp,
            "data_format=u16", "seq=%d" % seq, "batch=%d" % batch, "steps=%d" % steps, "checkpoint.every=%d" % every,
            "checkpoint.keep=1", "output=" + output, *keys, *o.keys]
    return subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def read_steps(output):
    try:
        with open(os.path.join(output, "metrics.jsonl")) as f:
            return [json.loads(line)["step_ms"] for line in f.read().splitlines(True) if line.endswith("\n")]
    except OSError:
        return []


def run(o, *args):
    """Steps' milliseconds, lines of checkpoints, processor seconds."""
    p = start(o, o.tmp + "/out", *args)
    err = p.stderr.read()
    _, status, used = os.wait4(p.pid, 0)
    if status:
        sys.exit("%s\n%s" % (" ".join(p.args), err))
    return (read_steps(o.tmp + "/out"), [tuple(map(float, m)) for m in LOG.findall(err)], used.ru_utime + used.ru_stime)


def write_raw(path, memory, n_block):
    """GB/s past the cache, with fsync; memory has all blocks, or one that is written over and over."""
    view = memoryview(memory)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    t = time.time()
    os.posix_fallocate(fd, 0, n_block * BLOCK)
    for i in range(n_block):
        at = i * BLOCK % len(memory)
        os.pwrite(fd, view[at:at + BLOCK], i * BLOCK)
    os.fsync(fd)
    s = time.time() - t
    os.close(fd)
    os.unlink(path)
    return n_block * BLOCK / 1e9 / s


def write_beside_steps(o, memory, n_block):
    """The same while steps compute."""
    p = start(o, o.tmp + "/beside", 64, 4, 1000, 0)
    while p.poll() is None and len(read_steps(o.tmp + "/beside")) < 2:
        time.sleep(0.01)
    rates = [write_raw(o.tmp + "/raw", memory, n_block) for _ in range(2)]
    if p.poll() is not None:
        sys.exit(p.stderr.read())
    p.kill()
    p.communicate()
    shutil.rmtree(o.tmp + "/beside", ignore_errors=True)
    return rates


def list_files(top):
    for folder, _, names in os.walk(top):
        for name in names:
            yield os.path.join(folder, name)


def drop_cache(paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_raw(top, memory):
    """GB/s of whole blocks of these files."""
    n, t = 0, time.time()
    for path in list_files(top):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
        for at in range(0, os.path.getsize(path) // BLOCK * BLOCK, BLOCK):
            n += os.preadv(fd, [memory], at)
        os.close(fd)
    return n / 1e9 / (time.time() - t)


def verify(o, top):
    n = sum(os.path.getsize(path) for path in list_files(top))
    drop_cache(list_files(top))
    t = time.time()
    subprocess.run([o.weft, "ckpt", "verify", top], check=True, stdout=subprocess.DEVNULL)
    return n / 1e9 / (time.time() - t)


TORCH = """
import os, sys, time, torch
n = int(sys.argv[2]) // 12
state = {k: torch.rand(n) for k in ("p", "m", "v")}
t = time.time(); torch.save(state, sys.argv[1])
with open(sys.argv[1], "rb+") as f: os.fsync(f.fileno())
w = time.time() - t
del state
with open(sys.argv[1], "rb") as f: os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
t = time.time(); torch.load(sys.argv[1]); r = time.time() - t
print(n * 12 / 1e9 / w, n * 12 / 1e9 / r)
"""


def run_torch(o, size):
    r = subprocess.run([o.torch, "-c", TORCH, o.tmp + "/t.pt", str(size)], check=True, text=True, stdout=subprocess.PIPE)
    os.unlink(o.tmp + "/t.pt")
    return map(float, r.stdout.split())


def find_torch(o):
    for python in [o.torch] if o.torch else [sys.executable, "python3"]:
        if subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0:
            return python
    print("torch.save is left out: no Python here has torch (--torch PYTHON)", flush=True)
    return None


class Rates:
    """Figures by name, one list a round."""

    def __init__(self):
        self.rounds = {}

    def add(self, name, values):
        self.rounds.setdefault(name, []).append(list(values))

    def all(self, name):
        return [v for r in self.rounds[name] for v in r]

    def say(self, name, unit, best=max):
        if name in self.rounds:
            v = self.all(name)
            print("%-50s best %8.3f  median %8.3f %-4s (%s)" % (name, best(v), statistics.median(v), unit,
                  " ".join("%.3f" % x for x in v)), flush=True)

    def say_ratio(self, ours, other):
        if ours not in self.rounds or other not in self.rounds:
            return
        a, b = self.all(ours), self.all(other)
        pairs = [statistics.median(x) / statistics.median(y) for x, y in zip(self.rounds[ours], self.rounds[other])]
        print("%s / %s: of medians %.2f, of bests %.2f, median of rounds %.2f (%s)" % (
            ours, other, statistics.median(a) / statistics.median(b), max(a) / max(b), statistics.median(pairs),
            " ".join("%.2f" % x for x in pairs)), flush=True)


WRITES = ["written and synced beside steps", "written and synced, training waits"]
RAW = ["O_DIRECT write + fsync, one buffer", "O_DIRECT write + fsync, as much memory",
       "O_DIRECT write + fsync, one buffer, beside steps"]


def run_steps(o, rates):
    """GB of a checkpoint."""
    ms, saved, _ = run(o, 64, 4, 9, 4)
    gb = saved[0][1] / 1e3
    during = [s for s in saved if s[0] < 9]  # the last one is waited for
    after = [ms[int(s[0])] for s in during]
    others = [x for i, x in enumerate(ms) if i and i not in [int(s[0]) for s in during]]
    rates.add("an update waited for the copy", [s[4] for s in during])
    rates.add("step after a checkpoint / other steps", [statistics.median(after) / statistics.median(others)])
    rates.add(WRITES[0], [gb / s[2] for s in during])
    rates.add("until read back and pruned", [gb / s[3] for s in during])
    return gb


def run_round(o, number, rates, memory, one):
    def raw(name, m):
        rates.add(name, [write_raw(o.tmp + "/raw", m, len(memory) // BLOCK)])

    def read(by_us):
        if by_us:
            rates.add("weft ckpt verify, cold", [verify(o, o.tmp + "/out/checkpoints")])
        else:
            rates.add("O_DIRECT read of the same files", [read_raw(o.tmp + "/out/checkpoints", one)])

    gb = run_steps(o, rates)
    raw(RAW[0], one)
    read(number % 2 == 0)
    read(number % 2 == 1)
    saved = run(o, 16, 1, 3, 1, "checkpoint.async=false")[1]
    rates.add(WRITES[1], [gb / s[2] for s in saved])
    raw(RAW[1], memory)
    rates.add(RAW[2], write_beside_steps(o, one, len(memory) // BLOCK))
    if o.torch and number % TORCH_EVERY == 0:
        w, r = run_torch(o, len(memory))
        rates.add("torch.save + fsync", [w])
        rates.add("torch.load, cold", [r])


def say_all(rates):
    rates.say("an update waited for the copy", "ms", min)
    rates.say("step after a checkpoint / other steps", "x", min)
    for name in [*WRITES, "until read back and pruned", *RAW, "torch.save + fsync", "weft ckpt verify, cold",
                 "O_DIRECT read of the same files", "torch.load, cold"]:
        rates.say(name, "GB/s")
    for ours in WRITES:
        for other in RAW:
            rates.say_ratio(ours, other)
    rates.say_ratio("weft ckpt verify, cold", "O_DIRECT read of the same files")


def say_processor(o):
    one = run(o, 64, 4, 5, 0)[2]
    five = run(o, 64, 4, 5, 1)[2]
    short = run(o, 256, 4, 1, 0)[2]
    long = run(o, 256, 4, 3, 0)[2]
    cost, step = (five - one) / 4, (long - short) / 2
    print("processor time of a checkpoint %.2f s, of a step at seq 256 %.2f s: %.2f %% of ten steps" % (
        cost, step, 100 * cost / (10 * step)), flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("weft")
    a.add_argument("keys", nargs="*", help="more keys of the job")
    a.add_argument("--minutes", type=float, default=5.5)
    a.add_argument("--ranks", type=int, default=1)
    a.add_argument("--torch", help="a Python that has torch")
    a.add_argument("--tmp", help="a folder on the file system to measure")
    a.add_argument("--skip-processor", action="store_true")
    o = a.parse_args()
    end = time.time() + 60 * o.minutes
    o.tmp = tempfile.mkdtemp(dir=o.tmp)
    o.torch = find_torch(o)
    rng = random.Random(1)
    rates = Rates()
    with open(o.tmp + "/tokens.bin", "wb") as f:
        f.write(struct.pack("<100000H", *(rng.randrange(50257) for _ in range(100000))))
    try:
        print("load average %.1f, %d cores" % (os.getloadavg()[0], os.cpu_count()), flush=True)
        if not o.skip_processor:
            say_processor(o)
        gb = run(o, 16, 1, 1, 0)[1][0][1] / 1e3
        n_block = int(gb * 1e9 / BLOCK)
        one, memory = mmap.mmap(-1, BLOCK), mmap.mmap(-1, n_block * BLOCK)
        one.write(os.urandom(BLOCK))
        for _ in range(n_block):
            memory.write(one)
        number, longest = 0, 0
        while number == 0 or time.time() + longest < end:
            t = time.time()
            run_round(o, number, rates, memory, one)
            longest = max(longest, time.time() - t)
            number += 1
        print("checkpoint of %.3f GB, %d ranks, %d rounds %s" % (gb, o.ranks, number, " ".join(o.keys)))
        say_all(rates)
        print("load average %.1f" % os.getloadavg()[0])
    finally:
        shutil.rmtree(o.tmp, ignore_errors=True)


main()
