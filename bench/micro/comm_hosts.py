#!/usr/bin/env python3
"""Collectives of groups with several ranks on each of two hosts, over a cable of a given speed: time, and bytes that cross.

    bench/micro/comm_hosts.py [--build build] [--per-host 2] [--mbit 1000] [--seconds 0.3] [--bytes 65536,1048576] [--out FILE]
                              [--also NAME=libweft.a]

The hosts are network namespaces (root) joined by a veth pair, both ends shaped by a token bucket (tc tbf); --mbit 0: not shaped.
--also measures another build beside, in turn.
"""
import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PID = os.getpid()
NS, DEVICE, NET = [f'wh{i}-{PID}' for i in (0, 1)], [f'wh{i}v{PID % 100000}' for i in (0, 1)], '10.178.9'
port = 27000


def sh(cmd):
    subprocess.run(cmd, shell=True, check=True)


def cable(mbit):
    for x in NS:
        sh(f'ip netns add {x}')
    sh(f'ip link add {DEVICE[0]} type veth peer name {DEVICE[1]}')
    for i, x in enumerate(NS):
        sh(f'ip link set {DEVICE[i]} netns {x}; ip -n {x} addr add {NET}.{i + 1}/24 dev {DEVICE[i]};'
           f'ip -n {x} link set lo up; ip -n {x} link set {DEVICE[i]} up')
        if mbit:
            sh(f'ip netns exec {x} tc qdisc add dev {DEVICE[i]} root tbf rate {mbit}mbit burst 64kb latency 50ms')


def unplug():
    for x in NS:
        subprocess.run(['ip', 'netns', 'del', x])


def crossed():
    """Bytes that left both hosts."""
    n = 0
    for i, x in enumerate(NS):
        out = subprocess.run(['ip', '-n', x, '-s', '-j', 'link', 'show', DEVICE[i]], capture_output=True, text=True).stdout
        n += json.loads(out)[0]['stats64']['tx']['bytes']
    return n


def run(exe, m, size, seconds, kind):
    global port
    port += 1
    ps, before = [], crossed()
    for r in range(2 * m):
        env = dict(os.environ, WEFT_RANK=str(r), WEFT_WORLD_SIZE=str(2 * m), WEFT_LOCAL_RANK=str(r % m),
                   WEFT_LOCAL_WORLD_SIZE=str(m), WEFT_RDZV=f'{NET}.1:{port}',
                   WEFT_INSECURE_NETWORK='1')
        ps.append(subprocess.Popen(['ip', 'netns', 'exec', NS[r // m], exe, str(size), str(seconds), str(kind)], env=env,
                                   stdout=subprocess.PIPE, text=True))
    out = [p.communicate(timeout=120)[0] for p in ps]
    if any(p.returncode for p in ps):
        sys.exit('a rank failed')
    row = json.loads(out[0].splitlines()[0])
    calls = row['calls'] + 6  # those that warm up; barriers and the like are a few per cent of the smallest
    return row['op'], row['median_us'], (crossed() - before) / calls


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--build', default='build')
    p.add_argument('--also')
    p.add_argument('--per-host', type=int, default=2)
    p.add_argument('--mbit', type=int, default=1000)
    p.add_argument('--seconds', type=float, default=0.3)
    p.add_argument('--bytes', default='65536,1048576,16777216')
    p.add_argument('--out')
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    libs = {'weft': f'{a.build}/libweft.a'}
    if a.also:
        libs.update([a.also.split('=', 1)])
    table = []
    with tempfile.TemporaryDirectory() as where:
        for name, lib in libs.items():
            subprocess.run(['cc', '-O2', '-D_GNU_SOURCE', f'-I{ROOT}/include', f'-I{ROOT}/src',
                            os.path.join(HERE, 'comm_tcp.c'), lib, '-lcrypto', '-lm', '-lpthread', '-ldl', '-o', f'{where}/{name}'],
                           check=True)
        try:
            cable(a.mbit)
            for size in map(int, a.bytes.split(',')):
                for kind in (0, 1, 2):
                    for name in libs:
                        op, us, far = run(f'{where}/{name}', a.per_host, size, a.seconds, kind)
                        table.append([2, a.per_host, a.mbit, op, size, name, f'{us:.1f}', f'{far / size:.2f}'])
                        print(f'2 x {a.per_host} ranks, {a.mbit} Mbit/s: {op:15} {size:>9} {name:8} {us:>10.1f} us, '
                              f'{far / size:5.2f} of the vector crosses', flush=True)
        finally:
            unplug()
    if a.out:
        with open(a.out, 'w', newline='') as f:
            w = csv.writer(f)
            w.writerow(['hosts', 'per_host', 'mbit', 'op', 'bytes', 'who', 'median_us', 'crossed_of_vector'])
            w.writerows(table)


if __name__ == '__main__':
    main()
