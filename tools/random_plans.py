#!/usr/bin/env python3
"""Random plans, each run by real processes and compared with one process.

    tools/random_plans.py --weft build/weft [--seed 1] [--plans 100] [--jobs 1] [--ranks 8] [--hosts 1] [--only N]
                 [--keep FOLDER] [--out FILE]

A case is a small model with awkward sizes, a job (micro-batches, optimizer, clipping, bf16, dropout, evaluation) and a plan:
axes in any order, stages (also cut anywhere, by a plan file), ZeRO (also with copies and overlap_param_gather), chunks, batch_split,
rings, tp_exclude, recomputation, buckets.  Where dp, stages, ZeRO and accumulation alone are drawn, loss, gradient norm, evaluation and weights are the
same to the last bit; elsewhere to rounding, and where reduction: fixed sums gradients in shards a second run has the same
bits.  Refusals are listed by their words.  Ends with 1 if a plan trains
otherwise, hangs, or ends in any other way than in a refusal.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = os.path.join(HERE, '..', 'tests', 'fixtures', 'families')
# Sizes that few numbers divide; what each family's fixture has, but for these.
MODELS = {
    'llama': dict(num_attention_heads=6, num_key_value_heads=3, hidden_size=36, head_dim=6, intermediate_size=50,
                  vocab_size=37, num_hidden_layers=5, tie_word_embeddings=True),
    'mixtral': dict(num_attention_heads=3, num_key_value_heads=1, hidden_size=24, head_dim=8, intermediate_size=10,
                    vocab_size=41, num_hidden_layers=3, num_local_experts=5, num_experts_per_tok=3),
    'mixtral-balanced': dict(num_attention_heads=3, num_key_value_heads=1, hidden_size=24, head_dim=8,
                             intermediate_size=10, vocab_size=41, num_hidden_layers=3),
    'gpt2': dict(n_head=5, n_embd=30, n_inner=31, n_layer=7, vocab_size=43, embd_pdrop=0.1, resid_pdrop=0.2,
                 attn_pdrop=0.0),
    'mistral': dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=16, head_dim=4, intermediate_size=22,
                    vocab_size=33, num_hidden_layers=4, sliding_window=5),
    'bert': dict(num_attention_heads=3, hidden_size=12, intermediate_size=17, vocab_size=39, num_hidden_layers=5,
                 hidden_dropout_prob=0.1),
    'qwen2': dict(num_attention_heads=4, num_key_value_heads=4, hidden_size=24, intermediate_size=26, vocab_size=40,
                  num_hidden_layers=6),
}
TOKENS = 31  # below every vocabulary
SEQ = [8, 9, 11, 13, 16, 17]


def make_models(folder):
    for name, sizes in MODELS.items():
        config = json.load(open(os.path.join(FAMILIES, name, 'config.json')))
        config.update(sizes)
        config['n_positions' if name == 'gpt2' else 'max_position_embeddings'] = 64
        os.makedirs(os.path.join(folder, name))
        json.dump(config, open(os.path.join(folder, name, 'config.json'), 'w'))
    dice = random.Random(5)
    ids = [dice.randrange(TOKENS) for _ in range(40000)]
    with open(os.path.join(folder, 'tokens.bin'), 'wb') as f:
        f.write(struct.pack('<40000H', *ids))
    for seq in SEQ:
        n = (len(ids) - 1) // seq
        write_rows(os.path.join(folder, 'rows-%d.safetensors' % seq), n, seq, ids[:n * seq], ids[1:n * seq + 1])


def write_rows(path, n, seq, ids, labels):
    """A safetensors file for models that take no stream of tokens."""
    size = 4 * n * seq
    head = json.dumps({k: {'dtype': 'I32', 'shape': [n, seq], 'data_offsets': [i * size, (i + 1) * size]}
                       for i, k in enumerate(('input_ids', 'labels'))}).encode()
    with open(path, 'wb') as f:
        f.write(struct.pack('<Q', len(head)) + head + struct.pack('<%di' % (n * seq), *ids)
                + struct.pack('<%di' % (n * seq), *labels))


class Case:
    """One drawn job and plan."""

    def __init__(self, seed, number, folder, most, hosts):
        self.dice = random.Random(seed * 1000003 + number)
        self.folder = folder
        self.out = os.path.join(folder, '%d-%d' % (seed, number))
        self.model = self.dice.choice(list(MODELS))
        self.draw_axes(most)
        self.draw_job()
        self.draw_plan()
        self.fixed = self.often(.35)  # ZeRO 2 and 3 then sum gradients in shards
        if self.fixed:
            self.job['reduction'] = 'fixed'
        self.shards = self.fixed and self.plan.get('zero', 0) > 1
        self.close = self.tp * self.cp * self.ep > 1 or self.shards
        self.hosts = 1 if self.ranks % hosts else hosts
        many = [n for n in range(2, self.dp + 1) if self.dp % n == 0]
        if self.plan.get('zero', 0) and self.often(.5):  # drawn last: cases of a seed stay as they were
            self.plan['copies'] = self.dice.choice(many)
        elif self.dp * self.cp == 1 and self.often(.5):  # standby replicas
            self.plan['copies'] = 2

    def often(self, share):
        return self.dice.random() < share

    def draw_axes(self, most):
        size, self.ranks = MODELS[self.model], most + 1
        groups = size.get('n_head') or size.get('num_key_value_heads') or size['num_attention_heads']
        self.layers = size.get('n_layer') or size['num_hidden_layers']
        while not 2 <= self.ranks <= most:
            self.dp, self.tp = (self.dice.choice([1, 1, 2, 2, 3, 4]) for _ in range(2))
            self.cp = self.dice.choice([1, 1, 1, 2, 3])
            self.ep = self.dice.choice([1, 2, 2, 4]) if 'mixtral' in self.model else 1
            self.pp = self.dice.choice([1, 1, 2, 2, 3, 4])
            self.ranks = self.dp * self.tp * self.cp * self.ep * self.pp
            if self.tp > groups and not self.often(.1) or self.pp > self.layers:
                self.ranks = 0

    def draw_job(self):
        pick = self.dice.choice
        self.micro = pick([1, 1, 2, 3])
        many = pick([m for m in (4, 4, 5, 6, 7, 8) if m >= self.dp])
        self.lanes = 8 if many == 8 else 4
        seq = pick(SEQ)
        data = os.path.join(self.folder, 'rows-%d.safetensors' % seq if self.model == 'bert' else 'tokens.bin')
        job = {'model': os.path.join(self.folder, self.model), 'data': data, 'seq': seq,
               'batch': self.micro * many, 'micro_batch': self.micro, 'lanes': self.lanes, 'steps': pick([2, 3]),
               'threads': 1, 'memory': 'any', 'optimizer.weight_decay': pick([0, 0.1]),
               'optimizer.name': pick(['adamw', 'adamw', 'sgd', 'lamb', 'adagrad', 'adam'])}
        if self.often(.6):
            job['optimizer.clip'] = pick([1.0, 0.1, 0.01])
        for key, value, share in (('dtype', 'bf16', .35), ('dropout', 'true', .3), ('shuffle', 'true', .3),
                                  ('eval', '{data: %s, every: 1, batches: 2}' % data, .3)):
            if self.often(share):
                job[key] = value
        self.job = job

    def draw_plan(self):
        pick, plan = self.dice.choice, {}
        axes = [a for a in ('dp', 'tp', 'cp', 'ep') if getattr(self, a) > 1]
        self.dice.shuffle(axes)
        plan.update((a, getattr(self, a)) for a in axes)
        if axes:
            plan['mesh_order'] = ','.join(axes)
        if self.pp > 1:
            plan['pp'], plan['schedule'] = self.pp, pick(['gpipe', '1f1b', 'interleaved', 'zb-h1'])
            if plan['schedule'] == 'interleaved':
                plan['chunks'] = pick([c for c in (1, 2, 3) if c * self.pp <= self.layers])
        if self.dp > 1:
            plan['zero'] = pick([0, 1, 2, 3])
            if plan['zero'] in (1, 2) and self.often(.4):
                plan['overlap_param_gather'] = pick([1, 0.8, 0.66, 0.3])
            if self.often(.25) and self.lanes > self.dp:
                cuts = sorted(self.dice.sample(range(1, self.lanes), self.dp - 1))
                plan['batch_split'] = ','.join(str(b - a) for a, b in zip([0] + cuts, cuts + [self.lanes]))
        if self.tp > 1 and self.often(.5):
            plan['sp'] = 'true'
        if self.tp > 1 and self.micro % self.tp == 0 and self.often(.4):
            plan['tp_exclude'] = pick(['blocks', 'input,head', '0', 'head'])
        if self.cp > 1:
            plan['cp_comm'] = pick(['gather', 'ring'])
        if self.often(.3):
            plan['bucket_bytes'] = pick([0, 1000, 20000, 1000000])
        if self.often(.15):
            plan['threads'] = 2
        plan['recompute'] = pick(['none', 'none', 'selective', 'full'])
        self.plan, self.anywhere = plan, self.pp > 1 and self.often(.4)

    def words(self, keys):
        return ['%s=%s' % pair for pair in keys.items()]


def run(cmd):
    try:
        return subprocess.run(cmd, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:
        return None


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def run_ranks(weft, case, words):
    """All of the plan's ranks, in one host or dealt to several, which are launchers that meet here; as run()."""
    cmd = [weft, 'run', '--nproc-per-node', str(case.ranks // case.hosts), *words]
    if case.hosts == 1:
        return run(cmd)
    cmd += ['--nnodes', str(case.hosts), '--rdzv', '127.0.0.1:%d' % free_port()]
    with concurrent.futures.ThreadPoolExecutor(case.hosts) as pool:
        ends = list(pool.map(lambda h: run([*cmd, '--node-rank', str(h)]), range(case.hosts)))
    if None in ends:
        return None
    return next((e for e in ends if e.returncode), ends[0])


def move_cuts(weft, case):
    """The plan as a file, whose stages begin anywhere; what is left of its keys, or None if it was refused."""
    printed = run([weft, 'run', '--print-plan', *case.words({**case.job, **case.plan})])
    graph = run([weft, 'graph', case.job['model'], '--batch', str(case.micro), '--seq', str(case.job['seq'])])
    if not printed or printed.returncode or not graph or graph.returncode:
        return None
    plan, names = json.loads(printed.stdout), []
    for line in graph.stdout.split('\n'):
        value = re.match(r'\s*([\w.]+):.* = ', line)
        if value and not line.strip().startswith(('param', 'input')):
            names.append(value[1])
    cuts = sorted(case.dice.sample(range(1, len(names)), len(plan['stages']) - 1))
    for stage, cut in zip(plan['stages'][1:], cuts):
        stage['first'] = names[cut]
    json.dump(plan, open(case.out + '.json', 'w'))
    return {'plan': case.out + '.json', 'recompute': case.plan['recompute'],
            **{k: case.plan[k] for k in ('bucket_bytes', 'threads') if k in case.plan}}


def steps_of(out):
    return [json.loads(line) for line in open(out + '/metrics.jsonl')]


def weights_of(ended):
    return json.loads(ended.stdout.strip().split('\n')[-1])['weights_xxh64']


def compare(case, one, many, exact=None):
    """The first number of two runs that is not as it should be: (step, words); None: all are.  exact: one process in
    fp32: four times what bf16 differs from it is rounding."""
    if len(one) != len(many):
        return 1, '%d steps, not %d' % (len(many), len(one))
    within = {'loss': 1e-5, 'eval_loss': 3e-5, 'grad_norm': 1e-4, 'labels': 0, 'lr': 0}
    rough = 0 if not case.close else 500 if 'dtype' in case.job else 1  # bf16 has 3 digits, and norms of 12 columns amplify
    for a, b, e in zip(one, many, exact or one):
        for key in within:
            x, y = a.get(key), b.get(key)
            room = 0 if x is None else max(rough * within[key] * abs(x), 4 * abs(x - e[key]))
            if x != y and (x is None or y is None or abs(x - y) > room):
                return a['step'], '%s of step %d: %r, one process has %r' % (key, a['step'], y, x)
    return None


def differ(weft, case, words, one, many):
    """In which words the runs differ; None: in nothing.  A model may grow small differences into large ones: what
    differs to rounding is tried once more, one process going on from where the plan was a step before."""
    both = [steps_of(case.out + end) for end in ('-one', '-many')]
    found = compare(case, *both)
    if found and case.close and 'dtype' in case.job:
        run([weft, 'train', *case.words({**case.job, 'dtype': 'fp32'}), 'plan=off', 'output=' + case.out + '-fp32', '-q'])
        found = compare(case, *both, steps_of(case.out + '-fp32'))
    if found and case.close and found[0] > 1:
        step, start = found[0], case.out + '-start'
        run_ranks(weft, case, [*words, 'steps=%d' % (step - 1), 'output=' + start])
        run([weft, 'train', *case.words({**case.job, 'steps': step}), 'plan=off', 'output=' + start, '-q'])
        found = compare(case, steps_of(start), both[1][:step])
    if found:
        return found[1]
    if case.shards:
        again = run_ranks(weft, case, [*words, 'output=' + case.out + '-again'])
        return None if again and not again.returncode and weights_of(again) == weights_of(many) else 'other weights in a second run'
    return 'other weights' if not case.close and weights_of(one) != weights_of(many) else None


def try_case(weft, case):
    """(what came of it, in which words, the plan's)"""
    plan = move_cuts(weft, case) if case.anywhere else None
    job = {**case.job, **(plan or case.plan)}
    words = [*case.words(job), 'output=' + case.out + '-many', '--json', '-q']
    one = run([weft, 'train', *case.words(case.job), 'plan=off', 'output=' + case.out + '-one', '--json', '-q'])
    many = run_ranks(weft, case, words)
    if not one or one.returncode:
        return 'broken', one.stderr.strip() if one else 'one process hangs', words
    if not many:
        return 'hangs', '', words
    if many.returncode:
        what = 'refused' if many.returncode == 2 else 'broken'
        return what, many.stderr.strip().split('\n')[0], words
    other = differ(weft, case, words, one, many)
    if other:
        return 'differs', other, words
    for end in ('-one', '-many', '-start', '-fp32', '-again'):
        shutil.rmtree(case.out + end, ignore_errors=True)
    return 'close' if case.close else 'same bits', '', words


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--weft', default='build/weft')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--plans', type=int, default=100)
    p.add_argument('--jobs', type=int, default=1, help='plans that run at once')
    p.add_argument('--ranks', type=int, default=8, help='of a plan, at most')
    p.add_argument('--hosts', type=int, default=1, help='launchers that the ranks of a plan are dealt to, over TCP')
    p.add_argument('--only', type=int, help='this one of the plans')
    p.add_argument('--keep', help='a new folder for models, plans and runs that differ')
    p.add_argument('--out', help='the summary, as a file')
    args = p.parse_args()
    weft, counts, said = os.path.abspath(args.weft), collections.Counter(), []
    with tempfile.TemporaryDirectory() as passing, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        folder = args.keep or passing
        make_models(folder)
        os.environ['WEFT_TOKEN_FILE'] = os.path.join(passing, 'token')  # of --hosts
        subprocess.run([weft, 'token', os.environ['WEFT_TOKEN_FILE']], check=True, capture_output=True)
        numbers = range(args.plans) if args.only is None else [args.only]
        cases = [Case(args.seed, i, folder, args.ranks, args.hosts) for i in numbers]
        for i, (what, why, words) in zip(numbers, pool.map(lambda case: try_case(weft, case), cases)):
            counts[what] += 1
            if why or what == 'hangs':
                said.append('%d %s: %s\n    %d ranks: %s' % (i, what, why, cases[i - numbers[0]].ranks,
                                                          ' '.join(words).replace(passing, '.')))
                print(said[-1], flush=True)
    total = 'seed %d: %s' % (args.seed, ', '.join('%d %s' % (n, what) for what, n in sorted(counts.items())))
    print(total)
    if args.out:
        open(args.out, 'w').write('\n'.join([total, *said]) + '\n')
    sys.exit(any(counts[what] for what in ('differs', 'hangs', 'broken')))


if __name__ == '__main__':
    main()
