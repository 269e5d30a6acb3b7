"""Jobs on the CUDA plugin: over a driver without a GPU (tests/cuda/stub), whose kernels run on the CPU; with
WEFT_TEST_GPU=1 over the machine's own driver and GPU, without the parts that need the stub.

What is checked: losses near the CPU's; the same bits from run to run, with and without graphs, through a resume, and on
two ranks that share the GPU; checkpoints of one device on the other; bench, sample, evaluation; one line for bad input;
calls that fail end the job with one line and without a hang; nothing is left behind."""
import json
import os
import random
import re

from eco import WEFT, Scratch, check, end, metrics, near, same, skip, small_model, tokens, u16, weft, words

BUILD = os.path.dirname(WEFT)
REAL = os.environ.get("WEFT_TEST_GPU") == "1"
STUB = {} if REAL else dict(LD_LIBRARY_PATH=os.path.join(BUILD, "stub_gpu"), WEFT_CUDA_LIBS="none")
N_FAIL = int(os.environ.get("WEFT_TEST_FAILS", "12"))  # calls of a job that are made to fail; 0: all of them

if not os.path.exists(os.path.join(BUILD, "libweft_cuda.so")):
    skip("there is no libweft_cuda.so: built without nvcc")


def run(job, ranks=1, env=None, code=0, timeout=120):
    """The result as --json prints it, or the error's text where another exit code is expected."""
    start = ["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"]
    r = weft(*start, *words(job), "--json", "--quiet", env=dict(STUB, **(env or {})), timeout=timeout)
    if not check(r.code == code, "exit code %d: %s" % (code, r)):
        return None
    return json.loads(r.out) if code == 0 else r.err


def check_bits(base, out):
    """Run to run, graphs or none, waiting after every instruction; and a resume."""
    first = run(dict(base, output=out("first")))
    if not first:
        return None
    for name, env in (("again", {}), ("no graphs", dict(WEFT_CUDA_GRAPH="0")), ("sync", dict(WEFT_CUDA_SYNC="1"))):
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


def says(error, *parts):
    if error is not None:
        lines = [x for x in error.splitlines() if "error" in x]
        check(len(lines) == 1 and all(re.search(p, lines[0]) for p in parts), "%r in %r" % (parts, error))


def check_bad_input(base, out):
    job = dict(base, output=out("bad"))
    says(run(dict(job, device="gpu"), code=2), "device is cpu, cuda, cuda:N or auto, not 'gpu'")
    says(run(dict(job, device="cuda,cpu"), code=2), "names 2 devices, and a host has 1 rank")
    says(run(dict(job, lanes=2, dp=2, share_gpu=True), ranks=2, code=2, env=dict(WEFT_GPU_COMM="mpi")),
         "WEFT_GPU_COMM is staged, peer or nccl, not 'mpi'")
    says(run(dict(job, device="cuda:31"), code=2), "device cuda:31: this machine has ")
    says(run(dict(job, lanes=2, dp=2, device="cuda:0"), ranks=2, code=2), "2 ranks on this host and 1 GPU", "share_gpu=true")
    if REAL:
        return
    says(run(job, env=dict(WEFT_STUB_GPUS="0"), code=2), "no GPU")
    says(run(job, env=dict(WEFT_STUB_CAPABILITY="75"), code=2), "compute capability 7.5: 8.0 is the least")
    says(run(job, env=dict(WEFT_STUB_DRIVER="12080"), code=2), "driver is of CUDA 12.8, the kernels are of 13")
    says(run(job, env=dict(WEFT_STUB_MEMORY="30000"), code=1), r"needs .* GB on cuda:0 of .* \(1 rank; of the first: state",
         "memory=any goes on")
    says(run(job, env=dict(LD_LIBRARY_PATH="/nonexistent"), code=2), "no NVIDIA driver: libcuda.so.1 is not here")


def check_failures(s, base, out):
    """Call n fails, for many n: the job ends with one line, or was not touched."""
    leaks = s.path("leaks")
    good = run(dict(base, output=out("good")), env=dict(WEFT_STUB_LEAKS=leaks))
    if not good:
        return
    text = open(leaks).read()
    check(re.search("device memory 0, pinned 0, streams 0, events 0, graphs 0, contexts 0", text), "left over: " + text)
    calls = int(text.split()[1].rstrip(","))
    which = range(1, calls + 1)
    if N_FAIL:
        which = sorted(random.Random(3).sample(list(which), min(N_FAIL, calls)))
    r = weft("train", *words(dict(base, output=out("named"))), "--json", "--quiet",
             env=dict(STUB, WEFT_CUDA_SYNC="1", WEFT_STUB_LOST=str(calls // 2)), timeout=60)
    check(r.code == 1 and re.search(r"cuda:0: \w+, \w+ '[^']+': cu\w+ fails with 719", r.err) or
          "LaunchKernel" in r.err, "an error that names its instruction: %s" % r)
    for n in which:
        for kind in ("WEFT_STUB_FAIL", "WEFT_STUB_LOST"):
            r = weft("train", *words(dict(base, output=out("%s-%d" % (kind, n)))), "--json", "--quiet",
                     env=dict(STUB, **{kind: str(n)}), timeout=60)
            lines = [x for x in r.err.splitlines() if "error" in x]
            check(r.code in (1, 2) and len(lines) == 1 or
                  r.code == 0 and json.loads(r.out)["weights_xxh64"] == good["weights_xxh64"],
                  "%s=%d: %s" % (kind, n, r))


with Scratch("cuda", memory=True) as s:
    model = small_model(s, n_embd=16, n_layer=2, vocab_size=33, n_positions=16, resid_pdrop=0.1, embd_pdrop=0.1)
    data = s.write("tokens.bin", u16(tokens(600, 33)))
    base = dict(model=model, data=data, seq=8, batch=4, micro_batch=2, lanes=1, steps=4, seed=5, dropout=True,
                device="cuda", plan="off", init="random", optimizer=dict(name="adamw", lr=3e-3, weight_decay=0.1, clip=1.0))
    out = lambda name: s.path("out", name)
    check_bits(base, out)
    check_devices(base, out)
    check_commands(s, base, out)
    check_ranks({k: v for k, v in base.items() if k != "plan"}, out)
    check_library_bits(s, {k: v for k, v in base.items() if k != "plan"}, out)
    check_gates(s, base, out)
    check_bad_input(base, out)
    if not REAL:
        check_failures(s, base, out)
end()
