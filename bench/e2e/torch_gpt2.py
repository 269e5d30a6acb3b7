#!/usr/bin/env python3
"""A GPT-2 training step in PyTorch: the peer of `weft bench`.

    torch_gpt2.py --layers 12 --dim 768 --heads 12 --vocab 50257 --batch 4 --seq 64 --steps 12

Prints one JSON object with the time of each step.  Works on PyTorch 1.13 and newer; newer ones get
their fused attention and, with --optimizer fused, their fused AdamW.
"""
import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.ln_2 = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, 4 * dim)
        self.out = nn.Linear(4 * dim, dim)

    def attend(self, x, mask):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(d, dim=2))
        if hasattr(F, 'scaled_dot_product_attention'):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            w = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            o = w.masked_fill(mask[:s, :s], float('-inf')).softmax(-1) @ v
        return self.proj(o.transpose(1, 2).reshape(b, s, d))

    def forward(self, x, mask):
        x = x + self.attend(self.ln_1(x), mask)
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate='tanh'))


class Gpt(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.wte = nn.Embedding(a.vocab, a.dim)
        self.wpe = nn.Embedding(1024, a.dim)
        self.h = nn.ModuleList(Block(a.dim, a.heads) for _ in range(a.layers))
        self.ln_f = nn.LayerNorm(a.dim)
        self.register_buffer('mask', torch.ones(a.seq, a.seq, dtype=torch.bool).triu(1))
        # As GPT-2 begins: with embeddings of deviation 1 gradients are denormal numbers, which slow some processors down.
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, labels):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x, self.mask)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(layers=12, dim=768, heads=12, vocab=50257, batch=4, seq=64, steps=12,
                            threads=2).items():
        p.add_argument('--' + name, type=int, default=value)
    p.add_argument('--optimizer', choices=['plain', 'foreach', 'fused'], default='foreach')
    p.add_argument('--compile', action='store_true')
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Gpt(a)
    kind = {'plain': {'foreach': False}, 'foreach': {'foreach': True}, 'fused': {'fused': True}}
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, **kind[a.optimizer])
    run = torch.compile(model) if a.compile else model
    ids = torch.randint(a.vocab, (a.batch, a.seq))
    labels = torch.randint(a.vocab, (a.batch, a.seq))
    times = []
    for _ in range(a.steps):
        start = time.perf_counter()
        loss = run(ids, labels)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        times.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({'torch': torch.__version__, 'loss': float(loss.detach()), 'step_ms': times}))


if __name__ == '__main__':
    main()
