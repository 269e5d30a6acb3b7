#!/usr/bin/env python3
"""own_gpu.py --weft WEFT --cluster FILE [--out DIR] [--rows FILE] [--only predict|measure] [--steps N] [--from N] [--limit S]

Steps and memory of our own engine on one GPU: predicted by weft plan from a calibration alone, for
every row of own_gpu_rows.csv, and written to DIR/predicted.csv before the first row is run; then
measured by weft bench.  The table predicted / measured goes to stdout and DIR/rows.csv.

--rows own_gpu_offload.csv: with optimizer states in the host's memory (offload), and Tflops as the
ZeRO-Offload paper counts them.

A row runs for 1 to 6 seconds: a card that has worked for less has other clocks than in a job.  --from N: measure from row N on
(all are predicted); --limit S: begin no row after S seconds, and name those that are left out.
"""
import argparse
import csv
import json
import math
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def describe(row):
    """config.json of a row's model"""
    number = {k: int(row[k]) for k in ("layers", "width", "heads", "vocab", "tied", "seq")}
    if row["family"] == "gpt2":
        return dict(model_type="gpt2", n_layer=number["layers"], n_embd=number["width"], n_head=number["heads"],
                    vocab_size=number["vocab"], n_positions=number["seq"])
    return dict(model_type="llama", num_hidden_layers=number["layers"], hidden_size=number["width"],
                intermediate_size=int(row["ffn"]), num_attention_heads=number["heads"],
                num_key_value_heads=int(row["groups"]), vocab_size=number["vocab"], rms_norm_eps=1e-5,
                hidden_act="silu", tie_word_embeddings=bool(number["tied"]),
                max_position_embeddings=number["seq"])


def write_model(row, folder):
    path = os.path.join(folder, "%s-%s" % (row["name"], row["seq"]))
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(describe(row), f)
    return path


def call(words):
    got = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if got.returncode:
        return None, (got.stderr or got.stdout).strip().splitlines()[-1:]
    return json.loads(got.stdout), None


def predict(o, row, model):
    got, why = call([o.weft, "plan", "--engine", "weft", "--model", model, "--cluster", o.cluster, "--batch",
                     row["batch"], "--seq", row["seq"], "micro_batch=" + row["batch"],
                     "recompute=" + row["recompute"], "offload=" + row.get("offload", "none"), "reduction=invariant", "--precision", "bf16", "--json"])
    if not got:
        return dict(why=why)
    return dict(step_s=got["step_s"], mem_bytes=got["tried"][0]["mem_bytes"])


# Seconds of a row's steps.  A step of seconds says what it says after three.
LEAST_S, MOST_S, LEAST_STEPS = 1.0, 6.0, 3


def count_steps(o, step_s):
    if not step_s:
        return o.steps
    return max(LEAST_STEPS, min(max(o.steps, math.ceil(LEAST_S / step_s)), math.ceil(MOST_S / step_s)))


def measure(o, row, model, steps):
    got, why = call([o.weft, "bench", model, "--device", "cuda", "--dtype", "bf16", "--batch", row["batch"], "--seq",
                     row["seq"], "--recompute", row["recompute"], "--offload", row.get("offload", "none"), "--steps", str(steps),
                     "--json"])
    if not got:
        return dict(why=why)
    return dict(step_s=got["step_ms_median"] / 1e3, mem_bytes=got["mem_peak_bytes"], classes=got.get("classes"), weights=got["weights"])


def print_offload(row, got):
    """As the ZeRO-Offload paper counts: 2 flops a parameter and token forward, twice that backward, and forward again where it
    is computed again."""
    flops = (8 if row["recompute"] == "full" else 6) * got["weights"] * int(row["batch"]) * int(row["seq"])
    return "offload %-9s %.2fB parameters, %.0f Tflops" % (row["offload"], 1e-9 * got["weights"], 1e-12 * flops / got["step_s"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", required=True)
    p.add_argument("--cluster", required=True)
    p.add_argument("--out", default="gpu-predict")
    p.add_argument("--rows", default=os.path.join(HERE, "own_gpu_rows.csv"))
    p.add_argument("--only", choices=["predict", "measure"])
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--from", type=int, default=1, dest="first")
    p.add_argument("--limit", type=float, default=math.inf)
    o = p.parse_args()
    os.makedirs(o.out, exist_ok=True)
    rows = list(csv.DictReader(open(o.rows)))
    model = [write_model(r, os.path.join(o.out, "models")) for r in rows]
    start = time.time()
    predicted = [predict(o, r, m) for r, m in zip(rows, model)]
    with open(os.path.join(o.out, "predicted.csv"), "w") as f:
        print("name,batch,seq,recompute,step_s,mem_bytes", file=f)
        for r, x in zip(rows, predicted):
            print("%s,%s,%s,%s,%s,%s" % (r["name"], r["batch"], r["seq"], r["recompute"], x.get("step_s", ""),
                                         x.get("mem_bytes", x.get("why"))), file=f)
    print("%d rows predicted in %.0f s" % (len(rows), time.time() - start), flush=True)
    if o.only == "predict":
        print(open(os.path.join(o.out, "predicted.csv")).read())
        return 0
    out = open(os.path.join(o.out, "rows.csv"), "w")
    print("name,batch,seq,recompute,predicted_s,measured_s,predicted_bytes,measured_bytes", file=out)
    print("%-12s %5s %5s %-9s  %12s %12s %7s  %10s %10s %7s" % (
        "model", "batch", "seq", "recompute", "predicted ms", "measured ms", "off", "pred. GB", "meas. GB", "off"))
    off = {"step_s": [], "mem_bytes": []}
    begin = time.time()
    for number, (r, m, x) in enumerate(zip(rows, model, predicted), 1):
        if number < o.first or time.time() - begin > o.limit:
            print("row %d (%s, batch %s) is left out" % (number, r["name"], r["batch"]), flush=True)
            continue
        y = measure(o, r, m, count_steps(o, x.get("step_s")))
        head = "%-12s %5s %5s %-9s " % (r["name"], r["batch"], r["seq"], r["recompute"])
        if "step_s" not in x or "step_s" not in y:
            print(head, "not predicted:" if "step_s" not in x else "not measured:", x.get("why") or y.get("why"), flush=True)
            continue
        for k in off:
            off[k].append(x[k] / y[k] - 1)
        print("%s %12.3f %12.3f %+6.1f%%  %10.3f %10.3f %+6.2f%%   %s" % (
            head, 1e3 * x["step_s"], 1e3 * y["step_s"], 100 * off["step_s"][-1], 1e-9 * x["mem_bytes"],
            1e-9 * y["mem_bytes"], 100 * off["mem_bytes"][-1],
            print_offload(row=r, got=y) if "offload" in r else " ".join("%s %.2f" % c for c in (y["classes"] or {}).items())),
            flush=True)
        print("%s,%s,%s,%s,%.6g,%.6g,%d,%d" % (r["name"], r["batch"], r["seq"], r["recompute"], x["step_s"], y["step_s"],
                                               x["mem_bytes"], y["mem_bytes"]), file=out, flush=True)
    steps = [abs(x) for x in off["step_s"]]
    memory = [abs(x) for x in off["mem_bytes"]]
    print("step within 5 %% in %d of %d rows (worst %.1f %%), memory within 2 %% in %d (worst %.2f %%); %.0f s" % (
        sum(x <= 0.05 for x in steps), len(steps), 100 * max(steps, default=0), sum(x <= 0.02 for x in memory),
        100 * max(memory, default=0), time.time() - start))
    return 0 if len(steps) == len(rows) and max(steps) <= 0.05 and max(memory) <= 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
