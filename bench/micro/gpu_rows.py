#!/usr/bin/env python3
"""Rates of the head's three products by where rows begin: vocabularies that are multiples of 8, 4, 2 and of nothing.

    bench/micro/gpu_rows.py > bench/results/h200-rows-DATE.csv

Needs PyTorch and a GPU.  TFLOP/s of logits = x w^T, of the input's and of the weight's gradient, and of all three."""
import torch


def seconds(run, n=20):
    run(), run()
    torch.cuda.synchronize()
    before, after = torch.cuda.Event(True), torch.cuda.Event(True)
    before.record()
    for _ in range(n):
        run()
    after.record()
    torch.cuda.synchronize()
    return before.elapsed_time(after) / n * 1e-3


def unit(n):
    return next((u for u in (128, 64, 32, 16, 8, 4, 2) if n % u == 0), 1)


def main():
    print("# %s, PyTorch %s" % (torch.cuda.get_device_name(), torch.__version__))
    print("dtype,hidden,tokens,vocabulary,multiple_of,forward,input_gradient,weight_gradient,all")
    for dtype in (torch.bfloat16, torch.float16):
        for h in (1024, 2048, 4096):
            for rows in (1024, 4096, 8192):
                for v in (25216, 25128, 25132, 25130, 25129, 12672, 12564, 6400, 6282, 50304, 50257, 50256, 50260, 50258):
                    x = torch.randn(rows, h, device="cuda", dtype=dtype)
                    w = torch.randn(v, h, device="cuda", dtype=dtype) * 0.02
                    d = torch.randn(rows, v, device="cuda", dtype=dtype)
                    rate = [2e-12 * rows * h * v / seconds(f) for f in (lambda: x @ w.t(), lambda: d @ w, lambda: d.t() @ x)]
                    rate.append(3 / sum(1 / r for r in rate))
                    print(str(dtype)[6:], h, rows, v, unit(v), *("%.0f" % r for r in rate), sep=",", flush=True)


if __name__ == "__main__":
    main()
