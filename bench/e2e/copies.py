#!/usr/bin/env python3
"""A step with copies: 2 against one with copies: 1: ZeRO on four ranks, each a host of its own, and a pipeline with standby replicas
on two, over slowed links.

    bench/e2e/copies.py [--weft build/weft] [--hosts 4] [--mbit 100] [--rounds 7] [--steps 9] [--zero 1,2,3] [--standby pp=2] [--out FILE]
                        [--seq 16] [KEY=VALUE ...]

The hosts are network namespaces (root) on one bridge, each link shaped in both directions by a token bucket (tc tbf).  Rounds are
interleaved, the order within a round alternates; a run's figure is the median of its steps without the first three, the table
has the median of all rounds, and of their ratios.  Weights of all runs must be equal.  A standby replica has a price: the step that
weft sim predicts with it less the one without, on two such hosts as weft cluster calibrate measured them.  `of price` is the measured step
with the replica over the measured one without and that price.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PID = os.getpid()
BRIDGE, NET = 'wcb%d' % PID, '10.179.9'
RANKS, FIRST = 4, 3
# no tied embedding: its two gradients are reduced apart, and sums are what copies move more of
MODEL = dict(architectures=['LlamaForCausalLM'], model_type='llama', hidden_size=128, intermediate_size=320, num_hidden_layers=4,
             num_attention_heads=2, num_key_value_heads=2, head_dim=64, vocab_size=256, max_position_embeddings=256,
             rms_norm_eps=1e-6, tie_word_embeddings=False, hidden_act='silu', rope_theta=10000.0, initializer_range=0.02)
port = 28100


def sh(cmd):
    subprocess.run(cmd, shell=True, check=True)


def name(i):
    return 'wc%d-%d' % (i, PID)


def plug(n, mbit):
    sh('ip netns add %s; ip -n %s link add hub type bridge; ip -n %s link set hub up' % (BRIDGE, BRIDGE, BRIDGE))
    for i in range(n):
        shape = 'tc qdisc add dev %s root tbf rate %dmbit burst 64kb latency 200ms'
        sh('ip netns add {0}; ip -n {0} link add eth type veth peer name p{1} netns {2};'
           'ip -n {0} addr add {3}.{4}/24 dev eth; ip -n {0} link set lo up; ip -n {0} link set eth up;'
           'ip -n {2} link set p{1} master hub; ip -n {2} link set p{1} up'.format(name(i), i, BRIDGE, NET, i + 1))
        sh('ip netns exec %s %s' % (name(i), shape % ('eth', mbit)))
        sh('ip netns exec %s %s' % (BRIDGE, shape % ('p%d' % i, mbit)))


def unplug(n):
    for x in [name(i) for i in range(n)] + [BRIDGE]:
        subprocess.run(['ip', 'netns', 'del', x])


def sent(n):
    total = 0
    for i in range(n):
        out = subprocess.run(['ip', '-n', name(i), '-s', '-j', 'link', 'show', 'eth'], capture_output=True, text=True).stdout
        total += json.loads(out)[0]['stats64']['tx']['bytes']
    return total


def run(weft, hosts, words, folder):
    """Milliseconds of a step, bytes that left the hosts in a step, the weights' hash."""
    global port
    port += 1
    before = sent(hosts)
    cmd = [weft, 'run', '--nproc-per-node', str(RANKS // hosts), '--nnodes', str(hosts), '--rdzv', '%s.1:%d' % (NET, port),
           '--json', '-q', *words, 'output=' + folder]
    ps = [subprocess.Popen(['ip', 'netns', 'exec', name(i), *cmd, '--node-rank', str(i)], stdout=subprocess.PIPE)
          for i in range(hosts)]
    out = [p.communicate()[0] for p in ps]
    if any(p.returncode for p in ps):
        sys.exit('a run ended with %r' % [p.returncode for p in ps])
    rows = [json.loads(line) for line in open(os.path.join(folder, 'metrics.jsonl'))]
    step = statistics.median(r['step_ms'] for r in rows[FIRST:])
    last = next(json.loads(o.strip().split(b'\n')[-1]) for o in out if o.strip())
    return step, (sent(hosts) - before) / len(rows), last['weights_xxh64']


def calibrate(weft, tmp):
    """The cluster of two hosts, measured by one process on each."""
    global port
    port += 1
    path = os.path.join(tmp, 'cluster.yaml')
    cmd = [weft, 'cluster', 'calibrate', '--threads', '1', '--nnodes', '2', '--rdzv', '%s.1:%d' % (NET, port), '--only', 'cpus']
    ps = [subprocess.Popen(['ip', 'netns', 'exec', name(i), *cmd, '--node-rank', str(i), '-o', path if not i else os.devnull],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(2)]
    if any([p.wait() for p in ps]):
        sys.exit('weft cluster calibrate failed')
    return path


def price(args, tmp, words):
    """Milliseconds that a standby replica adds to a step, as simulated."""
    path, step = calibrate(args.weft, tmp), []
    for copies in (1, 2):
        out = subprocess.run([args.weft, 'sim', os.path.join(tmp, 'model'), *words, 'copies=%d' % copies, '--batch', '4', '--seq', str(args.seq),
                              '--micro-batch', '1', '--lanes', '4', '--cluster', path, '--steps', '4', '--json'], capture_output=True)
        if out.returncode:
            sys.exit('weft sim: ' + out.stderr.decode())
        step.append(json.loads(out.stdout)['step_ms'])
    return step[1] - step[0]


def standby(args, tmp, job, lines):
    """Two hosts with a rank each."""
    global RANKS
    words, RANKS = args.standby.split(), 2
    more = price(args, tmp, words)
    found, hashes = {1: [], 2: []}, set()
    for k in range(args.rounds):
        for copies in ((1, 2), (2, 1))[k % 2]:
            folder = os.path.join(tmp, 'standby-%d-%d' % (k, copies))
            step, size, bits = run(args.weft, 2, [*job, *words, 'plan=off', 'copies=%d' % copies], folder)
            found[copies].append((step, size))
            hashes.add(bits)
    if len(hashes) != 1:
        sys.exit('%s: other weights: %r' % (args.standby, hashes))
    of = [b[0] / (a[0] + more) for a, b in zip(found[1], found[2])]
    median = {c: [statistics.median(x[i] for x in found[c]) for i in (0, 1)] for c in found}
    lines += ['plan  step_ms copies=1  copies=2  price_ms  of price (least, most)   MB sent copies=1  copies=2',
              '%s %17.2f %9.2f %9.2f  %.3f (%.3f, %.3f) %20.3f %9.3f' % (
                  args.standby, median[1][0], median[2][0], more, statistics.median(of), min(of), max(of),
                  median[1][1] / 1e6, median[2][1] / 1e6)]
    print(lines[-1], flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', default=os.path.join(ROOT, 'build', 'weft'))
    p.add_argument('--hosts', type=int, default=4, choices=(2, 4))
    p.add_argument('--mbit', type=int, default=100)
    p.add_argument('--rounds', type=int, default=7)
    p.add_argument('--steps', type=int, default=9)
    p.add_argument('--seq', type=int, default=16)
    p.add_argument('--zero', default='1,2,3')
    p.add_argument('--standby', default='pp=2')
    p.add_argument('--out')
    p.add_argument('words', nargs='*', help='further keys of the job')
    args = p.parse_args()
    job = ['data=' + os.path.join(ROOT, 'include'), 'seq=%d' % args.seq, 'batch=4', 'micro_batch=1', 'lanes=4', 'steps=%d' % args.steps, 'threads=1', 'init=random']
    lines = ['# bench/e2e/copies.py --hosts %d --mbit %d --rounds %d --seq %d %s' % (
        args.hosts, args.mbit, args.rounds, args.seq, ' '.join(args.words)),
             'zero  step_ms copies=1  copies=2  ratio (least, most)        MB sent copies=1  copies=2']
    with tempfile.TemporaryDirectory() as tmp:
        os.environ['WEFT_TOKEN_FILE'] = os.path.join(tmp, 'token')
        subprocess.run([args.weft, 'token', os.environ['WEFT_TOKEN_FILE']], check=True, capture_output=True)
        os.mkdir(os.path.join(tmp, 'model'))
        json.dump(MODEL, open(os.path.join(tmp, 'model', 'config.json'), 'w'))
        job += ['model=' + os.path.join(tmp, 'model'), *args.words]
        plug(args.hosts, args.mbit)
        try:
            for zero in [z for z in args.zero.split(',') if z]:
                found, hashes = {1: [], 2: []}, set()
                for k in range(args.rounds):
                    for copies in ((1, 2), (2, 1))[k % 2]:
                        folder = os.path.join(tmp, '%s-%d-%d' % (zero, k, copies))
                        step, size, bits = run(args.weft, args.hosts, [*job, 'dp=4', 'zero=' + zero, 'copies=%d' % copies], folder)
                        found[copies].append((step, size))
                        hashes.add(bits)
                if len(hashes) != 1:
                    sys.exit('zero=%s: other weights: %r' % (zero, hashes))
                ratio = [b[0] / a[0] for a, b in zip(found[1], found[2])]
                median = {c: [statistics.median(x[i] for x in found[c]) for i in (0, 1)] for c in found}
                lines.append('%4s %17.2f %9.2f  %.3f (%.3f, %.3f) %20.3f %9.3f' % (
                    zero, median[1][0], median[2][0], statistics.median(ratio), min(ratio), max(ratio),
                    median[1][1] / 1e6, median[2][1] / 1e6))
                print(lines[-1], flush=True)
            if args.standby:
                standby(args, tmp, job, lines)
        finally:
            unplug(args.hosts)
    print('\n'.join(lines))
    if args.out:
        open(args.out, 'w').write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
