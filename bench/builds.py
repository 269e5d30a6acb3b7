#!/usr/bin/env python3
"""Two builds of weft in turn: is the new one as fast as the old one?

    bench/builds.py --old OLD/build --new build [--python PY] [--rounds 5] [--limit S] [--only steps,ranks,comm,kills]
                    [--out bench/results/builds.csv]

Old and new alternate within every round, so that other load on the machine hits both.  What is timed:
    steps    `weft bench` of the models below, two threads; with --python also PyTorch (torch.compile where it works,
             fused AdamW, tuned allocator), in the same rounds
    ranks    `weft run`, two ranks of one thread: data parallel and ZeRO 1, beside one rank of two threads; with --python
             also PyTorch DistributedDataParallel on gloo
    comm     `weft bench comm`: all-reduce, reduce-scatter and all-gather within one host, 2 and 4 ranks; beside Open MPI
             where it is installed
    tcp      the same over sockets of this machine (bench/micro/comm_tcp.c, built against each libweft.a)
    kills    how long the last survivor of a killed rank takes to notice it (test_shm)
A line has the medians and the bests of both, and new / old of each.  Above 1 the new build is slower.
"""
import argparse
import csv
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, 'e2e'))
import ddp  # noqa: E402

MODELS = [  # name, preset, layers, dim, heads, vocab, batch, seq, steps
    ('tiny256 b8 s128', 'tiny256', 4, 128, 4, 256, 8, 128, 40),
    ('tiny b8 s128', 'tiny', 4, 128, 4, 50257, 8, 128, 10),
    ('124M b4 s64', 'gpt2', 12, 768, 12, 50257, 4, 64, 6),
]
RANKS = {  # name: processes, words of the new build, words of builds before the keys were renamed
    '1 x 2 threads': (1, ['threads=2'], ['threads=2']),
    '2 x 1 dp=2': (2, ['threads=1', 'dp=2'], ['threads=1', 'mesh=dp=2']),
    '2 x 1 dp=2 zero=1': (2, ['threads=1', 'dp=2', 'zero=1'], ['threads=1', 'mesh=dp=2', 'zero=1']),
}
KB, MB = 1 << 10, 1 << 20
SIZES = [4 * KB, 64 * KB, MB, 16 * MB]


def run(cmd, env=None, check=True, cwd=None):
    r = subprocess.run([str(c) for c in cmd], capture_output=True, text=True, cwd=cwd,
                       env={**os.environ, **(env or {})})
    if check and r.returncode:
        raise RuntimeError('%s: exit %d\n%s' % (' '.join(str(c) for c in cmd), r.returncode, r.stderr[-1500:]))
    return r.stdout


class Table:
    """Samples by case and by who was timed."""

    def __init__(self):
        self.samples = {}

    def add(self, case, who, values):
        self.samples.setdefault(case, {}).setdefault(who, []).append(values)

    def rows(self):
        for case, of in self.samples.items():
            row = {'case': case}
            for who, rounds in of.items():
                row[who + ' median'] = statistics.median(statistics.median(r) for r in rounds)
                row[who + ' best'] = min(min(r) for r in rounds)
            for what in ('median', 'best'):
                row['new / old ' + what] = row['new ' + what] / row['old ' + what]
                for peer in ('torch', 'mpi'):
                    if f'{peer} {what}' in row:
                        row[f'new / {peer} {what}'] = row['new ' + what] / row[f'{peer} {what}']
            row['rounds'] = len(of['new'])
            yield row


def time_steps(a, table):
    for name, preset, layers, dim, heads, vocab, batch, seq, steps in MODELS:
        for who, build in a.builds():
            out = run([build + '/weft', 'bench', preset, '--batch', batch, '--seq', seq, '--threads', 2, '--steps',
                       steps, '--json'])
            table.add('step, ' + name, who, json.loads(out.splitlines()[-1])['step_ms'][2:])
        if a.python:
            out = run([a.python, os.path.join(HERE, 'e2e', 'torch_gpt2.py'), '--layers', layers, '--dim', dim,
                       '--heads', heads, '--vocab', vocab, '--batch', batch, '--seq', seq, '--steps', steps + 2,
                       '--threads', 2, '--optimizer', 'fused'] + (['--compile'] if a.compile else []), TUNED)
            table.add('step, ' + name, 'torch', json.loads(out.splitlines()[-1])['step_ms'][2:])


TUNED = {'MALLOC_TRIM_THRESHOLD_': str(1 << 34), 'MALLOC_MMAP_THRESHOLD_': str(1 << 32),
         'MALLOC_TOP_PAD_': str(1 << 28)}


def time_ranks(a, table, data):
    for name, (n, new, old) in RANKS.items():
        for who, build in a.builds():
            out = tempfile.mkdtemp()
            run(([build + '/weft', 'run', '--nproc-per-node', n] if n > 1 else [build + '/weft', 'train']) +
                ['model=gpt2', f'data={data}', 'seq=64', 'batch=4', 'micro_batch=2', 'steps=8', f'output={out}/o',
                 'checkpoint.every=1000000', '-q', '--json'] + (old if who == 'old' and a.old_keys else new))
            ms = [json.loads(x)['step_ms'] for x in open(f'{out}/o/metrics.jsonl')][2:]
            shutil.rmtree(out)
            table.add('gpt2 b4 s64, ' + name, who, ms)
        if a.python and n == 2 and 'zero' not in name:
            table.add('gpt2 b4 s64, ' + name, 'torch', ddp.torch_run(a.python, 2, 8, 29600))


def time_mpi(mpi, table, n, size, forms):
    """Its one form beside each of ours."""
    out = run(['mpirun.openmpi', '--allow-run-as-root', '--oversubscribe', '-n', n, mpi, size, '0.15'])
    for r in (json.loads(x) for x in out.splitlines() if x.startswith('{')):
        for form in forms.get(r['op'], ()):
            table.add('comm, %d ranks, %s, %s, %d KB' % (n, r['op'], form, size // KB), 'mpi', [r['median_us']])


def time_comm(a, table, folder):
    mpi = os.path.join(folder, 'mpi')
    if shutil.which('mpicc.openmpi') and not os.path.exists(mpi):
        run(['mpicc.openmpi', '-O2', os.path.join(HERE, 'micro', 'comm_mpi.c'), '-o', mpi])
    for n in (2, 4):
        for size in SIZES:
            forms = {}
            for who, build in a.builds():
                out = run([build + '/weft', 'bench', 'comm', '--ranks', n, '--min-bytes', size, '--max-bytes', size,
                           '--seconds', '0.15', '--json'])
                for r in json.loads(out)['results']:
                    if r['op'] in ('all_reduce', 'reduce_scatter', 'all_gather'):
                        forms.setdefault(r['op'], set()).add(r['form'])
                        table.add('comm, %d ranks, %s, %s, %d KB' % (n, r['op'], r['form'], size // KB), who,
                                  [r['median_us']])
            if os.path.exists(mpi):
                time_mpi(mpi, table, n, size, forms)


def build_tcp(build, exe):
    """Builds from before it was a target have to compile it."""
    if os.path.exists(build + '/bench_comm_tcp'):
        shutil.copy(build + '/bench_comm_tcp', exe)
        return
    top = os.path.dirname(os.path.abspath(build))
    include = ['-I' + d for d in [top + '/include', top + '/src', *glob.glob(top + '/src/*/')]]
    run(['gcc', '-O2', '-D_GNU_SOURCE', *include, os.path.join(top, 'bench', 'micro', 'comm_tcp.c'),
         build + '/libweft.a', '-lcrypto', '-lm', '-lpthread', '-ldl', '-o', exe])


def tcp_rows(exe, n, size, port):
    env = dict(os.environ, WEFT_WORLD_SIZE=str(n), WEFT_LOCAL_RANK='0', WEFT_LOCAL_WORLD_SIZE='1',
               WEFT_RDZV=f'127.0.0.1:{port}', WEFT_INSECURE_NETWORK='1')
    ps = [subprocess.Popen(['taskset', '-c', str(r % os.cpu_count()), exe, str(size), '0.15'],
                           env={**env, 'WEFT_RANK': str(r)}, stdout=subprocess.PIPE, text=True) for r in range(n)]
    out = [p.communicate(timeout=120)[0] for p in ps]
    if any(p.returncode for p in ps):
        raise RuntimeError(exe + ' failed')
    return [json.loads(x) for x in out[0].splitlines() if x.startswith('{')]


def time_tcp(a, table, folder):
    for n in (2, 4):
        for size in (4 * KB, 64 * KB, MB):
            for who, build in a.builds():
                exe = os.path.join(folder, 'tcp-' + who)
                if not os.path.exists(exe):
                    build_tcp(build, exe)
                a.port += 1
                for r in tcp_rows(exe, n, size, a.port):
                    table.add('tcp, %d ranks, %s, %d KB' % (n, r['op'], size // KB), who, [r['median_us']])


def time_kills(a, table):
    for who, build in a.builds():
        out = run([build + '/test_shm'], {'WEFT_FAULT_RANK_KILLS': '30'},
                  check=False)
        m = re.search(r'shm: \d+ kills, noticed by the last survivor: median ([0-9.]+) ms', out)
        if m:
            table.add('kill noticed, ms', who, [float(m.group(1))])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--old', required=True)
    p.add_argument('--new', required=True)
    p.add_argument('--old-keys', action='store_true', help='the old build has keys from before they were renamed')
    p.add_argument('--python', help='an interpreter that has torch')
    p.add_argument('--compile', action='store_true', help='torch.compile')
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--only', default='steps,ranks,comm,tcp,kills')
    p.add_argument('--limit', type=float, default=1e9, help='seconds after which no round begins')
    p.add_argument('--out')
    a = p.parse_args()
    a.round, a.port = 0, 29700
    a.builds = lambda: [('old', a.old), ('new', a.new)][::-1 if a.round % 2 else 1]
    what, table, start = a.only.split(','), Table(), time.time()
    with ddp.tokens() as data, tempfile.TemporaryDirectory() as folder:
        for a.round in range(a.rounds):
            if time.time() - start > a.limit:
                break
            if 'steps' in what:
                time_steps(a, table)
            if 'ranks' in what:
                time_ranks(a, table, data.name)
            if 'comm' in what:
                time_comm(a, table, folder)
            if 'tcp' in what:
                time_tcp(a, table, folder)
            if 'kills' in what:
                time_kills(a, table)
            print('round %d of %d' % (a.round + 1, a.rounds), file=sys.stderr, flush=True)
    rows = list(table.rows())
    for r in rows:
        print(r['case'] + ':', ', '.join('%s %.4g' % (k, v) for k, v in r.items() if k != 'case'))
    if a.out:
        keys = ['case', *sorted({k for r in rows for k in r if k != 'case'})]
        with open(a.out, 'w', newline='') as f:
            w = csv.DictWriter(f, keys)
            w.writeheader()
            w.writerows({k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()} for r in rows)


if __name__ == '__main__':
    main()
