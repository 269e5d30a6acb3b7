#!/usr/bin/env python3
"""gpu_jobs.py WEFT soak|starts|wall|gaps|long|offload|sanitize [--short]: whole jobs on a GPU, for tools/gpu_run.sh.

    soak      2,000 steps of a small model: neither host nor device memory grows after the first checkpoint
    starts    gpt2: from the start to the first step, twice
    wall      gpt2 by wall clock: 200 steps of a token file with clip 1.0, logging and one checkpoint, twice, and between
              them the same of PyTorch (bench/gpu/torch_wall.py); weft bench's step; the cores that the host used
    gaps      how long the GPU has nothing to do between two steps: gpt2 as in wall, a GPT of 40M at batch 1 (steps of
              1 ms), and GPT 1.3B with a checkpoint each 20 steps, which its file takes longer than: the longest step
    long      500 steps of gpt2 on real text (this repository's, by bytes), bf16 against the spread of three fp32 seeds;
              passed: the mean of the last 50 steps is inside it
    offload   GPT 1.3B with and without optimizer states in the host's memory, and llama3-8b, which fits only with: step, memory,
              Tflops as DeepSpeed counts them; two runs of a job have the same bits; passed: 12 bytes a parameter are off the GPU
    sanitize  two steps of two-layer models under compute-sanitizer: memcheck, and racecheck of own kernels

--short: a shorter form of soak (500 steps), wall (100 steps) and sanitize (two models).  Exit code 1: something is not as it should be."""
import array
import concurrent.futures
import json
import os
import random
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.environ.get("ROOT") or os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WEFT = os.path.abspath(sys.argv[1])
SHORT = "--short" in sys.argv
OUT = tempfile.mkdtemp(prefix="weft-gpu-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def write_tokens(n, below):
    """A file of n tokens; those of a long one repeat."""
    draw, path = random.Random(1), os.path.join(OUT, "tokens-%d-%d.bin" % (n, below))
    if not os.path.exists(path):
        part = array.array("H", [draw.randrange(below) for _ in range(min(n, 1 << 18))])
        with open(path, "wb") as f:
            for _ in range(0, n, len(part)):
                part.tofile(f)
    return path


def start(name, *keys, env=None, before=()):
    out = os.path.join(OUT, name)
    shutil.rmtree(out, ignore_errors=True)
    log = open(out + ".log", "w")
    p = subprocess.Popen([*before, WEFT, "train", *keys, "device=cuda", "init=random", "plan=off", "output=" + out],
                         stdout=log, stderr=log, env=dict(os.environ, **(env or {})), cwd=ROOT)
    return p, out


def rows(out):
    try:
        with open(os.path.join(out, "metrics.jsonl")) as f:
            return [json.loads(x) for x in f.read().splitlines(True) if x.endswith("\n")]
    except FileNotFoundError:
        return []


def finish(p, out):
    code = p.wait()
    if code:
        print("exit code %d\n%s" % (code, open(out + ".log").read()[-3000:]))
    return code == 0


def device_mb(pid):
    """Of this process where the driver says it, else of the whole GPU (then nothing else may run on it)."""
    ask = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    for line in subprocess.run(ask, stdout=subprocess.PIPE).stdout.decode().splitlines():
        one, used = (x.strip() for x in line.split(","))
        if one == str(pid) and used.isdigit():
            return int(used)
    r = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], stdout=subprocess.PIPE)
    return int(r.stdout.split()[0])


def host_kb(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(x.split()[1]) for x in f if x.startswith("VmRSS:"))


def soak():
    steps = 500 if SHORT else 2000
    data = write_tokens(1 << 18, 256)
    p, out = start("soak", "model=tiny256", "data=" + data, "seq=128", "batch=8", "micro_batch=4", "dtype=bf16", "steps=%d" % steps,
                   "optimizer.clip=1.0", "checkpoint.every=%d" % (steps // 4))
    seen = []
    while p.poll() is None:
        n = len(rows(out))
        if n:
            try:
                seen.append((n, host_kb(p.pid), device_mb(p.pid)))
            except (StopIteration, FileNotFoundError):
                break
        time.sleep(0.2)
    good = finish(p, out)
    # the first checkpoint takes memory for its threads; after the last step the weights are saved
    late = [x for x in seen if 3 * steps // 10 <= x[0] < steps]
    for x in seen[:: max(1, len(seen) // 12)]:
        print("step %5d: host %8d kB, device %6d MB" % x)
    if len(late) < 2:
        print("too few samples: %d" % len(late))
        return False
    print("from step %d to %d: host %+d kB, device %+d MB" % (late[0][0], late[-1][0], late[-1][1] - late[0][1], late[-1][2] - late[0][2]))
    return good and late[-1][1] - late[0][1] < 2048 and late[-1][2] <= late[0][2]


def between_steps(out):
    """Milliseconds from the end of each step to the begin of the next one, on the host's clock: the time of a step's event less
    that of the step before and what the step itself took.  Work that was given before is not waited for."""
    at = {}
    for name in os.listdir(out):
        if not name.startswith("events.out.tfevents"):
            continue
        with open(os.path.join(out, name), "rb") as f:
            b = f.read()
        n = 0
        while n + 16 <= len(b):
            size = struct.unpack_from("<Q", b, n)[0]
            event = b[n + 12:n + 12 + size]
            if event[0] == 9 and b"loss" in event and b"eval" not in event:
                wall, step, k, shift = struct.unpack_from("<d", event, 1)[0], 0, 10, 0
                while True:
                    step |= (event[k] & 0x7f) << shift
                    shift += 7
                    k += 1
                    if not event[k - 1] & 0x80:
                        break
                at[step] = wall
            n += size + 16
    return [1e3 * (at[x["step"]] - at[x["step"] - 1]) - x["step_ms"] for x in rows(out) if x["step"] - 1 in at and x["step"] in at]


def wait_for_step(p, out, n=1):
    while p.poll() is None and len(rows(out)) < n:
        time.sleep(0.005)
    return time.time()


def gpt2_keys():
    data = write_tokens(1 << 23, 50257)
    return ("model=gpt2", "data=" + data, "seq=1024", "batch=32", "dtype=bf16", "optimizer.clip=1.0")


def starts():
    keys, good = gpt2_keys(), True
    for name in ("first start", "second start"):
        begun = time.time()
        p, out = start("start", *keys, "steps=2")
        print("%s: %.2f s to the first step" % (name, wait_for_step(p, out) - begun), flush=True)
        good &= finish(p, out)
    return good


def cpu_s(pid):
    """User and system seconds of a process so far."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            x = f.read().rsplit(")", 1)[1].split()
        return (int(x[11]) + int(x[12])) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        return 0


def wall_weft(keys, steps):
    """Milliseconds a step after the first, by wall clock."""
    begun = time.time()
    p, out = start("wall", *keys, "steps=%d" % steps, "checkpoint.every=%d" % (steps // 2))
    first = wait_for_step(p, out)
    used = cpu_s(p.pid)
    last = wait_for_step(p, out, steps)
    used = cpu_s(p.pid) - used
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    good = finish(p, out)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    step_ms = 1e3 * (last - first) / (steps - 1)
    print("weft: %.1f ms a step over %d steps with a checkpoint after step %d, %.2f s to the first, %.2f s in all" %
          (step_ms, steps, steps // 2, first - begun, time.time() - begun))
    inside = [x["step_ms"] for x in rows(out)[1:]]
    between = between_steps(out)
    print("      inside steps %.1f ms, median %.1f; between two steps %.3f ms on average, checkpoint's start and log lines included, median %.3f" %
          (sum(inside) / len(inside), statistics.median(inside), sum(between) / len(between), statistics.median(between)))
    print("      host: %.2f cores from the first step to the last, %.2f from start to end, the last checkpoint included" %
          (used / (last - first), cpu / (time.time() - begun)))
    with open(out + ".log") as f:
        print("".join("      " + x for x in f if "checkpoint of step" in x), end="", flush=True)
    return step_ms if good else None


def wall_torch(data, steps):
    r = subprocess.run(["python3", os.path.join(ROOT, "bench", "gpu", "torch_wall.py"), "--data", data, "--steps", str(steps), "--out", OUT],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if r.returncode:
        print("torch_wall.py: exit code %d\n%s" % (r.returncode, r.stderr.decode()[-2000:]))
        return None
    x = json.loads(r.stdout.decode().splitlines()[-1])
    print("torch %s, %s, %s: %.1f ms a step over %d steps with torch.save after step %d (%.2f s), %.2f s to the first, %.2f cores" %
          (x["torch"], x["mode"], x["attention"], x["step_ms"], steps, steps // 2, x["checkpoint_s"], x["first_s"], x["cores"]), flush=True)
    return x["step_ms"]


def wall():
    steps, keys = 100 if SHORT else 200, gpt2_keys()
    data = keys[1].split("=", 1)[1]
    ours = [wall_weft(keys, steps)]
    theirs = wall_torch(data, steps)
    ours.append(wall_weft(keys, steps))
    if None not in ours and theirs:
        print("ROW wall: weft %.1f ms a step, torch %.1f, ratio %.3f" % (sum(ours) / 2, theirs, sum(ours) / 2 / theirs))
    r = subprocess.run([WEFT, "bench", "gpt2", "--device", "cuda", "--batch", "32", "--seq", "1024", "--dtype", "bf16", "--clip", "1",
                        "--steps", "20", "--json"], stdout=subprocess.PIPE)
    print("weft bench, clip 1: %.1f ms a step" % json.loads(r.stdout)["step_ms_median"])
    return None not in ours and theirs is not None


def gpt(name, **more):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_positions=1024, **more), f)
    return folder


def gaps_of(name, steps, keys, whole=True):
    """A job that measures its gaps; milliseconds of wall clock from step to step."""
    p, out = start(name, *keys, "steps=%d" % steps, env=dict(WEFT_GAPS="1"))
    first = wait_for_step(p, out)
    used = cpu_s(p.pid)
    last = wait_for_step(p, out, steps)
    used = cpu_s(p.pid) - used
    good = finish(p, out)
    inside, between = [x["step_ms"] for x in rows(out)[3:]], between_steps(out)[2:]
    step = [a + b for a, b in zip(inside, between)]
    print("%s: %.3f ms from step to step, median %.3f, most %.1f; the host between two steps %.3f ms, median %.3f, most %.1f; %.2f cores" %
          (name, sum(step) / len(step), statistics.median(step), max(step), sum(between) / len(between), statistics.median(between),
           max(between), used / (last - first)))
    with open(out + ".log") as f:
        print("".join("      " + x for x in f if "checkpoint of step" in x or "nothing to do" in x or "left out" in x), end="", flush=True)
    shutil.rmtree(out, ignore_errors=True)
    return good


def gaps():
    steps, keys = 100 if SHORT else 200, gpt2_keys()
    good = gaps_of("gpt2", steps, (*keys, "checkpoint.every=%d" % (steps // 2)))
    good &= gaps_of("gpt2, no checkpoint", 100, keys)
    small = gpt("gpt-40m", n_embd=384, n_head=6, n_layer=12, vocab_size=50257)
    for batch, seq, n in ((1, 128, 1000), (8, 128, 500)):
        good &= gaps_of("gpt-40m, %d x %d" % (batch, seq), n,
                        ("model=" + small, keys[1], "seq=%d" % seq, "batch=%d" % batch, "dtype=bf16", "optimizer.clip=1.0"))
    large = gpt("gpt-1.3b", n_embd=2048, n_head=16, n_layer=24, vocab_size=50304)
    good &= gaps_of("GPT 1.3B", 70, ("model=" + large, keys[1], "seq=1024", "batch=8", "dtype=bf16", "optimizer.clip=1.0",
                                     "checkpoint.every=20"))
    return good


def window(losses, k, width=50):
    part = losses[max(0, k - width):k]
    return sum(part) / len(part)


def long():
    text = os.path.join(OUT, "text.txt")
    with open(text, "wb") as f:
        for folder in ("docs", "src", "tests", "plugin", "bench"):
            for where, _, files in sorted(os.walk(os.path.join(ROOT, folder))):
                for name in sorted(files):
                    if name.endswith((".c", ".h", ".md", ".cu")):
                        with open(os.path.join(where, name), "rb") as g:
                            f.write(g.read())
    print("text: %d bytes" % os.path.getsize(text))
    losses = {}
    for name, keys in (("bf16, seed 1", ("dtype=bf16", "seed=1")), ("fp32, seed 1", ("dtype=fp32", "seed=1")),
                       ("fp32, seed 2", ("dtype=fp32", "seed=2")), ("fp32, seed 3", ("dtype=fp32", "seed=3"))):
        begun = time.time()
        p, out = start("long", "model=gpt2", "data=" + text, "tokenizer=bytes", "seq=256", "batch=8", "steps=500", "shuffle=true",
                       "optimizer.lr=0.0006", "optimizer.weight_decay=0.1", "optimizer.clip=1.0", "lr_schedule.name=cosine",
                       "lr_schedule.warmup=50", *keys)
        if not finish(p, out):
            return False
        losses[name] = [x["loss"] for x in rows(out)]
        print("%s: %.0f s" % (name, time.time() - begun))
    good = True
    print("mean loss of 50 steps  " + "  ".join(losses))
    for k in range(50, 501, 50):
        mean = {n: window(x, k) for n, x in losses.items()}
        seeds = [v for n, v in mean.items() if n.startswith("fp32")]
        inside = min(seeds) <= mean["bf16, seed 1"] <= max(seeds)
        off = max(0.0, min(seeds) - mean["bf16, seed 1"], mean["bf16, seed 1"] - max(seeds))
        print("up to %3d  " % k + "  ".join("%.4f" % v for v in mean.values()) +
              "  spread %.4f, bf16 %s" % (max(seeds) - min(seeds), "inside" if inside else "outside by %.4f" % off))
        good = inside  # of the last 50 steps; a fourth fp32 seed would leave the spread of three now and then, too
    return good


def bench(name, *options):
    r = subprocess.run([WEFT, "bench", *options, "--dtype", "bf16", "--device", "cuda", "--steps", "3" if SHORT else "6", "--json"],
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    if r.returncode:
        print("%s: %s" % (name, r.stderr.decode().strip()[-600:]), flush=True)
        return None
    b = json.loads(r.stdout)
    tokens, n = b["tokens_per_s"], b["weights"]
    print("%s: step %.1f ms, %.0f tokens/s, %.1f Tflops (6 x parameters x tokens), %.2f GB on the GPU" %
          (name, b["step_ms_median"], tokens, 6e-12 * n * tokens, 1e-9 * b["mem_peak_bytes"]), flush=True)
    return b


def offload():
    config = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=2048, n_head=16, n_layer=24, vocab_size=50304, n_positions=1024)
    folder = os.path.join(OUT, "gpt-1.3b")
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f)
    size = (folder, "--batch", "16", "--seq", "1024")
    plain = bench("gpt 1.3b, none", *size)
    moved = bench("gpt 1.3b, offload=optimizer", *size, "--offload", "optimizer")
    bench("gpt 1.3b, 4 micro-batches, none", *size, "--micro-batch", "4")
    bench("gpt 1.3b, 4 micro-batches, offload=optimizer", *size, "--micro-batch", "4", "--offload", "optimizer")
    bench("llama3-8b, none", "llama3-8b", "--batch", "8", "--seq", "1024")
    large = bench("llama3-8b, offload=optimizer", "llama3-8b", "--batch", "8", "--seq", "1024", "--offload", "optimizer")
    bits = []
    for k in range(2):
        p, out = start("bits", "model=tiny256", "data=" + write_tokens(1 << 16, 256), "seq=128", "batch=8", "micro_batch=4", "dtype=bf16",
                       "steps=20", "optimizer.clip=1.0", "offload=optimizer")
        good = finish(p, out)
        bits.append([(x["loss"], x["grad_norm"]) for x in rows(out)])
    if not plain or not moved or not large or not good:
        return False
    saved = plain["mem_peak_bytes"] - moved["mem_peak_bytes"]
    print("%.2f bytes a parameter off the GPU; two runs have %s losses" % (saved / plain["weights"], "the same" if bits[0] == bits[1] else "OTHER"))
    return 11.5 < saved / plain["weights"] < 12.5 and bits[0] == bits[1]


SMALL = dict(num_hidden_layers=2, hidden_size=128, intermediate_size=192, num_attention_heads=2, num_key_value_heads=1, vocab_size=257,
             rms_norm_eps=1e-5, max_position_embeddings=64)
CONFIGS = dict(gpt2=dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=128, n_layer=2, n_head=2, vocab_size=257, n_positions=64),
               llama=dict(SMALL, model_type="llama", architectures=["LlamaForCausalLM"]),
               mixtral=dict(SMALL, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=4, num_experts_per_tok=2))


def sanitize_one(tool, model, dtype, check, env):
    begun = time.time()
    name = "-".join((model, dtype, check[1]))
    p, out = start(name, "model=" + os.path.join(OUT, "model-" + model), "data=" + write_tokens(4096, 257), "seq=64", "batch=4",
                   "micro_batch=2", "dtype=" + dtype, "steps=2", "optimizer.clip=1.0",
                   before=(tool, *check, "--error-exitcode", "9", "--print-limit", "20"), env=dict(WEFT_CUDA_GRAPH="0", **env))
    code = p.wait()
    text = open(out + ".log").read()
    said = [x for x in text.splitlines() if "ERROR SUMMARY" in x or "RACECHECK SUMMARY" in x]
    print("%s: exit code %d, %.0f s; %s%s" % (name, code, time.time() - begun, "; ".join(said), "\n" + text[-4000:] if code else ""),
          flush=True)
    return code == 0


def sanitize():
    """Two at a time: the tool's own work is the host's.  The long ones, racecheck of experts, come first."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    models = [("mixtral", "fp32"), ("gpt2", "bf16")] if SHORT else [(m, t) for m in ("mixtral", "llama", "gpt2") for t in ("bf16", "fp32")]
    models = [m for m in models if m[0] in os.environ.get("MODELS", m[0])]
    said = subprocess.run([tool, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
    only = "--kernel-name" if "--kernel-name" in said else "--kernel-regex"
    for model in CONFIGS:
        os.makedirs(os.path.join(OUT, "model-" + model))
        with open(os.path.join(OUT, "model-" + model, "config.json"), "w") as f:
            json.dump(CONFIGS[model], f)
    write_tokens(4096, 257)
    # Own kernels alone under racecheck: cuDNN's stop in the tool.  The plugin asks each of its fatbins for a kernel until
    # one has it: calls that fail are not errors of memcheck.
    checks = ((("--tool", "racecheck", only, "kns=weft_cuda"), dict(WEFT_CUDA_LIBS="none")),
              (("--tool", "memcheck", "--report-api-errors", "no"), {}))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(sanitize_one, tool, model, dtype, check, env) for check, env in checks for model, dtype in models]
        return all([r.result() for r in runs])


try:
    passed = globals()[sys.argv[2]]()
finally:
    shutil.rmtree(OUT, ignore_errors=True)
print("passed" if passed else "FAILED")
sys.exit(0 if passed else 1)
