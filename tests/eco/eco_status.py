"""weft status: of a job that runs, that was killed, that has finished, was stopped or has failed; and what it says where
there is none."""
import json
import os
import re
import signal
import subprocess
import time

from eco import ROOT, Scratch, WEFT, check, end, same, small_job, weft, words


def status(out):
    r = weft("status", out, "--json")
    return json.loads(r.out) if check(r.code == 0 and not r.err, str(r)) else {}


def await_status(out, what, wanted):
    """The status, once it is as wanted."""
    until = time.time() + 60
    while time.time() < until:
        if os.path.exists(os.path.join(out, "status.json")):
            s = status(out)
            if wanted(s):
                return s
        time.sleep(0.05)
    check(False, what)
    return {}


def children(p):
    with open("/proc/%d/task/%d/children" % (p.pid, p.pid)) as f:
        return sorted(map(int, f.read().split()))


def start(s, out):
    job = small_job(s, steps=1 << 30, checkpoint=dict(every=5), output=out)
    job.update(batch=4, micro_batch=1, threads=1, dp=2)
    return subprocess.Popen([WEFT, "run", "--nproc-per-node", "2", *words(job), "-q"], cwd=ROOT,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def running_and_killed(s):
    out = s.path("killed")
    p = start(s, out)
    a = await_status(out, "a checkpoint", lambda x: x.get("checkpoint_step") and x["step"] >= 5)
    same(a.get("state"), "running", "state")
    same(sorted(m["pid"] for m in a.get("members", [])), children(p), "members")
    same((a.get("ranks"), a.get("steps")), (2, 1 << 30), "ranks, steps")
    check("dp=2" in a.get("plan", ""), "plan: %r" % a.get("plan"))
    check(a.get("checkpoint_age_s", -1) >= 0 and a.get("step_s", 0) > 0 and a.get("tokens_per_s", 0) > 0, str(a))
    check(all(m["memory_bytes"] > 0 and m["host"] for m in a.get("members", [])), "memory")
    b = await_status(out, "goes on", lambda x: x.get("step", 0) > a.get("step", 0))
    check(b.get("checkpoint_step", 0) >= a.get("checkpoint_step", 1), "newer checkpoint")
    text = weft("status", out)
    check(text.code == 0 and text.out.startswith("state       running"), str(text))
    for key in ("step ", "step time", "checkpoint  of step", "plan", "rank 0", "rank 1"):
        check("\n" + key in text.out, "%r in %s" % (key, text.out))
    p.kill()
    p.wait()
    c = await_status(out, "killed", lambda x: x.get("state") == "killed")
    check(c.get("step", 0) >= b.get("step", 1), "the last step that was heard of")


def rank_0_replaced(s):
    """Its process is gone, and the agent starts another one: the job recovers.  Without the agent it was killed."""
    out = s.path("replaced")
    job = small_job(s, steps=1 << 30, output=out)
    job.update(batch=4, micro_batch=1, threads=1, recover="on")
    job = {k: v for k, v in job.items() if k != "plan"}  # the planner's, so that a step is predicted
    p = subprocess.Popen([WEFT, "run", "--nproc-per-node", "2", *words(job), "-q"], cwd=ROOT, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, env=dict(os.environ, WEFT_FAILPOINT="view.planned:delay=1000"))
    a = await_status(out, "a step", lambda x: x.get("step", 0) > 2)
    step_s = re.findall(r"(\S+) s predicted\n", weft("status", out).out)
    check(len(step_s) == 1, "predicted: " + weft("status", out).out)
    os.kill(a["pid"], signal.SIGKILL)
    seen = []
    b = await_status(out, "recovers", lambda x: seen.append(x["state"]) or x["state"] != "running")
    same((b.get("state"), "killed by signal 9 (SIGKILL)" in b.get("why", "killed by signal 9 (SIGKILL)")), ("recovering", True), "rank 0 is lost: %r" % b)
    check(a["time"] - 5 < b.get("since", a["time"]) < time.time(), "since: %r" % b)
    await_status(out, "goes on", lambda x: seen.append(x["state"]) or (x["state"] == "running" and x["pid"] != a["pid"]))
    check("killed" not in seen, "states: %r" % set(seen))
    same(re.findall(r"(\S+) s predicted\n", weft("status", out).out), step_s, "the next view has the same plan, and its prediction")
    p.kill()
    p.wait()
    await_status(out, "killed", lambda x: x.get("state") == "killed")
    unreachable(out)


def unreachable(out):
    """Rank 0's process is gone, and an agent of another host may go on, which does not answer: weft status names it."""
    with open(os.path.join(out, "views.jsonl"), "a") as f:
        f.write(json.dumps(dict(time=time.time(), epoch=1 << 20, agents=[dict(host="elsewhere", address="127.0.0.1:1")])) + "\n")
    r = weft("status", out, "--insecure-network")
    check(r.out.startswith("state       unknown, ") and "\nunreachable the agent of elsewhere at 127.0.0.1:1: " in r.out, str(r))
    a = status(out)
    same((a.get("state"), a.get("unreachable", "").split(" at ")[0]), ("unknown", "the agent of elsewhere"), "not reached: %r" % a)


def ended(s):
    out = s.path("stopped")
    p = start(s, out)
    await_status(out, "a step", lambda x: x.get("step", 0) > 0)
    p.send_signal(signal.SIGTERM)
    same(p.wait(), 143, "exit code")
    a = status(out)
    same((a.get("state"), a.get("reason")), ("stopped", "signal 15"), "after SIGTERM")
    same(a.get("checkpoint_step"), a.get("step"), "checkpoint of the last step")
    job = small_job(s, steps=3, output=s.path("done"))
    same(weft("train", *words(job), "-q").code, 0, "a job")
    a = status(s.path("done"))
    same((a.get("state"), a.get("step"), a.get("ranks")), ("finished", 3, 1), "after the end")
    job = small_job(s, steps=9, output=s.path("bad"), optimizer=dict(name="sgd", lr=1e6))
    r = weft("train", *words(job), "-q")
    a = status(s.path("bad"))
    if check(r.code == 1, "a loss that is not finite: %s" % r):
        same(a.get("state"), "failed", "after an error")
        check(a.get("reason") and a["reason"] in r.err, "reason %r" % a.get("reason"))


def nothing(s):
    for content in (None, "", "{}", "[1]", '{"state": 7}', '{"state": "running", "host": "x"'):
        d = s.path("none")
        if content is not None:
            s.write("none/status.json", content)
        r = weft("status", d)
        check(r.code == 2 and r.err.count("\n") == 1 and "status.json" in r.err, "%r: %s" % (content, r))
    r = weft("status", "a", "b")
    same(r.code, 2, "two folders")


with Scratch("status") as s:
    running_and_killed(s)
    rank_0_replaced(s)
    ended(s)
    nothing(s)
    end()
