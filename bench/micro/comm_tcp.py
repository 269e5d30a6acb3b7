#!/usr/bin/env python3
"""Collectives between hosts over TCP: weft beside Open MPI and MPICH, in turn.

    bench/micro/comm_tcp.py [--build build] [--ranks 2,4] [--rounds 3] [--seconds 0.3] [--max-bytes N] [--busy] [--peers openmpi,mpich] [--out FILE]

The hosts are network namespaces (root), one rank on each: two are joined by a veth pair, more by a bridge; --busy runs everybody at
nice -20 (real-time priority would starve the thread by which MPICH's UCX connects) and in one group of processes, for a machine
that others use: who yields, or is started in a session of its own, then gets as much of it as anybody else here.
Every peer is told to use TCP: Open MPI its own (ob1, btl tcp), MPICH the libfabric or UCX it was built with (FI_PROVIDER=tcp, UCX_TLS=tcp).  Medians over calls, then over rounds.
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

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
NS, DEVICE = [], []  # one of each for every host
HUB = f'wbh{os.getpid()}'
NET = '10.179.7'
port = 25000


def sh(cmd):
    subprocess.run(cmd, shell=True, check=True)


def cable(n):
    pid = os.getpid()
    NS[:] = [f'wb{n}x{i}-{pid}' for i in range(n)]
    DEVICE[:] = [f'wb{n}x{i}-{pid % 100000}' for i in range(n)]
    for x in NS:
        sh(f'ip netns add {x}')
    if n == 2:
        sh(f'ip link add {DEVICE[0]} type veth peer name {DEVICE[1]}')
    else:
        sh(f'ip netns add {HUB}; ip -n {HUB} link add hub type bridge; ip -n {HUB} link set hub up')
        for d in DEVICE:
            sh(f'ip link add {d} type veth peer name p{d}; ip link set p{d} netns {HUB};'
               f'ip -n {HUB} link set p{d} master hub; ip -n {HUB} link set p{d} up')
    for i, x in enumerate(NS):
        sh(f'ip link set {DEVICE[i]} netns {x}; ip -n {x} addr add {NET}.{i + 1}/24 dev {DEVICE[i]};'
           f'ip -n {x} link set lo up; ip -n {x} link set {DEVICE[i]} up')


def unplug():
    for x in NS + ([HUB] if len(NS) > 2 else []):
        subprocess.run(['ip', 'netns', 'del', x])
    NS[:] = []


def own_group():
    """Into a heavy cpu group of our own, where there are such; returns what leaves it."""
    for top, knob, most in (('/sys/fs/cgroup/cpu', 'cpu.shares', 88761), ('/sys/fs/cgroup', 'cpu.weight', 10000)):
        d = f'{top}/weft-bench-{os.getpid()}'

        def put(path, x):
            with open(path, 'w') as f:
                f.write(str(x))
        try:
            os.mkdir(d)
            put(f'{d}/{knob}', most)
            put(f'{d}/cgroup.procs', os.getpid())
            return lambda: (put(f'{top}/cgroup.procs', os.getpid()), os.rmdir(d))
        except OSError:
            if os.path.isdir(d):
                os.rmdir(d)
    print('no cpu group of our own here: figures depend on who else runs', file=sys.stderr)
    return lambda: None


def core(r):
    return str(r % os.cpu_count())


def lines(text):
    return [json.loads(x) for x in text.splitlines() if x.startswith('{')]


def weft(exe, pre):
    def f(size, s):
        global port
        port += 1
        ps = []
        for r in range(len(NS)):
            env = dict(os.environ, WEFT_RANK=str(r), WEFT_WORLD_SIZE=str(len(NS)), WEFT_LOCAL_RANK='0',
                       WEFT_LOCAL_WORLD_SIZE='1', WEFT_RDZV=f'{NET}.1:{port}',
                       WEFT_INSECURE_NETWORK='1')
            ps.append(subprocess.Popen(['ip', 'netns', 'exec', NS[r], *pre, 'taskset', '-c', core(r), exe, str(size), str(s)],
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
        # options and the host's name come first
        each = ' '.join(f'{NET}.{i + 1}) ns={x}; shift; break;;' for i, x in enumerate(NS))
        f.write('#!/bin/sh\nwhile :; do case $1 in -*) shift;; %s *) exit 1;; esac; done\n'
                'exec ip netns exec $ns sh -c "$*"\n' % each)
    with open(pin, 'w') as f:
        f.write('#!/bin/sh\nr=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nexec %s taskset -c $((r %% %d)) %s "$@"\n' %
                (' '.join(pre), os.cpu_count(), exe))
    os.chmod(agent, 0o755)
    os.chmod(pin, 0o755)
    n, hosts = str(len(NS)), ','.join(f'{NET}.{i + 1}' for i in range(len(NS)))
    if name == 'openmpi':
        cmd = [run, '--allow-run-as-root', '--bind-to', 'none', '-n', n, '-H', hosts, '--mca',
               'plm_rsh_agent', agent, '--mca', 'oob_tcp_if_include', f'{NET}.0/24', '--mca', 'btl_tcp_if_include',
               f'{NET}.0/24', '--mca', 'pml', 'ob1', '--mca', 'btl', 'tcp,self',
               *(['--mca', 'mpi_yield_when_idle', '1'] if len(NS) > os.cpu_count() else [])]
    else:
        cmd = [run, '-iface', DEVICE[0], '-launcher', 'ssh', '-launcher-exec', agent, '-hosts', hosts, '-n', n]
    env = dict(os.environ, FI_PROVIDER='tcp', UCX_TLS='tcp,self')

    late = []

    def f(size, s):
        if late:
            return None
        p = subprocess.Popen(['ip', 'netns', 'exec', NS[0], *cmd, pin, str(size), str(s)], env=env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = p.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            print(f'{name}: more than 60 s on {n} ranks, left out from here on', file=sys.stderr)
            late.append(size)
            os.killpg(p.pid, signal.SIGTERM)
            p.communicate()
            for x in NS:  # ranks that spin must not outlive it
                for pid in subprocess.run(['ip', 'netns', 'pids', x], capture_output=True, text=True).stdout.split():
                    os.kill(int(pid), signal.SIGKILL)
            return None
        if p.returncode:
            print(f'{name}: exit {p.returncode}: {(err or out).strip()[-400:]}', file=sys.stderr)
        return lines(out)
    return f


def measure(a, pre, where):
    """Rows of the table for the hosts that are there."""
    exe, table = os.path.join(a.build, 'bench_comm_tcp'), []
    who = {'weft': weft(exe, pre), **{x: mpi(x, where, pre) for x in a.peers.split(',')}}
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
                table.append([len(NS), op, size, name, f'{m:.2f}', f'{best:.2f}', f'{size / m * 1e-3:.3f}', ratio])
                print(f'{len(NS)} ranks {op:15} {size:>10} {name:8} median {m:>11.1f} us  best {best:>11.1f} us '
                      f'{size / m * 1e-3:7.3f} GB/s')
            print(f'{len(NS)} ranks {op:15} {size:>10} the fastest MPI takes {ratio} of our time', flush=True)
    return table


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--build', default='build')
    p.add_argument('--ranks', default='2')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--seconds', type=float, default=0.3)
    p.add_argument('--min-bytes', type=int, default=0)
    p.add_argument('--max-bytes', type=int, default=SIZES[-1])
    p.add_argument('--peers', default='openmpi,mpich')
    p.add_argument('--busy', action='store_true')
    p.add_argument('--out')
    a = p.parse_args()
    table = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and the namespaces go
    leave = own_group() if a.busy else lambda: None
    try:
        for n in map(int, a.ranks.split(',')):
            try:
                cable(n)
                with tempfile.TemporaryDirectory() as where:
                    table += measure(a, ['nice', '-n', '-20'] if a.busy else [], where)
            finally:
                unplug()
    finally:
        leave()
    if a.out:
        os.makedirs(os.path.dirname(a.out) or '.', exist_ok=True)
        with open(a.out, 'w', newline='') as f:
            w = csv.writer(f)
            w.writerow(['ranks', 'op', 'bytes', 'who', 'median_us', 'best_us', 'GBps_median', 'fastest_mpi_to_weft'])
            w.writerows(table)


if __name__ == '__main__':
    main()
