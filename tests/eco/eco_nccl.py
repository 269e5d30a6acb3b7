"""Jobs of several GPUs over the stub driver and the stub libraries of tests/cuda/stub: in which order gradients are
summed (reduction: auto), ranks with unlike kernels."""
import json
import os
import re
import subprocess

from eco import WEFT, Scratch, check, end, same, skip, small_model, tokens, u16, weft, words

BUILD = os.path.dirname(WEFT)
STUB = dict(LD_LIBRARY_PATH=os.path.join(BUILD, "stub_gpu"), WEFT_CUDA_LIBS="none", WEFT_STUB_GPUS="2")

if os.environ.get("WEFT_TEST_GPU") == "1":
    skip("on a real GPU: tools/gpu_run.sh nccl")
if not os.path.exists(os.path.join(BUILD, "libweft_cuda.so")):
    skip("there is no libweft_cuda.so: built without nvcc")


def run(job, ranks=1, env=None, code=0, timeout=120):
    """The result of --json with the log as "log", or the log where another exit code is expected."""
    start = ["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"]
    r = weft(*start, *words(job), "--json", env=dict(STUB, **(env or {})), timeout=timeout)
    if not check(r.code == code, "exit code %d: %s" % (code, r)):
        return None
    return dict(json.loads(r.out), log=r.err) if code == 0 else r.err


def run_apart(job, env, code):
    """Ranks with environments of their own, by torchrun's variables; their logs."""
    port = str(20000 + os.getpid() % 10000)
    ranks = []
    for r, own in enumerate(env):
        e = dict(os.environ, **STUB, RANK=str(r), WORLD_SIZE=str(len(env)), LOCAL_RANK=str(r),
                 LOCAL_WORLD_SIZE=str(len(env)), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **own)
        ranks.append(subprocess.Popen([WEFT, "run", *words(job), "--timeout", "20"], env=e, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True))
    logs = [p.communicate(timeout=120)[1] for p in ranks]
    check(all(p.returncode == code for p in ranks), "exit code %d: %r" % (code, logs))
    return logs


def check_reduction(base, out):
    """auto: fixed on two GPUs and on unlike kinds, invariant on one GPU; the log says which, and what each costs."""
    two = dict(base, dp=2, lanes=2)
    for name, keys, line in (
            ("two", {}, r"reduction: fixed \(auto, 2 GPUs\): .*reduction=invariant would give .* GB of gradient sums"),
            ("shared", dict(device="cuda:0", share_gpu=True), r"reduction: invariant \(1 GPU\): .*reduction=fixed"),
            ("mixed", dict(device="cuda,cpu"), r"reduction: fixed \(auto, 1 GPU and 1 rank on CPUs\)"),
            ("cpus", dict(device="cpu"), r"reduction: invariant \(2 ranks on CPUs\)"),
            ("asked", dict(reduction="invariant"), r"reduction: invariant \(2 GPUs\)")):
        r = run(dict(two, output=out(name), **keys), ranks=2)
        if r:
            check(len(re.findall(line, r["log"])) == 1, "%s in %s" % (line, r["log"]))
    # a resume keeps what the checkpoint's job had
    r = run(dict(two, output=out("asked"), steps=5), ranks=2)
    if r:
        check(re.search(r"reduction: invariant \(2 GPUs\)", r["log"]), r["log"])
    # --print-plan decides alike
    for name, keys, line in (("two", {}, "fixed"), ("shared", dict(device="cuda:0", share_gpu=True), "invariant")):
        r = weft("run", "--nproc-per-node", "2", *words(dict(two, output=out("print-" + name), **keys)), "--print-plan",
                 env=STUB)
        check(r.code == 0 and re.search('"reduction": "%s"' % line, r.out), str(r))


def check_unlike(base, out):
    """Ranks of one kind with unlike kernels: refused under invariant, a warning under fixed; kinds are apart."""
    two = dict(base, dp=2, lanes=2, output=out("unlike"))
    unlike = [dict(WEFT_STUB_CAPABILITY="90"), dict(WEFT_STUB_CAPABILITY="80")]
    line = r"ranks on cuda have unlike kernels: rank 0 has cuda \S+ sm_90 Stub GPU, rank 1 has cuda \S+ sm_80 Stub GPU"
    for device in ("cuda", "cuda:0,cuda:1"):
        for log in run_apart(dict(two, device=device, reduction="invariant"), unlike, 2):
            check(len(re.findall("error: .*" + line + ".* or set reduction=fixed", log)) == 1, log)
    logs = run_apart(dict(two, output=out("unlike-fixed")), unlike, 0)
    check(len(re.findall("WARN.*" + line, logs[0])) == 1, logs[0])
    run_apart(dict(two, device="cuda:0,cpu", output=out("unlike-kinds"), reduction="invariant"), unlike, 0)


with Scratch("nccl", memory=True) as s:
    model = small_model(s, n_embd=16, n_layer=2, vocab_size=33, n_positions=16)
    data = s.write("tokens.bin", u16(tokens(600, 33)))
    base = dict(model=model, data=data, seq=8, batch=4, micro_batch=2, steps=3, seed=5, device="cuda", init="random",
                optimizer=dict(name="adamw", lr=3e-3, weight_decay=0.1, clip=1.0))
    out = lambda name: s.path("out", name)
    check_reduction(base, out)
    check_unlike(base, out)
end()
