#!/usr/bin/env python3
"""A training job of PyTorch by wall clock: the peer of `weft train` on a GPU.

    bench/gpu/torch_wall.py --data tokens.bin [--model gpt2] [--batch 32] [--seq 1024] [--steps 200] [--mode default]
                            [--attention flash] [--out FOLDER]

The model, bf16 autocast and fused AdamW of torch_step.py, as its fastest setting has them; batches of a file of 16-bit tokens,
copied from pinned memory while the step before runs; gradients clipped to norm 1; the loss read every tenth step; one
torch.save of model and optimizer in the middle of the run.  One line of JSON: seconds to the end of the first step
(start, compiling), milliseconds a step after it by wall clock with the checkpoint, what the checkpoint took, cores of the host
after the first step.

--device cpu --model tiny: a run without a GPU, to see that it works."""
import argparse
import json
import os
import resource
import sys
import time

import torch
from torch.nn.attention import sdpa_kernel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_step

MODELS = dict(torch_step.MODELS, tiny=lambda seq: torch_step.Gpt(seq, 32, 2, 2, 512))


def cpu_seconds():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


class Batches:
    """Samples of a token file in order, one step ahead on the device."""

    def __init__(self, a):
        self.tokens = torch.from_file(a.data, dtype=torch.int16, size=os.path.getsize(a.data) // 2)
        self.a, self.at = a, 0
        self.ahead = self.read()

    def read(self):
        a, n = self.a, self.a.batch * self.a.seq
        if self.at + n + 1 > len(self.tokens):
            self.at = 0
        part = self.tokens[self.at:self.at + n + 1].long() & 0xffff
        self.at += n
        pair = [part[:-1].view(a.batch, a.seq), part[1:].view(a.batch, a.seq)]
        if a.device == 'cuda':
            pair = [x.pin_memory().to('cuda', non_blocking=True) for x in pair]
        return pair

    def next(self):
        now, self.ahead = self.ahead, self.read()
        return now


def synchronize(a):
    if a.device == 'cuda':
        torch.cuda.synchronize()


def save(a, model, opt, step):
    """As torch.save is used: model and optimizer, the older one replaced at the end."""
    begin = time.time()
    path = os.path.join(a.out, 'checkpoint.pt')
    torch.save({'model': model.state_dict(), 'optimizer': opt.state_dict(), 'step': step}, path + '.tmp')
    os.replace(path + '.tmp', path)
    return time.time() - begin


def train(a, begun):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision('high')
    model = MODELS[a.model](a.seq).to(a.device)
    run = model if a.mode == 'eager' else torch.compile(model, mode=a.mode)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches, losses = Batches(a), []
    for k in range(1, a.steps + 1):
        ids, labels = batches.next()
        with torch.autocast(a.device, dtype=torch.bfloat16):
            loss = run(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if k % 10 == 0 or k == 1:
            losses.append(loss.item())
            print('step %d: loss %.4f' % (k, losses[-1]), file=sys.stderr)
        if k == 1:
            synchronize(a)
            first, used = time.time(), cpu_seconds()
        if k == a.steps // 2:
            saved_s = save(a, model, opt, k)
    synchronize(a)
    wall = time.time() - first
    return {'model': a.model, 'batch': a.batch, 'seq': a.seq, 'steps': a.steps, 'mode': a.mode, 'attention': a.attention,
            'torch': torch.__version__, 'first_s': first - begun, 'step_ms': 1e3 * wall / (a.steps - 1), 'checkpoint_s': saved_s,
            'cores': (cpu_seconds() - used) / wall, 'loss': losses[-1]}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--data', required=True)
    p.add_argument('--model', choices=MODELS, default='gpt2')
    p.add_argument('--batch', type=int, default=32)
    p.add_argument('--seq', type=int, default=1024)
    p.add_argument('--steps', type=int, default=200)
    p.add_argument('--mode', default='default', help='of torch.compile; eager: none')
    p.add_argument('--attention', choices=torch_step.BACKEND, default='flash')
    p.add_argument('--device', choices=('cuda', 'cpu'), default='cuda')
    p.add_argument('--out', default='.')
    a, begun = p.parse_args(), time.time()
    with sdpa_kernel(torch_step.BACKEND[a.attention]):
        print(json.dumps(train(a, begun)))


if __name__ == '__main__':
    main()
