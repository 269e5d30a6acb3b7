#!/usr/bin/env python3
"""How near a published scaling curve the model comes if every unpublished knob may be chosen freely.

  knobs.py --weft build/weft --data ../shared/validation calibrate/mcore_weak.csv

Rows that leave micro_batch, vpp and recompute open are predicted with each legal value of the three.  Of those that fit, the
ones are picked, row by row and with the measured value in sight, that bring the curve's slope (slopes.py) nearest.  What is
left no choice of knobs explains.
"""
import argparse, csv, os, subprocess, tempfile

import slopes


def choices(row):
    share, layers = int(row["global_batch"]) // int(row["dp"]), int(row["layers"]) // int(row["pp"])
    chunks = [1] if row["pp"] == "1" else [v for v in range(1, layers + 1) if layers % v == 0]
    for b in (1, 2, 4, 8):
        for v in chunks if share % b == 0 else ():
            for again in ("none", "selective", "full"):
                yield {"micro_batch": b, "vpp": v, "recompute": again}


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("curve")
    ap.add_argument("--weft", required=True)
    ap.add_argument("--data", required=True)
    a = ap.parse_args()
    path = os.path.join(a.data, a.curve)
    rows = sorted(csv.DictReader(open(path)), key=lambda r: int(r["n_node"]) * int(r["dev_per_node"]))
    peak = {r["name"]: float(r["peak_bf16"] or r["peak_fp16"]) for r in csv.DictReader(open(a.data + "/hardware.csv"))}
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as f:
        w = csv.DictWriter(f, list(rows[0]))
        w.writeheader()
        for i, r in enumerate(rows):
            for k, c in enumerate(choices(r)):
                w.writerow(dict(r, id="%d/%d" % (i, k), **c))
        f.flush()
        out = subprocess.run([a.weft, "estimate", "--table", f.name, "--hardware", a.data], capture_output=True, text=True, check=True)
    scale = [100 * slopes.model_flops(r) / (int(r["n_node"]) * int(r["dev_per_node"]) * peak[r["hw"]]) for r in rows]
    measured = [x / float(r["step_s"]) for x, r in zip(scale, rows)]
    reached = [[] for _ in rows]
    for p in csv.DictReader(out.stdout.splitlines()):
        i = int(p["id"].split("/")[0])
        if p["fits"] == "1":
            reached[i].append(scale[i] / float(p["step_s"]))
    for r, m, x in zip(rows, measured, reached):
        print("%6d devices: measured %.1f %%, predicted %.1f to %.1f" % (int(r["n_node"]) * int(r["dev_per_node"]), m, min(x), max(x)))

    def worst(first):
        return max(min(abs((u - first) - (m - measured[0])) for u in x) for m, x in zip(measured[1:], reached[1:]))
    print("largest difference of slopes, knobs chosen freely: %.1f points" % min(worst(u) for u in reached[0]))


if __name__ == "__main__":
    main()
