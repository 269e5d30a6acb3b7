#!/usr/bin/env python3
"""trace_sum.py FILE: the instructions of a trace (weft bench --trace) by kind and size: how many, how long, how fast.

The lines are sorted by time.  ms: of all of one kind in the trace; TFLOP/s and GB/s by the instructions' own counts.
"""
import json
import sys


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(sys.argv[1]) as f:
        trace = json.load(f)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    kinds, classes = {}, {}
    for e in events:
        if e.get("ph") != "X" or "work" not in e.get("args", {}):
            continue
        a = e["args"]
        key = (a["work"], " x ".join(str(n) for n in a["size"]))
        for table, name in ((kinds, key), (classes, e["cat"])):
            row = table.setdefault(name, [0, 0.0, 0.0, 0.0])
            row[0] += 1
            row[1] += e["dur"] / 1e3
            row[2] += a["flops"]
            row[3] += a["bytes"]
    total = sum(row[1] for row in classes.values())
    for name, (n, ms, flops, size) in sorted(classes.items(), key=lambda x: -x[1][1]):
        print(f"{ms:9.3f} ms {100 * ms / max(total, 1e-9):5.1f} %  {n:5d}  {name}")
    print(f"{total:9.3f} ms in all")
    for (work, size), (n, ms, flops, moved) in sorted(kinds.items(), key=lambda x: -x[1][1]):
        s = max(ms, 1e-9) / 1e3
        print(f"{ms:9.3f} ms  {n:5d}  {ms / n:8.4f} each  {flops / s / 1e12:7.1f} TFLOP/s  {moved / s / 1e9:7.0f} GB/s  "
              f"{work}  {size}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
