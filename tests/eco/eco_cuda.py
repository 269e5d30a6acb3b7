"""Jobs on the CUDA plugin: over a driver without a GPU (tests/cuda/stub), whose kernels run on the CPU; with
WEFT_TEST_GPU=1 over the machine's own driver and GPU, without the parts that need the stub.

WEFT_CUDA_PARTS=bits,ranks: these parts alone.

What is checked: losses near the CPU's; the same bits from run to run, with and without graphs, through a resume, and on
two ranks that share the GPU; checkpoints of one device on the other; bench, sample, evaluation; t5 and resnet near the
CPU; nothing is left behind.
Bad input is in eco_cuda_bad.py, calls that fail are in tests/cuda/test_cuda_fail.c."""
import contextlib
import json
import os
import re
import struct
import subprocess
import time

from cuda_stub import BUILD, REAL, STUB, run, small_job
from eco import FAMILIES, WEFT, Scratch, check, end, metrics, near, read, safetensors, same, small_model, tokens, weft


@contextlib.contextmanager
def another_process():
    """Another process that keeps the GPU busy meanwhile (nothing is on the stub's but this test)."""
    p = None
    if REAL:
        p = subprocess.Popen([WEFT, "bench", "gpt2", "--batch", "4", "--seq", "256", "--steps", "1000000", "--device", "cuda"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(8)
    try:
        yield
    finally:
        if p:
            check(p.poll() is None, "the other process on the GPU ended early")
            p.kill()
            p.wait()


def check_bits(base, out):
    """Run to run (five times on a GPU), graphs or none, waiting after every instruction, beside another process; and a
    resume."""
    first = run(dict(base, output=out("first")))
    if not first:
        return None
    again = [("again %d" % k, {}) for k in range(4 if REAL else 1)]
    with another_process():
        for name, env in again + [("no graphs", dict(WEFT_CUDA_GRAPH="0")), ("sync", dict(WEFT_CUDA_SYNC="1"))]:
            r = run(dict(base, output=out(name.replace(" ", "-"))), env=env)
            if r:
                same(r["weights_xxh64"], first["weights_xxh64"], name)
    run(dict(base, output=out("resumed"), steps=2))
    r = run(dict(base, output=out("resumed")))
    if r:
        same(r["weights_xxh64"], first["weights_xxh64"], "resumed")
    return first


def check_devices(base, out):
    """Against the CPU; and a checkpoint of each device on the other."""
    cpu = run(dict(base, device="cpu", output=out("cpu")))
    run(dict(base, output=out("gpu")))
    for a, b in zip(metrics(out("gpu")), metrics(out("cpu"))):
        near(a["loss"], b["loss"], 1e-5, "loss of step %d" % a["step"])
        near(a["grad_norm"], b["grad_norm"], 1e-4, "norm of step %d" % a["step"])
    for one, other in (("cpu", "cuda"), ("cuda", "cpu")):
        place = out(one + "-to-" + other)
        run(dict(base, device=one, steps=2, output=place))
        r = run(dict(base, device=other, output=place))
        if r and cpu:
            near(r["loss"], cpu["loss"], 1e-5, "resumed from %s on %s" % (one, other))


def check_commands(s, base, out):
    run(dict(base, eval=dict(data=base["data"], every=2, batches=2), output=out("eval")))
    losses = [m["eval_loss"] for m in metrics(out("eval")) if "eval_loss" in m]
    check(len(losses) == 2 and all(0 < x < 10 for x in losses), "losses of evaluations: %r" % losses)
    run(dict(base, device="cpu", eval=dict(data=base["data"], every=2, batches=2), output=out("eval-cpu")))
    for a, b in zip(losses, [m["eval_loss"] for m in metrics(out("eval-cpu")) if "eval_loss" in m]):
        near(a, b, 1e-5, "eval_loss")
    text = {}
    for device in ("cpu", "cuda"):
        r = weft("sample", out("eval"), "--ids", "--prompt", "1 2 3", "--tokens", "6", "--greedy", "--device", device,
                 env=STUB)
        check(r.code == 0, str(r))
        text[device] = r.out
    same(text["cuda"], text["cpu"], "greedy samples")
    r = weft("bench", base["model"], "--batch", "2", "--seq", "8", "--steps", "2", "--device", "cuda", "--json", env=STUB)
    check(r.code == 0 and json.loads(r.out)["loss"] > 0, str(r))
    if r.code == 0:
        c = json.loads(r.out)["classes"]
        check(all(c[k] > 0 for k in ("products", "attention", "norms", "loss", "update", "other")), "classes: %r" % c)


def check_ranks(base, out):
    """Ranks that share the GPU have the bits of one rank, staged through the host and on the device."""
    base = dict(base, batch=8, lanes=4)
    one = run(dict(base, output=out("one")))
    for name, ranks, keys in (("dp2", 2, dict(dp=2)), ("dp4", 4, dict(dp=4)), ("pp2", 2, dict(pp=2)),
                              ("zero1", 2, dict(dp=2, zero=1)), ("zero2", 2, dict(dp=2, zero=2)),
                              ("zero3", 2, dict(dp=2, zero=3)), ("tp2", 2, dict(tp=2))):
        last = None
        for comm in ("staged", "peer") if name in ("dp2", "pp2", "tp2") else ("peer",):
            r = run(dict(base, share_gpu=True, output=out(name + "-" + comm), **keys), ranks=ranks,
                    env=dict(WEFT_GPU_COMM=comm))
            if r and one and name != "tp2":
                same(r["weights_xxh64"], one["weights_xxh64"], name + ", " + comm)
            if r and last:
                same(r["weights_xxh64"], last, name + ", staged and peer")
            last = r["weights_xxh64"] if r else None
    r = run(dict(base, dp=2, device="cuda,cpu", output=out("mixed")), ranks=2)
    if r and one:
        near(r["loss"], one["loss"], 1e-5, "cuda and cpu together")


def check_graphs(s, base, out):
    """From the second step on a rank that communicates on the device launches two graphs a step, and no kernel else."""
    if REAL:
        return
    for name, ranks, keys in (("dp2", 2, dict(dp=2)), ("zero3", 2, dict(dp=2, zero=3)), ("dp2pp2", 4, dict(dp=2, pp=2)),
                              ("staged", 2, dict(dp=2, zero=1))):
        run(dict(base, batch=8, lanes=4, share_gpu=True, output=out("graphs-" + name), **keys), ranks=ranks,
            env=dict(WEFT_STUB_LOG=s.path("calls-" + name), WEFT_GPU_COMM="staged" if name == "staged" else "peer"))
        logs = [open(s.path("calls-%s.%d" % (name, r))).read() for r in range(ranks)]
        logs = [x for x in logs if "cuGraphLaunch" in x]
        check(len(logs) == ranks, "%s: %d ranks of %d launch graphs" % (name, len(logs), ranks))
        for x in logs:
            same(x.count("cuGraphLaunch"), 2 * (base["steps"] - 1), name + ": graph launches")
            last = x[x.rindex("cuGraphInstantiate"):]
            check("cuLaunchKernel" not in last[:last.rindex("cuGraphLaunch")], name + ": kernels between graphs")


def check_library_bits(s, base, out):
    """cublasLt's matmuls are the same ones on one rank and on two with shards: the stub's sums begin elsewhere for each
    question that it is asked, and its epilogues do not round before a step."""
    libs = {} if REAL else dict(WEFT_CUDA_LIBS=os.path.join(BUILD, "cuda_stub"))
    job = dict(base, model=small_model(s, "wider", n_embd=64, n_layer=2, vocab_size=33, n_positions=16), lanes=2, micro_batch=1,
               dtype="bf16", dropout=False, share_gpu=True, steps=2)
    for batch in (2, 4):  # one micro-batch a rank, and two, which are added up
        name = "lib%d" % batch
        one = run(dict(job, batch=batch, output=out(name)), env=libs)
        for zero in (0, 2, 3):
            r = run(dict(job, batch=batch, dp=2, zero=zero, output=out("%s-zero%d" % (name, zero))), ranks=2, env=libs)
            if r and one:
                same(r["weights_xxh64"], one["weights_xxh64"], "%s, zero=%d" % (name, zero))
    if REAL:
        return
    # a table that one rank made has every matmul of two ranks with shards, which add gradients up
    table, asked = s.path("tuned.tsv"), s.path("asked")
    run(dict(job, batch=2, output=out("tuned")), env=dict(libs, WEFT_CUDA_TUNE=table))
    r = run(dict(job, batch=4, dp=2, zero=3, output=out("pinned")), ranks=2,
            env=dict(libs, WEFT_CUDA_PINNED=table, WEFT_STUB_BLAS_LOG=asked))
    check(r is not None and not os.path.exists(asked), "cublasLt was asked beside the table")


def check_gates(s, base, out):
    """A gated MLP with biases on q, k and v: losses near the CPU's, where gates are two operators."""
    model = s.write("gated/config.json", json.dumps(dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=33, max_position_embeddings=16, hidden_act="silu",
        rms_norm_eps=1e-6, rope_theta=10000.0, initializer_range=0.02, tie_word_embeddings=False)))
    job = dict(base, model=os.path.dirname(model), dropout=False)
    for recompute in ("none", "selective"):
        run(dict(job, recompute=recompute, output=out("gated-" + recompute)))
        run(dict(job, recompute=recompute, device="cpu", output=out("gated-cpu-" + recompute)))
        for a, b in zip(metrics(out("gated-" + recompute)), metrics(out("gated-cpu-" + recompute))):
            near(a["loss"], b["loss"], 1e-5, "loss of step %d" % a["step"])
            near(a["grad_norm"], b["grad_norm"], 1e-4, "norm of step %d" % a["step"])


def check_families(s, base, out):
    """t5 trains, and resnet's bench steps, as on the CPU."""
    pack = lambda seed: struct.pack("<96i", *tokens(96, 20, seed))
    data = s.write("rows.safetensors", safetensors([(n, "I32", (16, 6), pack(k)) for k, n in enumerate(("input_ids", "labels"))]))
    job = dict(model=os.path.join(FAMILIES, "t5"), data=data, batch=4, micro_batch=2, lanes=1, steps=4, init="random", plan="off")
    for dtype, tol in (("fp32", 1e-5), ("bf16", 1e-2)):
        for device in ("cpu", "cuda"):
            run(dict(job, dtype=dtype, device=device, output=out("t5-%s-%s" % (dtype, device))))
        for a, b in zip(metrics(out("t5-%s-cuda" % dtype)), metrics(out("t5-%s-cpu" % dtype))):
            near(a["loss"], b["loss"], tol, "t5 %s, loss of step %d" % (dtype, a["step"]))
    loss = {}
    model = "resnet50" if REAL else os.path.join(FAMILIES, "resnet")
    for device in ("cpu", "cuda"):
        r = weft("bench", model, "--batch", "4", "--steps", "3", "--device", device, "--json", env=STUB)
        loss[device] = json.loads(r.out)["loss"] if check(r.code == 0, str(r)) else 0
    # resnet50's third step: weights that are nudged by their last bits change it by 2.5e-3 on the CPU (test_cuda_families)
    near(loss["cuda"], loss["cpu"], 2.5e-3 if REAL else 1e-4, "resnet's loss in a bench")


def check_joined(s, base, out):
    """q, k and v as one matmul: losses near the CPU's, where they are three; bits of one rank with shards; and a checkpoint
    of each device on the other."""
    model = s.write("grouped/config.json", json.dumps(dict(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=33, max_position_embeddings=16, hidden_act="silu",
        rms_norm_eps=1e-6, rope_theta=10000.0, initializer_range=0.02, tie_word_embeddings=False)))
    job = dict(base, model=os.path.dirname(model), dropout=False, steps=3)
    cpu = run(dict(job, device="cpu", output=out("joined-cpu")))
    run(dict(job, output=out("joined")))
    for a, b in zip(metrics(out("joined")), metrics(out("joined-cpu"))):
        near(a["loss"], b["loss"], 1e-5, "loss of step %d" % a["step"])
        near(a["grad_norm"], b["grad_norm"], 1e-4, "norm of step %d" % a["step"])
    for one, other in (("cpu", "cuda"), ("cuda", "cpu")):
        place = out("joined-%s-to-%s" % (one, other))
        run(dict(job, device=one, steps=2, output=place))
        r = run(dict(job, device=other, output=place))
        if r and cpu:
            near(r["loss"], cpu["loss"], 1e-5, "resumed from %s on %s" % (one, other))
    libs = {} if REAL else dict(WEFT_CUDA_LIBS=os.path.join(BUILD, "cuda_stub"))
    job = dict({k: v for k, v in job.items() if k != "plan"}, batch=4, lanes=2, dtype="bf16", share_gpu=True, steps=2)
    one = run(dict(job, output=out("joined-one")), env=libs)
    for zero in (1, 3):
        r = run(dict(job, dp=2, zero=zero, output=out("joined-zero%d" % zero)), ranks=2, env=libs)
        if r and one:
            same(r["weights_xxh64"], one["weights_xxh64"], "joined, zero=%d" % zero)


def saved_files(output):
    top = os.path.join(output, "checkpoints")
    return {os.path.relpath(os.path.join(f, n), top): read(os.path.join(f, n)) for f, _, names in os.walk(top) for n in names}


def count_calls(log, pattern):
    """Numbers of the calls of a log that match, as the pattern's group has them."""
    with open(log) as f:
        return [int(x) for x in re.findall(pattern, f.read(), re.M)]


def check_saves(s, base, out):
    """Checkpoints that steps do not wait for are those of a run that waits, byte for byte: the state goes to memory of the
    GPU that is free, else to pinned memory."""
    base = dict(base, batch=8, lanes=4, steps=4)

    def save(name, ranks=1, waits=False, env=None, **keys):
        log = s.path("calls-save-" + name)
        r = run(dict(base, output=out("save-" + name), checkpoint={"every": 1, "keep": 9, "wait": 60, "async": not waits}, **keys), ranks=ranks,
                env=dict(env or {}, WEFT_STUB_LOG=log))
        return saved_files(out("save-" + name)) if r else None, log

    want, plain = save("waits", waits=True)  # without a copy
    got, log = save("async")
    same(sorted(k for k in set(want or ()) | set(got or ()) if want.get(k) != got.get(k)), [], "files that differ")
    if not REAL:
        copies = count_calls(log, r"cuMemcpyAsync (\d+) device device$")
        check(len(copies) >= 3, "%d copies of the state in the GPU's memory" % len(copies))
        state = max(copies)
        need = sum(count_calls(plain, r"cuMemAlloc_v2 (\d+)$"))
        got, log = save("pinned", env=dict(WEFT_STUB_MEMORY=str(int(1.001 * need) + (1 << 16))))
        same(sorted(k for k in want if want[k] != (got or {}).get(k)), [], "pinned memory: files that differ")
        same(count_calls(log, r"cuMemcpyAsync (\d+) device device$"), [], "copies in the memory of a GPU that is full")
        same(count_calls(log, r"cuMemcpyAsync (%d) device pinned$" % state), [state] * 3, "copies of the state in pinned memory")
    for ranks, keys in ((2, dict(dp=2, zero=1)), (2, dict(pp=2))):
        name = "-".join(keys)
        got, _ = save(name, ranks=ranks, share_gpu=True, **keys)
        tensors = [k for k in want if k.endswith(".safetensors")]
        same([k for k in tensors if want[k] != (got or {}).get(k)], [], name + ": tensor files that differ")


def check_leaks(s, base, out):
    leaks = s.path("leaks")
    run(dict(base, output=out("good")), env=dict(WEFT_STUB_LEAKS=leaks))
    text = open(leaks).read()
    check(re.search("device memory 0, pinned 0, streams 0, events 0, graphs 0, contexts 0", text), "left over: " + text)


with Scratch("cuda", memory=True) as s:
    base = small_job(s)
    out = lambda name: s.path("out", name)
    no_plan = {k: v for k, v in base.items() if k != "plan"}
    parts = dict(bits=lambda: check_bits(base, out), devices=lambda: check_devices(base, out), commands=lambda: check_commands(s, base, out),
                 ranks=lambda: check_ranks(no_plan, out), graphs=lambda: check_graphs(s, no_plan, out),
                 libraries=lambda: check_library_bits(s, no_plan, out), gates=lambda: check_gates(s, base, out),
                 families=lambda: check_families(s, base, out), joined=lambda: check_joined(s, base, out),
                 saves=lambda: check_saves(s, no_plan, out), leaks=lambda: REAL or check_leaks(s, base, out))
    for name in os.environ.get("WEFT_CUDA_PARTS", ",".join(parts)).split(","):
        begun = time.time()
        parts[name]()
        print("%s: %.1f s" % (name, time.time() - begun), flush=True)
end()
