"""What can be seen of a job from outside: weft events, metrics over HTTP and as a file, --on-incident, --log json."""
import json
import os
import re
import signal
import subprocess
import time
import urllib.request

from eco import ROOT, WEFT, Scratch, check, end, same, weft
from eco_views import BASE, Job, incidents

KEYS = dict(BASE, dp=2, recover="on", batch=4, seq=8, steps=1 << 30, **{"checkpoint.every": 5})


def fetch(port, path="/metrics"):
    with urllib.request.urlopen("http://127.0.0.1:%d%s" % (port, path), timeout=30) as r:
        return r.read().decode()


def parse(text):
    """{name with labels: value}, where every line is as the format has it."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# HELP ") or line.startswith("# TYPE "):
            continue
        m = re.match(r'([a-z_]+(?:\{(?:[a-z]+="(?:[^"\\]|\\.)*",?)*\})) (\S+)$', line)
        if check(m, "a line of metrics: %r" % line):
            found[m.group(1)] = float(m.group(2))
    return found


def find(values, name, **labels):
    for key, x in values.items():
        if key.startswith(name + "{") and all('%s="%s"' % i in key for i in labels.items()):
            return x
    return None


def await_true(what, f):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        x = f()
        if x:
            return x
        time.sleep(0.02)
    check(False, what)
    return None


def read_port(job):
    def look():
        with open(job.output + ".log") as f:
            m = re.search(r"metrics at port (\d+)", f.read())
        return int(m.group(1)) if m else None
    return await_true("a port", look)


def main():
    with Scratch("events", memory=True) as s:
        told, page = s.path("told"), s.path("page.prom")
        job = Job(2, KEYS, s.path("job"), "--metrics", "127.0.0.1:0", "--metrics-file", page, "--log", "json",
                  "--on-incident", "cat >>'%s'" % told)
        port = read_port(job)
        job.await_step(6)
        values = parse(fetch(port))
        check((find(values, "weft_step") or 0) >= 1 and find(values, "weft_view_epoch") == 1, "metrics: %r" % values)
        same([find(values, "weft_rank_alive", rank=r) for r in (0, 1)], [1, 1], "ranks alive")
        same((find(values, "weft_hosts"), find(values, "weft_recovery_seconds")), (1, None), "before an incident")
        job.kill(1)
        await_true("an incident", lambda: incidents(job.output))
        follow = subprocess.Popen([WEFT, "events", "-f", job.output], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        values = await_true("a checkpoint", lambda: (lambda v: v if find(v, "weft_checkpoint_age_seconds") is not None
                                                     and find(v, "weft_loss") else None)(parse(fetch(port))))
        same((find(values, "weft_view_epoch"), find(values, "weft_incidents_total", cause="kill", level="replace")), (2, 1), "after a kill")
        same(find(values, "weft_copies"), 2, "both ranks hold the state")
        ms = incidents(job.output)[0]["ms"]
        check(all(abs(1e3 * (find(values, "weft_recovery_seconds", phase=p) or 0) - x) < 0.001 for p, x in ms.items()) and ms["total"] > 0,
              "phases of the last incident: %r, %r" % (ms, values))
        check(find(values, "weft_step_seconds") > 0 and find(values, "weft_tokens_per_second") > 0, "speed: %r" % values)
        job.p.send_signal(signal.SIGTERM)
        _, text = job.end()
        for line in text.splitlines():
            try:
                x = json.loads(line)
                check({"level", "text", "time"} <= set(x), "a line of the log: %r" % line)
            except ValueError:
                check(False, "no JSON: %r" % line)
        out, _ = follow.communicate(timeout=60)
        lines = [x for x in out.splitlines() if "(slow)" not in x]
        check(len(lines) == 3 and "view 1: 2 ranks, from step 1 on" in lines[0] and "rank 1: killed by signal 9" in lines[1]
              and "(kill); decided: replace" in lines[1] and "view 2: 2 ranks" in lines[2], "events -f: %r" % lines)
        r = weft("events", job.output, "--json")
        found = [x for x in map(json.loads, r.out.splitlines()) if x.get("cause") not in ("slow", "slow_link")]
        same([("cause" in x) for x in found], [False, True, False], "events --json")
        s.write("job.yaml", "model: tiny256\nseq: 8\nbatch: 4\nsteps: 5\ndata: %s\noutput: %s\n" % (os.path.join(ROOT, "include"), job.output))
        same(weft("events", s.path("job.yaml"), "--json").out, r.out, "events of a job file")
        same(json.loads(weft("status", s.path("job.yaml"), "--json").out)["events"],
             [json.loads(x) for x in r.out.splitlines()][-4:], "status of a job file")
        same(weft("status", job.output).out.splitlines()[-1], out.splitlines()[-1], "last events in weft status")
        with open(told) as f:
            same([json.loads(x) for x in f], incidents(job.output, slow=True), "--on-incident")
        with open(page) as f:
            check(find(parse(f.read()), "weft_view_epoch") in (1, 2), "--metrics-file")
        for content in ("[1]\n", "{}\n", '{"time": "x"}\n', "{\n"):
            s.write("bad/incidents.jsonl", content)
            r = weft("events", s.path("bad"))
            check(r.code == 2 and r.err.count("\n") == 1 and "incidents.jsonl" in r.err, "%r: %s" % (content, r))
        end()


if __name__ == "__main__":
    main()
