"""Balancing of experts by biases, and their loads in metrics.jsonl: on the CPU, and on the CUDA plugin where it is built
(tests/cuda/stub).  The rule, the same bits for any number of data-parallel ranks and stages and through a resume, loads
that even out."""
import json
import os
import struct

from eco import LONG, Scratch, check, end, metrics, near, read, same, skip, tokens, u16, weft, words

RATE = 0.05
CONFIG = dict(model_type="mixtral", architectures=["MixtralForCausalLM"], hidden_size=16, intermediate_size=24,
              num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, num_local_experts=5, num_experts_per_tok=2,
              vocab_size=31, rms_norm_eps=1e-5, max_position_embeddings=32, router_bias_update_rate=RATE)
try:
    from cuda_stub import STUB
except SystemExit:
    STUB = None


def write_model(s, name, **keys):
    return os.path.dirname(s.write("%s/config.json" % name, json.dumps(dict(CONFIG, **keys))))


def run(job, ranks=1):
    start = ["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"]
    r = weft(*start, *words(job), "--json", "--quiet", env=STUB or {})
    return json.loads(r.out) if check(r.code == 0, str(r)) else None


def biases(output):
    """Of each layer, from the exported weights."""
    data = read(os.path.join(output, "final", "model.safetensors"))
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    found = []
    for name in sorted(x for x in head if x.endswith(".gate.e_score_correction_bias")):
        a, b = head[name]["data_offsets"]
        found.append(struct.unpack("<%df" % ((b - a) // 4), data[8 + n + a:8 + n + b]))
    return found


def check_rule(base, out):
    """After one step every bias has moved by the rate, or not at all; the most loaded expert's has fallen."""
    run(dict(base, steps=1, output=out("rule")))
    b = biases(out("rule"))
    same(len(b), 2, "layers with biases")
    check(all(abs(abs(x) - RATE) < 1e-7 or x == 0 for y in b for x in y) and all(min(y) < 0 < max(y) for y in b), "biases: %r" % b)
    load = metrics(out("rule"))[0]["expert_load"]
    check(len(load) == 2 and all(1 < x <= 2.5 for x in load), "loads: %r" % load)
    r = run(dict(base, steps=3, output=out("three")))
    check(r and all(abs(x / RATE - round(x / RATE)) < 1e-4 for y in biases(out("three")) for x in y), "multiples of the rate")


def check_bits(base, out, one):
    more = (("dp2", 2, dict(dp=2)), ("whole", 1, dict(recompute="full")))
    for name, ranks, keys in (("zero2", 2, dict(dp=2, zero=2)), ("pp2", 2, dict(pp=2))) + (more if LONG else ()):
        r = run(dict(base, output=out(name), **keys), ranks)
        if r and one:
            same(r["weights_xxh64"], one["weights_xxh64"], name)
            same([m["expert_load"] for m in metrics(out(name))], [m["expert_load"] for m in metrics(out("one"))], name + ": loads")
    run(dict(base, output=out("resumed"), steps=2))
    r = run(dict(base, output=out("resumed")))
    if r and one:
        same(r["weights_xxh64"], one["weights_xxh64"], "resumed")
    r = run(dict(base, output=out("ep2"), ep=2, micro_batch=2), 2)
    if r and one:
        near(r["loss"], one["loss"], 1e-3, "ep=2")


def check_ended(s, base, out):
    """A rank is killed between the last instructions of an update, which move the biases: it is ended, and no step is run again."""
    base, n = dict(base, steps=60), 27  # instructions of a rank after the commit point
    one = run(dict(base, output=out("long")))
    for k in range(n - 3, n + 2):
        once = s.path("ended-%d" % k)
        r = weft("run", "--nproc-per-node", "2", *words(dict(base, dp=2, recover="on", output=out("ended-%d" % k))), "--json",
                 env=dict(WEFT_FAILPOINT="update.instr:kill:rank=1:nth=%d" % (20 * n + k), WEFT_FAILPOINT_ONCE=once))
        if check(r.code == 0 and os.path.exists(once + ".0") and "back to step" not in r.err, "biases, killed at %d: %s" % (k, r)):
            same(json.loads(r.out)["weights_xxh64"], one["weights_xxh64"], "biases, killed at %d" % k)
            same([m["expert_load"] for m in metrics(out("ended-%d" % k))], [m["expert_load"] for m in metrics(out("long"))], "loads, killed at %d" % k)


def check_loads(s, base, out):
    """A router that prefers some experts: with biases loads even out, without them they do not."""
    wide = dict(initializer_range=0.4)
    models = (("biased", write_model(s, "biased", router_bias_update_rate=0.004, **wide)),
              ("plain", write_model(s, "plain", router_bias_update_rate=0, output_router_logits=True, router_aux_loss_coef=0, **wide)))
    last = {}
    for name, model in models:
        run(dict(base, model=model, steps=60, batch=16, optimizer=dict(name="sgd", lr=0.0), output=out("load-" + name)))
        last[name] = [sum(m["expert_load"][k] for m in metrics(out("load-" + name))[-20:]) / 20 for k in range(2)]
    check(all(a < b - 0.03 for a, b in zip(last["biased"], last["plain"])), "loads: %r" % last)


def check_device(base, out, one):
    cuda = dict(base, device="cuda")
    g = run(dict(cuda, output=out("cuda")))
    for a, b in zip(metrics(out("cuda")), metrics(out("one"))):
        near(a["loss"], b["loss"], 1e-5, "loss of step %d on cuda" % a["step"])
        same(a["expert_load"], b["expert_load"], "loads of step %d on cuda" % a["step"])
    same([["%.6f" % x for x in y] for y in biases(out("cuda"))], [["%.6f" % x for x in y] for y in biases(out("one"))], "biases on cuda")
    r = run(dict(cuda, output=out("cuda-dp2"), dp=2, share_gpu=True), 2)
    if g and r:
        same(r["weights_xxh64"], g["weights_xxh64"], "dp=2 on cuda")
    check(one is not None, "the CPU's run")


def check_losses(s, base, out):
    """Losses of routers on the GPU: near the CPU's, and with the bits of one rank on two."""
    model = write_model(s, "losses", output_router_logits=True, router_aux_loss_coef=0.3, router_z_loss_coef=0.2)
    for dtype, tol in (("fp32", 1e-5), ("bf16", 2e-2)):
        job = dict(base, model=model, dtype=dtype)
        name = "losses-%s-" % dtype
        run(dict(job, output=out(name + "cpu")))
        g = run(dict(job, device="cuda", output=out(name + "cuda")))
        for a, b in zip(metrics(out(name + "cuda")), metrics(out(name + "cpu"))):
            near(a["loss"], b["loss"], tol, "%s: loss of step %d with routers' losses on cuda" % (dtype, a["step"]))
            near(a["grad_norm"], b["grad_norm"], 10 * tol, "%s: norm of step %d with routers' losses on cuda" % (dtype, a["step"]))
        for plan, keys in (("dp2", dict(dp=2)), ("pp2", dict(pp=2)))[0 if LONG else 1:]:
            r = run(dict(job, device="cuda", output=out(name + plan), share_gpu=True, **keys), 2) if dtype == "fp32" else None
            if g and r:
                same(r["weights_xxh64"], g["weights_xxh64"], "%s on cuda with routers' losses" % plan)
    plain = write_model(s, "no-losses")
    run(dict(base, model=plain, output=out("no-losses")))
    check(abs(metrics(out("no-losses"))[-1]["grad_norm"] - metrics(out("losses-fp32-cpu"))[-1]["grad_norm"]) > 1e-3, "losses change gradients")


def check_bad(s, base, out):
    r = weft("train", *words(dict(base, model=write_model(s, "wrong", router_bias_update_rate=-1), output=out("wrong"))), "--quiet")
    check(r.code == 2 and "router_bias_update_rate" in r.err, str(r))


with Scratch("experts", memory=True) as s:
    out = lambda name: s.path("out", name)
    base = dict(model=write_model(s, "model"), data=s.write("tokens.bin", u16(tokens(900, 31))), seq=8, batch=8, micro_batch=2, lanes=2,
                steps=5, seed=5, threads=1, init="random", reduction="invariant", optimizer=dict(name="adamw", lr=3e-3, clip=1.0))
    check_rule(base, out)
    one = run(dict(base, output=out("one")))
    check_bits(base, out, one)
    check_ended(s, base, out)
    check_loads(s, base, out)
    check_bad(s, base, out)
    if STUB is not None:
        check_device(base, out, one)
        check_losses(s, base, out)
end()
