#!/usr/bin/env python3
"""Slopes of published scaling curves, predicted against measured.

  slopes.py predictions.csv calibrate/mcore_weak.csv calibrate/mcore_strong.csv

At each size: model FLOP utilisation (percent of the 16-bit peak, half of the scores, nothing run again), and how far it
has moved from the curve's smallest size, predicted minus measured, in points.  A constant factor moves no slope: the
last column takes predicted utilisations times one factor for the whole curve.
"""
import csv, os, sys


def number(row, key):
    return float(row[key] or 0)


def model_flops(r):
    """Of one step, forward and backward."""
    h, s, layers = number(r, "hidden"), number(r, "seq"), number(r, "layers")
    d = number(r, "head_dim")
    q, kv = number(r, "heads") * d, number(r, "kv_heads") * d
    ffn = (3 if r["gated_mlp"] == "1" else 2) * h * number(r, "ffn_hidden")
    weights = layers * (h * (2 * q + 2 * kv) + ffn) + h * number(r, "vocab")
    return number(r, "global_batch") * s * (6 * weights + 6 * layers * s * q)


def main():
    predicted = {r["id"]: r for r in csv.DictReader(open(sys.argv[1]))}
    folder = os.path.dirname(os.path.dirname(os.path.abspath(sys.argv[2])))
    peak = {r["name"]: float(r["peak_bf16"] or r["peak_fp16"])
            for r in csv.DictReader(open(os.path.join(folder, "hardware.csv")))}
    for path in sys.argv[2:]:
        rows = [r for r in csv.DictReader(open(path)) if r["status"] == "ok" and r["suspect"] != "1"]
        rows.sort(key=lambda r: number(r, "n_node") * number(r, "dev_per_node"))
        line = []
        for r in rows:
            n = int(number(r, "n_node") * number(r, "dev_per_node"))
            rate = 100 * model_flops(r) / (n * peak[r["hw"]])
            line.append((n, rate / number(r, "step_s"), rate / float(predicted[r["id"]]["step_s"])))
        print("%s\n  devices  measured  predicted  moved by  against   points  scaled" % rows[0]["source"])
        first, worst, worst_scaled = line[0], 0, 0
        factor = first[1] / first[2]
        for n, a, b in line:
            off = (b - first[2]) - (a - first[1])
            scaled = factor * (b - first[2]) - (a - first[1])
            worst, worst_scaled = max(worst, abs(off)), max(worst_scaled, abs(scaled))
            print("  %7d  %7.1f%%  %8.1f%%  %8.1f  %7.1f  %+7.1f  %+6.1f" % (n, a, b, b - first[2], a - first[1], off, scaled))
        print("  largest difference %.1f points (goal 2), %.1f scaled" % (worst, worst_scaled))


if __name__ == "__main__":
    main()
