"""What an asynchronous checkpoint costs: gpt2 124M on this machine's CPUs.

    bench/real/checkpoint.py WEFT [--rounds N] [--ranks N] [--torch PYTHON]

    wait        the longest that the update of a step waits until the state is copied (batch 4, seq 64), and how
                much longer the steps after a checkpoint take than the others
    processor   seconds of processor time of one checkpoint, as a share of ten steps at seq 256: what it slows them by
                where every core computes.  Of two runs that differ by one checkpoint, and two that differ by two steps
    write       GB/s of a checkpoint until its blocks are synced, until it is read back, and of weft ckpt verify;
                beside it, in the same round, O_DIRECT writes + fsync and reads of as many bytes, and torch.save + fsync and torch.load

Each figure is the best and the median of the rounds."""
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
LOG = re.compile(r"checkpoint of step (\d+) in .*: ([\d.e+]+) MB written in ([\d.]+) s, verified after "
                 r"([\d.]+) s, a step waited ([\d.]+) ms")


def run(o, output, seq, steps, every):
    """Steps' milliseconds, lines of checkpoints, processor seconds."""
    shutil.rmtree(output, ignore_errors=True)
    args = [o.weft, "run", "--nproc-per-node", str(o.ranks), "model=gpt2", "init=random", "data=%s/tokens.bin" % o.tmp,
            "data_format=u16", "seq=%d" % seq, "batch=4", "steps=%d" % steps, "checkpoint.every=%d" % every,
            "checkpoint.keep=1", "output=" + output, *o.keys]
    p = subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    err = p.stderr.read()
    _, status, used = os.wait4(p.pid, 0)
    if status:
        sys.exit("%s\n%s" % (" ".join(args), err))
    with open(os.path.join(output, "metrics.jsonl")) as f:
        ms = [json.loads(line)["step_ms"] for line in f]
    return ms, [tuple(map(float, m)) for m in LOG.findall(err)], used.ru_utime + used.ru_stime


def raw(path, n_block):
    """GB/s written with fsync and read, past the cache."""
    buf = mmap.mmap(-1, BLOCK)
    buf.write(os.urandom(BLOCK))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)
    t = time.time()
    os.posix_fallocate(fd, 0, n_block * BLOCK)
    for i in range(n_block):
        os.pwrite(fd, buf, i * BLOCK)
    os.fsync(fd)
    w = time.time() - t
    t = time.time()
    for i in range(n_block):
        os.preadv(fd, [buf], i * BLOCK)
    r = time.time() - t
    os.close(fd)
    os.unlink(path)
    return n_block * BLOCK / 1e9 / w, n_block * BLOCK / 1e9 / r


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


def verify(o, output, size):
    top = os.path.join(output, "checkpoints")
    for folder, _, names in os.walk(top):
        for name in names:
            fd = os.open(os.path.join(folder, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
    t = time.time()
    subprocess.run([o.weft, "ckpt", "verify", top], check=True, stdout=subprocess.DEVNULL)
    return size / (time.time() - t)


def say(name, values, unit, best=max):
    print("%-52s best %8.3f  median %8.3f %s  (%s)" % (name, best(values), statistics.median(values), unit,
          " ".join("%.3f" % v for v in values)), flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("weft")
    a.add_argument("keys", nargs="*", help="more keys of the job")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--ranks", type=int, default=1)
    a.add_argument("--torch", help="a Python that has torch")
    a.add_argument("--tmp", help="a folder on the file system to measure")
    a.add_argument("--skip-processor", action="store_true")
    o = a.parse_args()
    o.tmp = tempfile.mkdtemp(dir=o.tmp)
    rng = random.Random(1)
    with open(o.tmp + "/tokens.bin", "wb") as f:
        f.write(struct.pack("<100000H", *(rng.randrange(50257) for _ in range(100000))))
    waits, ratio, rates, whole, verified, raws, torches = [], [], [], [], [], [], []
    print("load average %.1f, %d cores" % (os.getloadavg()[0], os.cpu_count()), flush=True)
    try:
        for _ in range(o.rounds):
            ms, saved, _ = run(o, o.tmp + "/out", 64, 9, 4)
            during = [s for s in saved if s[0] < 9]  # the last one is waited for
            waits += [s[4] for s in during]
            after = [ms[int(s[0])] for s in during]
            others = [x for i, x in enumerate(ms) if i and i not in [int(s[0]) for s in during]]
            ratio.append(statistics.median(after) / statistics.median(others))
            gb = saved[0][1] / 1e3
            rates += [gb / s[2] for s in saved]
            whole += [gb / s[3] for s in saved]
            verified.append(verify(o, o.tmp + "/out", gb))
            raws.append(raw(o.tmp + "/raw", int(gb * 1e9 / BLOCK)))
            if o.torch:
                r = subprocess.run([o.torch, "-c", TORCH, o.tmp + "/t.pt", str(int(gb * 1e9))], check=True, text=True,
                                   stdout=subprocess.PIPE)
                torches.append(tuple(map(float, r.stdout.split())))
                os.unlink(o.tmp + "/t.pt")
        print("checkpoint of %.3f GB, %d ranks %s" % (gb, o.ranks, " ".join(o.keys)))
        say("a step waited for the copy", waits, "ms", min)
        say("step after a checkpoint / other steps", ratio, "x", min)
        say("checkpoint, written and synced", rates, "GB/s")
        say("checkpoint, until read back and pruned", whole, "GB/s")
        say("O_DIRECT write + fsync", [r[0] for r in raws], "GB/s")
        say("weft ckpt verify, cold", verified, "GB/s")
        say("O_DIRECT read", [r[1] for r in raws], "GB/s")
        if torches:
            say("torch.save + fsync", [r[0] for r in torches], "GB/s")
            say("torch.load, cold", [r[1] for r in torches], "GB/s")
        if not o.skip_processor:
            one = run(o, o.tmp + "/out", 64, 3, 0)[2]
            two = run(o, o.tmp + "/out", 64, 3, 1)[2]
            short = run(o, o.tmp + "/out", 256, 1, 0)[2]
            long = run(o, o.tmp + "/out", 256, 3, 0)[2]
            cost, step = (two - one) / 2, (long - short) / 2
            print("processor time of a checkpoint %.2f s, of a step at seq 256 %.2f s: %.2f %% of ten steps" % (
                cost, step, 100 * cost / (10 * step)))
    finally:
        shutil.rmtree(o.tmp, ignore_errors=True)


main()
