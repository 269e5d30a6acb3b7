#!/usr/bin/env python3
"""Training steps side by side: weft, PyTorch (old and new, several settings), llm.c.

    bench/e2e/gpt2.py --weft build/weft --python /usr/bin/python3 --python NEW/bin/python
                      [--llmc CMD] [--rounds 3] [--only tiny256] [--out bench/results/e2e.csv]

Everyone runs in turn, --rounds times, on the same cores, so that a noisy neighbour hits all alike.
The first two steps of each run are warm-up.  Reported: best and median over all rounds, and our ratio
to the fastest setting of each peer.  --llmc is a command that takes BATCH SEQ LAYERS DIM VOCAB STEPS and
prints one step time in ms a line; it is built outside this repository.
"""
import argparse
import csv
import json
import os
import shlex
import statistics
import subprocess
import sys

# name, preset, layers, dim, heads, vocab, batch, seq
CONFIGS = [
    ('124M b4 s64', 'gpt2', 12, 768, 12, 50257, 4, 64),
    ('124M b4 s256', 'gpt2', 12, 768, 12, 50257, 4, 256),
    ('tiny b8 s128', 'tiny', 4, 128, 4, 50257, 8, 128),
    ('tiny256 b8 s128', 'tiny256', 4, 128, 4, 256, 8, 128),
]
HERE = os.path.dirname(os.path.abspath(__file__))
# glibc's malloc told to keep what it has: the "tuned allocator" of the table.
TUNED = {'MALLOC_TRIM_THRESHOLD_': str(1 << 34), 'MALLOC_MMAP_THRESHOLD_': str(1 << 32),
         'MALLOC_TOP_PAD_': str(1 << 28)}


def run(cmd, env=None):
    r = subprocess.run(cmd, capture_output=True, text=True, env={**os.environ, **(env or {})})
    if r.returncode:
        sys.exit(f'{" ".join(cmd)}: exit {r.returncode}\n{r.stderr[-2000:]}')
    return r.stdout


def weft(a, c, steps):
    out = json.loads(run([a.weft, 'bench', c[1], '--batch', str(c[6]), '--seq', str(c[7]), '--threads',
                          str(a.threads), '--steps', str(steps), '--json']).splitlines()[-1])
    a.extra = {k: out[k] for k in ('gflops', 'peak_gflops', 'mem_peak_bytes') if k in out}
    return out['step_ms'][2:]


def torch(a, c, steps, python, optimizer, env, compiled=False):
    cmd = [python, os.path.join(HERE, 'torch_gpt2.py'), '--layers', c[2], '--dim', c[3], '--heads', c[4],
           '--vocab', c[5], '--batch', c[6], '--seq', c[7], '--steps', steps, '--threads', a.threads,
           '--optimizer', optimizer] + (['--compile'] if compiled else [])
    return json.loads(run([str(x) for x in cmd], env).splitlines()[-1])['step_ms'][2:]


def llmc(a, c, steps):
    cmd = shlex.split(a.llmc) + [str(x) for x in (c[6], c[7], c[2], c[3], c[5], steps)]
    return [float(x) for x in run(cmd, {'OMP_NUM_THREADS': str(a.threads)}).split()][2:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--weft', default='build/weft')
    p.add_argument('--python', action='append', default=[])
    p.add_argument('--llmc')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--steps', type=int, default=8)
    p.add_argument('--threads', type=int, default=2)
    p.add_argument('--only')
    p.add_argument('--compile', action='store_true', help='torch.compile too (slow to start)')
    p.add_argument('--out')
    a = p.parse_args()
    rows = []
    for c in CONFIGS:
        if a.only and a.only != c[1] and a.only != c[0]:
            continue
        steps = a.steps * 5 if c[1] == 'tiny256' else a.steps
        who = {'weft': lambda: weft(a, c, steps)}
        for py in a.python:
            v = run([py, '-c', 'import torch; print(torch.__version__.split("+")[0])']).strip()
            new = v.split('.')[0] != '1'
            who[f'torch {v}'] = lambda py=py: torch(a, c, steps, py, 'foreach', {})
            who[f'torch {v} tuned'] = lambda py=py: torch(a, c, steps, py, 'foreach', TUNED)
            if new:
                who[f'torch {v} tuned fused'] = lambda py=py: torch(a, c, steps, py, 'fused', TUNED)
                if a.compile:
                    who[f'torch {v} compiled'] = lambda py=py: torch(a, c, steps, py, 'fused', TUNED, True)
        if a.llmc:
            who['llm.c'] = lambda: llmc(a, c, min(steps, 5))
        times = {k: [] for k in who}
        for _ in range(a.rounds):
            for k, f in who.items():
                times[k] += f()
        ours = statistics.median(times['weft'])
        print(f'\n{c[0]}, {a.threads} threads: {a.extra}')
        for k, t in times.items():
            best, median = min(t), statistics.median(t)
            rows.append([c[0], a.threads, k, round(best, 2), round(median, 2),
                         round(min(times['weft']) / best, 3), round(ours / median, 3)])
            print(f'  {k:28s} best {best:9.1f} ms  median {median:9.1f} ms   weft/this: '
                  f'best {rows[-1][5]:.3f} median {rows[-1][6]:.3f}', flush=True)
    if a.out:
        with open(a.out, 'w', newline='') as f:
            w = csv.writer(f)
            w.writerow(['config', 'threads', 'who', 'best_ms', 'median_ms', 'weft_over_this_best',
                        'weft_over_this_median'])
            w.writerows(rows)


if __name__ == '__main__':
    main()
