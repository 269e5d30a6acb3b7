#!/usr/bin/env python3
"""shared_gpu.py --weft WEFT --cluster FILE [--only predict|measure] [--rows 1,2] [--seconds N]

Steps of gpt2 by 1, 2 and 4 ranks that share one GPU (share_gpu: true, peer): predicted by weft plan from the GPU's calibration
alone, `weft cluster show --change "share node 0 ranks K"`, before the first one is run; then measured by weft run.  Passed:
every step within 15 %.  Measuring stops after --seconds; rows that were not run are said.
"""
import argparse
import array
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

#       model, batch, seq, ranks, keys of the plan
ROWS = [("gpt2", 32, 1024, 1, "dp=1"), ("gpt2", 32, 1024, 2, "dp=2"), ("gpt2", 32, 1024, 4, "dp=4"),
        ("gpt2", 8, 1024, 2, "dp=2"), ("gpt2", 8, 1024, 4, "dp=4"), ("gpt2", 32, 1024, 2, "dp=2 zero=1"),
        ("gpt2", 32, 1024, 2, "pp=2")]
STEPS, KEPT = 24, 16


def micro_batch(batch, ranks, keys):
    return batch // 4 if "pp=" in keys else batch // ranks


def predict(o, folder, model, batch, seq, ranks, keys):
    cluster = o.cluster
    if ranks > 1:
        cluster = os.path.join(folder, "shared-%d.yaml" % ranks)
        subprocess.run([o.weft, "cluster", "show", o.cluster, "--change", "share node 0 ranks %d" % ranks, "--yaml", "-o", cluster],
                       check=True)
    words = [o.weft, "plan", "--engine", "weft", "--model", model, "--cluster", cluster, "--batch", str(batch), "--seq", str(seq),
             "micro_batch=%d" % micro_batch(batch, ranks, keys), "recompute=none", "reduction=invariant", "--precision", "bf16", "--json",
             *keys.split()]
    if "zero=" not in keys:
        words.append("zero=0")
    got = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if got.returncode:
        print("not predicted: %s" % got.stderr.strip()[-300:])
        return None
    return json.loads(got.stdout)["step_s"]


def write_tokens(folder):
    draw, path = random.Random(1), os.path.join(folder, "tokens.bin")
    with open(path, "wb") as f:
        array.array("H", [draw.randrange(50257) for _ in range(1 << 18)] * 16).tofile(f)
    return path


def measure(o, folder, tokens, model, batch, seq, ranks, keys):
    out = os.path.join(folder, "out")
    shutil.rmtree(out, ignore_errors=True)
    words = [o.weft] + (["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"])
    words += ["model=" + model, "data=" + tokens, "seq=%d" % seq, "batch=%d" % batch, "micro_batch=%d" % micro_batch(batch, ranks, keys),
              "dtype=bf16", "steps=%d" % STEPS, "init=random", "plan=off", "device=cuda:0", "share_gpu=true", "reduction=invariant",
              "eval.every=0", "output=" + out, "-q", *keys.split()]
    got = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
                         env=dict(os.environ, WEFT_GPU_COMM="peer"))
    if got.returncode:
        print("not measured: %s" % got.stdout.strip()[-300:])
        return None
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return 1e-3 * statistics.median([json.loads(x)["step_ms"] for x in f][-KEPT:])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", required=True)
    p.add_argument("--cluster", required=True)
    p.add_argument("--only", choices=["predict", "measure"])
    p.add_argument("--rows", help="of the table, from 0, in this order; all")
    p.add_argument("--seconds", type=float, default=300)
    o = p.parse_args()
    rows = [ROWS[int(k)] for k in o.rows.split(",")] if o.rows else ROWS
    folder = tempfile.mkdtemp(prefix="weft-shared-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    begun, worst, missing = time.time(), 0.0, 0
    try:
        expected = [None if o.only == "measure" else predict(o, folder, *row) for row in rows]
        for row, s in zip(rows, expected):
            if s:
                print("predicted: %s, batch %d, seq %d, %d ranks, %s: %.2f ms" % (*row, 1e3 * s), flush=True)
        if o.only == "predict":
            return 0 if all(expected) else 1
        tokens = write_tokens(folder)
        for row, s in zip(rows, expected):
            late = time.time() - begun > o.seconds
            got = None if late else measure(o, folder, tokens, *row)
            text = "%s, batch %d, seq %d, %d ranks, %s: " % row
            if not got or (not s and o.only != "measure"):
                print(text + ("no time left" if late else "-"), flush=True)
                missing += 1
                continue
            text += "measured %.2f ms" % (1e3 * got)
            if s:
                worst = max(worst, abs(s / got - 1))
                text += ", predicted %.2f (%+.1f %%)" % (1e3 * s, 100 * (s / got - 1))
            print(text, flush=True)
        print("worst %.1f %%, %d of %d rows missing, %.0f s" % (100 * worst, missing, len(rows), time.time() - begun))
        return 0 if worst <= 0.15 and not missing else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
