#!/usr/bin/env python3
"""Training steps of PyTorch on a GPU: the peer of `weft bench --device cuda`.

    bench/gpu/torch_step.py --model gpt2 --batch 32 --seq 1024 [--mode default,reduce-overhead] [--attention flash,cudnn]
                            [--weights autocast,bf16] [--fp8 none,exact,fast] [--compile whole|blocks] [--deterministic] [--steps 20]

bf16, fused AdamW, no clipping, random tokens that stay on the GPU.  One line of JSON for each setting: the time of every
step after warm-up, by events, and the peak of allocated memory.

  --mode       of torch.compile; eager: none
  --compile    the whole model as one graph, or one graph for all blocks and one for the head and loss (as torchtitan does), which
               takes seconds to compile instead of minutes
  --fp8        linear layers of the blocks multiply in e4m3 by torch._scaled_mm, forward and both gradients, each row of an
               operand with a scale of its own (a power of two); exact: sums in fp32, fast: use_fast_accum
  --weights    autocast: fp32 parameters under autocast; bf16: parameters in bf16 with fp32 masters that the optimizer updates
"""
import argparse
import itertools
import json
import statistics
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKEND = {'flash': SDPBackend.FLASH_ATTENTION, 'cudnn': SDPBackend.CUDNN_ATTENTION}


E4M3 = torch.float8_e4m3fn


def to_codes(x):
    """Codes and scales of the rows of x; a code counts so much as its row's scale."""
    largest = x.abs().amax(1, keepdim=True).float().clamp(min=1e-12)
    scale = torch.exp2(torch.ceil(torch.log2(largest / 448)))
    return (x.float() / scale).clamp(-448, 448).to(E4M3).contiguous(), scale.contiguous()


def scaled_matmul(a, b, fast, dtype=torch.bfloat16):
    """a (m,k) by b (n,k), transposed."""
    (a, scale_a), (b, scale_b) = to_codes(a), to_codes(b)
    return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b.t(), out_dtype=dtype, use_fast_accum=fast)


class Fp8Product(torch.autograd.Function):
    """x (rows,k) by w (n,k), transposed."""

    @staticmethod
    def forward(ctx, x, w, fast):
        ctx.save_for_backward(x, w)
        ctx.fast = fast
        return scaled_matmul(x, w, fast)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        dx = scaled_matmul(dy, w.t(), ctx.fast)
        dw = scaled_matmul(dy.t(), x.t(), ctx.fast)
        return dx, dw, None


class Fp8Linear(nn.Linear):
    fast = False

    def forward(self, x):
        y = Fp8Product.apply(x.flatten(0, -2).bfloat16(), self.weight.bfloat16(), self.fast).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias.bfloat16()


def use_fp8(model, fast):
    """Every linear layer but a router; the heads are tables."""
    for name, m in model.named_modules():
        if type(m) is nn.Linear and not name.endswith('router'):
            m.__class__ = Fp8Linear
            m.fast = fast


class GptBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        n, t, dim = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(o.transpose(1, 2).reshape(n, t, dim))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate='tanh'))


class Gpt(nn.Module):
    """vocab is padded to a multiple of 64, as users of PyTorch do it."""

    def __init__(self, seq, dim, heads, layers, vocab=50304):
        super().__init__()
        self.vocab = vocab
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(seq, dim)
        self.blocks = nn.ModuleList(GptBlock(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x, labels)

    def head(self, x, labels):
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Experts(nn.Module):
    """Top-k experts over torch._grouped_mm: rows sorted by expert, no row dropped."""

    def __init__(self, dim, hidden, experts, top):
        super().__init__()
        self.experts, self.top = experts, top
        self.router = nn.Linear(dim, experts, False)
        self.gate_up = nn.Parameter(0.02 * torch.randn(experts, dim, 2 * hidden))
        self.down = nn.Parameter(0.02 * torch.randn(experts, hidden, dim))

    def forward(self, x):
        rows = x.flatten(0, 1)
        share, expert = torch.topk(F.softmax(self.router(rows).float(), -1), self.top)
        share = (share / share.sum(-1, keepdim=True)).flatten()
        order = torch.argsort(expert.flatten(), stable=True)
        ends = torch.cumsum(torch.bincount(expert.flatten(), minlength=self.experts), 0).to(torch.int32)
        sent = rows[order // self.top].bfloat16()
        gate, up = torch._grouped_mm(sent, self.gate_up.bfloat16(), ends).chunk(2, -1)
        made = torch._grouped_mm(F.silu(gate) * up, self.down.bfloat16(), ends) * share[order, None]
        return torch.zeros_like(rows).index_add(0, order // self.top, made.to(rows.dtype)).view_as(x)


class Gated(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate_up, self.down = nn.Linear(dim, 2 * hidden, False), nn.Linear(hidden, dim, False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class LlamaBlock(nn.Module):
    def __init__(self, dim, heads, groups, hidden, experts):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, dim // heads
        self.norm_1, self.norm_2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.q = nn.Linear(dim, dim, False)
        self.kv = nn.Linear(dim, 2 * groups * self.size, False)
        self.proj = nn.Linear(dim, dim, False)
        self.mlp = Experts(dim, hidden, experts, 2) if experts else Gated(dim, hidden)

    def forward(self, x, cos, sin):
        n, t, dim = x.shape
        y = self.norm_1(x)
        q = self.q(y).view(n, t, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(y).view(n, t, 2, self.groups, self.size).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.proj(o.transpose(1, 2).reshape(n, t, dim))
        return x + self.mlp(self.norm_2(x))


class Llama(nn.Module):
    def __init__(self, seq, dim, heads, groups, hidden, layers, vocab, experts=0):
        super().__init__()
        self.vocab = vocab
        self.tokens = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(LlamaBlock(dim, heads, groups, hidden, experts) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        size = dim // heads
        angle = torch.outer(torch.arange(seq).float(), 1e4 ** (-torch.arange(0, size, 2).float() / size)).repeat(1, 2)
        self.register_buffer('cos', angle.cos().bfloat16())
        self.register_buffer('sin', angle.sin().bfloat16())

    def forward(self, ids, labels):
        x = self.tokens(ids).bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(x, labels)

    def head(self, x, labels):
        logits = F.linear(self.norm(x), self.tokens.weight.bfloat16())
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


MODELS = {
    'gpt2': lambda seq: Gpt(seq, 768, 12, 12),
    'gpt-1.3b': lambda seq: Gpt(seq, 2048, 16, 24),
    'llama-1.2b': lambda seq: Llama(seq, 2048, 32, 8, 8192, 16, 128256),
    'mixtral-like': lambda seq: Llama(seq, 1024, 16, 4, 3584, 12, 32000, experts=8),
}


def make_step(model, weights, run, ids, labels):
    """A closure that trains one step."""
    if weights == 'autocast':
        opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step():
            opt.zero_grad(set_to_none=True)
            with torch.autocast('cuda', dtype=torch.bfloat16):
                loss = run(ids, labels)
            loss.backward()
            opt.step()
            return loss
        return step
    own = list(model.parameters())
    masters = [p.detach().float().clone() for p in own]
    opt = torch.optim.AdamW(masters, lr=1e-4, fused=True)

    def step():
        loss = run(ids, labels)
        loss.backward()
        for p, m in zip(own, masters):
            m.grad = p.grad.float()
            p.grad = None
        opt.step()
        with torch.no_grad():
            torch._foreach_copy_(own, masters)
        return loss
    return step


def compile_model(model, mode, parts):
    if mode == 'eager':
        return model
    if parts == 'whole':
        return torch.compile(model, mode=mode)
    for k, block in enumerate(model.blocks):
        model.blocks[k] = torch.compile(block, mode=mode)
    model.head = torch.compile(model.head, mode=mode)
    return model


def time_setting(a, mode, attention, weights, fp8):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = MODELS[a.model](a.seq).cuda()
    if weights == 'bf16':
        model = model.bfloat16()
    if fp8 != 'none':
        use_fp8(model, fp8 == 'fast')
    run = compile_model(model, mode, a.compile)
    ids, labels = (torch.randint(model.vocab, (a.batch, a.seq), device='cuda') for _ in range(2))
    step, times = make_step(model, weights, run, ids, labels), []
    torch.cuda.reset_peak_memory_stats()
    with sdpa_kernel(BACKEND[attention]):
        for k in range(6 + a.steps):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            step()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
    return {'model': a.model, 'batch': a.batch, 'seq': a.seq, 'mode': mode, 'attention': attention, 'weights': weights,
            'fp8': fp8, 'compile': a.compile, 'deterministic': a.deterministic, 'torch': torch.__version__, 'median_ms': statistics.median(times[6:]),
            'best_ms': min(times[6:]), 'peak_bytes': torch.cuda.max_memory_allocated()}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--model', choices=MODELS, default='gpt2')
    p.add_argument('--batch', type=int, default=32)
    p.add_argument('--seq', type=int, default=1024)
    p.add_argument('--mode', default='default')
    p.add_argument('--attention', default='flash,cudnn')
    p.add_argument('--weights', default='autocast')
    p.add_argument('--fp8', default='none')
    p.add_argument('--compile', choices=('whole', 'blocks'), default='whole')
    p.add_argument('--deterministic', action='store_true')
    p.add_argument('--steps', type=int, default=20)
    a = p.parse_args()
    torch.set_float32_matmul_precision('high')
    torch.use_deterministic_algorithms(a.deterministic, warn_only=True)
    for mode in a.mode.split(','):
        for attention in a.attention.split(','):
            for weights, fp8 in itertools.product(a.weights.split(','), a.fp8.split(',')):
                try:
                    print(json.dumps(time_setting(a, mode, attention, weights, fp8)), flush=True)
                except Exception as e:  # a setting that this version of PyTorch does not have
                    print('%s %s %s fp8 %s: %s' % (mode, attention, weights, fp8, str(e).splitlines()[0]), file=sys.stderr)
                torch.cuda.empty_cache()


if __name__ == '__main__':
    main()
