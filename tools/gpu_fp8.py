#!/usr/bin/env python3
"""gpu_fp8.py WEFT check|compile|steps [--rows NAME,...] [--limit SECONDS] [--sums exact,fast] [--no-torch] [--small]: dtype=fp8 on a GPU, beside bf16 and
PyTorch's scaled matmuls with a scale for each row (bench/gpu/torch_step.py --fp8).

    check     100 steps of gpt2 on the bytes of this tree in bf16, fp8 and fp8_format=hybrid: losses; how matmuls run
    compile   PyTorch's compiler alone, in bf16 and fp8: what it keeps (TORCHINDUCTOR_CACHE_DIR) makes steps short
    steps     for each model (PyTorch compiles its blocks by one graph): weft bf16, weft fp8, PyTorch fp8 with sums in fp32 and with use_fast_accum, weft fp8 with fast
              sums, weft fp8 again, PyTorch bf16; medians of 20 steps and ratios

--small: narrow models, to try this script where there is no GPU; PyTorch is left out where it is not there.  Exit code 1: a
program fails, a loss is off by more than 2 %, or a matmul of a linear layer is not multiplied in fp8."""
import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time

import gpu_speed

ROOT = gpu_speed.ROOT
ROWS = ("gpt-1.3b", "llama-1.2b")


def text_of_tree(path):
    with open(path, "wb") as f:
        for folder in ("docs", "src", "plugin"):
            for where, _, files in sorted(os.walk(os.path.join(ROOT, folder))):
                for name in sorted(files):
                    if name.endswith((".c", ".h", ".md", ".cu")):
                        with open(os.path.join(where, name), "rb") as g:
                            f.write(g.read())
    return path


def mean(x):
    return sum(x) / len(x)


class Fp8:
    def __init__(self, a, folder):
        self.a, self.folder = a, folder
        self.rows = a.rows.split(",") if a.rows else ROWS
        self.log = os.path.join(folder, "matmuls.txt")

    # ---- check ----

    def losses(self, name, text, *keys):
        out = os.path.join(self.folder, name)
        model = ["model=tiny256", "seq=32", "batch=2"] if self.a.small else ["model=gpt2", "seq=256", "batch=16"]
        begun = time.time()
        r = subprocess.run([self.a.weft, "train", *model, "data=" + text, "tokenizer=bytes", "steps=%d" % (6 if self.a.small else 100),
                            "shuffle=true", "seed=1", "init=random", "plan=off", "optimizer.lr=0.0006", "optimizer.weight_decay=0.1",
                            "optimizer.clip=1.0", "lr_schedule.name=cosine", "lr_schedule.warmup=20", "device=cuda", "output=" + out,
                            "--quiet", *keys], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env=dict(os.environ, WEFT_CUDA_FP8_LOG=self.log), timeout=self.a.limit)
        if r.returncode:
            print("%s: exit code %d: %s" % (name, r.returncode, r.stderr.decode().strip()[-600:]), flush=True)
            return None
        with open(os.path.join(out, "metrics.jsonl")) as f:
            made = [json.loads(x)["loss"] for x in f]
        print("%-7s %.0f s, loss of every tenth step: %s" % (name, time.time() - begun, " ".join("%.3f" % x for x in made[9::10])), flush=True)
        return made

    def print_log(self):
        """How matmuls ran; true: all of them multiplied codes."""
        if not os.path.exists(self.log):
            print("no matmul in fp8 was prepared")
            return False
        with open(self.log) as f:
            lines = collections.Counter(x.strip() for x in f)
        for line, n in sorted(lines.items()):
            print("  %3d x %s" % (n, line))
        os.remove(self.log)
        return all("rounded" not in x for x in lines)

    def check(self):
        text = text_of_tree(os.path.join(self.folder, "text.txt"))
        made = {n: self.losses(n, text, *k) for n, k in (("bf16", ("dtype=bf16",)), ("fp8", ("dtype=fp8",)),
                                                         ("hybrid", ("dtype=fp8", "fp8_format=hybrid")))}
        again = self.losses("again", text, "dtype=fp8")
        good = self.print_log()
        if not all(made.values()) or not again:
            return False
        if again != made["fp8"]:
            print("a second run has other losses")
            good = False
        last = {n: mean(x[-20:]) for n, x in made.items()}
        print("mean loss of the last 20 steps: " + ", ".join("%s %.4f" % x for x in last.items()))
        return good and all(abs(last[n] / last["bf16"] - 1) < 0.02 for n in ("fp8", "hybrid"))

    # ---- steps ----

    def sizes(self, name):
        return (2, 16) if self.a.small else gpu_speed.ROWS[name][1:3]

    def weft(self, name, dtype, env=None):
        batch, seq = self.sizes(name)
        made, why = gpu_speed.run([self.a.weft, "bench", os.path.join(self.folder, name), "--batch", str(batch), "--seq", str(seq),
                                   "--dtype", dtype, "--clip", "0", "--steps", "20", "--device", "cuda", "--json"], self.a.limit,
                                  dict(env or {}, WEFT_CUDA_FP8_LOG=self.log))
        label = "weft %s %s%s" % (name, dtype, " fast sums" if env else "")
        if why:
            print("%s: %s" % (label, why), flush=True)
            return None
        r = made[0]
        print("%-32s median %8.3f ms, best %8.3f ms, %.2f GiB; %s" % (
            label, r["step_ms_median"], r["step_ms_min"], r["mem_peak_bytes"] / 2**30,
            ", ".join("%s %.2f" % x for x in r.get("classes", {}).items())), flush=True)
        return r["step_ms_median"]

    def torch_command(self, name, fp8, steps):
        batch, seq = self.sizes(name)
        return [sys.executable, gpu_speed.TORCH, "--model", name, "--batch", str(batch), "--seq", str(seq), "--steps", str(steps),
                "--attention", "flash", "--fp8", fp8, "--compile", "blocks"]

    def torch(self, name, fp8):
        if self.a.no_torch:
            return {}
        made, why = gpu_speed.run(self.torch_command(name, fp8, 20), self.a.limit * 2)
        if why:
            print("torch %s %s: %s" % (name, fp8, why), flush=True)
        for r in made:
            print("%-32s median %8.3f ms, best %8.3f ms, %.2f GiB" % (
                "torch %s %s" % (name, "bf16" if r["fp8"] == "none" else "fp8 " + r["fp8"]), r["median_ms"], r["best_ms"],
                r["peak_bytes"] / 2**30), flush=True)
        return {r["fp8"]: r["median_ms"] for r in made}

    def compile(self):
        begun, good = time.time(), True
        ps = {n: subprocess.Popen(self.torch_command(n, self.a.sums + ",none", 1), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
              for n in self.rows}
        for name, p in ps.items():
            try:
                said = p.communicate(timeout=max(1, begun + self.a.limit - time.time()))[1].decode().strip().splitlines()
                print("torch %s: exit code %d after %.0f s; %s" % (name, p.returncode, time.time() - begun, said[-1][-300:] if said else ""),
                      flush=True)
                good &= p.returncode == 0
            except subprocess.TimeoutExpired:
                p.kill()
                p.communicate()
                good = False
                print("torch %s: not compiled within %d s" % (name, self.a.limit), flush=True)
        return good

    def steps(self):
        good = True
        for name in self.rows:
            wide, first = self.weft(name, "bf16"), self.weft(name, "fp8")
            peer = self.torch(name, self.a.sums)
            fast = self.weft(name, "fp8", dict(WEFT_CUDA_FP8_FAST_ACCUM="1"))
            second = self.weft(name, "fp8")
            peer.update(self.torch(name, "none"))
            good &= self.print_log()
            if not (wide and first and second):
                good = False
                continue
            ours = (first + second) / 2
            line = "ROW %-11s weft fp8 %.2f ms, %.3f of bf16 (%.2f)" % (name, ours, ours / wide, wide)
            if fast:
                line += "; fast sums %.2f" % fast
            for kind, ms in (("exact", ours), ("fast", fast)):
                if peer.get(kind) and ms:
                    line += "; torch fp8 %s %.2f, ratio %.3f" % (kind, peer[kind], ms / peer[kind])
            if peer.get("none"):
                line += "; torch bf16 %.2f" % peer["none"]
            print(line, flush=True)
        return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("weft")
    p.add_argument("what", choices=("check", "compile", "steps"))
    p.add_argument("--rows")
    p.add_argument("--limit", type=int, default=60, help="seconds of one program")
    p.add_argument("--sums", default="exact,fast", help="of PyTorch's scaled matmuls")
    p.add_argument("--no-torch", action="store_true", help="steps: weft alone")
    p.add_argument("--small", action="store_true")
    a = p.parse_args()
    a.weft = os.path.abspath(a.weft)
    with tempfile.TemporaryDirectory() as folder:
        gpu_speed.write_models(folder, a.small)
        good = getattr(Fp8(a, folder), a.what)()
    print("passed" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
