#!/usr/bin/env python3
"""soak.py WEFT [--seconds 1800] [--load 4] [--failure-timeout 1] [--out FILE]: no false alarm on an overloaded machine.

Jobs with recover: on run one after another while busy processes fill the machine up to LOAD threads a core; nobody is
killed. Now and then all processes of a job are stopped for some seconds, as a batch system does. Every third job has its output on a
file system that is frozen for 5 s (a loop device, fsfreeze), every other third has two hosts (network namespaces) whose cable is cut for
3 s, with the default failure timeout of 10 s; what this machine does not allow is left out with a line. Every rank or host that
is called lost, and every view after the first one of all hosts, is a false alarm. Prints one line a job, and writes all to FILE."""
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
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from processes import children
from wires import Wires

PLANS = [(2, dict(dp=2)), (4, dict(dp=4)), (2, dict(pp=2)), (4, dict(dp=2, pp=2)), (2, dict(dp=2, zero=1)), (3, dict(dp=3, zero=3))]


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


def make_words(draw, keys, output, **more):
    return ["%s=%s" % i for i in dict(dict(keys, model="tiny256", data=os.path.join(ROOT, "include"), seq=draw.choice((16, 64, 256)), batch=8,
                                           micro_batch=1, lanes=4, steps=draw.choice((50, 200)), init="random", threads=draw.choice((1, 2)),
                                           plan="off", recover="on", output=output, **{"checkpoint.every": draw.choice((5, 50))}), **more).items()]


def read_incidents(folder):
    """Those of slow ranks are no losses."""
    path = os.path.join(folder, "incidents.jsonl")
    found = [json.loads(x) for x in open(path)] if os.path.exists(path) else []
    return [i for i in found if i["cause"] != "slow"]


class FrozenDisk:
    """A file system of its own in a file, which can be frozen: every write to it waits."""

    def __init__(self, folder):
        self.image, self.at, self.mounted = os.path.join(folder, "image"), os.path.join(folder, "disk"), False
        os.mkdir(self.at)
        with open(self.image, "wb") as f:
            f.truncate(400 << 20)
        for words in (["mkfs.ext4", "-q", self.image], ["mount", "-o", "loop", self.image, self.at]):
            p = subprocess.run(words, capture_output=True, text=True)
            if p.returncode:
                raise OSError("%s: %s" % (words[0], p.stderr.strip()))
        self.mounted = True

    def freeze(self, seconds):
        subprocess.run(["fsfreeze", "-f", self.at], check=True)
        try:
            time.sleep(seconds)
        finally:
            subprocess.run(["fsfreeze", "-u", self.at], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", self.at] if self.mounted else ["true"])


def await_end(p, until):
    """Its exit code and what it said; one that does not end is killed, long after the time that there is."""
    try:
        _, text = p.communicate(timeout=max(1, until + 300 - time.monotonic()))
    except subprocess.TimeoutExpired:
        p.kill()
        _, text = p.communicate()
    return p.returncode, text


def run_frozen(weft, draw, folder, timeout_s, until):
    """The output is on a disk that stands still for 5 s; timeouts are the default ones."""
    n, keys = draw.choice(PLANS)
    with FrozenDisk(folder) as disk:
        output = os.path.join(disk.at, "out")
        p = subprocess.Popen([weft, "run", "--nproc-per-node", str(n), "-q", *make_words(draw, keys, output, seq=64)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        stalls = 0
        time.sleep(draw.uniform(1, 5))
        while p.poll() is None:
            disk.freeze(5)
            stalls += 1
            time.sleep(draw.uniform(2, 6))
        code, text = await_end(p, until)
        return n, keys, "%d stalls of the disk of 5 s" % stalls, code, read_incidents(output), text


def run_flaps(weft, draw, folder, timeout_s, until):
    """Two hosts, whose cable is cut for 3 s: the connections hold."""
    n, keys = draw.choice([(1, dict(dp=2)), (2, dict(dp=4)), (1, dict(pp=2)), (2, dict(dp=4, zero=1))])
    output, token = os.path.join(folder, "out"), os.path.join(folder, "token")
    subprocess.run([weft, "token", token], check=True, capture_output=True)
    words = make_words(draw, keys, output, seq=64)
    with Wires(2) as wires:
        agents = [subprocess.Popen([*wires.command(k), weft, "run", "--nproc-per-node", str(n), "--nnodes", "2", "--node-rank", str(k), "--rdzv",
                                    wires.address(0) + ":24000", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, WEFT_TOKEN_FILE=token)) for k in range(2)]
        flaps, limit = 0, time.monotonic() + 120
        while agents[0].poll() is None and not os.path.exists(os.path.join(output, "metrics.jsonl")) and time.monotonic() < limit:
            time.sleep(0.1)
        time.sleep(draw.uniform(0.5, 3))
        while agents[0].poll() is None:
            wires.cut(1, draw.choice(("silent", "unplugged", "down")))
            time.sleep(3)
            wires.mend(1)
            flaps += 1
            time.sleep(draw.uniform(5, 10))
        ends = [await_end(a, until) for a in agents]
    code = next((c for c, _ in ends if c), 0)
    return 2 * n, keys, "%d cuts of the cable of 3 s" % flaps, code, read_incidents(output), "\n".join(t for _, t in ends)


def run_job(weft, draw, folder, timeout_s, until):
    n, keys = draw.choice(PLANS)
    output = os.path.join(folder, "out")
    p = subprocess.Popen([weft, "run", "--nproc-per-node", str(n), "-q", "--failure-timeout", str(timeout_s), *make_words(draw, keys, output)],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    stops, next_stop = 0, time.monotonic() + draw.uniform(1, 20)
    while p.poll() is None:
        time.sleep(0.1)
        if time.monotonic() > until + 120:
            p.kill()
        if time.monotonic() > next_stop:
            stop_all(p, draw.uniform(0.5, 3 * timeout_s))
            stops, next_stop = stops + 1, time.monotonic() + draw.uniform(5, 30)
    return n, keys, "%d stops of all processes" % stops, p.returncode, read_incidents(output), p.stderr.read()


def find_kinds(weft):
    """What this machine lets us do."""
    kinds = [run_job]
    try:
        Wires(2).close()
        kinds.append(run_flaps)
    except OSError as e:
        print("left out: hosts with a cable: %s" % e)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with FrozenDisk(folder) as disk:
                disk.freeze(0)
            kinds.append(run_frozen)
        except (OSError, subprocess.CalledProcessError) as e:
            print("left out: a frozen disk: %s" % e)
    return kinds


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
    lines, alarms, bad, k, loads, disturbed = [], 0, 0, 0, [], {}
    kinds, begun = find_kinds(o.weft), time.monotonic()
    try:
        while time.monotonic() < until:
            with tempfile.TemporaryDirectory() as folder:
                n, keys, what, code, found, text = kinds[k % len(kinds)](o.weft, draw, folder, o.failure_timeout, until)
            k, alarms, bad = k + 1, alarms + len(found), bad + (code != 0)
            times, kind = what.split(" ", 1)
            disturbed[kind] = disturbed.get(kind, 0) + int(times)
            loads.append(os.getloadavg()[0] / n_core)
            line = "%s, %d ranks: exit code %d, %s, %d called lost, load %.1f a core" % (
                " ".join("%s=%s" % i for i in keys.items()), n, code, what, len(found), loads[-1])
            if code or found:
                line += "\n" + "\n".join(map(json.dumps, found)) + text[-1500:]
            print(line, flush=True)
            lines.append(line)
    finally:
        for h in hogs:
            h.kill()
    summary = "%d jobs in %.0f s, %s, %d false alarms, %d jobs failed, load %.1f a core (median)" % (
        k, time.monotonic() - begun, ", ".join("%d %s" % (n, what) for what, n in disturbed.items()), alarms, bad, sorted(loads)[len(loads) // 2])
    print(summary)
    if o.out:
        with open(o.out, "w") as f:
            f.write("# make soak, %s, %d cores, %d busy processes, --failure-timeout %g, seed %d\n# %s\n" % (
                datetime.date.today(), n_core, len(hogs), o.failure_timeout, o.seed, summary))
            f.write("\n".join(lines) + "\n")
    return 1 if alarms or bad else 0


sys.exit(main())
