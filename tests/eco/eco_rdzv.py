"""weft run --rdzv file:DIR and etcd://: agents of several hosts, here processes on 127.0.0.1, find each other by a register.
Either of two hosts is lost and the other goes on; a run whose agents are all gone is taken over, and one that has ended in
order is followed at once; a second job is refused.  Losses and weights are those of one process, bit by bit.

    WEFT_TEST_LONG   all cases (make long)
    WEFT_RDZV_CASE   one case alone, by its name"""
import base64
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import eco_hosts
from eco import LONG, ROOT, SANITIZED, WEFT, Scratch, check, end, same
from eco_hosts import BASE, LIMIT_S, Job, compare, free_port
from eco_views import bits, incidents, rows, words

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from etcd import Etcd, has_etcd

CASE = os.environ.get("WEFT_RDZV_CASE")
OPTIONS = ["--local-addr", "127.0.0.1", "--failure-timeout", "2"]


def register(scratch, name):
    return "file:" + scratch.path(name + "-register")


def views(rdzv):
    return sorted(int(f) for f in os.listdir(os.path.join(rdzv[5:], "views")) if f.isdigit())


def check_lease(cluster, name):
    """All keys of a register have one, of a week."""
    first, after = (base64.b64encode(("/weft/%s%s" % (name, x)).encode()).decode() for x in "/0")
    keys = json.loads(cluster.ask(0, "kv/range", json.dumps({"key": first, "range_end": after})))["kvs"]
    leases = {k["lease"] for k in keys}
    check(len(keys) >= 4 and len(leases) == 1, "keys and leases: %r" % keys)
    left = json.loads(cluster.ask(0, "lease/timetolive", json.dumps({"ID": leases.pop()})))
    check(604000 < int(left.get("TTL", "0")) <= 604800, "the lease: %r" % left)


# ---- cases ----

def either_lost(scratch, ref):
    """The first host of two, with rank 0, is lost: the second goes on; another joins it, and it is lost in turn."""
    rdzv = register(scratch, "either")
    job = Job(scratch, "either", "dp2", "1:2", OPTIONS, rdzv=rdzv, steps=200)
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(job.steps() + 4)
    begun = time.monotonic()
    job.agents[0].kill_all()
    check(job.await_text(job.agents[1], ": 1 host "), "the second host goes on: " + job.agents[1].name)
    check(time.monotonic() - begun < 2.5, "at once, as its end was announced: %.1f s" % (time.monotonic() - begun))
    job.join()
    check(job.await_text(job.agents[1], ": 2 hosts", 2), "a third host joins: " + job.agents[1].name)
    job.await_step(job.steps() + 3)
    job.agents[2].kill_all()
    compare("either of two hosts is lost", job, ref(200), [-9, 0, -9])
    check("back to step" not in job.text, "either of two hosts is lost: the other holds the state: " + job.text)
    same(views(rdzv), list(range(7)), "views: the name of the job, one host, two, one, two, one, and the end")


def taken_over(scratch, ref):
    """All agents are killed: the next run goes on from the newest checkpoint, by the next epoch, after the timeout."""
    rdzv = register(scratch, "taken")
    keys = {"checkpoint.every": 10}
    job = Job(scratch, "taken", "dp2", "1:2", OPTIONS, n_agent=1, rdzv=rdzv, steps=40, **keys)
    job.await_step(14)
    job.agents[0].kill_all()
    job.agents[0].end()
    begun = time.monotonic()
    agent = job.join()
    check(job.await_text(agent, "takes the job over"), "it takes the job over: " + agent.name)
    check(2 <= time.monotonic() - begun < 12, "after the failure timeout: %.1f s" % (time.monotonic() - begun))
    job.agents.pop(0)
    compare("a dead run is taken over", job, ref(40), [0])
    check("host" in job.text and "has answered for 2" in job.text and "checkpoints, step 10" in job.text,
          "it says what it does: " + job.text)
    same(views(rdzv), [0, 1, 2, 3], "views of both runs")
    # one that has ended in order is followed at once: there is nothing left to do
    begun = time.monotonic()
    again = Job.__new__(Job)
    again.__dict__.update(job.__dict__, agents=[])
    again.join()
    same(again.end(), [0], "after an end in order: " + again.text)
    check(time.monotonic() - begun < 10 and "takes the job over" not in again.text, "no wait: " + again.text)
    same(views(rdzv), [0, 1, 2, 3, 4, 5], "views of three runs")


def woken(scratch, ref):
    """All processes of a run are stopped, another run takes it over, and the first wakes up: it ends, and changed nothing."""
    rdzv = register(scratch, "woken")
    job = Job(scratch, "woken", "dp2", "1:2", OPTIONS, n_agent=1, rdzv=rdzv, steps=60, **{"checkpoint.every": 10})
    job.await_step(14)
    first = job.agents[0]
    stopped = [first.p.pid, *first.ranks().values()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    job.join()
    check(job.await_text(job.agents[1], "waiting for the run that was taken over"), "a stopped run is taken over: " + job.agents[1].name)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    compare("a run that wakes up", job, ref(60), [1, 0])
    check("has been decided without this host" in first.text and "takes the job over" in first.text, "it is fenced: " + first.text)


def agent_stopped(scratch, ref):
    """The agent of the only host is stopped alone: its ranks leave after failure_timeout, so that the run is taken over without a wait for
    its lock."""
    job = Job(scratch, "agent-stopped", "dp2", "1:2", OPTIONS, n_agent=1, rdzv=register(scratch, "agent-stopped"), steps=100000, **{"checkpoint.every": 100})
    job.await_step(110)
    first = job.agents[0]
    first.p.send_signal(signal.SIGSTOP)
    job.join()
    check(job.await_text(job.agents[1], "resumed from"), "a stopped agent: " + job.agents[1].name)
    job.await_step(job.steps() + 20)
    first.p.send_signal(signal.SIGCONT)
    check(first.p.wait(LIMIT_S) == 1, "a stopped agent that wakes up: %r" % first.p.returncode)
    job.agents[1].p.send_signal(signal.SIGINT)
    codes = job.end()
    same(codes, [1, 130], "a stopped agent: " + job.text)
    check("waiting for the run that was taken over" not in job.agents[1].text, "a stopped agent: its ranks have left: " + job.text)
    found = bits(job.output)
    same(found, eco_hosts.run_reference(scratch, len(found))[1], "a stopped agent: losses")


def stop_at_row(scratch, row):
    """Two hosts; the first is stopped as a whole where its rank is about to write that row."""
    name = "fenced-%d" % row
    once = scratch.path(name + "-once")
    job = Job(scratch, name, "dp2", "1:2", OPTIONS, n_agent=1, rdzv=register(scratch, name), steps=100000,
              env=dict(WEFT_FAILPOINT="row.begin:stop:rank=0:nth=%d" % row, WEFT_FAILPOINT_ONCE=once), **{"checkpoint.every": 50})
    job.env = {}
    job.join()
    limit = time.monotonic() + LIMIT_S
    while not os.path.exists(once + ".0") and time.monotonic() < limit:
        time.sleep(0.005)
    job.agents[0].p.send_signal(signal.SIGSTOP)
    return job


def fenced_writer(scratch, ref):
    """The first of two hosts, with rank 0 just before it writes a row, is stopped, and wakes an epoch later with a valid token: it ends,
    and nothing that it writes counts.  The rows are those of one run, each once; so are views, incidents and checkpoints."""
    for row in (200, 4000):
        job = stop_at_row(scratch, row)
        first, second = job.agents
        with open(first.name + ".log") as f:
            if ": 2 hosts" in f.read():
                break
        for a in job.agents:  # the machine is busy: the second host was not there yet
            a.kill_all()
        job.end()
    stopped = list(first.ranks().values())
    check(len(stopped) == 1 and job.steps() == row - 1, "stopped before its row: %r, %d rows" % (stopped, job.steps()))
    check(job.await_text(second, ": 1 host "), "the second host goes on: " + second.name)
    job.await_step(row + 15)
    before, written = views(job.rdzv), read_rows(job)
    os.kill(stopped[0], signal.SIGCONT)
    time.sleep(0.5)  # it writes its row, and finds that its peers are gone
    first.p.send_signal(signal.SIGCONT)
    same(first.end(), 1, "it ends: " + first.text)
    check("has been decided without this host" in first.text, "it is fenced: " + first.text)
    check("has its lock; the job goes on" in read_log(second), "a lock that is held elsewhere does not stop the job: " + read_log(second))
    job.await_step(job.steps() + 15)
    second.p.send_signal(signal.SIGTERM)
    same(second.end(), 143, "the other is not disturbed: " + second.text)
    check(read_rows(job).startswith(written), "rows that were there when it woke up are as they were")
    steps = [r["step"] for r in rows(job.output)]
    same(steps, list(range(1, len(steps) + 1)), "rows")
    same(bits(job.output)[:40], ref(40)[1], "losses")
    same(views(job.rdzv), [*before, before[-1] + 1], "views: the next one is the end")
    with open(os.path.join(job.output, "views.jsonl")) as f:
        same([json.loads(x)["epoch"] for x in f], before[1:], "views.jsonl")
    found = incidents(job.output)
    same([i["cause"] for i in found], ["join", "host"], "incidents: %r" % found)
    p = subprocess.run([WEFT, "ckpt", "verify", job.output], capture_output=True, text=True)
    check(p.returncode == 0 and "step-%08d" % len(steps) in saved(job), "checkpoints: %r %r" % (saved(job), p))
    same([f for f in os.listdir(os.path.join(job.output, "checkpoints")) if "tmp" in f], [], "what it has begun")


def read_rows(job):
    with open(os.path.join(job.output, "metrics.jsonl"), "rb") as f:
        text = f.read()
    return text[:text.rfind(b"\n") + 1]


def saved(job):
    folder = os.path.join(job.output, "checkpoints")
    return sorted(f for f in os.listdir(folder) if f.startswith("step-") and "tmp" not in f) if os.path.isdir(folder) else []


def listed(scratch, ref):
    """--rdzv with an address of each host: the first one is lost, and hosts join by the others: at its address, which is then the first
    of the list, and with none.  Who is not the first begins nothing."""
    rdzv = ",".join("127.0.0.1:%d" % free_port() for _ in range(3))
    job = Job(scratch, "listed", "dp2", "1:4", ["--failure-timeout", "2"], n_agent=3, rdzv=rdzv, steps=300, dp=4)
    check(job.await_text(job.agents[0], ": 3 hosts (") and all(a in read_log(job.agents[0]) for a in rdzv.split(",")),
          "each listens at its address: " + read_log(job.agents[0]))
    job.await_step(job.steps() + 4)
    job.agents[0].kill_all()
    check(job.await_text(job.agents[1], ": 2 hosts"), "the others go on: " + job.agents[1].name)
    for k in (3, 4):  # at the first address, and at no address of the list
        job.join()
        check(job.await_text(job.agents[1], ": %d hosts" % k, 2 if k == 3 else 1), "a host joins by the list: " + read_log(job.agents[k]))
        check(job.agents[1].p.poll() is None, "the others run")
    job.await_step(job.steps() + 4)
    compare("a list of addresses", job, ref(300), [-9, 0, 0, 0, 0])
    check(all(" begins" not in a.text for a in job.agents[1:]), "one run: " + job.text)
    never = "192.0.2.1:29400,127.0.0.1:%d" % free_port()
    p = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--nnodes", "1:2", "--rdzv", never, "--insecure-network", "--timeout", "2",
                        *words(dict(BASE, output=scratch.path("never")))], capture_output=True, text=True)
    check(p.returncode == 1 and "no host of the job let this one in within 2 s: tried 192.0.2.1:29400" in p.stderr, "not the first: %r" % p)


def read_log(agent):
    with open(agent.name + ".log") as f:
        return f.read()


def alone(scratch, ref):
    """The first of two hosts is lost, and there is no third vote: the second saves all that it holds, with those of its ranks that
    are of use, and ends.  The next run goes on from there.  With a stage of a pipeline alone it has nothing to save, and says so."""
    job = Job(scratch, "alone", "dp2", "2:2", OPTIONS, n_agent=0, pp=2, steps=60)
    job.join()
    job.await_text(job.agents[0], ": 1 host")
    job.n = 3  # both stages, and one of them twice
    job.join()
    check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts: " + job.agents[0].name)
    job.await_step(8)
    job.agents[0].kill_all()
    same(job.agents[1].end(), 1, "a host alone: " + job.agents[1].text)
    text = job.agents[1].text
    found = re.search(r"this host alone has saved the state after step (\d+)", text)
    check(found and "no majority" in text and "2 of 3 ranks are of use" in text and saved(job) == ["step-%08d" % int(found.group(1))], "a host alone saves: %r %s" % (saved(job), text))
    # the lost host may have passed a vote whose result the other one never got, or have passed one and not written its row
    check(found and abs(int(found.group(1)) - len(bits(job.output))) <= 1, "it saves the newest step: %d rows, %s" % (len(bits(job.output)), text))
    check(not incidents(job.output), "it writes nothing else: %r" % incidents(job.output))
    job.agents, job.n = [], 2
    job.nnodes, job.rdzv = "1:2", "127.0.0.1:%d" % free_port()
    job.join()
    got = job.end()
    check(got == [0] and job.result["weights_xxh64"] == ref(60)[0] and "checkpoints, step %s" % found.group(1) in job.text,
          "the next run goes on from there: %r %s" % (got, job.text))
    same(bits(job.output), ref(60)[1], "a host alone: losses")
    job = Job(scratch, "stage", "pp2", "2:2", OPTIONS, steps=60)
    job.await_step(4)
    job.agents[0].kill_all()
    same(job.agents[1].end(), 1, "a stage alone: " + job.agents[1].text)
    check("this host alone does not hold all of the state" in job.agents[1].text and not saved(job), "a stage alone: " + job.agents[1].text)


def few_together(scratch, ref):
    """Of four hosts with a stage each, two of each stage, two are lost, the first among them: the others are no majority, and hold
    all of the state together.  They save it as one, and the next run goes on from there."""
    job = Job(scratch, "few", "pp2", "4:4", OPTIONS, n_agent=4, dp=2, steps=60)
    job.await_step(6)
    host = {rank: a for a in job.agents for rank in a.ranks()}
    if not check(sorted(host) == [0, 1, 2, 3], "four hosts: %r" % host):
        return
    for rank in (0, 2):
        host[rank].kill_all()
    left = [host[1], host[3]]
    same([a.end() for a in left], [1, 1], "few hosts: " + "\n----\n".join(a.text for a in left))
    text = left[0].text + left[1].text
    found = re.search(r"hosts that are no majority have together saved the state after step (\d+)", text)
    check(found and text.count("2 of 4 hosts can be reached, which is no majority") >= 2 and saved(job) == ["step-%08d" % int(found.group(1))],
          "few hosts save together: %r %s" % (saved(job), text))
    check(found and 0 <= int(found.group(1)) - len(bits(job.output)) <= 1, "they save the newest step: %d rows, %s" % (len(bits(job.output)), text))
    check(not [i for i in incidents(job.output) if i["cause"] != "join"], "they write nothing else: %r" % incidents(job.output))
    p = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--json", *words(dict(BASE, steps=60, recover="off", output=job.output))],
                       capture_output=True, text=True)
    check(p.returncode == 0 and json.loads(p.stdout)["weights_xxh64"] == ref(60)[0] and "step %s" % (found and found.group(1)) in p.stderr,
          "the next run goes on from there: %r" % p)
    same(bits(job.output), ref(60)[1], "few hosts: losses")


def second_job(scratch, ref):
    rdzv = register(scratch, "second")
    job = Job(scratch, "second", "dp2", "1:2", OPTIONS, n_agent=1, rdzv=rdzv, steps=100000)
    job.await_step(2)
    other = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--nnodes", "1:2", "--rdzv", rdzv, "--insecure-network", *OPTIONS,
                            *words(dict(BASE, output=scratch.path("other")))], capture_output=True, text=True)
    check(other.returncode == 2 and len(other.stderr.strip().split("\n")) == 1 and
          "holds the views of job '%s', this is job '%s': give another --rdzv" % (job.output, scratch.path("other")) in other.stderr,
          "a second job on one register: %r" % other)
    # the same output with other words: the hosts of the running job refuse it
    changed = subprocess.run([WEFT, "run", "--nproc-per-node", "1", "--nnodes", "1:2", "--rdzv", rdzv, "--insecure-network", *OPTIONS,
                              *words(dict(job.keys, seq=32, output=job.output))], capture_output=True, text=True)
    check(changed.returncode == 1 and "it refused" in changed.stderr and "job" in changed.stderr, "other words: %r" % changed)
    job.agents[0].p.send_signal(signal.SIGTERM)
    same(job.end(), [143], "the first job is not disturbed: " + job.text)


def doctor(scratch, ref):
    """weft doctor looks at a register, and leaves nothing in it."""
    folder = scratch.path("doctor-register")
    os.mkdir(folder)
    for rdzv, text in (("file:" + folder, "--rdzv file:%s " % folder), ("file:" + folder + "/no", "No such file or directory; weft run makes it"),
                       ("etcd://127.0.0.1:%d/x" % free_port(), "problem  --rdzv: etcd at 127.0.0.1: Connection refused")):
        p = subprocess.run([WEFT, "doctor", "--rdzv", rdzv], capture_output=True, text=True)
        check(text in p.stdout and not os.listdir(folder), "doctor of %s: %r" % (rdzv, p))
    # what listens at an address: the job's own agent, of this build or another; something else
    job = Job(scratch, "doctored", "dp2", "1:2", n_agent=1, steps=100000)
    job.await_step(4)
    env = dict(os.environ, WEFT_INSECURE_NETWORK="1")
    p = subprocess.run([WEFT, "doctor", "--rdzv", job.rdzv], capture_output=True, text=True, env=env)
    check(re.search(r"^ok +--rdzv %s: an agent of \S+ listens there: job %s, running, view 1, step \d+; weft run of that job joins it$"
                    % (re.escape(job.rdzv), re.escape(job.output)), p.stdout, re.M) and "another" not in p.stdout, "doctor of its own job: %r" % p)
    with open(WEFT, "rb") as f:
        other = f.read().replace(b"cpu-rows1-", b"cpu-rows9-")
    with open(scratch.path("weft-other"), "wb") as f:
        f.write(other)
    os.chmod(scratch.path("weft-other"), 0o755)
    p = subprocess.run([scratch.path("weft-other"), "doctor", "--rdzv", job.rdzv], capture_output=True, text=True, env=env)
    check(p.returncode == 1 and re.search(r"^problem +--rdzv \S+: \S+ has another kernel set: cpu-rows1-.* there, cpu-rows9-.* here; its job is reduction: "
                                          "invariant and refuses this host: install the same$", p.stdout, re.M), "another kernel set: %r" % p)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(8)
        at = "127.0.0.1:%d" % s.getsockname()[1]
        p = subprocess.run([WEFT, "doctor", "--rdzv", at + "," + job.rdzv], capture_output=True, text=True, env=env)
    check("problem  --rdzv %s: what listens there, on this host, is no agent of weft with this token" % at in p.stdout
          and "an agent of" in p.stdout, "no agent: %r" % p)
    job.agents[0].p.send_signal(signal.SIGINT)
    same(job.end(), [130], "doctor: the job: " + job.text)


def wrong_token(scratch, ref):
    """A host with another token is refused, in one line on both sides; the job goes on."""
    tokens = [scratch.path(x) for x in ("its-token", "another-token")]
    for file in tokens:
        same(subprocess.run([WEFT, "token", file], capture_output=True).returncode, 0, "weft token")
    job = Job(scratch, "token", "dp2", "1:2", OPTIONS, n_agent=1, rdzv=register(scratch, "token"), proof=["--token-file", tokens[0]],
              steps=100000)
    job.await_step(2)
    job.proof = ["--token-file", tokens[1]]
    other = job.join()
    same(other.end(), 1, "another token: " + other.text)
    check(len(other.text.strip().split("\n")) == 1 and "token" in other.text, "another token: " + other.text)
    check(job.await_text(job.agents[0], "it has another token"), "another token is logged: " + job.agents[0].name)
    job.agents.pop()
    job.agents[0].p.send_signal(signal.SIGTERM)
    same(job.end(), [143], "the job is not disturbed: " + job.text)


def folder_gone(scratch, ref):
    """The register does not answer for a while: the job goes on, and says so."""
    rdzv = register(scratch, "gone")
    job = Job(scratch, "gone", "dp2", "1:2", OPTIONS, n_agent=1, rdzv=rdzv, steps=60)
    job.await_step(4)
    os.rename(rdzv[5:], rdzv[5:] + "-away")
    check(job.await_text(job.agents[0], "No such file"), "the register is gone: " + job.agents[0].name)
    if os.path.exists(rdzv[5:]):
        shutil.rmtree(rdzv[5:])
    os.rename(rdzv[5:] + "-away", rdzv[5:])
    compare("a register that was gone", job, ref(60), [0])


def etcd_leader(scratch, ref):
    """A cluster of three loses its leader while a job runs, and then the first host is lost: the second goes on."""
    if not has_etcd():
        print("SKIPPED: etcd is not installed (Debian: etcd-server, curl)")
        return
    cluster = Etcd(scratch.path("etcd"), [free_port() for _ in range(6)])
    try:
        job = Job(scratch, "leader", "dp2", "1:2", OPTIONS, rdzv=cluster.where("leader"), steps=200)
        check(job.await_text(job.agents[0], ": 2 hosts"), "two hosts by etcd: " + job.agents[0].name)
        job.await_step(job.steps() + 3)
        check_lease(cluster, "leader")
        check(cluster.lose_leader(), "etcd has a leader")
        job.await_step(job.steps() + 3)
        job.agents[0].kill_all()
        compare("etcd without its leader, and a lost host", job, ref(200), [-9, 0])
        check("host" in [i["cause"] for i in incidents(job.output)], "etcd: incidents")
        check("back to step" not in job.text, "etcd: the second host holds the state: " + job.text)
    finally:
        cluster.close()


CASES = [either_lost, listed, taken_over, agent_stopped, fenced_writer, alone, few_together, second_job, doctor, wrong_token, folder_gone, etcd_leader]
if SANITIZED and not LONG and not CASE:
    CASES = [alone, second_job, wrong_token]
if LONG or CASE:
    CASES += [woken]


def run_cases(scratch):
    known = {}

    def ref(steps):
        if steps not in known:
            known[steps] = eco_hosts.run_reference(scratch, steps)
        return known[steps]

    for case in CASES:
        if not CASE or case.__name__ == CASE:
            case(scratch, ref)


def main():
    with Scratch("rdzv", memory=True) as scratch:
        run_cases(scratch)
    end()


if __name__ == "__main__":
    main()
