#!/usr/bin/env python3
"""gpu_speed.py WEFT compile|steps|tune [--rows NAME,...] [--modes M,...] [--attention flash,cudnn] [--weights autocast,bf16]
[--compile whole|blocks] [--limit SECONDS] [--out FILE] [--anew] [--dtype bf16|fp8] [--small]: training steps of five models on a GPU
beside PyTorch's (bench/gpu/torch_step.py), in the same run.

    compile   PyTorch's compiler alone, all rows at once: what it keeps (TORCHINDUCTOR_CACHE_DIR) makes steps short
    steps     weft, PyTorch, weft for each row; medians of 20 steps, their ratio, memory, and what the row may take
    tune      algorithms of cublasLt for the shapes of all rows, which the built-in table has not yet (--anew: of all shapes): rows of data/cuda in FILE

PyTorch runs every combination of --modes, --attention and --weights; the fastest counts.  --compile blocks: one graph for all
blocks instead of one for the model, which is compiled in seconds.  --small: narrow models of two layers, to try this script
where there is no GPU.  Exit code 1: a row fails, or takes more than it may."""
import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TORCH = os.path.join(ROOT, "bench", "gpu", "torch_step.py")
GPT = dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", activation_function="gelu_new", layer_norm_epsilon=1e-5,
           attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, tie_word_embeddings=True, n_positions=1024)
LLAMA = dict(hidden_act="silu", rms_norm_eps=1e-5, initializer_range=0.02, tie_word_embeddings=True, head_dim=64)
CONFIGS = {
    "gpt-1.3b": dict(GPT, n_embd=2048, n_head=16, n_layer=24, vocab_size=50304),
    "llama-1.2b": dict(LLAMA, architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=2048, intermediate_size=8192,
                       num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
                       max_position_embeddings=2048, rope_theta=500000.0),
    "mixtral-like": dict(LLAMA, architectures=["MixtralForCausalLM"], model_type="mixtral", hidden_size=1024,
                         intermediate_size=3584, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4,
                         num_local_experts=8, num_experts_per_tok=2, vocab_size=32000, max_position_embeddings=1024,
                         rope_theta=1000000.0),
}
# name: model, batch, seq, mode of torch.compile, least ratio wanted, most allowed, GiB allowed
ROWS = {
    "gpt2": ("gpt2", 32, 1024, "default", 0.85, 0.90, 12.1),
    "gpt-1.3b": ("gpt-1.3b", 8, 1024, "default", 0.87, 0.91, 31.8),
    "llama-1.2b": ("llama-1.2b", 8, 2048, "default", 0.92, 0.95, 0),
    "mixtral-like": ("mixtral-like", 16, 1024, "default", 0.80, 0.80, 0),
    "gpt2-1": ("gpt2", 1, 128, "reduce-overhead", 0.80, 0.80, 0),
}


def write_models(folder, small):
    for name, config in dict(CONFIGS, gpt2=dict(GPT, n_embd=768, n_head=12, n_layer=12, vocab_size=50257)).items():
        for suffix, layers in (("", 0), ("-2", 2)):
            c = dict(config)
            if layers or small:
                c["n_layer" if "n_layer" in c else "num_hidden_layers"] = 2
            if small:
                c.update({k: v for k, v in dict(n_embd=64, n_head=1, hidden_size=64, intermediate_size=96, num_attention_heads=1,
                                                num_key_value_heads=1, vocab_size=257).items() if k in c})
            os.makedirs(os.path.join(folder, name + suffix))
            with open(os.path.join(folder, name + suffix, "config.json"), "w") as f:
                json.dump(c, f)


def read_lines(out):
    return [json.loads(x) for x in (out or b"").decode().splitlines() if x.startswith("{") and x.endswith("}")]


def run(command, limit, env=None):
    """(lines of JSON, why there are no more)"""
    try:
        p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit, env=dict(os.environ, **(env or {})))
    except subprocess.TimeoutExpired as e:
        return read_lines(e.stdout), "not done within %d s" % limit
    made, said = read_lines(p.stdout), p.stderr.decode().strip().splitlines()
    return made, "" if made else "exit code %d: %s" % (p.returncode, said[-1][-300:] if said else "")


class Rows:
    def __init__(self, a, folder):
        self.a, self.folder = a, folder
        self.rows = {k: ROWS[k] for k in (a.rows.split(",") if a.rows else ROWS)}

    def sizes(self, row):
        _, batch, seq = row[:3]
        return (2, 16) if self.a.small else (batch, seq)

    def weft(self, name, *more, layers="", steps=20, env=None):
        batch, seq = self.sizes(self.rows[name])
        made, why = run([self.a.weft, "bench", os.path.join(self.folder, self.rows[name][0] + layers), "--batch", str(batch),
                         "--seq", str(seq), "--dtype", self.a.dtype, "--clip", "0", "--steps", str(steps), "--device", "cuda", "--json", *more],
                        self.a.limit, env)
        if why:
            print("weft %s: %s" % (name, why), flush=True)
            return None
        r = made[0]
        print("weft %s%s %s: median %.3f ms, best %.3f ms, %.2f GiB; %s" % (
            name, layers, " ".join(more), r["step_ms_median"], r["step_ms_min"], r["mem_peak_bytes"] / 2**30,
            ", ".join("%s %.2f" % x for x in r.get("classes", {}).items())), flush=True)
        return r

    def torch_command(self, name, steps):
        model, batch, seq, mode = self.rows[name][:4]
        command = [sys.executable, TORCH, "--model", model, "--batch", str(batch), "--seq", str(seq), "--steps", str(steps)]
        return command + ["--mode", self.a.modes or mode, "--attention", self.a.attention, "--weights", self.a.weights,
                          "--compile", self.a.compile]

    def torch(self, name):
        settings = len(list(itertools.product(*(x.split(",") for x in (self.a.modes or "", self.a.attention, self.a.weights)))))
        made, why = run(self.torch_command(name, 20), self.a.limit * settings)
        for r in made:
            print("torch %s %s %s %s %s: median %.3f ms, best %.3f ms, %.2f GiB" % (
                name, r["mode"], r["compile"], r["attention"], r["weights"], r["median_ms"], r["best_ms"], r["peak_bytes"] / 2**30), flush=True)
        if why:
            print("torch %s: %s" % (name, why), flush=True)
        return min(made, key=lambda r: r["median_ms"]) if made else None

    def compile(self):
        begun = time.time()
        ps = {n: subprocess.Popen(self.torch_command(n, 1), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for n in self.rows}
        good = True
        for name, p in ps.items():
            try:
                said = p.communicate(timeout=max(1, begun + self.a.limit - time.time()))[1].decode().strip().splitlines()
                good &= p.returncode == 0
                print("torch %s: exit code %d after %.0f s; %s" % (name, p.returncode, time.time() - begun,
                                                                   said[-1][-200:] if p.returncode and said else ""), flush=True)
            except subprocess.TimeoutExpired:
                p.kill()
                p.communicate()
                good = False
                print("torch %s: not compiled within %d s" % (name, self.a.limit), flush=True)
        return good

    def steps(self):
        good = True
        print("== rows", flush=True)
        for name, (_, _, _, _, wanted, most, gib) in self.rows.items():
            first, peer, second = self.weft(name), self.torch(name), self.weft(name)
            if not first or not second:
                good = False
                continue
            ms = (first["step_ms_median"] + second["step_ms_median"]) / 2
            memory = first["mem_peak_bytes"] / 2**30
            line = "%-13s weft %8.2f ms %6.2f GiB" % (name, ms, memory)
            if peer:
                ratio = ms / peer["median_ms"]
                line += ", torch %8.2f ms %6.2f GiB, ratio %.3f (wanted %.2f, at most %.2f)" % (
                    peer["median_ms"], peer["peak_bytes"] / 2**30, ratio, wanted, most)
                good &= ratio <= most
            if name == "gpt-1.3b":
                r = self.weft(name, "--recompute", "selective")
                if r:
                    line += "; selective %.2f ms (%+.1f %%) %.2f GiB of 25.5" % (
                        r["step_ms_median"], 100 * (r["step_ms_median"] / ms - 1), r["mem_peak_bytes"] / 2**30)
            if gib and memory > gib:
                line += "; more than %.1f GiB" % gib
                good = False
            print("ROW " + line, flush=True)
        return good

    def tune(self):
        out = os.path.abspath(self.a.out or "pinned.tsv")
        env = dict(WEFT_CUDA_TUNE=out, **(dict(WEFT_CUDA_PINNED="/dev/null") if self.a.anew else {}))
        for name in self.rows:
            self.weft(name, layers="-2", steps=1, env=env)
        n = 0
        if os.path.exists(out):
            with open(out) as f:
                n = sum(1 for x in f if not x.startswith("#"))
        print("%d rows in %s" % (n, out))
        return True


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("weft")
    p.add_argument("what", choices=("compile", "steps", "tune"))
    p.add_argument("--rows")
    p.add_argument("--modes", help="of torch.compile; without: the row's")
    p.add_argument("--attention", default="flash", help="flash,cudnn")
    p.add_argument("--weights", default="autocast", help="autocast,bf16")
    p.add_argument("--compile", choices=("whole", "blocks"), default="whole", help="PyTorch's graphs")
    p.add_argument("--limit", type=int, default=60, help="seconds of one program")
    p.add_argument("--out")
    p.add_argument("--anew", action="store_true")
    p.add_argument("--dtype", choices=("bf16", "fp8"), default="bf16", help="of weft")
    p.add_argument("--small", action="store_true")
    a = p.parse_args()
    a.weft = os.path.abspath(a.weft)
    with tempfile.TemporaryDirectory() as folder:
        write_models(folder, a.small)
        good = getattr(Rows(a, folder), a.what)()
    print("passed" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
