"""Jobs of several GPUs over the stub driver and the stub libraries of tests/cuda/stub: in which order gradients are
summed (reduction: auto), ranks with unlike kernels, communication by NCCL, and how it fails."""
import json
import os
import re
import signal
import socket
import subprocess
import time

from eco import LONG, WEFT, Scratch, check, end, near, same, skip, small_model, tokens, u16, weft, words

BUILD = os.path.dirname(WEFT)
STUB = dict(LD_LIBRARY_PATH=os.path.join(BUILD, "stub_gpu"), WEFT_CUDA_LIBS="none", WEFT_STUB_GPUS="2")
NCCL = dict(WEFT_CUDA_LIBS=os.path.join(BUILD, "cuda_stub"), WEFT_STUB_GPUS="4", WEFT_GPU_COMM="nccl")

EXPERTS = dict(model_type="mixtral", architectures=["MixtralForCausalLM"], hidden_size=16, intermediate_size=24,
               num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, vocab_size=33, num_local_experts=4,
               num_experts_per_tok=2, max_position_embeddings=16)

port = 20000 + os.getpid() % 10000

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


def start_apart(job, env, *more):
    """Ranks with environments of their own, by torchrun's variables."""
    global port
    port += 1
    ranks = []
    for r, own in enumerate(env):
        e = dict(os.environ, **STUB, RANK=str(r), WORLD_SIZE=str(len(env)), LOCAL_RANK=str(r),
                 LOCAL_WORLD_SIZE=str(len(env)), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        e.update(own)
        ranks.append(subprocess.Popen([WEFT, "run", *words(job), *(more or ("--timeout", "20"))], env=e,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    return ranks


def run_apart(job, env, code):
    """Their logs."""
    ranks = start_apart(job, env)
    logs = [p.communicate(timeout=120)[1] for p in ranks]
    check(all(p.returncode == code for p in ranks), "exit code %d: %r" % (code, logs))
    return logs


def check_reduction(base, out):
    """auto: fixed on two GPUs and on unlike kinds, invariant on one GPU; the log says which, and what each costs."""
    two = dict(base, dp=2, lanes=2)
    for name, keys, line in (
            ("two", {}, r"reduction: fixed \(auto, 2 GPUs\): .*reduction=invariant would give .* at \S+ KB of gradient sums"),
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


def check_plans(scratch, base, out):
    """A job that leaves its plan open is planned for its GPUs, as they were measured: here for slow ones, which make replicas worth it; where nothing
    is known of them, for CPUs, with a warning."""
    open_job = {k: v for k, v in base.items() if k not in ("plan", "micro_batch", "lanes", "dp")}
    cache = scratch.path("cache")
    path = os.path.join(cache, "weft", "cluster-%s-gpu.yaml" % socket.gethostname())
    os.makedirs(os.path.dirname(path))
    env = dict(STUB, XDG_CACHE_HOME=cache)
    cases = [("two", 2, {}, "1 x (2 x own)"), ("shared", 2, dict(device="cuda:0", share_gpu=True), "1 x (2 x own)"),
             ("mixed", 2, dict(device="cuda:0,cpu"), "cpu"), ("cpus", 2, dict(device="cpu"), "cpu")]
    for measured in (False, True):
        if measured:
            with open(path, "w") as f:
                f.write("name: gpus\ndevice: [{name: own, like: h200-141g, flops: {f32: 1e8}, mem_Bps: 1e8}]\n"
                        "node: [{name: host, device: own, n_device: 2, link: nvlink4}]\n")
        for name, n, keys, where in cases:
            r = weft("run", "--nproc-per-node", str(n), *words(dict(open_job, batch=8, output=out("plan-" + name), **keys)), "--print-plan", env=env)
            if not check(r.code == 0, "%s: %s" % (name, r)):
                continue
            plan, warns = json.loads(r.out), "the plan is one for this host's CPUs, as " in r.err
            same(warns, name == "mixed" or (not measured and name != "cpus"), "%s: warns: %s" % (name, r.err))
            check((where if measured else "cpu") in plan.get("cluster", {}).get("name", ""), "%s: %r" % (name, plan.get("cluster")))
            same(plan["reduction"], "invariant" if name in ("shared", "cpus") else "fixed", name + ": reduction")
    r = run(dict(open_job, batch=8, output=out("plan-run")), ranks=2, env=dict(env))
    if r:
        check("CPUs" not in r["log"] and re.search(r"plan: 2 ranks, .* s a step predicted", r["log"]), r["log"])


def check_unlike(base, out):
    """Ranks of one kind with unlike kernels: refused under invariant, a warning under fixed; kinds are apart."""
    two = dict(base, dp=2, lanes=2, output=out("unlike"))
    unlike = [dict(WEFT_STUB_CAPABILITY="90"), dict(WEFT_STUB_CAPABILITY="80")]
    line = r"ranks on cuda have unlike kernels: rank 0 has cuda \S+ kernels-\w+ sm_90 Stub GPU, rank 1 has cuda \S+ kernels-\w+ sm_80 Stub GPU"
    for device in ("cuda", "cuda:0,cuda:1"):
        for log in run_apart(dict(two, device=device, reduction="invariant"), unlike, 2):
            check(len(re.findall("error: .*" + line + ".* or set reduction=fixed", log)) == 1, log)
    logs = run_apart(dict(two, output=out("unlike-fixed")), unlike, 0)
    check(len(re.findall("WARN.*" + line, logs[0])) == 1, logs[0])
    run_apart(dict(two, device="cuda:0,cpu", output=out("unlike-kinds"), reduction="invariant"), unlike, 0)


def check_bits(base, out):
    """Over NCCL, which moves bytes: the bits of one rank, whatever the plan."""
    one = run(dict(base, lanes=4, micro_batch=1, output=out("one")), env=NCCL)
    for name, ranks, keys in (("dp2", 2, dict(dp=2)), ("dp4", 4, dict(dp=4)), ("zero1", 2, dict(dp=2, zero=1)),
                              ("zero3", 2, dict(dp=2, zero=3)), ("buckets", 4, dict(dp=4, bucket_bytes=4096)),
                              ("unequal", 2, dict(dp=2, batch_split="3,1")), ("pp", 2, dict(pp=2))):
        job = dict(base, lanes=4, micro_batch=1, reduction="invariant", output=out("nccl-" + name), **keys)
        r = run(job, ranks=ranks, env=NCCL)
        if r and one:
            same(r["weights_xxh64"], one["weights_xxh64"], name)
            check("communicate by nccl, else staged" in r["log"] and "NCCL 2.28.9" in r["log"], r["log"])
    tp = run(dict(base, tp=2, output=out("nccl-tp")), ranks=2, env=NCCL)
    if tp and one:
        near(tp["loss"], one["loss"], 1e-5, "tp over NCCL")
    return one


def check_fixed(base, out, one):
    """NCCL's own sums: the same bits again, and others than ours on four ranks; the default between GPUs."""
    found = []
    for name in ("a", "b"):
        r = run(dict(base, lanes=4, micro_batch=1, dp=4, output=out("fixed-" + name)), ranks=4,
                env=dict(NCCL, WEFT_GPU_COMM=""))
        if r:
            check("communicate by nccl" in r["log"] and "reduction: fixed (auto, 4 GPUs)" in r["log"], r["log"])
            found.append(r)
    if len(found) == 2 and one:
        same(found[0]["weights_xxh64"], found[1]["weights_xxh64"], "fixed, twice")
        check(found[0]["weights_xxh64"] != one["weights_xxh64"], "NCCL's sums have the bits of ours")
        near(found[0]["loss"], one["loss"], 1e-5, "fixed")
    two = run(dict(base, lanes=2, dp=2, zero=2, output=out("fixed-zero2")), ranks=2, env=dict(NCCL, WEFT_GPU_COMM=""))
    if two and one:
        near(two["loss"], one["loss"], 1e-4, "fixed, zero 2")


def check_messages(s, base, out):
    """Pipelines' messages on the device, by NCCL and by peers' memory: the bits of one rank, in graphs."""
    model = small_model(s, "deep", n_embd=16, n_layer=4, vocab_size=33, n_positions=16)
    job = dict(base, model=model, lanes=4, micro_batch=1, reduction="invariant")
    one = run(dict(job, output=out("deep")), env=NCCL)
    for name, ranks, keys in (("pp2", 2, dict(pp=2)), ("pp4", 4, dict(pp=4)), ("dp2pp2", 4, dict(dp=2, pp=2)),
                              ("chunks", 2, dict(pp=2, schedule="interleaved", chunks=2))):
        for comm in ("nccl", "peer") if name == "pp4" else ("nccl",):
            env = dict(NCCL, WEFT_GPU_COMM=comm, WEFT_STUB_LOG=s.path("calls-%s-%s" % (name, comm)))
            r = run(dict(job, output=out(name + "-" + comm), **keys), ranks=ranks, env=env)
            if not r or not one:
                continue
            same(r["weights_xxh64"], one["weights_xxh64"], "%s by %s" % (name, comm))
            logs = [open("%s.%d" % (env["WEFT_STUB_LOG"], k)).read() for k in range(ranks)]
            for x in logs:
                same(x.count("cuGraphLaunch"), 2 * (base["steps"] - 1), "%s by %s: graphs" % (name, comm))
            if comm == "nccl":
                check(any("ncclSend" in x for x in logs) and any("ncclRecv" in x for x in logs), "no message by NCCL")


def check_experts(s, base, out):
    """Rows of experts: the same bits staged, by peers' memory and by NCCL."""
    model = s.write("experts/config.json", json.dumps(EXPERTS))
    job = dict(base, model=os.path.dirname(model), ep=2)
    found = {}
    for comm in ("staged", "peer", "nccl"):
        env = dict(NCCL, WEFT_GPU_COMM=comm, WEFT_STUB_LOG=s.path("calls-ep-" + comm))
        r = run(dict(job, output=out("ep-" + comm)), ranks=2, env=env)
        if r:
            found[comm] = r
            calls = open(env["WEFT_STUB_LOG"] + ".0").read()
            same("ncclGroup" in calls or "ncclSend" in calls, comm == "nccl", "rows by NCCL")
    one = run(dict(base, model=os.path.dirname(model), output=out("ep-one")), env=NCCL)
    for comm in found:
        same(found[comm]["weights_xxh64"], found["staged"]["weights_xxh64"], "experts' rows by " + comm)
        near(found[comm]["loss"], one["loss"], 1e-5, "experts' rows by " + comm)


def error_lines(log):
    return [x for x in log.splitlines() if "error" in x]


def says(log, *parts):
    if log is not None:
        lines = error_lines(log)
        check(lines and all(any(re.search(p, x) for x in lines) for p in parts), "%r in %r" % (parts, log))


def check_bad(base, out):
    """One line each: no NCCL, another one, ranks that share a GPU, unlike versions, ranks that do not come."""
    two = dict(base, dp=2, lanes=2, output=out("bad"))
    says(run(two, ranks=2, env=dict(NCCL, WEFT_GPU_COMM="mpi"), code=2), "WEFT_GPU_COMM is staged, peer or nccl, not 'mpi'")
    says(run(two, ranks=2, env=dict(NCCL, WEFT_CUDA_LIBS="none"), code=2), r"NCCL is not found \(libnccl.so.2; .*staged")
    says(run(two, ranks=2, env=dict(NCCL, WEFT_STUB_NCCL_VERSION="30000"), code=2), "is NCCL 3.0.0: 2.14 or a later NCCL 2")
    says(run(dict(two, device="cuda:0", share_gpu=True), ranks=2, env=NCCL, code=2), "ranks 0 and 1 share a GPU",
         "NCCL_HOSTID")
    for log in run_apart(two, [dict(NCCL), dict(NCCL, WEFT_STUB_NCCL_VERSION="22901")], 2):
        says(log, "rank 0 has NCCL 2.28.9, rank 1 has 2.29.1")
    # asked for by nobody: a warning, and it trains
    logs = run_apart(dict(two, output=out("unlike-nccl")),
                     [dict(NCCL, WEFT_GPU_COMM=""), dict(NCCL, WEFT_GPU_COMM="", WEFT_STUB_NCCL_VERSION="22901")], 0)
    check(re.search("WARN.*do not communicate by nccl: rank 0 has NCCL 2.28.9", logs[0]), logs[0])
    start = time.time()
    r = weft("run", "--nproc-per-node", "2", *words(two), "--timeout", "2",
             env=dict(STUB, **dict(NCCL, WEFT_STUB_NCCL_ABSENT="1")), timeout=60)
    says(r.err, r"NCCL did not connect ranks 0, 1 within 2 s \(--timeout\)")
    check(r.code == 1 and time.time() - start < 20, "%s after %.1f s" % (r, time.time() - start))
    for kind in ("FAIL", "ASYNC"):
        for n in (1, 2, 3, 5, 9, 20) if LONG else (1, 3, 9):
            r = weft("run", "--nproc-per-node", "2", *words(dict(two, output=out("%s%d" % (kind, n)))), "--timeout", "5",
                     env=dict(STUB, **dict(NCCL, **{"WEFT_STUB_NCCL_" + kind: str(n)})), timeout=60)
            check(r.code == 0 or r.code == 1 and 1 <= len(error_lines(r.err)) <= 2 and "nccl" in r.err.lower(),
                  "%s=%d: %s" % (kind, n, r))
            check(r.code == 1 or n < 4 and kind == "ASYNC", "%s=%d changes nothing" % (kind, n))
    # NCCL alone has lost rank 1: the others of its group are named
    ranks = start_apart(dict(two, output=out("lost")), [dict(NCCL, WEFT_STUB_NCCL_ASYNC="9"), dict(NCCL)], "--timeout", "5")
    logs = [p.communicate(timeout=60)[1] for p in ranks]
    says(logs[0], r"rank 1 failed: \S+ of ranks 0, 1 fails with 6")


def check_lost(base, out):
    """A rank that is killed, or stopped, in the middle: the others end, with a line that says who or what."""
    for name, how, limit, comm, keys in (("killed", signal.SIGKILL, 10, "nccl", dict(dp=2)),
                                         ("stopped", signal.SIGSTOP, 15, "nccl", dict(dp=2)),
                                         ("stopped-pp", signal.SIGSTOP, 15, "nccl", dict(pp=2)),
                                         ("stopped-peer", signal.SIGSTOP, 15, "peer", dict(pp=2))):
        job = dict(base, lanes=2, steps=1000000, checkpoint=dict(every=5), output=out(name), **keys)
        ranks = start_apart(job, [dict(NCCL, WEFT_GPU_COMM=comm)] * 2, "--timeout", "3")
        for _ in range(200):
            time.sleep(0.1)
            if os.path.isdir(out(name) + "/checkpoints/step-00000005"):
                break
        ranks[1].send_signal(how)
        start = time.time()
        try:
            log = ranks[0].communicate(timeout=60)[1]
        finally:
            ranks[1].kill()
            ranks[1].communicate()
        says(log, r"rank 1|NCCL")
        check(ranks[0].returncode not in (0, None) and time.time() - start < limit,
              "%s: code %s after %.1f s: %s" % (name, ranks[0].returncode, time.time() - start, log))


with Scratch("nccl", memory=True) as s:
    model = small_model(s, n_embd=16, n_layer=2, vocab_size=33, n_positions=16)
    data = s.write("tokens.bin", u16(tokens(600, 33)))
    base = dict(model=model, data=data, seq=8, batch=4, micro_batch=2, steps=3, seed=5, device="cuda", init="random",
                optimizer=dict(name="adamw", lr=3e-3, weight_decay=0.1, clip=1.0))
    out = lambda name: s.path("out", name)
    check_reduction(base, out)
    check_plans(s, base, out)
    check_unlike(base, out)
    one = check_bits(base, out)
    check_messages(s, base, out)
    check_experts(s, base, out)
    check_fixed(base, out, one)
    check_bad(base, out)
    check_lost(base, out)
end()
