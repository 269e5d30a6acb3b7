#!/usr/bin/env python3
"""Rates of fused attention on one GPU over sequence lengths and head sizes: rows for gpu_curves.cu's CSV.
Needs PyTorch.  flops: 4 b h s s d, halved where causal, forward; 2.5 times that backward."""
import torch, torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def timed(run, least_s=0.02):
    for _ in range(3):
        run()
    n = 3
    while True:
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(n):
            run()
        b.record()
        b.synchronize()
        s = a.elapsed_time(b) * 1e-3
        if s >= least_s:
            return s / n
        n *= 3


def main():
    for name, backend in (("flash2", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        for d in (64, 128):
            for s in (512, 1024, 2048, 4096, 8192, 16384, 32768):
                for tokens in (4096, 16384):
                    if s > tokens * 2:
                        continue
                    b, h = max(tokens // s, 1), 16
                    q, k, v = (torch.randn(b, h, s, d, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
                    try:
                        with sdpa_kernel(backend):
                            fwd = timed(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True).detach())
                            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                            g = torch.randn_like(out)
                            bwd = timed(lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True))
                    except RuntimeError as e:
                        print("# %s %d %d: %s" % (name, d, s, str(e).split("\n")[0]))
                        continue
                    flops = 2.0 * b * h * s * s * d
                    for what, f, t in (("forward", flops, fwd), ("backward", 2.5 * flops, bwd)):
                        print("attention_%s,%s,%d,%d,%d,%d,%.6g,0,%.6g,%.6g,0" % (name, what, s, s, d, b * h, f, t, f / t), flush=True)


if __name__ == "__main__":
    main()
