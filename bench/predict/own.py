#!/usr/bin/env python3
"""Our own engine's programs, simulated on GPUs, beside steps that other engines measured with the same plan there.

    bench/predict/own.py --weft build/weft --data ../shared/validation [--out bench/results/own-gpu-DATE.csv]

weft has not run on GPUs: there is no step of its own to compare with.  What there is: for a measured row of PyTorch on an H200
(bench/results/predict-gpu-*.csv) and of dense transformers on A100 and H100 (calibrate/*.csv: rows with a whole plan, at most 1,100
devices, one kind of device), `weft sim` of the same model, plan, batch and devices.  measured / simulated is how much longer
existing engines take than our programs by our prices: what weft may need, too, until it was timed.  The last lines give its median
and quantiles; src/planning/planner/open.c takes the interval of plans on devices that weft never ran on from them."""
import argparse
import csv
import glob
import json
import math
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = ['korthikanti', 'sc21_t1', 'sc21_t2', 'torchtitan']  # others leave micro-batches or recomputation open


def config(r):
    n = {k: int(r[k]) for k in ('layers', 'hidden', 'heads', 'kv_heads', 'ffn_hidden', 'vocab', 'seq')}
    if int(r['gated_mlp']):
        return {'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'vocab_size': n['vocab'],
                'hidden_size': n['hidden'], 'intermediate_size': n['ffn_hidden'], 'num_hidden_layers': n['layers'],
                'num_attention_heads': n['heads'], 'num_key_value_heads': n['kv_heads'],
                'max_position_embeddings': n['seq'], 'rms_norm_eps': 1e-5, 'tie_word_embeddings': False}
    return {'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel'], 'vocab_size': n['vocab'], 'n_positions': n['seq'],
            'n_embd': n['hidden'], 'n_layer': n['layers'], 'n_head': n['heads'], 'n_inner': n['ffn_hidden'],
            'attn_pdrop': 0, 'embd_pdrop': 0, 'resid_pdrop': 0}


def usable(r):
    number = lambda k: int(r[k] or -1)
    if r['status'] != 'ok' or r['suspect'] == '1' or r['quality'] not in 'AB' or number('experts') > 0 or r['stage_layers']:
        return False
    if r['hw'] not in ('a100-40g', 'a100-80g', 'h100-80g', 'h100-96g-500w', 'h200-141g') or r['recompute'] not in ('none', 'selective', 'full'):
        return False
    if r['precision'] not in ('bf16', 'fp16') or number('micro_batch') < 1 or number('dp') < 1 or number('kv_heads') < 1:
        return False
    if not int(r['gated_mlp'] or 0) and r['kv_heads'] != r['heads']:
        return False
    return number('tp') * number('pp') * number('dp') * max(1, number('cp')) <= 1100


def simulate(weft, r, folder):
    with open(f'{folder}/config.json', 'w') as f:
        json.dump(config(r), f)
    tp, pp, dp, cp = (max(1, int(r[k] or 1)) for k in ('tp', 'pp', 'dp', 'cp'))
    mesh = [f'dp={dp}'] + ([f'cp={cp}'] if cp > 1 else []) + ([f'tp={tp}'] if tp > 1 else [])
    per, world = min(int(r['dev_per_node'] or 8), tp * pp * dp * cp), tp * pp * dp * cp
    words = mesh + ([f'pp={pp}'] if pp > 1 else [])
    if int(r['zero'] or 0) > 0 and dp > 1:
        words.append(f"zero={min(2, int(r['zero'])) if pp > 1 else r['zero']}")
    if int(r['sp'] or 0) and tp > 1:
        words.append('sp=true')
    if pp > 1 and int(r['vpp'] or 1) > 1:
        words += ['schedule=interleaved', f"chunks={r['vpp']}"]
    out = subprocess.run([weft, 'sim', folder, *words, '--batch', r['global_batch'], '--seq', r['seq'], '--micro-batch',
                          r['micro_batch'], '--dtype', 'bf16', '--recompute', r['recompute'], '--cluster',
                          f"{world // per} x ({per} x {r['hw']})", '--json'], capture_output=True, text=True, timeout=120)
    if out.returncode not in (0, 1) or not out.stdout.startswith('{'):
        raise ValueError(out.stderr.strip()[-150:])
    return json.loads(out.stdout)['step_ms'] / 1e3


def rows(data):
    newest = sorted(glob.glob(f'{HERE}/../results/predict-gpu-2*.csv'))[-1]
    for i, r in enumerate(csv.DictReader(open(newest))):
        yield dict(id=f'h200-{i}', source='pytorch-h200', hw='h200-141g', dev_per_node='1', tp='1', pp='1', dp='1', cp='1', zero='0',
                   sp='0', vpp='1', step_s=r['measured_s'], gated_mlp=str(int(r['family'] == 'llama')), ffn_hidden=r['ffn'],
                   **{k: r[k] for k in ('layers', 'hidden', 'heads', 'kv_heads', 'vocab', 'seq', 'micro_batch', 'global_batch',
                                        'recompute')})
    for s in SOURCES:
        yield from (r for r in csv.DictReader(open(f'{data}/calibrate/{s}.csv')) if usable(r))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--weft', required=True)
    p.add_argument('--data', required=True)
    p.add_argument('--out')
    a = p.parse_args()
    lines = ['source,id,hw,devices,layers,hidden,measured_s,simulated_s,ratio']
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for r in rows(a.data):
            n = math.prod(max(1, int(r[k] or 1)) for k in ('tp', 'pp', 'dp', 'cp'))
            try:
                s = simulate(a.weft, r, folder)
            except (ValueError, subprocess.TimeoutExpired) as e:
                print(f"# {r['source']} {r['id']} on {n}: {str(e)[:160]}", flush=True)
                continue
            x = float(r['step_s']) / s
            found.append((r['source'], x))
            lines.append(f"{r['source']},{r['id']},{r['hw']},{n},{r['layers']},{r['hidden']},{r['step_s']},{s:.5g},{x:.4f}")
            print(lines[-1], flush=True)
    x = sorted(v for _, v in found)
    at = lambda q: x[min(len(x) - 1, int(q * len(x)))]
    by = {s: statistics.mean(v for t, v in found if t == s) for s in sorted({s for s, _ in found})}
    lines.append('# of each source: ' + ', '.join(f'{s} {v:.3f}' for s, v in by.items()))
    lines.append(f'# {len(x)} rows: measured / simulated 5 % {at(.05):.3f}, median {at(.5):.3f}, 90 % {at(.9):.3f}, 95 % {at(.95):.3f}')
    print('\n'.join(lines[-2:]))
    if a.out:
        open(a.out, 'w').write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
