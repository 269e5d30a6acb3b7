#!/usr/bin/env python3
"""Collectives between two hosts over TCP: weft beside Open MPI and MPICH, in turn.

    bench/micro/comm_tcp.py [--build build] [--rounds 3] [--seconds 0.3] [--max-bytes N] [--busy] [--out FILE]

The hosts are network namespaces joined by a veth pair (root), one rank on each; --busy runs everybody at
nice -20, for a machine that others use (real-time priority would starve the thread by which MPICH's UCX connects).
Every peer is told to use TCP: Open MPI its own (ob1, btl tcp), MPICH the libfabric or UCX it was built with (FI_PROVIDER=tcp, UCX_TLS=tcp).  Medians over calls, then over rounds.
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
ROOT = os.path.dirname(os.path.dirname(HERE))
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
NS = [f'wb{os.getpid()}a', f'wb{os.getpid()}b']
DEVICE = [f'wba{os.getpid() % 10000}', f'wbb{os.getpid() % 10000}']
NET = '10.179.7'
port = 25000


def sh(cmd):
    subprocess.run(cmd, shell=True, check=True)


def cable():
    v = DEVICE
    for n in NS:
        sh(f'ip netns add {n}')
    sh(f'ip link add {v[0]} type veth peer name {v[1]}')
    for i, n in enumerate(NS):
        sh(f'ip link set {v[i]} netns {n}; ip -n {n} addr add {NET}.{i + 1}/24 dev {v[i]};'
           f'ip -n {n} link set lo up; ip -n {n} link set {v[i]} up')


def lines(text):
    return [json.loads(x) for x in text.splitlines() if x.startswith('{')]


def weft(exe, pre):
    def f(size, s):
        global port
        port += 1
        ps = []
        for r in (0, 1):
            env = dict(os.environ, WEFT_RANK=str(r), WEFT_WORLD_SIZE='2', WEFT_LOCAL_RANK='0', WEFT_LOCAL_WORLD_SIZE='1',
                       WEFT_RDZV=f'{NET}.1:{port}')
            ps.append(subprocess.Popen(['ip', 'netns', 'exec', NS[r], *pre, 'taskset', '-c', str(r), exe, str(size), str(s)],
                                       env=env, stdout=subprocess.PIPE, text=True))
        out = [p.communicate(timeout=120)[0] for p in ps]
        return lines(out[0]) if not any(p.returncode for p in ps) else None
    return f


def mpi(name, where, pre):
    cc, run = f'mpicc.{name}', shutil.which(f'mpirun.{name}')
    if not (shutil.which(cc) and run):
        print(f'{name}: not installed, left out', file=sys.stderr)
        return None
    exe, agent, pin = (os.path.join(where, f'{x}_{name}') for x in ('comm', 'agent', 'pin'))
    subprocess.run([cc, '-O2', os.path.join(HERE, 'comm_mpi.c'), '-o', exe], check=True)
    with open(agent, 'w') as f:
        # options and the host's name come first; hydra names both hosts, ORTE only the other
        f.write('#!/bin/sh\nns=%s\nwhile :; do case $1 in -*) shift;; %s.1) ns=%s; shift; break;; *) shift; break;; '
                'esac; done\nexec ip netns exec $ns sh -c "$*"\n' % (NS[1], NET, NS[0]))
    with open(pin, 'w') as f:
        f.write('#!/bin/sh\nr=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nexec %s taskset -c $r %s "$@"\n' % (' '.join(pre), exe))
    os.chmod(agent, 0o755)
    os.chmod(pin, 0o755)
    if name == 'openmpi':
        cmd = [run, '--allow-run-as-root', '--bind-to', 'none', '-n', '2', '-H', f'{NET}.1,{NET}.2', '--mca',
               'plm_rsh_agent', agent, '--mca', 'oob_tcp_if_include', f'{NET}.0/24', '--mca', 'btl_tcp_if_include',
               f'{NET}.0/24', '--mca', 'pml', 'ob1', '--mca', 'btl', 'tcp,self']
    else:
        cmd = [run, '-iface', DEVICE[0], '-launcher', 'ssh', '-launcher-exec', agent, '-hosts', f'{NET}.1,{NET}.2', '-n', '2']
    env = dict(os.environ, FI_PROVIDER='tcp', UCX_TLS='tcp,self')

    def f(size, s):
        try:
            r = subprocess.run(['ip', 'netns', 'exec', NS[0], *cmd, pin, str(size), str(s)], env=env, capture_output=True,
                               text=True, timeout=60)
        except subprocess.TimeoutExpired:
            print(f'{name}: more than 60 s', file=sys.stderr)
            return None
        if r.returncode:
            print(f'{name}: exit {r.returncode}: {(r.stderr or r.stdout).strip()[-400:]}', file=sys.stderr)
        return lines(r.stdout)
    return f


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--build', default='build')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--seconds', type=float, default=0.3)
    p.add_argument('--min-bytes', type=int, default=0)
    p.add_argument('--max-bytes', type=int, default=SIZES[-1])
    p.add_argument('--busy', action='store_true')
    p.add_argument('--out')
    a = p.parse_args()
    pre = ['nice', '-n', '-20'] if a.busy else []
    table = []
    cable()
    try:
        with tempfile.TemporaryDirectory() as where:
            exe = os.path.join(where, 'comm_tcp')
            subprocess.run(['cc', '-O2', '-D_GNU_SOURCE', f'-I{ROOT}/include', f'-I{ROOT}/src',
                            os.path.join(HERE, 'comm_tcp.c'), f'{a.build}/libweft.a', '-lm', '-lpthread', '-ldl', '-o', exe],
                           check=True)
            who = {'weft': weft(exe, pre), 'openmpi': mpi('openmpi', where, pre), 'mpich': mpi('mpich', where, pre)}
            for size in (s for s in SIZES if a.min_bytes <= s <= a.max_bytes):
                got = {}
                for _ in range(a.rounds):
                    for name, f in who.items():
                        for r in (f and f(size, a.seconds)) or []:
                            got.setdefault((r['op'], name), []).append((r['median_us'], r['best_us']))
                for op in sorted({k[0] for k in got}):
                    med = {k[1]: statistics.median(m for m, _ in v) for k, v in got.items() if k[0] == op}
                    rest = [v for k, v in med.items() if k != 'weft']
                    ratio = f'{min(rest) / med["weft"]:.2f}' if rest and 'weft' in med else ''
                    for name, m in med.items():
                        best = min(b for _, b in got[op, name])
                        table.append([2, op, size, name, f'{m:.2f}', f'{best:.2f}', f'{size / m * 1e-3:.3f}', ratio])
                        print(f'{op:15} {size:>10} {name:8} median {m:>11.1f} us  best {best:>11.1f} us {size / m * 1e-3:7.3f} GB/s')
                    print(f'{op:15} {size:>10} the fastest MPI takes {ratio} of our time', flush=True)
    finally:
        for n in NS:
            subprocess.run(['ip', 'netns', 'del', n])
    if a.out:
        os.makedirs(os.path.dirname(a.out) or '.', exist_ok=True)
        with open(a.out, 'w', newline='') as f:
            w = csv.writer(f)
            w.writerow(['ranks', 'op', 'bytes', 'who', 'median_us', 'best_us', 'GBps_median', 'fastest_mpi_to_weft'])
            w.writerows(table)


if __name__ == '__main__':
    main()
