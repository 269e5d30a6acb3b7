"""dtype=fp8: whole jobs whose linear layers multiply in 8 bits.

On the CPU, which rounds operands: the loss goes down as in bf16; data parallelism, a pipeline, ZeRO and accumulation have the
bits of one rank.  On the CUDA plugin (over the driver without a GPU and the cublasLt of tests/cuda/stub, which multiplies
codes): losses near the CPU's, the same bits from run to run and with several ranks, a checkpoint of the CPU goes on there."""
import json
import os

from eco import WEFT, Scratch, check, end, metrics, near, same, small_model, tokens, u16, weft, words

BUILD = os.path.dirname(WEFT)
LIBS = os.path.join(BUILD, "cuda_stub")
GPU = dict(LD_LIBRARY_PATH=os.path.join(BUILD, "stub_gpu"), WEFT_CUDA_LIBS=LIBS)


def run(job, ranks=1, env=None):
    start = ["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"]
    r = weft(*start, *words(job), "--json", "--quiet", env=env, timeout=120)
    return json.loads(r.out) if check(r.code == 0, "exit code %d: %s" % (r.code, r)) else None


def losses(folder):
    return [m["loss"] for m in metrics(folder)]


def check_learns(s, base):
    """The same text again and again: each type gets to about the same loss, far below the first one."""
    last = {}
    for name, keys in (("bf16", dict(dtype="bf16")), ("fp8", dict(dtype="fp8")),
                       ("hybrid", dict(dtype="fp8", fp8_format="hybrid"))):
        run(dict(base, steps=60, output=s.path(name), **keys))
        x = losses(s.path(name))
        check(x[-1] < x[0] - 1, "%s: from %g to %g" % (name, x[0], x[-1]))
        last[name] = sum(x[-5:]) / 5
    near(last["fp8"], last["bf16"], 0.03, "fp8 beside bf16 after 60 steps")
    near(last["hybrid"], last["bf16"], 0.03, "hybrid beside bf16 after 60 steps")
    check(last["fp8"] != last["bf16"] and last["fp8"] != last["hybrid"], "the formats count: %s" % last)


def check_plans(s, base, env=None, **keys):
    base = dict(base, batch=8, micro_batch=2, lanes=4, dtype="fp8", fp8_format="hybrid", steps=3, **keys)
    name = "gpu" if env else "cpu"
    one = run(dict(base, output=s.path(name + "-one")), env=env)
    for plan in (dict(dp=2), dict(pp=2), dict(dp=2, zero=1), dict(dp=2, recompute="full")):
        label = name + "-" + "-".join("%s%s" % x for x in plan.items())
        r = run(dict(base, output=s.path(label), **plan), 2, env)
        if r and one:
            same(r["weights_xxh64"], one["weights_xxh64"], label)


def check_gpu(s, base):
    base = dict(base, steps=4, dtype="fp8")
    cpu = run(dict(base, output=s.path("on-cpu")))
    env = dict(GPU, WEFT_CUDA_FP8_LOG=s.path("how"))
    first, second = (run(dict(base, device="cuda", output=s.path("on-gpu-%d" % k)), env=env) for k in range(2))
    if not (cpu and first and second):
        return
    same(first["weights_xxh64"], second["weights_xxh64"], "two runs on a GPU")
    for a, b in zip(losses(s.path("on-gpu-0")), losses(s.path("on-cpu"))):
        near(a, b, 1e-3, "loss on a GPU beside the CPU's")
    with open(s.path("how")) as f:
        how = {x.rsplit(": ", 1)[1].strip() for x in f}
    check(all(x.startswith("units") for x in how), "runs as %s" % how)
    check("units, rows of a known, rows of b known; a turned, b turned" in how, "what is shared: %s" % how)
    check("units, columns of a found; a in rows, b turned" in how and not any("one by one" in x for x in how), "how codes are made: %s" % how)
    run(dict(base, steps=2, output=s.path("moves")))
    r = run(dict(base, device="cuda", output=s.path("moves")), env=GPU)
    if r:
        near(losses(s.path("moves"))[-1], losses(s.path("on-cpu"))[-1], 1e-3, "a CPU's checkpoint on a GPU")


def main():
    with Scratch("fp8") as s:
        model = small_model(s, n_embd=32, n_layer=2, n_head=2, vocab_size=33, n_positions=16, resid_pdrop=0, embd_pdrop=0)
        data = s.write("tokens.bin", u16(tokens(150, 33)))
        base = dict(model=model, data=data, seq=16, batch=4, seed=5, plan="off", init="random",
                    optimizer=dict(name="adamw", lr=1e-2, weight_decay=0.1, clip=1.0))
        check_learns(s, base)
        check_plans(s, base)
        if os.path.exists(os.path.join(BUILD, "libweft_cuda.so")):
            check_gpu(s, base)
            check_plans(s, base, GPU, device="cuda", share_gpu=True)
    end()


main()
