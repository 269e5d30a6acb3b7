#!/usr/bin/env python3
"""gpu_ranks.py WEFT [PLAN ...]: jobs of two and four ranks that share a GPU, over peer and staged, against
one rank.  Weights must have the same bits; with tensor parallelism those of the backends must be the same.  Exit code 1:
they are not."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

CONFIG = dict(model_type="gpt2", n_embd=256, n_layer=4, n_head=4, vocab_size=1000, n_positions=128, resid_pdrop=0.1,
              embd_pdrop=0.1, attn_pdrop=0.0, layer_norm_epsilon=1e-5, activation_function="gelu_new")
JOB = dict(seq=128, batch=8, micro_batch=2, lanes=4, steps=6, seed=5, dropout="true", device="cuda", plan="off",
           init="random", share_gpu="true", reduction="invariant")
PLANS = dict(dp2=(2, "dp=2"), dp4=(4, "dp=4"), pp2=(2, "pp=2"), pp4=(4, "pp=4"), zero1=(2, "dp=2 zero=1"),
             zero2=(2, "dp=2 zero=2"), zero3=(2, "dp=2 zero=3"), tp2=(2, "tp=2"), dp2pp2=(4, "dp=2 pp=2"),
             bf16=(2, "dp=2 dtype=bf16"))


def make_data(folder):
    x, ids = 2654435761, []
    for _ in range(60000):
        x ^= x << 13 & 0xffffffff
        x ^= x >> 17
        x ^= x << 5 & 0xffffffff
        ids.append(x % CONFIG["vocab_size"])
    with open(os.path.join(folder, "tokens.bin"), "wb") as f:
        f.write(struct.pack("<%dH" % len(ids), *ids))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(CONFIG, f)


def run(weft, folder, name, ranks, keys, comm):
    job = dict(JOB, model=folder, data=folder + "/tokens.bin", output=os.path.join(folder, name))
    command = [weft] + (["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"])
    command += ["%s=%s" % x for x in job.items()] + keys.split() + ["--json", "--quiet"]
    start = time.time()
    r = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, WEFT_GPU_COMM=comm), timeout=120)
    bits = json.loads(r.stdout)["weights_xxh64"] if r.returncode == 0 else None
    print("%-16s %s %5.1f s %s" % (name, bits, time.time() - start, r.stderr.strip()[-300:]), flush=True)
    return bits


def main(weft, plans):
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder)
        one = {}
        for plan in plans:
            ranks, keys = PLANS[plan]
            dtype = " ".join(k for k in keys.split() if k.startswith("dtype"))
            if dtype not in one:
                one[dtype] = run(weft, folder, "one-" + (dtype or "dtype=fp32"), 1, dtype, "staged")
            found = {comm: run(weft, folder, "%s-%s" % (plan, comm), ranks, keys, comm) for comm in ("staged", "peer")}
            want = found["staged"] if plan.startswith("tp") else one[dtype]
            failed += ["%s, %s" % (plan, comm) for comm, bits in found.items() if bits is None or bits != want]
    print("FAILED: " + "; ".join(failed) if failed else "the same bits")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:] or list(PLANS)))
