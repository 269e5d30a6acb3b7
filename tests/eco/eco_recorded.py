"""Recorded jobs: every job below gives the weights, losses and memory that tests/recorded/results.json has.

    tests/eco/run.sh recorded                   compares
    WEFT_RECORD=1 tests/eco/run.sh recorded     writes results.json anew (say in the commit why numbers change)
    WEFT_DEVICE=guard tests/eco/run.sh recorded the same on the guard device: bits are equal; memory is not compared, as
                                                messages of device memory go through more of it there
    WEFT_TEST_DEVICE=cuda tests/eco/run.sh recorded   on a GPU, which ranks share: losses and norms are near the recorded
                                                ones; WEFT_TEST_JOBS=8 runs every eighth job

A change of structure must not change a bit of what is trained, nor take more memory.  Each job writes out
what decides its numbers (lanes, micro_batch, shuffle, seed, init).  A job is a list of runs; a later run
resumes what the one before it left, under another plan.  Under sanitizers every eighth job is run.

tests/recorded/checkpoints/NAME is what weft 0.1.0 (87620e8) left of job NAME after two steps: it resumes to
the same bits."""
import json
import os
import random
import shutil

from eco import FAMILIES, ROOT, SANITIZED, Scratch, check, end, metrics, near, safetensors, same, u16, weft, words

RESULTS = os.path.join(ROOT, "tests", "recorded", "results.json")
CHECKPOINTS = os.path.join(ROOT, "tests", "recorded", "checkpoints")
RECORD = os.environ.get("WEFT_RECORD", "0") not in ("", "0")
GUARD = os.environ.get("WEFT_DEVICE") == "guard"
DEVICE = os.environ.get("WEFT_TEST_DEVICE", "cpu")
EVERY = int(os.environ.get("WEFT_TEST_JOBS", "8" if SANITIZED and not RECORD else "1"))
SLACK = 4096  # bytes by which structs of session and executor may grow; tensors may not
TOKENS = 31  # ids of all data lie below every vocabulary
SIZES = {
    "gpt2": dict(n_head=4, n_embd=24, n_inner=40, n_layer=4, vocab_size=43, embd_pdrop=0.1, resid_pdrop=0.2),
    "llama": dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=24, head_dim=6, intermediate_size=36,
                  vocab_size=37, num_hidden_layers=4, tie_word_embeddings=True),
    "mistral": dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=16, head_dim=4, intermediate_size=22,
                    vocab_size=33, num_hidden_layers=4, sliding_window=5),
    "qwen2": dict(num_attention_heads=4, num_key_value_heads=4, hidden_size=24, intermediate_size=26, vocab_size=40,
                  num_hidden_layers=4),
    "mixtral": dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=24, head_dim=6, intermediate_size=10,
                    vocab_size=41, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2),
    "bert": dict(num_attention_heads=4, hidden_size=16, intermediate_size=24, vocab_size=39, num_hidden_layers=4),
    "ernie": dict(num_attention_heads=4, hidden_size=16, intermediate_size=24, vocab_size=39, num_hidden_layers=4),
    "t5": dict(vocab_size=37),
    "tiny": dict(n_head=2, n_embd=8, n_inner=8, n_layer=2, vocab_size=33, resid_pdrop=0.2),  # of gpt2's family
}
ROWS = ("bert", "ernie", "t5")  # models that are trained on rows with labels

BASE = dict(seq=12, batch=8, micro_batch=1, lanes=4, steps=3, shuffle=False, seed=7, init="load", dtype="fp32",
            threads=1, memory="any", plan="off",
            optimizer=dict(name="adamw", lr=3e-3, weight_decay=0.1, clip=1.0))

# name: model, then runs of (ranks, keys that differ from BASE).
JOBS = {
    # one process: families, types, batch splits, optimizers
    **{m: (m, [(1, {})]) for m in SIZES if m != "tiny"},
    **{m + "-bf16": (m, [(1, dict(dtype="bf16"))]) for m in SIZES if m != "tiny"},
    "whole-batch": ("gpt2", [(1, dict(micro_batch=8, lanes=1))]),
    "lanes-1": ("gpt2", [(1, dict(micro_batch=2, lanes=1))]),
    "lanes-8": ("llama", [(1, dict(lanes=8))]),
    "threads-3": ("llama", [(1, dict(threads=3, micro_batch=4, lanes=2))]),
    "shuffle": ("gpt2", [(1, dict(shuffle=True, seed=3))]),
    "dropout": ("gpt2", [(1, dict(dropout=True))]),
    "dropout-bf16": ("bert", [(1, dict(dropout=True, dtype="bf16"))]),
    "sgd": ("llama", [(1, dict(optimizer=dict(name="sgd", lr=0.05, momentum=0.9)))]),
    "adam": ("gpt2", [(1, dict(optimizer=dict(name="adam", lr=1e-3, weight_decay=0.01)))]),
    "adagrad": ("qwen2", [(1, dict(optimizer=dict(name="adagrad", lr=0.01)))]),
    "lamb": ("bert", [(1, dict(optimizer=dict(name="lamb", lr=0.01, weight_decay=0.1, clip=0.5)))]),
    "cosine": ("gpt2", [(1, dict(lr_schedule=dict(name="cosine", warmup=2, min_lr=1e-4)))]),
    "selective": ("gpt2", [(1, dict(recompute="selective"))]),
    "full-bf16": ("llama", [(1, dict(recompute="full", dtype="bf16"))]),
    "eval": ("gpt2", [(1, dict(eval=dict(data="tokens.bin", every=1, batches=2)))]),
    "sums-fast": ("gpt2", [(1, dict(reduction="fixed"))]),
    # data parallel and ZeRO
    "dp2": ("gpt2", [(2, dict(dp=2))]),
    "dp4": ("llama", [(4, dict(dp=4))]),
    "dp3": ("llama", [(3, dict(dp=3))]),
    "dp2-fast": ("gpt2", [(2, dict(dp=2, reduction="fixed"))]),
    "dp2-bucket": ("gpt2", [(2, dict(dp=2, bucket_bytes=20000))]),
    "dp2-bucket-bf16": ("qwen2", [(2, dict(dp=2, bucket_bytes=1000, dtype="bf16"))]),
    "dp2-shares": ("gpt2", [(2, dict(dp=2, batch_split="3,1"))]),
    "dp3-shares-zero1": ("llama", [(3, dict(dp=3, batch_split="2,1,1", zero=1))]),
    "zero1": ("gpt2", [(2, dict(dp=2, zero=1))]),
    "zero2": ("llama", [(2, dict(dp=2, zero=2))]),
    "zero3": ("gpt2", [(4, dict(dp=4, zero=3))]),
    "zero3-bf16-full": ("llama", [(2, dict(dp=2, zero=3, dtype="bf16", recompute="full"))]),
    "zero1-later": ("gpt2", [(2, dict(dp=2, zero=1, overlap_param_gather=0.66))]),
    "zero2-later-bucket": ("llama", [(2, dict(dp=2, zero=2, overlap_param_gather=1, bucket_bytes=20000))]),
    "zero1-lamb": ("bert", [(2, dict(dp=2, zero=1, optimizer=dict(name="lamb", lr=0.01, clip=0.5)))]),
    "zero3-mixtral": ("mixtral", [(2, dict(dp=2, zero=3))]),
    "zero2-one-micro-batch": ("gpt2", [(2, dict(dp=2, zero=2, micro_batch=4, lanes=2))]),
    # tensor, sequence, context, expert parallel
    "tp2": ("gpt2", [(2, dict(tp=2))]),
    "tp4": ("gpt2", [(4, dict(tp=4))]),
    "tp3-uneven": ("qwen2", [(3, dict(tp=3))]),
    "tp2-sp": ("llama", [(2, dict(tp=2, sp=True))]),
    "tp2-sp-bf16": ("gpt2", [(2, dict(tp=2, sp=True, dtype="bf16"))]),
    "tp2-whole": ("gpt2", [(2, dict(tp=2, tp_exclude="blocks", micro_batch=2))]),
    "tp2-whole-ends": ("llama", [(2, dict(tp=2, tp_exclude="input,head", micro_batch=2))]),
    "tp2-ernie": ("ernie", [(2, dict(tp=2, sp=True))]),
    "tp2-t5": ("t5", [(2, dict(tp=2))]),
    "cp2": ("llama", [(2, dict(cp=2))]),
    "cp2-ring": ("gpt2", [(2, dict(cp=2, cp_comm="ring"))]),
    "cp2-ring-window": ("mistral", [(2, dict(cp=2, cp_comm="ring"))]),
    "ep2": ("mixtral", [(2, dict(ep=2, micro_batch=2))]),
    "ep4-bf16": ("mixtral", [(4, dict(ep=4, micro_batch=2, dtype="bf16"))]),
    "ep2-whole-tokens": ("mixtral", [(2, dict(ep=2))]),
    # pipelines
    "gpipe": ("gpt2", [(2, dict(pp=2, schedule="gpipe"))]),
    "1f1b": ("llama", [(4, dict(pp=4, schedule="1f1b"))]),
    "interleaved": ("gpt2", [(2, dict(pp=2, schedule="interleaved", chunks=2))]),
    "zb-h1": ("llama", [(2, dict(pp=2, schedule="zb-h1"))]),
    "zb-h1-bf16-selective": ("gpt2", [(3, dict(pp=3, schedule="zb-h1", dtype="bf16", recompute="selective"))]),
    "pp2-t5": ("t5", [(2, dict(pp=2))]),
    "pp2-bert-eval": ("bert", [(2, dict(pp=2, eval=dict(data="rows.safetensors", every=2, batches=2)))]),
    # mixtures
    "dp2-tp2": ("gpt2", [(4, dict(dp=2, tp=2, zero=1))]),
    "tp2-dp2-order": ("gpt2", [(4, dict(tp=2, dp=2, mesh_order="tp,dp", bucket_bytes=20000))]),
    "dp2-pp2-zero2": ("llama", [(4, dict(dp=2, pp=2, zero=2, schedule="zb-h1"))]),
    "dp2-pp2-zero1-later": ("gpt2", [(4, dict(dp=2, pp=2, zero=1, overlap_param_gather=0.8, schedule="interleaved", chunks=2))]),
    "tp2-pp2-cp2": ("llama", [(8, dict(cp=2, tp=2, pp=2, recompute="full"))]),
    "dp2-ep2-eval": ("mixtral", [(4, dict(dp=2, ep=2, micro_batch=2, eval=dict(data="tokens.bin", every=1)))]),
    "dp3-pp2-shares": ("gpt2", [(6, dict(dp=3, pp=2, batch_split="2,1,1", zero=3))]),
    # stopped and resumed under another plan
    "resume": ("gpt2", [(1, dict(steps=2)), (1, {})]),
    "resume-wider": ("gpt2", [(1, dict(steps=1)), (2, dict(dp=2, zero=1, steps=2)), (4, dict(dp=2, pp=2))]),
    "resume-narrower-bf16": ("llama", [(4, dict(dp=4, zero=3, steps=2, dtype="bf16")), (1, dict(dtype="bf16"))]),
    "resume-tp": ("llama", [(2, dict(tp=2, steps=2)), (2, dict(pp=2))]),
    "resume-shuffle-dropout": ("gpt2", [(1, dict(shuffle=True, dropout=True, steps=2)),
                                        (2, dict(shuffle=True, dropout=True, dp=2))]),
    # of which checkpoints by an earlier build are kept
    "kept": ("tiny", [(1, {})]),
    "kept-bf16": ("tiny", [(1, dict(dtype="bf16", shuffle=True, dropout=True, micro_batch=2, lanes=2))]),
}


def make_inputs(s):
    """Models of SIZES without weights, a token stream, and rows with labels of which a third is ignored."""
    for name, sizes in SIZES.items():
        with open(os.path.join(FAMILIES, "gpt2" if name == "tiny" else name, "config.json")) as f:
            config = json.load(f)
        config.update(sizes)
        s.write(name + "/config.json", json.dumps(config))
    dice = random.Random(5)
    s.write("tokens.bin", u16([dice.randrange(TOKENS) for _ in range(4000)]))
    n, seq = 64, BASE["seq"]
    ids = [dice.randrange(TOKENS) for _ in range(n * seq)]
    labels = [dice.randrange(TOKENS) if dice.random() < 0.67 else -100 for _ in ids]
    pack = lambda x: b"".join(v.to_bytes(4, "little", signed=True) for v in x)
    s.write("rows.safetensors", safetensors([("input_ids", "I32", (n, seq), pack(ids)),
                                             ("decoder_input_ids", "I32", (n, seq), pack(ids[::-1])),
                                             ("labels", "I32", (n, seq), pack(labels))]))


def run_job(s, name, out=None):
    """What its last run printed, and the numbers of all steps; None after a failed check."""
    model, runs = JOBS[name]
    out, result = out or s.path("out", name), None
    for ranks, keys in runs:
        job = {**BASE, **keys}
        if "eval" in job:
            job["eval"] = dict(job["eval"], data=s.path(job["eval"]["data"]))
        if ranks > 1:
            del job["plan"]
        job.update(model=s.path(model), data=s.path("rows.safetensors" if model in ROWS else "tokens.bin"), output=out)
        if DEVICE != "cpu":
            job.update(device=DEVICE, share_gpu=True)
        start = ["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"]
        r = weft(*start, *words(job), "--json", "--quiet")
        if not check(r.code == 0, "%s: %s" % (name, r)):
            return None
        result = json.loads(r.out)
    steps = [[m["loss"], m["grad_norm"]] + ([m["eval_loss"]] if "eval_loss" in m else []) for m in metrics(out)]
    return dict(weights_xxh64=result["weights_xxh64"], steps=steps, mem_peak_bytes=result["mem_peak_bytes"])


def compare_bits(name, got, want):
    for key in ("weights_xxh64", "steps"):
        same(got[key], want[key], "%s: %s" % (name, key))


def compare_near(name, got, want):
    """Another device rounds in other places: bf16 coarsely."""
    tolerance = 3e-2 if any(keys.get("dtype") == "bf16" for _, keys in JOBS[name][1]) else 1e-4
    check(len(got["steps"]) == len(want["steps"]), "%s: %d steps" % (name, len(got["steps"])))
    for i, (a, b) in enumerate(zip(got["steps"], want["steps"])):
        for x, y in zip(a, b):
            near(x, y, tolerance, "%s, step %d" % (name, i + 1))


def compare(name, got, want):
    if DEVICE != "cpu":
        return compare_near(name, got, want)
    compare_bits(name, got, want)
    check(GUARD or got["mem_peak_bytes"] <= want["mem_peak_bytes"] + SLACK,
          "%s: mem_peak_bytes %d, recorded %d" % (name, got["mem_peak_bytes"], want["mem_peak_bytes"]))


def resume_kept(s, name, want):
    """Goes on from what an earlier build left."""
    out = s.path("kept", name)
    shutil.copytree(os.path.join(CHECKPOINTS, name), out)
    got = run_job(s, name, out)
    if got:
        compare_bits(name + ", resumed from a kept checkpoint", got, want)


def write_results(results):
    os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
    with open(RESULTS, "w") as f:
        f.write("{\n" + ",\n".join('"%s": %s' % (k, json.dumps(v)) for k, v in results.items()) + "\n}\n")


with Scratch("recorded", memory=True) as s:
    make_inputs(s)
    names = list(JOBS)[::EVERY]
    results = {name: run_job(s, name) for name in names}
    if RECORD:
        if all(results.values()):
            write_results(results)
    else:
        with open(RESULTS) as f:
            recorded = json.load(f)
        same(sorted(recorded), sorted(JOBS), "jobs of tests/recorded/results.json")
        for name in names:
            if results[name]:
                compare(name, results[name], recorded[name])
        for name in os.listdir(CHECKPOINTS) if DEVICE == "cpu" else ():
            resume_kept(s, name, recorded[name])
end()
