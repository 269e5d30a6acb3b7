"""TensorBoard's own reader finds in the event files what metrics.jsonl holds: tags, steps, values; also
after a run was stopped and resumed."""
import math
import os
import struct

from eco import Scratch, check, end, metrics, need, same, small_job, train

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
    end()
