#!/usr/bin/env python3
"""Collectives inside one host: weft beside Open MPI, MPICH and gloo, in turn.

    bench/micro/comm.py [--weft build/weft] [--python PY] [--ranks 2,4] [--seconds 0.15] [--max-bytes N]
                        [--under 'chrt -f 10'] [--out bench/results/comm.csv]

For each size everyone runs once a round (three rounds, fewer from 64 MB on; gloo one), so that a noisy neighbour
hits all alike.  Peers that are not installed are left out with a line (Debian: libopenmpi-dev openmpi-bin,
libmpich-dev mpich; gloo: --python names an interpreter that has torch).  Medians over calls, then over rounds; the
best call of all.  Ratio: the fastest MPI's median over this row's.  At the end a line for each goal, by our
faster form in slabs.

--under puts words before every command; MPICH spins without yielding, so with more ranks than processors it runs
without them.
"""
import argparse
import csv
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KB, MB = 1 << 10, 1 << 20
SIZES = [4 * KB, 64 * KB, MB, 16 * MB, 64 * MB, 512 * MB]
MPI = ('openmpi', 'mpich')
SLABS = ('weft in_place', 'weft result', 'weft apart')
GOALS = [  # ranks, op, sizes from .. to, at least so many times as fast as the fastest MPI
    (2, 'all_reduce', 4 * KB, 4 * KB, 3),
    (2, 'all_reduce', MB, MB, 5),
    (2, 'all_reduce', 16 * MB, 16 * MB, 2.5),
    (2, 'all_reduce', 64 * MB, 512 * MB, 6),
    (4, 'all_reduce', 4 * KB, 16 * MB, 3),
    (4, 'all_reduce', 64 * MB, 512 * MB, 6),
    (2, 'reduce_scatter', 64 * KB, 512 * MB, 5),
    (4, 'reduce_scatter', 64 * KB, 512 * MB, 5),
]


def words(n):
    return f'{n // MB} MB' if n >= MB else f'{n // KB} KB'


def rows(cmd, limit=120):
    """The JSON lines of a command, or none where it failed.  Ranks that spin must not outlive it."""
    cmd = [str(c) for c in cmd]
    p = subprocess.Popen(cmd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = p.communicate(timeout=limit)
    except BaseException as e:
        os.killpg(p.pid, signal.SIGKILL)
        p.communicate()
        if not isinstance(e, subprocess.TimeoutExpired):
            raise
        print(f'{" ".join(cmd)}: more than {limit} s', file=sys.stderr)
        return []
    if p.returncode:
        print(f'{" ".join(cmd)}: exit {p.returncode}: {err.strip()[-300:]}', file=sys.stderr)
        return []
    return [json.loads(line) for line in out.splitlines() if line.startswith('{')]


def build_mpi(name, where):
    cc, run = f'mpicc.{name}', f'mpirun.{name}'
    if not (shutil.which(cc) and shutil.which(run)):
        print(f'{name}: not installed, left out', file=sys.stderr)
        return None
    exe = os.path.join(where, f'comm_{name}')
    subprocess.run([cc, '-O2', os.path.join(HERE, 'comm_mpi.c'), '-o', exe], check=True)
    extra = ['--allow-run-as-root', '--oversubscribe'] if name == 'openmpi' else []
    return lambda n, size, s: rows([*under(name, n), run, *extra, '-n', n, exe, size, s])


def ours(weft):
    def f(n, size, s):
        r = rows([*under('weft', n), weft, 'bench', 'comm', '--ranks', n, '--min-bytes', size, '--max-bytes', size,
                  '--seconds', s, '--json'])
        return r[0]['results'] if r else []
    return f


def under(name, n):
    return [] if name == 'mpich' and n > len(os.sched_getaffinity(0)) else a.under.split()


def everyone(where):
    who = {'weft': ours(a.weft)}
    for name in MPI:
        f = build_mpi(name, where)
        if f:
            who[name] = f
    if a.python and not subprocess.run([a.python, '-c', 'import torch.distributed'], capture_output=True).returncode:
        who['gloo'] = lambda n, size, s: rows([*under('gloo', n), a.python, os.path.join(HERE, 'comm_torch.py'), n,
                                               size, s])
    else:
        print('gloo: --python names no interpreter with torch, left out', file=sys.stderr)
    return who


def measure(who, n, size):
    """{op: {row: (median_us, best_us)}}"""
    got = {}
    for k in range(1 if size > 64 * MB else 2 if size == 64 * MB else 3):
        for name, f in who.items():
            if k and name == 'gloo':
                continue
            for r in f(n, size, a.seconds):
                row = f"{name} {r['form']}" if 'form' in r else name
                got.setdefault(r['op'], {}).setdefault(row, []).append((r['median_us'], r['best_us']))
    return {op: {row: (statistics.median(m for m, _ in v), min(b for _, b in v)) for row, v in x.items()}
            for op, x in got.items()}


def verdict(fastest, ranks, op, lo, hi, goal):
    got = {s: r for (n, o, s), r in fastest.items() if n == ranks and o == op and lo <= s <= hi}
    if not got:
        return None
    at, least = min(got.items(), key=lambda x: x[1])
    size = words(lo) if lo == hi else f'{words(lo)} to {words(hi)}'
    each = ', '.join(f'{words(s)} {r:.1f}' for s, r in sorted(got.items()))
    return (f'{"met   " if least >= goal else "MISSED"} {ranks} ranks {op} {size}: at least {goal}x, '
            f'least {least:.2f}x at {words(at)}  ({each})')


def main():
    start, table, fastest = time.time(), [], {}
    with tempfile.TemporaryDirectory() as where:
        who = everyone(where)
        for n in map(int, a.ranks.split(',')):
            for size in (s for s in SIZES if s <= a.max_bytes):
                for op, x in measure(who, n, size).items():
                    mpi = min((x[m][0] for m in MPI if m in x), default=None)
                    mine = min((x[m][0] for m in SLABS if m in x), default=None)
                    if mpi and mine:
                        fastest[n, op, size] = mpi / mine
                    for row, (med, best) in x.items():
                        ratio = f'{mpi / med:.2f}' if mpi else ''
                        table.append([n, op, size, row, f'{med:.2f}', f'{best:.2f}', f'{size / med * 1e-3:.3f}', ratio])
                        print(f'{n} ranks {op:15} {words(size):>6} {row:14} median {med:>12.1f} us  best {best:>12.1f} '
                              f'us {size / med * 1e-3:7.2f} GB/s  {ratio:>6}', flush=True)
    if a.out:
        os.makedirs(os.path.dirname(a.out) or '.', exist_ok=True)
        with open(a.out, 'w', newline='') as f:
            w = csv.writer(f)
            w.writerow(['ranks', 'op', 'bytes', 'who', 'median_us', 'best_us', 'GBps_median',
                        'fastest_mpi_over_this_median'])
            w.writerows(table)
    print(*filter(None, (verdict(fastest, *g) for g in GOALS)), sep='\n')
    print(f'{time.time() - start:.0f} s')


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--weft', default='build/weft')
    p.add_argument('--python', default=os.environ.get('WEFT_PYTHON'))
    p.add_argument('--ranks', default='2,4')
    p.add_argument('--seconds', type=float, default=0.15)
    p.add_argument('--max-bytes', type=int, default=SIZES[-1])
    p.add_argument('--under', default='')
    p.add_argument('--out', default='bench/results/comm.csv')
    a = p.parse_args()
    main()
