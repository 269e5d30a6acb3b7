#!/usr/bin/env python3
"""Bytes of a rank under ZeRO: planned, measured, and by FSDP's own arithmetic.

    bench/memory/zero.py --weft build/weft [--model gpt2] [--ranks 2,4,8] [--zero 0,1,2,3] [--measure [--share 0.5]] [--out bench/results/zero.csv]

One line for each number of data-parallel ranks, ZeRO stage, 1 and 4 micro-batches a rank (of one sequence of --seq
tokens, fp32, AdamW), with reduction: fixed; stages 2 and 3 with 4 micro-batches also with invariant, where every rank
holds whole sums of gradients.  One lane for each rank.

  planned   the fullest rank's slabs (weft sim --json): state, work and staging memory
  run       planned by the run itself (mem_peak_bytes of rank 0, which also writes files), with kernels' scratch
  measured  --measure: the largest sum of proportional set sizes over all ranks, shared by the number of ranks, while `weft run`
            trains 2 steps (with program text, libraries and heap).  Left out where
            all ranks would take more than --share of the memory that is free.
  fsdp      what FSDP holds by its own account: parameters, gradients and both moments of Adam at 4 bytes each, those that
            the stage shards divided by the ranks; gradients, and with stage 3 parameters, of the largest unit (a block, or
            the tied embedding) whole besides; no activations and nothing that the update needs besides, which the others have
"""
import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'tests', 'support'))
from processes import descendants

SIZES = {'gpt2': (12, 768, 50257, 1024), 'tiny': (4, 128, 50257, 1024)}  # layers, width, vocabulary, positions


def parameters(model):
    """All, and those of the largest unit."""
    layers, dim, vocab, pos = SIZES[model]
    block = 12 * dim * dim + 13 * dim
    table = (vocab + pos) * dim
    return layers * block + table + 2 * dim, max(block, table)


def run(cmd):
    ended = subprocess.run(cmd, capture_output=True, text=True)
    if ended.returncode:
        sys.exit('%s: %s' % (' '.join(cmd), ended.stderr.strip()))
    return ended.stdout


def planned(args, dp, zero, micro, reduction):
    out = run([args.weft, 'sim', args.model, 'dp=%d' % dp, 'zero=%d' % zero, '--batch', str(dp * micro), '--micro-batch', '1',
               '--seq', str(args.seq), '--lanes', str(dp), '--reduction', reduction, '--dtype', 'fp32', '--json',
               '--cluster', '1 x (%d x epyc-9654)' % dp])
    return max(json.loads(out)['mem_bytes'])


def proportional(pid):
    try:
        for line in open('/proc/%d/smaps_rollup' % pid):
            if line.startswith('Pss:'):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def measured(args, folder, model, dp, zero, micro, reduction):
    """Bytes of a rank by the kernel's count, and by the run's own."""
    cmd = [args.weft, 'run', '--nproc-per-node', str(dp), 'model=' + model, 'data=' + args.data, 'data_format=text', 'tokenizer=bytes',
           'seq=%d' % args.seq, 'batch=%d' % (dp * micro), 'micro_batch=1', 'lanes=%d' % dp, 'steps=2', 'init=random', 'threads=1',
           'dp=%d' % dp, 'zero=%d' % zero, 'reduction=' + reduction, 'memory=any', 'checkpoint.every=0',
           'output=' + os.path.join(folder, 'out-%f' % time.time()), '--json', '-q']
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most = 0
    while p.poll() is None:
        most = max(most, sum(proportional(x) for x in descendants(p.pid)))
        time.sleep(.05)
    out, err = p.communicate()
    if p.returncode:
        sys.exit('%s: %s' % (' '.join(cmd), err.strip()))
    return most / dp, json.loads(out.strip().split('\n')[-1])['mem_peak_bytes']


def available():
    for line in open('/proc/meminfo'):
        if line.startswith('MemAvailable:'):
            return int(line.split()[1]) * 1024


def fsdp(args, dp, zero):
    n, unit = parameters(args.model)
    shares = {0: 16 * n, 1: 8 * n + 8 * n / dp, 2: 4 * n + 12 * n / dp + 4 * unit, 3: 16 * n / dp + 8 * unit}
    return shares[zero]


def write(path, rows):
    if not path:
        return
    with open(path, 'w', newline='') as f:
        w = csv.DictWriter(f, rows[0], lineterminator='\n')
        w.writeheader()
        w.writerows(rows)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', default='build/weft')
    p.add_argument('--model', default='gpt2', choices=sorted(SIZES))
    p.add_argument('--seq', type=int, default=64)
    p.add_argument('--ranks', default='2,4,8')
    p.add_argument('--zero', default='0,1,2,3', help='stages')
    p.add_argument('--measure', action='store_true')
    p.add_argument('--share', type=float, default=0.5, help='of free memory that all ranks may take')
    p.add_argument('--data', default='src', help='text to train on')
    p.add_argument('--out')
    args = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for dp in [int(x) for x in args.ranks.split(',')]:
            for micro in (1, 4):
                for zero, reduction in [(0, 'fixed'), (1, 'fixed'), (2, 'fixed'), (3, 'fixed')] + \
                        ([(2, 'invariant'), (3, 'invariant')] if micro > 1 else []):
                    if str(zero) not in args.zero.split(','):
                        continue
                    plan = planned(args, dp, zero, micro, reduction)
                    row = {'model': args.model, 'seq': args.seq, 'dp': dp, 'micro_batches': micro, 'zero': zero, 'reduction': reduction,
                           'planned': plan, 'fsdp': round(fsdp(args, dp, zero)), 'run': '', 'measured': ''}
                    if args.measure and dp * plan < args.share * available():
                        row['measured'], row['run'] = (round(x) for x in measured(args, folder, args.model, dp, zero, micro, reduction))
                    rows.append(row)
                    write(args.out, rows)
                    print('%s dp=%d %d micro-batches zero=%d %-9s planned %7.1f MB, fsdp %7.1f%s' % (
                        args.model, dp, micro, zero, reduction, 1e-6 * plan, 1e-6 * row['fsdp'],
                        ', run %7.1f, measured %7.1f' % (1e-6 * row['run'], 1e-6 * row['measured']) if row['run'] else ''), flush=True)


if __name__ == '__main__':
    main()
