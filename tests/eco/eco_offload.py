"""offload=optimizer: whole jobs whose optimizer states are in the host's memory and are updated there.

On the guard device (a CPU whose device memory is inaccessible in between) the same kernels run, so every bit is that of
the plain CPU job: through accumulation, ZeRO, a pipeline, recomputation, a step that is held back, evaluation and
checkpoints of one kind resumed as the other.  On the CUDA plugin (over the driver without a GPU of tests/cuda/stub) the
host's kernels update what the device's have computed: the same bits from run to run, losses near those without."""
import json
import os

from eco import WEFT, Scratch, check, end, metrics, near, same, small_model, tokens, u16, weft, words

BUILD = os.path.dirname(WEFT)
GUARD = dict(WEFT_DEVICE="guard")
STUB = dict(LD_LIBRARY_PATH=os.path.join(BUILD, "stub_gpu"), WEFT_CUDA_LIBS="none")


def run(job, ranks=1, env=None, code=0):
    start = ["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"]
    r = weft(*start, *words(job), "--json", "--quiet", env=env, timeout=120)
    if not check(r.code == code, "exit code %d: %s" % (code, r)):
        return None
    return json.loads(r.out) if code == 0 else r.err


def says(error, *parts):
    if error is not None:
        check(all(p in error for p in parts), "%r in %r" % (parts, error))


def check_same(base, out, name, ranks=1, **keys):
    """With and without, on the guard device and on the CPU."""
    plain = run(dict(base, output=out(name + "-plain"), **keys), ranks)
    moved = run(dict(base, output=out(name), offload="optimizer", **keys), ranks, GUARD)
    if plain and moved:
        same(moved["weights_xxh64"], plain["weights_xxh64"], name)
        for a, b in zip(metrics(out(name)), metrics(out(name + "-plain"))):
            for key in ("loss", "grad_norm", "eval_loss"):
                same(a.get(key), b.get(key), "%s: %s of step %d" % (name, key, a["step"]))
    return plain


def check_resume(base, out):
    """A checkpoint of one kind goes on as the other."""
    base = dict(base, dtype="bf16")
    whole = run(dict(base, output=out("whole")))
    for name, first, then in (("there", {}, "optimizer"), ("back", dict(offload="optimizer"), "none"),
                              ("stays", dict(offload="optimizer"), "optimizer")):
        run(dict(base, steps=2, output=out(name), **first), env=GUARD)
        r = run(dict(base, output=out(name), offload=then), env=GUARD)
        if r and whole:
            same(r["weights_xxh64"], whole["weights_xxh64"], "resumed, " + name)


def check_guard(base, out):
    check_same(base, out, "fp32", eval=dict(data=base["data"], every=2, batches=2))
    check_same(base, out, "bf16", dtype="bf16", eval=dict(data=base["data"], every=2, batches=2))
    check_same(base, out, "full", dtype="bf16", recompute="full", micro_batch=1)
    two = dict(batch=8, lanes=4, dtype="bf16")
    check_same(dict(base, **two), out, "dp", 2, dp=2)  # the next step begins beside updates, in both ranks
    for zero in (1, 2, 3):
        check_same(dict(base, **two), out, "zero%d" % zero, 2, dp=2, zero=zero)
    check_same(dict(base, **two), out, "pp", 2, pp=2)
    check_resume(base, out)


def check_cuda(base, llama, out):
    base = dict(base, device="cuda")
    for dtype, tolerance in (("fp32", 1e-5), ("bf16", 1e-2)):
        job = dict(base, dtype=dtype)
        plain = run(dict(job, output=out("gpu-" + dtype)), env=STUB)
        first = run(dict(job, offload="optimizer", output=out("moved-" + dtype)), env=STUB)
        if not plain or not first:
            return
        near(first["loss"], plain["loss"], tolerance, dtype + ": loss")
        # saved: every second step's updates are over when the next one begins
        for name, env, keys in (("again", {}, {}), ("sync", dict(WEFT_CUDA_SYNC="1"), {}),
                                ("saved", {}, dict(checkpoint=dict(every=2, wait=60)))):
            r = run(dict(job, offload="optimizer", output=out(name + dtype), **keys), env=dict(STUB, **env))
            if r:
                same(r["weights_xxh64"], first["weights_xxh64"], dtype + ": " + name)
    for dtype, tolerance in (("fp32", 1e-5), ("bf16", 1e-2)):  # q, k and v are one matmul, their weights one buffer
        job = dict(base, dtype=dtype, model=llama, dropout=False)
        plain = run(dict(job, output=out("joined-" + dtype)), env=STUB)
        moved = run(dict(job, offload="optimizer", output=out("joined-moved-" + dtype)), env=STUB)
        if plain and moved:
            near(moved["loss"], plain["loss"], tolerance, "joined, %s: loss" % dtype)
            near(moved["grad_norm"], plain["grad_norm"], 10 * tolerance, "joined, %s: norm" % dtype)
    job = dict(base, dtype="bf16", batch=8, lanes=4, offload="optimizer")
    one = run(dict(job, output=out("one")), env=STUB)
    r = run(dict(job, output=out("ranks"), dp=2, zero=1, share_gpu=True), 2, STUB)
    if r and one:
        same(r["weights_xxh64"], one["weights_xxh64"], "two ranks")


def check_bad(base, out):
    says(run(dict(base, offload="optimizer", output=out("x")), code=2), "offload=optimizer", "device cpu")
    says(run(dict(base, offload="optimizer", output=out("x"), optimizer=dict(name="lamb")), env=GUARD, code=2),
         "offload=optimizer", "lamb", "offload=none")
    says(run(dict(base, offload="parameters", output=out("x")), code=2), "none of: none optimizer")


with Scratch("offload") as s:
    model = small_model(s, n_embd=16, n_layer=2, vocab_size=33, n_positions=16, resid_pdrop=0.1, embd_pdrop=0.1)
    base = dict(model=model, data=s.write("tokens.bin", u16(tokens(600, 33))), seq=8, batch=4, micro_batch=2, lanes=1,
                steps=4, seed=5, dropout=True, plan="off", init="random",
                optimizer=dict(name="adamw", lr=3e-3, weight_decay=0.1, clip=1.0))
    llama = s.write("llama/config.json", json.dumps(dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=33, max_position_embeddings=16, hidden_act="silu",
        rms_norm_eps=1e-6, rope_theta=10000.0, initializer_range=0.02, tie_word_embeddings=False)))
    out = lambda name: s.path("out", name)
    check_guard(base, out)
    if os.path.exists(os.path.join(BUILD, "libweft_cuda.so")):
        check_cuda(base, os.path.dirname(llama), out)
    check_bad(base, out)
end()
