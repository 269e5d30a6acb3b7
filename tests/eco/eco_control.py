"""`weft status|events|scale --at HOST:PORT` ask a job that runs elsewhere: who has the token is answered, who has the
token that only reads may only read, all others are refused and named; and no token is seen in arguments, variables,
files or output of the job."""
import json
import os
import re
import signal
import socket
import subprocess
import time

import eco_hosts
from eco import SANITIZED, WEFT, Scratch, check, end, same
from eco_views import BASE, Job, children

IDLE = 200 if SANITIZED else 1000


def weft(*words, token=None, env=None):
    own = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_TOKEN")}
    if token:
        own["WEFT_TOKEN_FILE"] = token
    p = subprocess.run([WEFT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120,
                       env=dict(own, XDG_CONFIG_HOME="/nonexistent", **(env or {})))
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def expect(result, code, text, what):
    check(result[0] == code and text in result[1] + result[2], "%s: %r" % (what, result))


def tokens(scratch):
    full, reads, other = (scratch.path(x) for x in ("full", "reads", "other"))
    for file in (full, reads, other):
        expect(weft("token", file), 0, file, "weft token")
        same(os.stat(file).st_mode & 0o777, 0o600, file)
    return full, reads, other


def read_log(job):
    with open(job.output + ".log") as f:
        return f.read()


def find_port(job):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        found = re.search(r"control connections at port (\d+)", read_log(job))
        if found:
            return int(found.group(1))
        time.sleep(0.01)
    raise SystemExit("no port: " + read_log(job))


def asked(job, at, full, reads):
    code, out, err = weft("status", "--json", "--at", at, token=full)
    check(code == 0 and json.loads(out)["state"] == "running", "status: %d %s %s" % (code, out, err))
    expect(weft("status", "--at", at, "--token-file", reads), 0, "state       running", "status with the second token")
    expect(weft("scale", "1", "--at", at, token=full), 0, "1 rank from step", "scale 1")
    expect(weft("events", "--at", at, token=reads), 0, "from 2 to 1 ranks", "events")
    expect(weft("scale", "2", "--at", at, token=reads), 2, "this token only reads", "scale with the second token")
    expect(weft("scale", "7", "--at", at, token=full), 2, "weft scale: error: 7 ranks: the job may have 1 to 2", "scale 7")


def refused(job, at, scratch, full, other):
    expect(weft("status", "--at", at, token=other), 1, "refused this side's token", "another token")
    check("it has another token" in read_log(job), "another token is not in the log: " + read_log(job)[-2000:])
    expect(weft("status", "--at", at, "--insecure-network"), 1, "refused this side's token", "no token")
    expect(weft("status", "--at", at), 2, "need a token", "no token file")
    expect(weft("status", "--at", at, token=scratch.path("none")), 2, "No such file", "missing")
    for name, text, mode, why in (("short", "abc", 0o600, "at least 32"), ("open", open(full).read(), 0o644, "chmod 600")):
        file = scratch.path(name)
        with open(file, "w") as f:
            f.write(text)
        os.chmod(file, mode)
        expect(weft("status", "--at", at, token=file), 2, why, name)
    expect(weft("status", "--at", "nowhere", token=full), 2, "no HOST:PORT", "an address that is none")
    expect(weft("status", "out", "--at", at, token=full), 2, "--at names the job", "a folder beside --at")


def crowded(job, port, at, full):
    """Idle connections and garbage keep no request from its answer."""
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(IDLE)]
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
    expect(weft("scale", "2", "--at", at, token=full), 0, "2 ranks from step", "scale 2 beside idle connections")
    for s in idle:
        s.close()
    check("refused: " in read_log(job), "strangers are not in the log")


def unseen(job, files):
    """Neither text of a token is where others may look."""
    secrets = [open(f, "rb").read().strip() for f in files]
    seen = []
    for pid in [job.p.pid, *children(job.p.pid)]:
        for name in ("cmdline", "environ"):
            with open("/proc/%d/%s" % (pid, name), "rb") as f:
                seen.append(("%s of %d" % (name, pid), f.read()))
    seen.append(("log", read_log(job).encode()))
    for folder, _, names in os.walk(job.output):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                seen.append((name, f.read()))
    check(len(seen) > 6, "too little was looked at: %r" % [x[0] for x in seen])
    for where, text in seen:
        check(not any(s in text for s in secrets), "a token is in " + where)


def hosts(scratch):
    """Agents of several hosts answer at the address where they meet."""
    job = eco_hosts.Job(scratch, "hosts", "dp2", steps=1000000)
    job.await_step(2)
    at = job.rdzv
    code, out, err = weft("status", "--json", "--at", at, "--insecure-network")
    check(code == 0 and json.loads(out)["state"] == "running", "status of hosts: %d %s %s" % (code, out, err))
    expect(weft("events", "--at", at, "--insecure-network"), 0, "view", "events of hosts")
    expect(weft("scale", "1", "--at", at, "--insecure-network"), 2, "weft scale: error", "scale of hosts")
    expect(weft("drain", "nowhere", "--at", at, "--insecure-network"), 2, "weft drain: error: the job has no host nowhere", "drain of hosts")
    job.agents[0].p.send_signal(signal.SIGINT)
    for a in job.agents:
        check(a.end() in (130, 143), "hosts: %r %s" % (a.p.returncode, a.text[-1000:]))


def main():
    with Scratch("control") as scratch:
        full, reads, other = tokens(scratch)
        keys = dict(BASE, dp=2, steps=1000000, recover="on")
        job = Job("1:2", keys, scratch.path("out"), "--control", "127.0.0.1:0", "--token-file", full, "--read-token-file",
                  reads)
        port = find_port(job)
        at = "127.0.0.1:%d" % port
        job.await_step(2)
        asked(job, at, full, reads)
        refused(job, at, scratch, full, other)
        crowded(job, port, at, full)
        unseen(job, (full, reads))
        follow = subprocess.Popen([WEFT, "events", "-f", "--at", at, "--token-file", reads], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        line = follow.stdout.readline()
        os.kill(job.p.pid, signal.SIGTERM)
        out, err = follow.communicate(timeout=60)
        check(follow.returncode == 0 and b"ranks" in line + out, "follow: %r" % ((follow.returncode, line, out, err),))
        job.end()
        same(job.p.returncode, 143, "the job's exit code")
        expect(weft("status", "--at", at, token=full), 1, "refused", "a job that has ended")
        expect(weft("run", "--nproc-per-node", "1", "--control", "127.0.0.1:0", "model=tiny256"), 2, "need a token",
               "--control without a token")
        hosts(scratch)
    end()


if __name__ == "__main__":
    main()
