#!/usr/bin/env python3
"""Steps of plain PyTorch on the GPU of this machine, beside what weft estimate says of them.

    bench/predict/gpu.py --weft build/weft --hw h200-141g --hardware DIR [--out bench/results/predict-gpu-DATE.csv]
                         [--cluster CALIBRATED.yaml]   the device as weft cluster calibrate measured it
                         [--against FILE.csv]          steps measured before, instead of running them (no GPU is needed)

DIR holds hardware.csv and network.csv.  Nothing here was fitted to: the engine has no constants of its own, so its defaults
count, and neither this device nor these rows are in the calibration.  bf16 under autocast, fp32 weights, fused AdamW,
PyTorch's own attention kernels; each row is the median of a few steps after a warm-up.
"""
import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

# family, layers, hidden, heads, kv_heads, ffn, vocab, seq, micro_batch, global_batch, recompute
ROWS = [
    ('gpt', 12, 768, 12, 12, 3072, 50304, 1024, 16, 64, 'none'),
    ('gpt', 12, 768, 12, 12, 3072, 50304, 1024, 4, 16, 'none'),
    ('gpt', 24, 1024, 16, 16, 4096, 50304, 1024, 8, 32, 'none'),
    ('gpt', 24, 2048, 16, 16, 8192, 50304, 2048, 4, 16, 'none'),
    ('gpt', 24, 2048, 16, 16, 8192, 50304, 2048, 4, 16, 'full'),
    ('gpt', 24, 2048, 16, 16, 8192, 50304, 2048, 1, 4, 'none'),
    ('gpt', 32, 2560, 32, 32, 10240, 50304, 2048, 4, 8, 'full'),
    ('gpt', 16, 4096, 32, 32, 16384, 50304, 2048, 2, 8, 'none'),
    ('llama', 16, 2048, 32, 8, 8192, 32000, 4096, 2, 8, 'none'),
    ('llama', 16, 2048, 32, 8, 8192, 32000, 8192, 1, 4, 'none'),
    ('llama', 28, 3072, 24, 8, 8192, 32000, 4096, 1, 4, 'none'),
    ('llama', 28, 3072, 24, 8, 8192, 32000, 4096, 4, 8, 'full'),
    ('llama', 16, 4096, 32, 8, 14336, 32000, 4096, 1, 4, 'none'),
    ('llama', 16, 4096, 32, 8, 14336, 32000, 4096, 2, 8, 'full'),
]


class Block(nn.Module):
    def __init__(self, family, h, heads, kv, ffn):
        super().__init__()
        gated = family == 'llama'
        norm = nn.RMSNorm if gated else nn.LayerNorm
        self.heads, self.kv, self.d, self.gated = heads, kv, h // heads, gated
        self.n1, self.n2 = norm(h), norm(h)
        self.qkv = nn.Linear(h, (heads + 2 * kv) * self.d, bias=not gated)
        self.o = nn.Linear(h, h, bias=not gated)
        self.up = nn.Linear(h, ffn * (2 if gated else 1), bias=not gated)
        self.down = nn.Linear(ffn, h, bias=not gated)

    def forward(self, x):
        b, s, h = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, s, self.heads + 2 * self.kv, self.d).transpose(1, 2).split(
            [self.heads, self.kv, self.kv], 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, h))
        u = self.up(self.n2(x))
        if self.gated:
            g, u = u.chunk(2, -1)
            return x + self.down(F.silu(g) * u)
        return x + self.down(F.gelu(u))


class Model(nn.Module):
    def __init__(self, row):
        super().__init__()
        family, layers, h, heads, kv, ffn, vocab, seq, _, _, recompute = row
        self.again = recompute == 'full'
        self.emb = nn.Embedding(vocab, h)
        self.pos = nn.Embedding(seq, h) if family == 'gpt' else None
        self.blocks = nn.ModuleList([Block(family, h, heads, kv, ffn) for _ in range(layers)])
        self.norm = nn.LayerNorm(h) if family == 'gpt' else nn.RMSNorm(h)
        self.head = nn.Linear(h, vocab, bias=False)
        if family == 'gpt':
            self.head.weight = self.emb.weight

    def forward(self, ids):
        x = self.emb(ids)
        if self.pos is not None:
            x = x + self.pos.weight
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if self.again else b(x)
        y = self.head(self.norm(x))
        return F.cross_entropy(y.flatten(0, 1), ids.flatten())


def measure(row, steps):
    vocab, seq, mb, gb = row[6:10]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with torch.device('cuda'):
        m = Model(row)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(vocab, (mb, seq), device='cuda')
    times = []
    for i in range(steps + 2):
        torch.cuda.synchronize()
        t = time.perf_counter()
        for _ in range(gb // mb):
            with torch.autocast('cuda', torch.bfloat16):
                loss = m(ids)
            loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - t)
    return statistics.median(times[2:]), torch.cuda.max_memory_reserved()


def table(path, rows, hw):
    with open(path, 'w', newline='') as f:
        w = csv.writer(f)
        w.writerow('id source framework hw net n_node dev_per_node family layers hidden heads kv_heads head_dim ffn_hidden '
                   'gated_mlp vocab tied_embedding seq tp pp dp cp ep vpp sp zero micro_batch global_batch recompute '
                   'flash_attention precision master_dtype grad_dtype optimizer status'.split())
        for i, (fam, lay, h, heads, kv, ffn, vocab, seq, mb, gb, again) in enumerate(rows):
            w.writerow([f'gpu-{i}', 'gpu', 'PyTorch', hw, '', 1, 1, fam, lay, h, heads, kv, h // heads, ffn,
                        int(fam == 'llama'), vocab, int(fam == 'gpt'), seq, 1, 1, 1, 1, 1, 1, 0, 0, mb, gb, again, 1, 'bf16',
                        'fp32', 'fp32', 'adamw', 'ok'])


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('--weft', default='build/weft')
    a.add_argument('--hw', default='h200-141g')
    a.add_argument('--hardware', default='../shared/validation')
    a.add_argument('--steps', type=int, default=5)
    a.add_argument('--cluster')
    a.add_argument('--against')
    a.add_argument('--out', default=f'bench/results/predict-gpu-{time.strftime("%Y-%m-%d")}.csv')
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as d:
        table(f'{d}/rows.csv', ROWS, o.hw)
        words = [o.weft, 'estimate', '--table', f'{d}/rows.csv', '--hardware', o.hardware]
        r = subprocess.run(words + (['--cluster', o.cluster] if o.cluster else []), capture_output=True, text=True)
        if r.returncode:
            sys.exit(r.stderr)
    said = list(csv.DictReader(r.stdout.splitlines()))
    before = list(csv.DictReader(open(o.against))) if o.against else None
    off, inside, full = [], 0, []
    with open(o.out, 'w', newline='') as f:
        w = csv.writer(f)
        w.writerow(['family', 'layers', 'hidden', 'heads', 'kv_heads', 'ffn', 'vocab', 'seq', 'micro_batch', 'global_batch',
                    'recompute', 'predicted_s', 'low_s', 'high_s', 'measured_s', 'predicted_bytes', 'measured_bytes'])
        for i, (row, p) in enumerate(zip(ROWS, said)):
            t, mem = (float(before[i]['measured_s']), int(before[i]['measured_bytes'])) if before else measure(row, o.steps)
            s, lo, hi, b = (float(p[k]) for k in ('step_s', 'step_lo', 'step_hi', 'mem_bytes'))
            off.append(s / t - 1)
            full.append(b / mem - 1)
            inside += lo <= t <= hi
            w.writerow(list(row) + [f'{s:.4f}', f'{lo:.4f}', f'{hi:.4f}', f'{t:.4f}', int(b), mem])
            print(f'{row}: predicted {s:.3f} s, measured {t:.3f} ({100 * off[-1]:+.1f} %), memory {b / 2**30:.1f} of '
                  f'{mem / 2**30:.1f} GB', flush=True)
    print(f'{o.against if before else torch.cuda.get_device_name() + ", PyTorch " + torch.__version__}: {len(off)} rows, mean error of time '
          f'{100 * statistics.mean(map(abs, off)):.1f} %, of memory {100 * statistics.mean(map(abs, full)):.1f} %, '
          f'{inside} inside the 90 % interval')


if __name__ == '__main__':
    main()
