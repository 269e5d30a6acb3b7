"""TensorBoard's own reader finds in the event files what metrics.jsonl holds: tags, steps, values; also
after a run was stopped and resumed."""
import math
import os
import struct
import subprocess
import time

from eco import ROOT, WEFT, Scratch, check, end, metrics, need, read, same, small_job, train, words

(ea,) = need("tensorboard.backend.event_processing.event_accumulator")


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def compare(out, what):
    a = ea.EventAccumulator(out, size_guidance={ea.SCALARS: 0})
    a.Reload()
    rows = metrics(out)
    tags = a.Tags()["scalars"]
    same(sorted(tags), ["eval_loss", "grad_norm", "loss", "lr", "tokens_per_s"], what + ": tags")
    for tag in tags:
        want = [(r["step"], f32(r[tag])) for r in rows if tag in r]
        got = [(e.step, e.value) for e in a.Scalars(tag)]
        same(got, want, "%s: %s" % (what, tag))
        times = [e.wall_time for e in a.Scalars(tag)]
        check(times == sorted(times) and times[0] > 1.6e9, what + ": wall times")
    check(all(math.isfinite(r["loss"]) for r in rows), what + ": losses are finite")


def lines(out):
    path = os.path.join(out, "metrics.jsonl")
    return read(path).count(b"\n") if os.path.exists(path) else 0


def killed(s):
    """Killed before the first checkpoint and between two: the steps that are run again count once."""
    job = small_job(s, steps=1 << 30, checkpoint=dict(every=100, keep=1), output=s.path("killed"))
    job["eval"] = dict(data=job["data"], every=20, batches=1)
    n = 0
    for at in (30, 130, 290):
        p = subprocess.Popen([WEFT, "train", *words(job), "--quiet"], stdout=subprocess.DEVNULL, cwd=ROOT)
        while p.poll() is None and n < at:
            time.sleep(0.005)
            n = lines(job["output"])
        p.kill()
        p.wait()
        n = lines(job["output"])
    job["steps"] = n + 10
    r = train(job)
    if r:
        check(100 <= r["resumed_from"] <= n, "killed: %d steps are done again" % (n - r["resumed_from"]))
        same([m["step"] for m in metrics(job["output"])], list(range(1, n + 11)), "killed: steps")
        compare(job["output"], "killed")


with Scratch("tensorboard") as s:
    job = small_job(s, steps=7, checkpoint=dict(every=2), lr_schedule=dict(name="cosine", warmup=2))
    job["eval"] = dict(data=job["data"], every=3, batches=2)
    if train(job):
        same(len(metrics(job["output"])), 7, "lines of metrics.jsonl")
        compare(job["output"], "one run")
    job["steps"] = 11
    if train(job):
        same(len(metrics(job["output"])), 11, "lines of metrics.jsonl after a resume")
        compare(job["output"], "resumed")
    killed(s)
    end()
