"""Bad input of jobs on GPUs: one line that names the thing, the place and the remedy; exit code 2 before a job runs, 1
once it runs.  A GPU that fails in a step ends all ranks, and the last checkpoint is whole.  Over the driver without a
GPU (tests/cuda/stub); with WEFT_TEST_GPU=1 those parts that need no stub."""
import os
import re
import shutil
import time

from cuda_stub import BUILD, REAL, STUB, run, says, small_job
from eco import WEFT, Scratch, check, end, metrics, same, u16, weft, words

LIBS = os.path.join(BUILD, "cuda_stub")


def check_devices(s, job):
    says(run(dict(job, device="gpu"), code=2), "device is cpu, cuda, cuda:N or auto, not 'gpu'")
    says(run(dict(job, device="cuda,cpu"), code=2), "names 2 devices, and a host has 1 rank")
    says(run(dict(job, device="cuda:31"), code=2), "device cuda:31: this machine has ")
    says(run(dict(job, lanes=2, dp=2, device="cuda:0"), ranks=2, code=2), "2 ranks on this host and 1 GPU", "share_gpu=true")
    says(run(dict(job, lanes=2, dp=2, share_gpu=True), ranks=2, code=2, env=dict(WEFT_GPU_COMM="mpi")),
         "WEFT_GPU_COMM is staged, peer or nccl, not 'mpi'")
    says(run(dict(job, dtype="fp16"), code=2), "dtype: fp16 is not supported yet: use bf16")
    r = weft("bench", job["model"], "--dtype", "fp16", "--device", "cuda", env=STUB)
    check(r.code == 2 and "fp16 is not supported yet: use bf16" in r.err, str(r))
    if REAL:
        return
    says(run(dict(job, device="cuda:3"), code=2), "device cuda:3: this machine has 1 GPU, cuda:0$")
    says(run(dict(job, device="cuda:3"), env=dict(WEFT_STUB_GPUS="2"), code=2), "this machine has 2 GPUs, cuda:0 to cuda:1")
    says(run(job, env=dict(WEFT_STUB_GPUS="0"), code=2), "no GPU")
    says(run(job, env=dict(WEFT_STUB_CAPABILITY="75"), code=2), "compute capability 7.5: 8.0 is the least")
    says(run(dict(job, dtype="fp8"), env=dict(WEFT_STUB_CAPABILITY="80"), code=2),
         "dtype=fp8 needs a GPU of compute capability 8.9 or later, this one has 8.0: dtype=bf16")
    says(run(dict(job, dtype="fp8"), env=dict(WEFT_CUDA_LIBS=LIBS, WEFT_STUB_BLAS="120803"), code=2),
         "dtype=fp8 needs cublasLt 12.9 or later, which scales rows; .* is 12.8: dtype=bf16")
    says(run(job, env=dict(WEFT_STUB_DRIVER="12080"), code=2), "driver is of CUDA 12.8, the kernels are of 13")
    says(run(job, env=dict(LD_LIBRARY_PATH="/nonexistent"), code=2), "no NVIDIA driver: libcuda.so.1 is not here")
    for name, env, level in (("old", dict(WEFT_STUB_DRIVER="12080"), "WARN"), ("none", dict(WEFT_STUB_GPUS="0"), "INFO")):
        for recover in ("off", "on"):  # found by the rank; by weft run, for all of its ranks
            auto = dict(job, device="auto", recover=recover, steps=1, output=s.path("auto-%s-%s" % (name, recover)))
            r = weft(*(["run", "--nproc-per-node", "1"] if recover == "on" else ["train"]), *words(auto), env=dict(STUB, **env))
            lines = [x for x in r.err.splitlines() if "device=auto takes the CPU: " in x]
            check(r.code == 0 and len(lines) == 1 and level in lines[0], "%s, recover=%s: %s" % (name, recover, r))
    few = dict(job, recover="on", copies=2, steps=1, output=s.path("few"))
    r = weft("run", "--nproc-per-node", "1", *words(few), env=STUB)
    check(r.code == 0, str(r))
    check("WARN copies is 2, and of some of the state there is 1; rank 0 holds what no other rank does: where it is lost, the job goes back "
          "to the newest snapshot (snapshot_every is 0)" in r.err, str(r))
    alone = s.path("alone", "weft")
    os.makedirs(os.path.dirname(alone))
    shutil.copy(WEFT, alone)
    os.chmod(alone, 0o755)
    r = weft("-c", 'exec "$0" train "$@"', alone, *words(dict(job, device="cuda")), "--quiet", env=STUB, command="/bin/sh")
    check(r.code == 2, str(r))
    says(r.err, "no libweft_cuda.so beside weft: built without CUDA: make with nvcc in PATH")


def check_libraries(s, job, out):
    """cublasLt is refused in a version that is not known; without cuDNN own attention runs, said once."""
    old = s.write("old/libcublasLt.so.11", "")
    only = lambda folder, **more: dict(WEFT_CUDA_LIBS="only:" + folder, **more)
    says(run(job, env=only("/nonexistent"), code=2), "cublasLt 12 or 13 is not found", "WEFT_CUDA_LIBS")
    says(run(job, env=only(os.path.dirname(old)), code=2), "cublasLt 12 or 13 is not found, only .*libcublasLt.so.11")
    says(run(job, env=only(LIBS, WEFT_STUB_BLAS="140000"), code=2), "libcublasLt.so.13 is cublasLt 14.0, 13 or 12 is needed")
    blas = s.path("blas")
    os.makedirs(blas)
    os.symlink(os.path.join(LIBS, "libcublasLt.so.13"), os.path.join(blas, "libcublasLt.so.13"))
    r = weft("train", *words(dict({k: v for k, v in job.items() if k != "plan"}, output=out("plan"))), "--print-plan", env=dict(STUB, **only(LIBS)))
    check(r.code == 0 and '"kernels": "cuda ' in r.out and "cublasLt-" in r.out, "a plan names the kernels: " + str(r))
    plan = s.write("cuda-plan.json", r.out)
    for version, n in (("130100", 0), ("130200", 1)):
        r = weft("train", *words(dict(job, steps=1, plan=plan, output=out("plan" + version))), env=dict(STUB, **only(LIBS, WEFT_STUB_BLAS=version)))
        check(r.code == 0 and r.err.count("is a plan for kernels 'cuda") == n, "plan of another cublasLt, %s: %s" % (version, r))
    for name, env, said in (("missing", only(blas), "cuDNN 9 is not found .libcudnn.so.9.: attention runs on own kernels"),
                            ("old", only(LIBS, WEFT_STUB_DNN="80900"), "is cuDNN 8.9, 9 is needed: attention runs on own"),
                            ("plan", only(LIBS, WEFT_STUB_NO_PLAN="1"),
                             "cuDNN has no plan for the .* pass of attention of .* .no engine: the stub has no engine for this.: "
                             "attention runs on own"),
                            ("good", only(LIBS), None)):
        r = weft("train", *words(dict(job, dtype="bf16", steps=1, output=out("dnn-" + name))), env=dict(STUB, **env))
        check(r.code == 0, str(r))
        lines = [x for x in r.err.splitlines() if "WARN" in x and "cuDNN" in x]
        check(len(lines) == (said is not None) and (not said or re.search(said, lines[0])), "%s: %s" % (name, lines))
        r = weft("bench", job["model"], "--dtype", "bf16", "--seq", "8", "--steps", "1", "--device", "cuda", "--json", env=dict(STUB, **env))
        check(r.code == 0 and (re.search(said, r.err) if said else not r.err), "bench, %s: %s" % (name, r))


def allocations(log):
    """Of the device: (number of the call, bytes)."""
    lines = [x.split() for x in open(log)]
    return [(int(x[0]), int(x[2])) for x in lines if x[1] == "cuMemAlloc_v2"]


def check_bench_memory(s, job, need, log):
    """weft bench: the same line, with its own options as remedies, which are true."""
    words = ["bench", job["model"], "--seq", "16", "--batch", "8", "--steps", "1", "--device", "cuda"]
    small = dict(STUB, WEFT_STUB_MEMORY=str(need // 2), WEFT_STUB_LOG=log)
    r = weft(*words, env=small)
    check(r.code == 2 and re.search(r"weft bench: error: gpt2 needs [0-9.]+ GB on cuda:0 \(state [0-9.]+, work [0-9.]+, scratch "
                                    r"[0-9.]+\), [0-9.]+ are free: --micro-batch [0-9]+", r.err), str(r))
    same(allocations(log), [], "a bench's allocations before the line")
    micro = re.search("--micro-batch ([0-9]+)", r.err)
    if micro:
        r = weft(*words, "--micro-batch", micro.group(1), env=small)
        check(r.code == 0, str(r))


def check_memory(s, job, out):
    """The line before anything is allocated; its numbers are those of the allocations; remedies are true."""
    log = s.path("log")
    big = dict(job, seq=16, batch=8, micro_batch=8, dropout=False, steps=1)
    run(dict(big, output=out("fits")), env=dict(WEFT_STUB_LOG=log))
    taken = allocations(log)
    need = sum(n for _, n in taken)
    room = dict(WEFT_STUB_MEMORY=str(need + 4096 * len(taken)))
    run(dict(big, output=out("just")), env=room)
    e = run(dict(big, output=out("never")), env=dict(WEFT_STUB_MEMORY=str(need - 1), WEFT_STUB_LOG=log), code=2)
    says(e, r"gpt2 needs [0-9.]+ GB on cuda:0 \(state [0-9.]+, work [0-9.]+, scratch [0-9.]+\), [0-9.]+ are free: "
            r"micro_batch=4, recompute=selective \(needs [0-9.]+\), offload=optimizer \(needs [0-9.]+\) or 2 GPUs "
            r"would do")
    check(e and abs(float(re.search("needs ([0-9.]+) GB", e).group(1)) * 1e9 - need) < 1e5, "%s: %d bytes" % (e, need))
    same(allocations(log), [], "allocations before the line")
    run(dict(big, micro_batch=4, output=out("micro")), env=dict(WEFT_STUB_MEMORY=str(need - 1)))
    run(dict(big, recompute="selective", output=out("selective")), env=dict(WEFT_STUB_MEMORY=str(need - 1)))
    says(run(dict(big, output=out("others")), env=dict(WEFT_STUB_MEMORY=str(2 * need), WEFT_STUB_OTHERS=str(1.5 * need)), code=2),
         r"are free \(other processes hold [0-9.]+\): ")
    says(run(dict(big, output=out("tiny")), env=dict(WEFT_STUB_MEMORY="30000"), code=2), "a smaller model or a larger GPU would do")
    shared = dict({k: v for k, v in big.items() if k not in ("plan", "lanes", "micro_batch")}, dp=2, share_gpu=True)
    says(run(dict(shared, output=out("two")), ranks=2, env=dict(WEFT_STUB_MEMORY=str(need), WEFT_GPU_COMM="staged"), code=2),
         r"needs [0-9.]+ GB for the 2 ranks on cuda:0 \(of the first: state", "would do")
    # free at the check, gone at the allocation: the same line
    for number, _ in taken[:1] + taken[-2:-1]:
        says(run(dict(big, output=out("gone-%d" % number)), env=dict(WEFT_STUB_FAIL=str(number)), code=2),
             r"gpt2 needs [0-9.]+ GB on cuda:0 \(state", "would do")
    check_bench_memory(s, job, need, log)
    check(not os.path.exists(out("never")) or not os.listdir(out("never")), "nothing is left of a refused job")


def check_labels(s, job, out):
    """Tokens past the vocabulary: the line of the CPU."""
    data = s.write("wrong.bin", u16([1, 2, 3, 60] * 100))
    for device in ("cpu", "cuda"):
        says(run(dict(job, data=data, device=device, output=out("label-" + device)), code=2),
             "wrong.bin: token .* is 60, but the vocabulary has 33 ids")


def check_not_finite(job, out):
    """A step that is not finite writes nothing: a resume from the last checkpoint meets the same step again."""
    wild = dict(job, steps=40, dropout=False, checkpoint=dict(every=1), output=out("nan"),
                optimizer=dict(name="sgd", lr=1e6))
    first, again = run(wild, code=1), run(wild, code=1)
    says(first, "not finite")
    steps = [re.search("error: step ([0-9]+): ", x or "") for x in (first, again)]
    check(all(steps) and steps[0].group(1) == steps[1].group(1), "the same step: %r, %r" % (first, again))


def steps_in(log):
    """Numbers of calls: where each step's first launch is."""
    lines = [x.split() for x in open(log)]
    return [int(x[0]) for x in lines if x[1] == "cuGraphLaunch"]


def check_lost(s, job, out):
    """A GPU that is lost in a step: actor, the driver's words; with WEFT_CUDA_SYNC=1 the instruction; with several
    ranks the rank.  All end soon, and the job goes on from its last checkpoint to the same bits."""
    log = s.path("lost")
    base = dict(job, steps=6, checkpoint=dict(every=1))
    good = run(dict(base, output=out("good")), env=dict(WEFT_STUB_LOG=log))
    number = steps_in(log)[-2]
    e = run(dict(base, output=out("lost")), env=dict(WEFT_STUB_LOST=str(number)), code=1)
    says(e, r"cu\w+ fails with 719: unspecified launch failure")
    r = run(dict(base, output=out("lost")))
    if good and r:
        same(r["weights_xxh64"], good["weights_xxh64"], "resumed after a lost GPU")
    run(dict(base, output=out("sync")), env=dict(WEFT_STUB_LOG=log, WEFT_CUDA_SYNC="1"))
    calls = [x.split() for x in open(log)]
    number = [int(b[0]) for a, b in zip(calls, calls[1:]) if a[1] == "cuLaunchKernel" and b[1] == "cuStreamSynchronize"][-30]
    # samples and checkpoints are copied beside steps, so that a call's number is not the same twice: one of these will do
    named = r"cuda:0: \w+, \w+ '[^']+': cuStreamSynchronize fails with 719"
    for k in range(12):
        e = run(dict(base, output=out("named%d" % k)), env=dict(WEFT_CUDA_SYNC="1", WEFT_STUB_LOST=str(number + k)), code=1)
        if e is None or re.search(named, e):
            break
    says(e, named)

    two = dict({k: v for k, v in base.items() if k != "plan"}, lanes=2, dp=2, share_gpu=True)
    good = run(dict(two, output=out("good2")), ranks=2, env=dict(WEFT_STUB_LOG=log))
    graphs = steps_in(log + ".1")  # of ranks that communicate on the device
    number = graphs[-2] if graphs else sum(1 for _ in open(log + ".1")) * 3 // 4
    before = time.time()
    e = run(dict(two, output=out("lost2")), ranks=2, env=dict(WEFT_STUB_LOST=str(number), WEFT_STUB_RANK="1"), code=1)
    check(time.time() - before < 30, "ranks ended after %.0f s" % (time.time() - before))
    check(e is not None and re.search(r"\[rank 1\].*cuda:0.*fails with 719: unspecified launch failure", e), "%r" % e)
    steps = len(metrics(out("lost2")))
    r = run(dict(two, output=out("lost2")), ranks=2)
    if good and r:
        check(0 < steps < 6, "steps before the loss: %d" % steps)
        same(r["weights_xxh64"], good["weights_xxh64"], "resumed after a rank lost its GPU")
    for k in range(0, 40, 4):  # while one checkpoint ends, another begins, and the other rank has given its GPU the next step
        before = time.time()
        run(dict(two, output=out("lost3-%d" % k)), ranks=2, env=dict(WEFT_STUB_LOST=str(number - k), WEFT_STUB_RANK="1"), code=1)
        check(time.time() - before < 30, "%d calls earlier ranks ended after %.0f s" % (k, time.time() - before))


with Scratch("cuda-bad", memory=True) as s:
    out = lambda name: s.path("out", name)
    job = small_job(s, output=s.path("out", "bad"))
    check_devices(s, job)
    check_labels(s, job, out)
    check_not_finite(job, out)
    if not REAL:
        check_libraries(s, job, out)
        check_memory(s, job, out)
        check_lost(s, job, out)
end()
