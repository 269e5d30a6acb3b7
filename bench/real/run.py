#!/usr/bin/env python3
"""Plans of real runs on this machine: predicted first, then run, then compared.

    bench/real/run.py --weft build/weft [--rounds 3] [--steps 6] [--limit 660] [--once] [--wide] [--out bench/results/real-DATE.csv]

(1) weft cluster calibrate, for each number of processes and threads that plans use; twice, and both predictions' mean
    counts; how far they are apart is shown
(2) every plan of plans.py is predicted: weft sim, the very program that will run, priced by that calibration
(3) all plans run in turn, round by round; a plan's time is the median of its steps, without the first two of each run
(4) a few runs are traced and corrected for (weft cluster calibrate --from), and the plans that were not traced are
    predicted again; likewise from the machine as it is found, never calibrated
What is asked: mean error at most 10 %, the plan predicted fastest within 5 % of the fastest measured one of its problem.
Two cores are used, the first two this process may use; four processes share them.  About ten minutes.  --wide: the plans for
sixteen cores, each rank on its own.
"""
import argparse
import array
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from plans import MODELS, PLANS, WIDE  # noqa: E402

TRACED = [('gpt', 1, 2, 2, ''), ('gpt', 2, 1, 1, 'dp=2'), ('gpt', 2, 1, 1, 'pp=2'),
          ('llama', 4, 1, 2, 'dp=4 zero=1'), ('llama', 2, 1, 4, 'dp=2'),
          ('gpt-wide', 16, 1, 2, 'dp=16'), ('gpt-wide', 8, 2, 4, 'dp=8'), ('gpt-wide', 4, 4, 8, 'dp=4')]


def call(cmd, env=None, both=False):
    r = subprocess.run(cmd, capture_output=True, text=True, env=env)
    if r.returncode:
        sys.exit(' '.join(cmd) + '\n' + r.stderr)
    return r.stdout + r.stderr if both else r.stdout


class Bench:
    def __init__(self, weft, folder):
        self.weft, self.dir = os.path.abspath(weft), folder
        ids = array.array('H', os.urandom(1 << 20))
        for i in range(len(ids)):
            ids[i] %= 2048
        with open(f'{folder}/tokens.bin', 'wb') as f:
            f.write(ids.tobytes())
        for name, (config, _) in MODELS.items():
            os.makedirs(f'{folder}/{name}')
            with open(f'{folder}/{name}/config.json', 'w') as f:
                json.dump(config, f)

    @staticmethod
    def machine(plan):
        """Processes and threads that a plan's machine is calibrated with."""
        n = plan[1]
        return (4 if n == 3 else n, plan[2])

    def calibrate(self, ranks, threads, again=''):
        path = f'{self.dir}/here-{ranks}x{threads}{again}.yaml'
        start = time.time()
        call([self.weft, 'cluster', 'calibrate', '--only', 'processors', '--ranks', str(ranks), '--threads', str(threads), '-o', path],
             env=dict(os.environ, XDG_CACHE_HOME=self.dir))
        return path, time.time() - start

    def discover(self, ranks, threads):
        path = f'{self.dir}/found-{ranks}x{threads}.yaml'
        call([self.weft, 'cluster', 'discover', '--fresh', '--ranks', str(ranks), '-o', path])
        return path

    @staticmethod
    def sizes(plan):
        job = MODELS[plan[0]][1]
        return dict(job, micro_batch=plan[3], lanes=min(max(8, plan[1]), job['batch'] // plan[3]))

    def predict(self, plan, cluster, trace=None):
        z, words = self.sizes(plan), plan[4].split()
        cmd = [self.weft, 'sim', f'{self.dir}/{plan[0]}', '--batch', str(z['batch']), '--seq', str(z['seq']),
               '--micro-batch', str(z['micro_batch']), '--lanes', str(z['lanes']), '--cluster', cluster, '--json']
        for w in words:
            cmd += ['--recompute', w[10:]] if w.startswith('recompute=') else [w]
        return json.loads(call(cmd + (['-o', trace] if trace else [])))['step_ms']

    def run(self, plan, steps, trace=None):
        z, out = self.sizes(plan), f'{self.dir}/out'
        shutil.rmtree(out, ignore_errors=True)
        cmd = [self.weft, 'run', '--nproc-per-node', str(plan[1]), f'model={self.dir}/{plan[0]}',
               f'data={self.dir}/tokens.bin', f'output={out}', f'threads={plan[2]}', f'steps={steps}',
               'checkpoint.every=1000000', '-q'] + [f'{k}={v}' for k, v in z.items()] + plan[4].split()
        call(cmd + (['--trace', trace] if trace else []))
        with open(f'{out}/metrics.jsonl') as f:
            return [json.loads(x)['step_ms'] for x in f][2:]


def ranks_of(x):
    order = sorted(range(len(x)), key=lambda i: x[i])
    r = [0] * len(x)
    for k, i in enumerate(order):
        r[i] = k
    return r


def spearman(a, b):
    a, b = ranks_of(a), ranks_of(b)
    n = len(a)
    return 1 - 6 * sum((x - y) ** 2 for x, y in zip(a, b)) / (n * (n * n - 1)) if n > 2 else 1


def name(plan):
    return f'{plan[0]} {plan[1]}x{plan[2]} micro_batch={plan[3]} {plan[4]}'.strip()


def errors(said, took, plans):
    return [abs(said[p] / took[p] - 1) for p in plans if p in took]


def sum_up(said, again, took, best, plans, out):
    done = [p for p in plans if p in took]
    e = errors(said, took, done)
    worst = max(done, key=lambda p: abs(said[p] / took[p] - 1))
    print(f'{len(done)} plans: mean error {100 * statistics.mean(e):.1f} %, median {100 * statistics.median(e):.1f} %, '
          f'worst {100 * max(e):.1f} % ({name(worst)})', file=out)
    eb = errors(said, best, done)
    print(f'against the best step of each: mean error {100 * statistics.mean(eb):.1f} %', file=out)
    if again:
        rest = [p for p in done if p not in TRACED and p in again]
        print(f'feedback ({len([p for p in TRACED if p in done])} runs traced): the other {len(rest)} plans '
              f'{100 * statistics.mean(errors(said, took, rest)):.1f} % before, '
              f'{100 * statistics.mean(errors(again, took, rest)):.1f} % after', file=out)
    for model in MODELS:
        some = [p for p in done if p[0] == model]
        if len(some) < 2:
            continue
        pick, top = min(some, key=lambda p: said[p]), min(some, key=lambda p: took[p])
        print(f'{model}: {len(some)} plans, mean error {100 * statistics.mean(errors(said, took, some)):.1f} %, Spearman '
              f'{spearman([said[p] for p in some], [took[p] for p in some]):.3f}, chosen {name(pick)} '
              f'{took[pick]:.1f} ms, best {name(top)} {took[top]:.1f} ms, regret {100 * (took[pick] / took[top] - 1):.1f} %',
              file=out)


def write(path, said, again, took, best, times, plans):
    with open(path, 'w', newline='') as f:
        w = csv.writer(f)
        w.writerow(['model', 'processes', 'threads', 'micro_batch', 'words', 'predicted_ms', 'measured_ms', 'error',
                    'best_ms', 'least_run_ms', 'most_run_ms', 'after_feedback_ms'])
        for p in plans:
            if p not in took:
                continue
            runs = [statistics.median(t) for t in times[p]]
            w.writerow(list(p) + [f'{said[p]:.2f}', f'{took[p]:.2f}', f'{said[p] / took[p] - 1:+.4f}', f'{best[p]:.2f}',
                                  f'{min(runs):.2f}', f'{max(runs):.2f}', f'{again[p]:.2f}' if p in again else ''])


def trace(b, plans):
    """Traces of a few runs; of ranks that share cores nothing is learned."""
    made = []
    for i, p in enumerate(TRACED):
        m = b.machine(p)
        if p in plans and m[0] * m[1] <= os.cpu_count():
            b.run(p, 4, f'{b.dir}/trace-{i}.json')
            made.append((p, f'{b.dir}/trace-{i}.json'))
    return made


def feedback(b, where, plans, traces, label):
    """Predictions again, each machine file corrected by the traces of its kind."""
    fixed = dict(where)
    for p, path in traces:
        m, better = b.machine(p), f'{b.dir}/better-{label}-{b.machine(p)[0]}x{b.machine(p)[1]}.yaml'
        say = call([b.weft, 'cluster', 'calibrate', '--from', path, '--cluster', fixed[m], '-o', better], both=True)
        print(f'traced {name(p)}: {say.strip()}')
        fixed[m] = better
    return {p: b.predict(p, fixed[b.machine(p)]) for p in plans if fixed[b.machine(p)] != where[b.machine(p)]}


def found(b, plans, took, traces, out):
    """A machine as it is found, never calibrated: before and after the same traces."""
    where = {m: b.discover(*m) for m in {b.machine(p) for p in plans} if m[0] * m[1] <= os.cpu_count()}
    again = feedback(b, where, [p for p in plans if b.machine(p) in where], traces, 'found')
    rest = [p for p in again if p not in TRACED and p in took]
    said = {p: b.predict(p, where[b.machine(p)]) for p in rest}
    print(f'a machine as it is found: {len(rest)} plans {100 * statistics.mean(errors(said, took, rest)):.1f} % before, '
          f'{100 * statistics.mean(errors(again, took, rest)):.1f} % after {len(traces)} traces', file=out)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('--weft', default='build/weft')
    a.add_argument('--rounds', type=int, default=3)
    a.add_argument('--steps', type=int, default=6)
    a.add_argument('--limit', type=float, default=660, help='seconds after which no run is started')
    a.add_argument('--once', action='store_true', help='calibrate once, not twice')
    a.add_argument('--wide', action='store_true', help='plans for sixteen cores')
    a.add_argument('--only', default='', help='plans whose name has this in it')
    a.add_argument('--out', default=f'bench/results/real-{time.strftime("%Y-%m-%d")}.csv')
    a.add_argument('--keep', help='folder for clusters and traces')
    o = a.parse_args()
    start, cpus = time.time(), sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:16 if o.wide else 2])
    plans = [p for p in (WIDE if o.wide else PLANS) if o.only in name(p)]
    folder = o.keep or tempfile.mkdtemp(prefix='weft-real-')
    os.makedirs(folder, exist_ok=True)
    b, both, times = Bench(o.weft, folder), [], {p: [] for p in plans}
    twice = []
    for k in range(1 if o.once else 2):
        where = {}
        for m in sorted({b.machine(p) for p in plans}):
            where[m], s = b.calibrate(*m, again=f'-{k}')
            print(f'calibrated {m[0]} x {m[1]} in {s:.1f} s', flush=True)
        both.append(where)
        twice.append({p: b.predict(p, where[b.machine(p)]) for p in plans})
    said = {p: statistics.mean(t[p] for t in twice) for p in plans}
    apart = statistics.mean(abs(twice[0][p] / twice[-1][p] - 1) for p in plans)
    print(f'predicted {len(plans)} plans, {time.time() - start:.0f} s so far', flush=True)
    for r in range(o.rounds):
        for p in plans:
            if time.time() - start < o.limit:
                times[p].append(b.run(p, o.steps))
        print(f'round {r + 1} of {o.rounds}, {time.time() - start:.0f} s so far', flush=True)
    took = {p: statistics.median(sum(t, [])) for p, t in times.items() if t}
    best = {p: min(sum(t, [])) for p, t in times.items() if t}
    traces = trace(b, plans)
    learned = [feedback(b, w, plans, traces, f'{k}') for k, w in enumerate(both)]
    again = {p: statistics.mean(t[p] for t in learned) for p in learned[0]}
    for p in plans:
        if p in took:
            print(f'{name(p):64} {said[p]:8.1f} {took[p]:8.1f} ms {100 * (said[p] / took[p] - 1):+6.1f} %'
                  + (f'  then {100 * (again[p] / took[p] - 1):+6.1f} %' if p in again else ''))
    write(o.out, said, again, took, best, times, plans)
    with open(o.out[:-4] + '.txt', 'w') as f:
        for out in (sys.stdout, f):
            sum_up(said, again, took, best, plans, out)
            if not o.once:
                print(f'two calibrations: {100 * apart:.1f} % apart on average', file=out)
            if traces:
                found(b, plans, took, traces, out)
    if not o.keep:
        shutil.rmtree(folder)


if __name__ == '__main__':
    main()
