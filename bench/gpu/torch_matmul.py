#!/usr/bin/env python3
"""Matmuls of PyTorch at the shapes of linear layers: bf16, and e4m3 by torch._scaled_mm with a scale for each row, with sums
in fp32 and with use_fast_accum; codes ready, and made in the same call (compiled).  The peer of `bench_cuda_ops matmul`.

    bench/gpu/torch_matmul.py [--quick]

One line a shape (m, n, k): ms and TFLOP/s of each."""
import argparse

import torch

from torch_step import scaled_matmul, to_codes

# (m, n, k) of y = x w, dx = dy w and dw = x dy, for d to f: tokens, d, f
LAYERS = {"gpt-1.3b": [(8192, 2048, 6144), (8192, 2048, 2048), (8192, 2048, 8192), (8192, 8192, 2048)],
          "llama-1.2b": [(16384, 2048, 3072), (16384, 2048, 8192), (16384, 8192, 2048)]}


def milliseconds(call, rounds):
    best = 1e9
    for _ in range(3):
        call()
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(rounds):
            call()
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) / rounds)
    return best


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--quick", action="store_true", help="codes ready alone: nothing is compiled")
    a = p.parse_args()
    whole = None if a.quick else torch.compile(scaled_matmul, dynamic=False)
    for model, layers in LAYERS.items():
        seen = set()
        for tokens, d, f in layers:
            for m, n, k in ((tokens, f, d), (tokens, d, f), (d, f, tokens)):
                if (m, n, k) in seen:
                    continue
                seen.add((m, n, k))
                x, w = (torch.randn(s, k, device="cuda", dtype=torch.bfloat16) for s in (m, n))
                (cx, sx), (cw, sw) = to_codes(x), to_codes(w)
                calls = {"bf16": lambda: x @ w.t()}
                for fast in (False, True):
                    calls["fp8 fast" if fast else "fp8"] = lambda fast=fast: torch._scaled_mm(
                        cx, cw.t(), scale_a=sx, scale_b=sw.t(), out_dtype=torch.bfloat16, use_fast_accum=fast)
                if whole:
                    torch._dynamo.reset()  # each shape is compiled anew; above a number of them it runs eagerly
                    calls["fp8 with codes"] = lambda: whole(x, w, False)
                made = {name: milliseconds(call, 20) for name, call in calls.items()}
                print("%-10s %5d x %5d x %5d  " % (model, m, n, k) + "  ".join(
                    "%s %.4f ms %.0f TFLOP/s" % (name, ms, 2e-9 * m * n * k / ms) for name, ms in made.items()), flush=True)


if __name__ == "__main__":
    main()
