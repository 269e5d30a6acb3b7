"""What the tests beside it share: the command, scratch folders, safetensors files by hand, and a list of
checks that tells at the end how many there were.

    WEFT         the command (build/weft)
    WEFT_PYTHON  the Python to run the tests with (tests/eco/run.sh; python3)

A test that lacks a package says so in one line and exits with 77, which ctest counts as skipped."""
import array
import importlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WEFT = os.path.abspath(os.environ.get("WEFT", os.path.join(ROOT, "build", "weft")))
REFERENCE = os.path.join(os.path.dirname(ROOT), "shared", "reference")
FAMILIES = os.path.join(ROOT, "tests", "fixtures", "families")
SANITIZED = os.environ.get("WEFT_TEST_SANITIZED", "0") not in ("", "0")
LONG = "WEFT_TEST_LONG" in os.environ  # make long: all cases, of which make test takes some
SPLIT = "WEFT_TEST_SPLIT" in os.environ and not LONG  # make test: what takes long runs in one of its two trees
# What is disturbed while it trains: a GPT-2 of bytes whose steps take a few milliseconds and wait (paced); make long: one
# that computes.
NARROW = "tiny256" if LONG else os.path.join(ROOT, "tests", "fixtures", "narrow")
SKIPPED = 77

n_check = 0
failed = []


# ---- checks ----

def check(good, what):
    global n_check
    n_check += 1
    if not good:
        failed.append(what)
        print("FAILED: " + what, flush=True)
    return good


def same(a, b, what):
    return check(a == b, "%s: %r is not %r" % (what, a, b))


def near(a, b, tol, what):
    return check(abs(a - b) <= tol * max(1.0, abs(b)), "%s: %.9g is not %.9g" % (what, a, b))


def here(cases):
    """Of these the ones that run in this tree."""
    return cases[SANITIZED::2] if SPLIT else cases


def skip(why):
    print("SKIPPED: " + why)
    sys.exit(SKIPPED)


def need(*packages):
    """The packages, imported; or the test is skipped."""
    found = []
    for name in packages:
        try:
            found.append(importlib.import_module(name))
        except ImportError:
            skip("Python package %s is not installed (WEFT_PYTHON names another Python)" % name)
    return found


def end():
    print("%d checks, %d failed" % (n_check, len(failed)))
    if not n_check:
        skip("nothing was checked")
    sys.exit(1 if failed else 0)


# ---- folders ----

class Scratch:
    """A folder that goes away when the test passed; path(name) lies in it.  In memory where the test waits
    for the disk most of its time and TMPDIR does not say otherwise."""

    def __init__(self, name, memory=False):
        shm = memory and "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK)
        self.dir = tempfile.mkdtemp(prefix="weft-eco-%s-" % name, dir="/dev/shm" if shm else None)

    def path(self, *name):
        return os.path.join(self.dir, *name)

    def write(self, name, data):
        p = self.path(name)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        with open(p, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return p

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind in (None, SystemExit) and not failed:
            shutil.rmtree(self.dir, ignore_errors=True)
        else:
            print("what it made is left in " + self.dir)


def is_open(path):
    """By a process that lives."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if any(os.readlink(f.path) == path for f in os.scandir("/proc/%s/fd" % pid)):
                return True
            with open("/proc/%s/maps" % pid) as f:
                if any(line.endswith(path + "\n") for line in f):
                    return True
        except OSError:
            pass
    return False


def left_in_shm(before, limit_s=10):
    """Files in /dev/shm that were not there before, and that no process has open: those of tests that run meanwhile have an owner, or go.
    Folders are such tests', too."""
    limit = time.monotonic() + limit_s
    while True:
        new = ("/dev/shm/" + f for f in set(os.listdir("/dev/shm")) - before)
        left = sorted(f for f in new if not f.startswith("/dev/shm/weft-stub") and os.path.isfile(f) and not is_open(f))
        if not left or time.monotonic() > limit:
            return left
        time.sleep(0.1)


def read(path):
    with open(path, "rb") as f:
        return f.read()


# ---- the command ----

class Ran:
    def __init__(self, args, p):
        self.args, self.code = args, p.returncode
        self.out, self.err = p.stdout.decode(), p.stderr.decode()

    def __str__(self):
        return "weft %s: exit code %d\n%s" % (" ".join(self.args), self.code, self.err)


def words(job):
    """key=value words of a job, nested maps as dotted keys."""
    w = []
    for k, v in job.items():
        if isinstance(v, dict):
            w += ["%s.%s" % (k, x) for x in words(v)]
        else:
            w.append("%s=%s" % (k, v if isinstance(v, str) else json.dumps(v)))
    return w


def weft(*args, env=None, timeout=300, command=WEFT):
    e = dict(os.environ, **env) if env else None
    p = subprocess.run([command, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       stdin=subprocess.DEVNULL, timeout=timeout, env=e, cwd=ROOT)
    return Ran(args, p)


def train(job, *options):
    """Trains; the result as --json prints it, or None after a failed check."""
    r = weft("train", *words(job), "--json", "--quiet", *options)
    if not check(r.code == 0, str(r)):
        return None
    check(r.out.endswith("\n") and r.out.count("\n") == 1, "stdout is one line: %r" % r.out)
    return json.loads(r.out)


def metrics(output):
    with open(os.path.join(output, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


def steps_of(output):
    return [m["step"] for m in metrics(output)]


# ---- models and data to train ----

def reference_job(name, **more):
    """The job of a reference model, or of a small fixture of the same family where that is absent."""
    d = os.path.join(REFERENCE, name)
    if os.path.exists(os.path.join(d, "reference.json")):
        with open(os.path.join(d, "reference.json")) as f:
            r = json.load(f)
        data = os.path.join(d, "tokens.bin")
        if not os.path.exists(data):
            data = os.path.join(d, "data.safetensors")
        job = dict(model=os.path.join(d, "init"), data=data, seq=r["seq"], batch=r["batch"])
    else:
        d = os.path.join(FAMILIES, name)
        job = dict(model=d, data=os.path.join(d, "step.safetensors"), batch=2)
    job["optimizer"] = dict(name="adamw", lr=3e-3, weight_decay=0.1, clip=1.0)
    job.update(more)
    return job


GPT2 = dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", activation_function="gelu_new",
            n_embd=32, n_head=2, n_layer=2, n_positions=32, vocab_size=97, layer_norm_epsilon=1e-5,
            attn_pdrop=0, embd_pdrop=0, resid_pdrop=0, tie_word_embeddings=True)


PACE_MS = 0 if LONG else 8  # 0: steps take as long as they take
HELD_MS = 400


def paced(env=None, held=None, steps=1, holds=False):
    """An environment in which each step of a job takes PACE_MS at least, without work: what disturbs it comes in time.
    While the file `held` is there, the last quarter of `steps` takes HELD_MS each: the job does not end before that.  holds: that
    also where PACE_MS is 0."""
    env = dict(env or {})
    if not PACE_MS and not holds:
        return env
    points = [env.get("WEFT_FAILPOINT", os.environ.get("WEFT_FAILPOINT")), PACE_MS and "step.begin:delay=%d:nth=every" % PACE_MS]
    if held:
        points.append("step.begin:delay=%d:nth=%d+:while=%s" % (HELD_MS, int(steps) * 3 // 4 + 1, held))
    return dict(env, WEFT_FAILPOINT=",".join(filter(None, points)))


def hold(output):
    """The file that holds a job of that folder (paced)."""
    held = output + ".held"
    with open(held, "w"):
        return held


def let_go(output):
    if os.path.exists(output + ".held"):
        os.remove(output + ".held")


def small_model(s, name="model", **change):
    """A folder with the configuration of a tiny GPT-2."""
    c = dict(GPT2, **change)
    c = {k: v for k, v in c.items() if v is not None}
    s.write(name + "/config.json", json.dumps(c, indent=2))
    return s.path(name)


def tokens(n, vocab, seed=1):
    """n numbers below vocab that repeat nowhere soon and need no package."""
    x, out = seed * 2654435761 % 2**32 or 1, []
    for _ in range(n):
        x ^= x << 13 & 0xffffffff
        x ^= x >> 17
        x ^= x << 5 & 0xffffffff
        out.append(x % vocab)
    return out


def u16(numbers):
    return struct.pack("<%dH" % len(numbers), *numbers)


def small_job(s, **more):
    if not os.path.exists(s.path("tokens.bin")):
        s.write("tokens.bin", u16(tokens(4000, 97)))
    job = dict(model=small_model(s), data=s.path("tokens.bin"), seq=16, batch=4, steps=3,
               output=s.path("out"))
    job.update(more)
    return job


# ---- safetensors by hand ----

class Tensors:
    """A safetensors file: header (bytes), entries in the file's order, bytes of each tensor."""

    def __init__(self, path):
        b = read(path)
        n = struct.unpack("<Q", b[:8])[0]
        self.header, self.data = b[8:8 + n], b[8 + n:]
        self.entry = json.loads(self.header)
        self.meta = self.entry.pop("__metadata__", None)

    def names(self):
        return list(self.entry)

    def bytes(self, name):
        a, b = self.entry[name]["data_offsets"]
        return self.data[a:b]

    def dtype(self, name):
        return self.entry[name]["dtype"]


def safetensors(entries, meta=None):
    """The bytes of a file of (name, dtype, shape, bytes)."""
    head, at = {}, 0
    if meta is not None:
        head["__metadata__"] = meta
    for name, dtype, shape, data in entries:
        head[name] = dict(dtype=dtype, shape=list(shape), data_offsets=[at, at + len(data)])
        at += len(data)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    return struct.pack("<Q", len(h)) + h + b"".join(e[3] for e in entries)


def floats(b):
    a = array.array("f")
    a.frombytes(b)
    return a
