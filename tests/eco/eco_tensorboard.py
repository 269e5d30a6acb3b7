"""TensorBoard's own reader finds in the event files what metrics.jsonl holds: tags, steps, values; also
after a run was stopped and resumed."""
import math
import os
import struct
import subprocess
import time

from eco import ROOT, WEFT, Scratch, check, end, metrics, need, same, small_job, train, words

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


def killed(s):
    """Killed between two checkpoints: the steps that are done again count once."""
    job = small_job(s, steps=1 << 30, checkpoint=dict(every=500, keep=1), output=s.path("killed"))
    job["eval"] = dict(data=job["data"], every=100, batches=1)
    for _ in range(2):
        p = subprocess.Popen([WEFT, "train", *words(job), "--quiet"], stdout=subprocess.DEVNULL, cwd=ROOT)
        time.sleep(1.5)
        p.kill()
        p.wait()
    with open(os.path.join(job["output"], "metrics.jsonl")) as f:
        n = len(f.readlines())
    job["steps"] = n + 10
    r = train(job)
    if r:
        check(0 < r["resumed_from"] < n, "killed: some steps are done again (%d of %d)" % (n - r["resumed_from"], n))
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
