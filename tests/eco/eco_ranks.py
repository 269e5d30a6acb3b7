"""One of four ranks of a training job is killed at a random moment, or stops: the three others say so and everybody
is gone soon.

    killed      within 2 s all have exited; weft run's exit code is 137, its first line names the cause, and each
                survivor reports the death
    stopped     SIGSTOP: the same by the deadline (--timeout 1), with exit code 1

    WEFT_FAULT_RANK_KILLS  kills (6)"""
import os
import random
import re
import select
import signal
import subprocess
import time

from eco import ROOT, SANITIZED, Scratch, WEFT, check, end, same, small_job, words

KILLS = int(os.environ.get("WEFT_FAULT_RANK_KILLS", "2" if SANITIZED else "6"))
LIMIT = 20 if SANITIZED else 2
RANKS = 4


def start(s, n, *options):
    job = small_job(s, steps=100000, checkpoint=dict(every=7), output=s.path("out%d" % n), batch=4, micro_batch=1)
    return subprocess.Popen([WEFT, "run", "--nproc-per-node", str(RANKS), *options, *words(job), "-q"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=ROOT)


def ranks_of(p):
    """{rank: pid} once all have been started."""
    until = time.time() + 60
    while time.time() < until and p.poll() is None:
        found = {}
        try:
            with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
                for pid in map(int, f.read().split()):
                    with open("/proc/%d/environ" % pid, "rb") as e:
                        m = re.search(rb"(?:^|\0)WEFT_RANK=(\d+)\0", e.read())
                    if m:
                        found[int(m.group(1))] = pid
        except OSError:
            pass
        if len(found) == RANKS:
            return found
        time.sleep(0.002)
    return {}


def last_exit(fds, limit):
    """Seconds until the last of them has ended, or None."""
    begin, poll = time.monotonic(), select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    left = set(fds)
    while left and time.monotonic() - begin < limit:
        for fd, _ in poll.poll(100):
            poll.unregister(fd)
            left.discard(fd)
    return None if left else time.monotonic() - begin


def harm(s, n, rng, sig, longest, options):
    """Starts a job, harms a rank; (seconds until the survivors had exited, exit code, error text, victim)."""
    p = start(s, n, *options)
    pids, victim = ranks_of(p), rng.randrange(RANKS)
    if not check(len(pids) == RANKS, "%d: the ranks did not start" % n):
        p.kill()
        return None
    fds = [os.pidfd_open(pid) for r, pid in pids.items() if r != victim]
    time.sleep(rng.uniform(0, longest))
    os.kill(pids[victim], sig)
    took = last_exit(fds, 30)
    for fd in fds:
        os.close(fd)
    if sig == signal.SIGSTOP and took is None:
        os.kill(pids[victim], signal.SIGKILL)
    _, err = p.communicate(timeout=60)
    return took, p.returncode, err.decode(), victim


def main():
    rng, took = random.Random(int(os.environ.get("WEFT_FAULT_SEED", "1"))), []
    with Scratch("ranks", memory=True) as s:
        for n in range(KILLS):
            r = harm(s, n, rng, signal.SIGKILL, 1.5, [])
            if not r:
                continue
            seconds, code, err, victim = r
            what = "kill %d, of rank %d" % (n, victim)
            took.append(seconds if seconds is not None else 1e9)
            check(took[-1] <= LIMIT, "%s: the others needed %.2f s to exit" % (what, took[-1]))
            same(code, 137, what + ": exit code")
            check(err.startswith("[rank %d] rank %d: error: killed by signal 9" % (victim, victim)),
                  "%s: the first line: %s" % (what, err))
            said = set(re.findall(r"^\[rank (\d)\] .*error: .*rank %d died" % victim, err, re.M))
            same(said, {str(k) for k in range(RANKS) if k != victim}, "%s: who reports it\n%s" % (what, err))
        took.sort()
        print("%d kills of one of %d ranks: survivors had exited after %.0f ms (median), %.0f ms (most)"
              % (len(took), RANKS, 1e3 * took[len(took) // 2], 1e3 * took[-1]))
        for n in range(max(1, KILLS // 20)):
            r = harm(s, KILLS + n, rng, signal.SIGSTOP, 1.5, ["--timeout", "1"])
            if r:
                check(r[0] is not None and r[0] <= LIMIT + 3, "stop %d: the others needed %r s" % (n, r[0]))
                check("is silent" in r[2], "stop %d: %s" % (n, r[2]))
                check(r[1] != 0, "stop %d: exit code 0" % n)
    end()


if __name__ == "__main__":
    main()
