"""The same job gives the same bits: whatever the number of threads, and whatever is computed again instead of
kept.  Cutting the batch another way moves the loss by rounding only; the same cut gives the same bits."""
import itertools
import json
import os

from eco import LONG, REFERENCE, SANITIZED, Scratch, check, end, metrics, near, reference_job, same, train

MODELS = ("gpt2", "llama", "mixtral", "bert")
STEPS = 1 if SANITIZED else 3
n_run = 0


def run(s, job):
    global n_run
    n_run += 1
    out = s.path("run-%d" % n_run)
    r = train(dict(job, steps=STEPS, output=out))
    return r and (r["weights_xxh64"], [(m["loss"], m["grad_norm"]) for m in metrics(out)])


def alike(s, base, variants, what):
    first = run(s, base)
    for v in variants:
        if first:
            same(run(s, dict(base, **v)), first, "%s, %s" % (what, v))
    return first


def threads_and_recompute(s, model):
    for dtype, cut in itertools.product(("fp32", "bf16"), (0, 2)):
        base = reference_job(model, dtype=dtype, threads=1, **(dict(micro_batch=cut) if cut else {}))
        v = [dict(threads=3), dict(threads=2, recompute="selective"), dict(threads=5, recompute="full"),
             dict(threads=2), dict(threads=1, recompute="full")]
        alike(s, base, v[:1] if SANITIZED else v if LONG else v[:3], "%s, %s, micro_batch %d" % (model, dtype, cut))


def cuts(s, model):
    base = reference_job(model)
    b = base["batch"]
    hashes = {}
    want = None
    for micro in [m for m in range(b, 0, -1) if b % m == 0]:
        lanes = 1
        while lanes <= b // micro:
            r = alike(s, dict(base, micro_batch=micro, lanes=lanes, threads=2), [dict(threads=1)],
                      "%s, micro_batch %d, lanes %d" % (model, micro, lanes))
            want = want or r
            for i in range(STEPS if r else 0):
                near(r[1][i][0], want[1][i][0], 1e-5, "%s, micro_batch %d, lanes %d: loss of step %d" %
                     (model, micro, lanes, i + 1))
                near(r[1][i][1], want[1][i][1], 1e-4, "%s, micro_batch %d, lanes %d: norm of step %d" %
                     (model, micro, lanes, i + 1))
            hashes[micro, lanes] = r and r[0]
            lanes *= 2
    print("%s: %d cuts, %d results" % (model, len(hashes), len(set(hashes.values()))))


def dropout(s):
    """Dropped elements are named by seed, step, sample and place, never by thread or micro-batch."""
    with open(os.path.join(reference_job("gpt2")["model"], "config.json")) as f:
        c = json.load(f)
    c.update(attn_pdrop=0, resid_pdrop=0.2, embd_pdrop=0.1)
    s.write("dropping/config.json", json.dumps(c))
    base = reference_job("gpt2", model=s.path("dropping"), dropout=True, threads=1)
    r = alike(s, base, [dict(threads=3), dict(recompute="full"), dict(recompute="selective", threads=2)], "dropout")
    cut = run(s, dict(base, micro_batch=1))
    for i in range(STEPS if r and cut else 0):
        near(cut[1][i][0], r[1][i][0], 1e-5, "dropout, micro_batch 1: loss of step %d" % (i + 1))
    still = run(s, dict(base, dropout=False))
    check(r and still and r[1] != still[1], "dropout drops")


with Scratch("same", memory=True) as s:
    if not os.path.isdir(REFERENCE):
        print("no reference models beside the source: small fixtures of the same families instead")
    for m in MODELS:
        threads_and_recompute(s, m)
    for m in () if SANITIZED else MODELS if LONG else MODELS[1:3]:
        cuts(s, m)
    dropout(s)
    end()
