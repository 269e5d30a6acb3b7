#!/usr/bin/env python3
"""GPT-2 on two processes of one thread each: weft run beside PyTorch DistributedDataParallel on gloo.

    bench/e2e/ddp.py --weft build/weft --python PY [--rounds 3] [--steps 8] [--out bench/results/ddp.csv]

Same global batch 4, seq 64, micro_batch 2 for ours: plain data parallel, ZeRO 1, and one process with two threads; the
peers are DDP and (--alone) PyTorch in one process.  All in turn, round by round, each for --steps steps of which the
first two do not count; a round takes about a minute on a quiet machine of two cores.  --limit ends after so many seconds
with the rounds that are done.  What is asked: 2 x 1 at most 1.06 of 1 x 2 and 0.55 of DDP, ZeRO 1 at most 1.03 of 2 x 1.
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
import time

PEER = r'''
import os, sys, time, json, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1]); import torch_gpt2 as t, argparse
rank, world, steps = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[5], GLOO_SOCKET_IFNAME="lo")
a = argparse.Namespace(layers=12, dim=768, heads=12, vocab=50257, seq=64)
torch.set_num_threads(1 if world > 1 else 2); torch.manual_seed(0)
m = t.Gpt(a); b = 4 // world
if world > 1:
    dist.init_process_group("gloo", rank=rank, world_size=world)
    m = torch.nn.parallel.DistributedDataParallel(m)
fused = {"fused": True} if torch.__version__[0] != "1" else {"foreach": True}
opt = torch.optim.AdamW(m.parameters(), lr=1e-4, weight_decay=0.1, **fused)
ids, lab = torch.randint(50257, (b, 64)), torch.randint(50257, (b, 64)); ms = []
for _ in range(steps):
    if world > 1: dist.barrier()
    s = time.perf_counter(); loss = m(ids, lab); opt.zero_grad(set_to_none=True); loss.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0); opt.step(); ms.append(1e3 * (time.perf_counter() - s))
if rank == 0: print(json.dumps(ms))
'''
HERE = os.path.dirname(os.path.abspath(__file__))


def torch_run(py, world, steps, port):
    cmd = lambda r: [py, '-c', PEER, HERE, str(r), str(world), str(steps), str(port)]
    p = [subprocess.Popen(cmd(r), stdout=subprocess.PIPE, text=True) for r in range(world)]
    out = [x.communicate()[0] for x in p]
    if any(x.returncode for x in p):
        sys.exit('torch failed')
    return json.loads(out[0].splitlines()[-1])[2:]


KINDS = {  # processes, words
    'weft 1 x 2': (1, ['threads=2']),
    'weft 2 x 1': (2, ['threads=1', 'dp=2']),
    'weft 2 x 1 zero=1': (2, ['threads=1', 'dp=2', 'zero=1']),
}


def weft_run(weft, kind, steps, data):
    n, words = KINDS[kind]
    out = tempfile.mkdtemp()
    cmd = ([weft, 'run', '--nproc-per-node', str(n)] if n > 1 else [weft, 'train']) + [
        'model=gpt2', f'data={data}', 'seq=64', 'batch=4', 'micro_batch=2', f'steps={steps}',
        f'output={out}/o', 'checkpoint.every=1000000', '-q', '--json'] + words
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr)
    ms = [json.loads(x)['step_ms'] for x in open(f'{out}/o/metrics.jsonl')][2:]
    xx = json.loads(r.stdout.splitlines()[-1])['weights_xxh64']
    shutil.rmtree(out)
    return ms, xx


def tokens():
    """Ids below 50257: high bytes below 0xc4."""
    f = tempfile.NamedTemporaryFile(suffix='.bin')
    raw = bytearray(os.urandom(1 << 20))
    for i in range(1, len(raw), 2):
        raw[i] %= 0xc4
    f.write(raw)
    f.flush()
    return f


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--weft', default='build/weft')
    p.add_argument('--python')
    p.add_argument('--alone', action='store_true')
    p.add_argument('--rounds', type=int, default=3)
    p.add_argument('--steps', type=int, default=8)
    p.add_argument('--limit', type=float, default=270)
    p.add_argument('--out')
    a = p.parse_args()
    data, start, hashes, rounds = tokens(), time.time(), set(), []
    for k in range(a.rounds):
        begun, took = time.time(), {}
        for kind in KINDS:
            took[kind], xx = weft_run(a.weft, kind, a.steps, data.name)
            hashes.add(xx)
        if a.python:
            took['torch ddp 2 x 1'] = torch_run(a.python, 2, a.steps, 29600 + 2 * k)
        if a.python and a.alone:
            took['torch 1 x 2'] = torch_run(a.python, 1, a.steps, 29601 + 2 * k)
        rounds.append(took)
        now = time.time()
        print('round %d: %s' % (k + 1, ', '.join('%s %.0f' % (n, statistics.median(t)) for n, t in took.items())),
              flush=True)
        if now - start + (now - begun) > a.limit:
            break
    print('weights of all of ours equal:', len(hashes) == 1)
    mid = {n: statistics.median(t for r in rounds for t in r[n]) for n in rounds[0]}
    best = {n: min(t for r in rounds for t in r[n]) for n in rounds[0]}
    # ratios within a round, then over rounds: what the machine did in between falls out
    ratio = lambda x, y: statistics.median(statistics.median(r[x]) / statistics.median(r[y]) for r in rounds)
    rows = [[n, round(best[n], 1), round(mid[n], 1), round(ratio('weft 2 x 1', n), 3)] for n in mid]
    for r in rows:
        print('%-18s best %8.1f ms  median %8.1f ms   weft 2 x 1 / this: %.3f' % tuple(r))
    for x, y, goal in (('weft 2 x 1', 'weft 1 x 2', 1.06), ('weft 2 x 1', 'torch ddp 2 x 1', 0.55),
                       ('weft 2 x 1 zero=1', 'weft 2 x 1', 1.03)):
        if x in mid and y in mid:
            print('%s / %s: %.3f, goal %.2f' % (x, y, ratio(x, y), goal))
    if a.out:
        with open(a.out, 'w', newline='') as f:
            w = csv.writer(f)
            w.writerow(['who', 'best_ms', 'median_ms', 'weft_2x1_over_this_median'])
            w.writerows(rows)


if __name__ == '__main__':
    main()
