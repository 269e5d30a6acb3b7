#!/usr/bin/env python3
"""Collectives inside one host: weft beside Open MPI, MPICH and gloo, in turn.

    bench/micro/comm.py [--weft build/weft] [--ranks 2,4] [--rounds 3] [--seconds 0.5] [--max-bytes N]
                        [--out bench/results/comm.csv]

For each size everyone runs once a round, so that a noisy neighbour hits all alike.  Peers that are not installed
are left out with a line (Debian: libopenmpi-dev openmpi-bin, libmpich-dev mpich; gloo: WEFT_PYTHON names a Python
that has torch).  Medians over calls, then over rounds; the best call of all.  Ratio: our best form against the
fastest MPI, by medians.
"""
import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 512 << 20]


def rows(cmd, env=None, limit=300):
    """The JSON lines of a command, or None where it failed."""
    try:
        r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True, timeout=limit,
                           env={**os.environ, **(env or {})})
    except subprocess.TimeoutExpired:
        print(f'{cmd[0]}: more than {limit} s', file=sys.stderr)
        return None
    if r.returncode:
        print(f'{" ".join(map(str, cmd))}: exit {r.returncode}: {r.stderr.strip()[-300:]}', file=sys.stderr)
        return None
    return [json.loads(line) for line in r.stdout.splitlines() if line.startswith('{')]


def build_mpi(name, where):
    cc, run = f'mpicc.{name}', f'mpirun.{name}'
    if not (shutil.which(cc) and shutil.which(run)):
        print(f'{name}: not installed, left out', file=sys.stderr)
        return None
    exe = os.path.join(where, f'comm_{name}')
    subprocess.run([cc, '-O2', os.path.join(HERE, 'comm_mpi.c'), '-o', exe], check=True)
    extra = ['--allow-run-as-root', '--oversubscribe'] if name == 'openmpi' else []
    return lambda n, size, s: rows([run, *extra, '-n', n, exe, size, s])


def peers(where):
    who = {}
    for name in ('openmpi', 'mpich'):
        f = build_mpi(name, where)
        if f:
            who[name] = f
    python = os.environ.get('WEFT_PYTHON')
    if python and not subprocess.run([python, '-c', 'import torch.distributed'], capture_output=True).returncode:
        who['gloo'] = lambda n, size, s: rows([python, os.path.join(HERE, 'comm_torch.py'), n, size, s])
    else:
        print('gloo: WEFT_PYTHON names no Python with torch, left out', file=sys.stderr)
    return who


def ours(weft):
    def f(n, size, s):
        r = rows([weft, 'bench', 'comm', '--ranks', n, '--min-bytes', size, '--max-bytes', size, '--seconds', s,
                  '--json'])
        return r and r[0]['results']
    return f


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--weft', default='build/weft')
    p.add_argument('--ranks', default='2,4')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--seconds', type=float, default=0.5)
    p.add_argument('--max-bytes', type=int, default=SIZES[-1])
    p.add_argument('--out')
    a = p.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as where:
        who = {'weft': ours(a.weft), **peers(where)}
        for n in map(int, a.ranks.split(',')):
            for size in (s for s in SIZES if s <= a.max_bytes):
                got = {}
                for _ in range(a.rounds):
                    for name, f in who.items():
                        for r in f(n, size, a.seconds) or []:
                            key = (r['op'], f"{name} {r['form']}" if 'form' in r else name)
                            got.setdefault(key, []).append((r['median_us'], r['best_us']))
                for op in sorted({k[0] for k in got}):
                    mine = [statistics.median(m for m, _ in v) for k, v in got.items()
                            if k[0] == op and k[1] in ('weft in_place', 'weft result')]
                    mpi = [statistics.median(m for m, _ in v) for k, v in got.items()
                           if k[0] == op and k[1] in ('openmpi', 'mpich')]
                    ratio = f'{min(mpi) / min(mine):.2f}' if mine and mpi else ''
                    for k, v in sorted(got.items()):
                        if k[0] != op:
                            continue
                        med, best = statistics.median(m for m, _ in v), min(b for _, b in v)
                        table.append([n, op, size, k[1], f'{med:.2f}', f'{best:.2f}', f'{size / med * 1e-3:.3f}',
                                      ratio])
                        print(f'{n} ranks {op:15} {size:>10} {k[1]:14} median {med:>12.1f} us  best {best:>12.1f} us'
                              f'  {size / med * 1e-3:7.2f} GB/s')
                    if ratio:
                        print(f'{n} ranks {op:15} {size:>10} ratio to the fastest MPI: {ratio}')
    if a.out:
        os.makedirs(os.path.dirname(a.out) or '.', exist_ok=True)
        with open(a.out, 'w', newline='') as f:
            w = csv.writer(f)
            w.writerow(['ranks', 'op', 'bytes', 'who', 'median_us', 'best_us', 'GBps_median', 'weft_to_fastest_mpi'])
            w.writerows(table)


if __name__ == '__main__':
    main()
