"""Files that are none: pipes, devices, links, closed and full standard streams, prepared temporary names, size
limits, endless inputs.  Nothing waits, nothing special is replaced, no log line gets into a result, and every
refusal is one line with exit code 2 (1 where the system refuses)."""
import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import time

from eco import ROOT, WEFT, Scratch, check, end, read, same, small_job, weft, words

GRAPH = ["graph", "tiny256", "--batch", "1", "--seq", "8"]
QUICK_S = 60  # a call that waits for ever takes longer; a slow machine does not


def run(*args, timeout=QUICK_S, **more):
    """The command with streams of the caller's; code None: it had to be killed."""
    more.setdefault("stdin", subprocess.DEVNULL)
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    try:
        p = subprocess.run([WEFT, *args], timeout=timeout, cwd=ROOT, **more)
    except subprocess.TimeoutExpired:
        return None, "", "it waits"
    return p.returncode, (p.stdout or b"").decode(), (p.stderr or b"").decode()


def one_line(ran, code, said, what):
    same(ran[0], code, "%s: exit code (%s)" % (what, ran[2].strip()))
    lines = ran[2].splitlines()
    check(len(lines) == 1 and ": error: " in lines[0], "%s: one line, got %r" % (what, ran[2]))
    for w in said:
        check(w in ran[2], "%s: no '%s' in %r" % (what, w, ran[2]))


def mode(path):
    return os.lstat(path).st_mode


# ---- -o ----

def outputs(s):
    whole = weft(*GRAPH).out
    target, link, pipe = s.write("target", "old"), s.path("link"), s.path("pipe")
    os.chmod(target, 0o600)
    os.symlink("target", link)
    os.mkfifo(pipe)

    same(weft(*GRAPH, "-o", link).code, 0, "-o link")
    check(stat.S_ISLNK(mode(link)), "-o link: it is a link still")
    same(read(target).decode(), whole, "-o link: what it names is replaced")
    same(mode(target), stat.S_IFREG | 0o600, "-o link: the mode is kept")

    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    same(weft(*GRAPH, "-o", pipe).code, 0, "-o pipe")
    same(os.read(reader, 1 << 16).decode() if stat.S_ISFIFO(mode(pipe)) else "", whole, "-o pipe: its bytes")
    check(stat.S_ISFIFO(mode(pipe)), "-o pipe: it is a pipe still")
    os.close(reader)
    one_line(run(*GRAPH, "-o", pipe), 2, ["nothing reads from this pipe"], "-o pipe without a reader")
    os.mkdir(s.path("logs"))
    os.mkfifo(s.path("logs", "rank0.log"))
    one_line(run("run", "--check", "--nproc-per-node", "2", "--log-dir", s.path("logs")), 2, ["rank0.log"],
             "--log-dir with a pipe")

    if os.geteuid() == 0:  # a device of our own: /dev's would be lost by a defect
        for minor, code in ((3, 0), (7, 1)):  # null, full
            node = s.path("node%d" % minor)
            os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, minor))
            same(weft(*GRAPH, "-o", node).code, code, "-o device 1:%d" % minor)
            check(stat.S_ISCHR(mode(node)), "-o device 1:%d: it is a device still" % minor)

    # as /dev/stdout is: a descriptor's name, by a link of our own
    os.symlink("/proc/self/fd/1", s.path("stdout"))
    with open(s.path("log"), "wb") as f:
        f.write(b"before\n")
        f.flush()
        same(run(*GRAPH, "-o", s.path("stdout"), stdout=f)[0], 0, "-o /dev/stdout")
    same(read(s.path("log")).decode(), "before\n" + whole, "-o /dev/stdout: where the stream stands")
    check(os.path.islink(s.path("stdout")), "-o /dev/stdout: it is a link still")


def temporary_names(s):
    victim, text = s.write("victim", "kept"), s.write("text.txt", "some text\n" * 20)
    for name in ("u.bin.tmp", "v.idx.tmp", "v.bin.tmp"):
        os.symlink(victim, s.path(name))
    for to in ("u.bin", "v.idx"):
        same(weft("data", "convert", text, s.path(to)).code, 0, "convert to " + to)
        check(stat.S_ISREG(mode(s.path(to))), to + " is a regular file")
    same(read(victim), b"kept", "what a prepared temporary name links to")

    keep = s.write("keep.bin", b"\1\0")
    os.chmod(keep, 0o600)
    same(weft("data", "convert", text, keep).code, 0, "convert onto a file")
    same(mode(keep), stat.S_IFREG | 0o600, "convert keeps the mode")
    left = [f for f in os.listdir(s.dir) if ".tmp." in f]
    same(left, [], "temporary files that are left")


# ---- inputs ----

def special_inputs(s):
    good = small_job(s)
    config = os.path.join(good["model"], "config.json")
    pipe = {name: s.path(name) for name in ("p", "p.bin", "p.safetensors", "p.txt")}
    for p in pipe.values():
        os.mkfifo(p)
    model = {}
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        d = s.path("pipe-" + name)
        os.mkdir(d)
        if name != "config.json":
            shutil.copy(config, d)
        os.mkfifo(os.path.join(d, name))
        model[name] = d
    zero = s.path("zero")
    os.mkdir(zero)
    os.symlink("/dev/zero", os.path.join(zero, "config.json"))

    rows = [("data " + k, dict(good, data=v), ["pipe"]) for k, v in pipe.items()]
    rows += [("model with " + k, dict(good, model=v), [k, "pipe"]) for k, v in model.items()]
    rows += [("data /dev/zero", dict(good, data="/dev/zero"), ["/dev/zero", "device"]),
             ("config.json of /dev/zero", dict(good, model=zero), ["config.json", "device"]),
             ("cluster", dict(good, cluster=pipe["p"]), ["pipe"]),
             ("plan", dict(good, plan=pipe["p"]), ["pipe"])]
    for what, job, said in rows:
        one_line(run("train", *words(job), "-q"), 2, said, "%s" % what)
    one_line(run("train", pipe["p"], "-q"), 2, ["pipe"], "job")
    one_line(run("cluster", "show", pipe["p"]), 2, ["pipe"], "cluster show")
    one_line(run("data", "inspect", pipe["p.bin"]), 2, ["pipe"], "data inspect")

    # small texts may come through a pipe that is written to
    job = dict(good, steps=1, output=s.path("piped"))
    p = subprocess.run([WEFT, "train", "/dev/stdin", "-q"], input=json.dumps(job).encode(), cwd=ROOT,
                       timeout=QUICK_S, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    same((p.returncode, p.stderr), (0, b""), "a job on standard input")


def a_signal_ends_the_wait(s):
    """A pipe that is open for writing and silent."""
    pipe = s.path("silent")
    os.mkfifo(pipe)
    job = small_job(s, cluster=pipe)
    hold = os.open(pipe, os.O_RDWR)
    for args in (["train", *words(job), "-q"], ["train", pipe], ["cluster", "show", pipe]):
        p = subprocess.Popen([WEFT, *args], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        same(p.poll(), None, "%s waits for its bytes" % args[0])
        p.terminate()
        try:
            check(p.wait(QUICK_S) in (-signal.SIGTERM, 1, 143), "%s: ended by SIGTERM" % args[0])
        except subprocess.TimeoutExpired:
            check(False, "%s: SIGTERM does not end it" % args[0])
            p.kill()
            p.wait()
    os.close(hold)


def endless(s):
    limit = 1 << 30

    def little_memory():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    big = s.path("big.yaml")
    with open(big, "wb") as f:
        f.truncate(65 << 20)
    small = [] if os.environ.get("WEFT_TEST_SANITIZED", "0") not in ("", "0") else [little_memory]
    more = dict(preexec_fn=small[0]) if small else {}
    for args in (["cluster", "show", "/dev/zero"], ["cluster", "show", big], ["train", big],
                 ["check", "--cluster", "8 x h100-80g", "--torchtitan", big]):
        one_line(run(*args, **more), 2, ["larger than 64 MB", args[-1]], " ".join(args[:2]))


# ---- standard streams ----

def closed_streams(s):
    for n, closed in enumerate([(1, 2), (0, 1, 2), (1,), (2,)]):
        for ranks in (1, 2):
            what = "%d ranks with %s closed" % (ranks, closed)
            job = small_job(s, output=s.path("closed-%d-%d" % (n, ranks)))
            command = ["train"] if ranks == 1 else ["run", "--nproc-per-node", "2"]
            line = "exec \"$@\" " + " ".join("%d>&-" % fd for fd in closed)
            p = subprocess.run(["sh", "-c", line, "sh", WEFT, *command, *words(job)], cwd=ROOT, timeout=300,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            same(p.returncode, 1 if 1 in closed else 0, what + ": exit code")
            try:
                rows = [json.loads(x) for x in read(os.path.join(job["output"], "metrics.jsonl")).splitlines()]
                same([r["step"] for r in rows], [1, 2, 3], what + ": steps")
            except (ValueError, OSError) as e:
                check(False, "%s: metrics.jsonl: %s" % (what, e))
            for f in os.listdir(job["output"]) if os.path.isdir(job["output"]) else []:
                path = os.path.join(job["output"], f)
                if os.path.isfile(path):
                    b = read(path)
                    check(b" INFO " not in b and b"weights_xxh64" not in b, "%s: log lines in %s" % (what, f))


def full_stdout(s):
    job = small_job(s, output=s.path("full"))
    same(weft("train", *words(job), "-q").code, 0, "a run to look at")
    for args in (["help"], ["--help"], ["version"], ["version", "--json"], ["help", "job"], ["train", "--help"],
                 ["cluster", "kinds"], ["cluster", "show", "8 x h100-80g"], GRAPH,
                 ["lower", *GRAPH[1:]], ["sim", "tiny256", "--batch", "2", "--seq", "8"],
                 ["data", "inspect", job["data"]], ["ckpt", "ls", job["output"]],
                 ["train", *words(job), "--print-job"], ["train", *words(job), "-q"],
                 ["run", "--check", "--nproc-per-node", "2"]):
        with open("/dev/full", "wb") as f:
            one_line(run(*args, stdout=f), 1, ["standard output"], "weft %s >/dev/full" % " ".join(args[:2]))
    p = subprocess.run(["sh", "-c", "exec \"$0\" version >&-", WEFT], stderr=subprocess.PIPE, timeout=QUICK_S)
    one_line((p.returncode, "", p.stderr.decode()), 1, ["standard output"], "weft version >&-")


# ---- limits and numbers ----

def size_limit(s):
    def limit(kib):
        def set_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10))
        return set_limit

    job = small_job(s, output=s.path("limit"))
    one_line(run("run", "--nproc-per-node", "2", *words(job), "-q", preexec_fn=limit(64)), 1, ["File too large"],
             "weft run under ulimit -f")
    one_line(run("train", *words(job), "-q", preexec_fn=limit(16)), 1, ["File too large"],
             "weft train under ulimit -f")
    top = s.path("limit", "checkpoints")
    same(os.listdir(top) if os.path.isdir(top) else [], [], "what a save that failed leaves")


def numbers():
    for option in ("--timeout", "--seconds"):
        for value in ("nan", "-1", "1e999", "inf", "-inf", "1e7", "x", ""):
            r = run("run", "--nproc-per-node", "2", "--check", "%s=%s" % (option, value), timeout=20)
            one_line(r, 2, [option, "0 to 1000000"], "%s=%s" % (option, value))
    one_line(run("run", "--nproc-per-node", "2", "--check", "--timeout", "0"), 2, ["0.1 to 1000000"], "--timeout 0")
    one_line(run("sample", "x", "--temperature", "nan"), 2, ["--temperature"], "--temperature nan")


def control_characters():
    for args in (["un\x1b[31mknown\nx"], ["help", "un\x1b[31mknown\nx"], ["train", "--un\x1b[31mknown\nx"],
                 ["bench", "comm", "un\x1b[31mknown\nx"]):
        r = run(*args)
        one_line(r, 2, ["un [31mknown x"], repr(args))


def documented():
    """Every variable that is read, and every exit code, stands in docs/command.md; weft help has the codes."""
    page = read(os.path.join(ROOT, "docs", "command.md")).decode()
    names = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "src")):
        for f in files:
            text = read(os.path.join(folder, f)).decode(errors="replace")
            names |= set(re.findall(r'getenv\("([A-Z_a-z]+)"\)', text))
            if f == "environment.c" and os.path.basename(folder) == "launch":
                names |= set(re.findall(r'"([A-Z][A-Z_]+)"', text))
    check(len(names) > 40, "variables that are read: %s" % sorted(names))
    for n in sorted(names):
        check("`%s`" % n in page, "%s is not in docs/command.md" % n)
    said = weft("help").out
    for code in ("0", "1", "2", "76", "130", "143", "128 + N"):
        check(re.search(r"^\| (\d+, )?%s(, \d+)? \|" % re.escape(code), page, re.M), "docs/command.md: exit code " + code)
        check(re.search(r"\b%s\b" % re.escape(code), said), "weft help: exit code " + code)


def lost_rank():
    """Ranks as torchrun starts them: who ends because of another one exits with 76."""
    env = dict(os.environ, WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_PORT=str(20000 + os.getpid() % 10000))
    args = [WEFT, "run", "-q", "--check", "--seconds", "600", "--timeout", "20"]
    p = [subprocess.Popen(args, env=dict(env, RANK=r, LOCAL_RANK=r), cwd=ROOT, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE) for r in "01"]
    time.sleep(2)
    p[1].kill()
    err = p[0].communicate(timeout=120)[1].decode()
    p[1].communicate()
    one_line((p[0].returncode, "", err), 76, ["rank 1"], "a rank whose peer is killed")


def slips(s):
    """Values that are taken as they are get a warning."""
    job = small_job(s, output=s.path("slips"), threads=512, lr_schedule=dict(warmup=200))
    r = weft("train", *words(job))
    warned = [x for x in r.err.splitlines() if " WARN " in x]
    check(any("warmup" in x for x in warned), "a warm-up longer than the job: %r" % warned)
    check(any("512 threads" in x for x in warned), "more threads than cores: %r" % warned)


with Scratch("files") as s:
    outputs(s)
    temporary_names(s)
    special_inputs(s)
    a_signal_ends_the_wait(s)
    endless(s)
    closed_streams(s)
    full_stdout(s)
    size_limit(s)
    numbers()
    control_characters()
    documented()
    lost_rank()
    slips(s)
    end()
