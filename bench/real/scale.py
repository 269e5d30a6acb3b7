#!/usr/bin/env python3
"""How long a resize pauses a job: weft scale 2, 4, 3, 1, 2 on this machine's CPUs.

    bench/real/scale.py WEFT [--beside WEFT] [--turns KEY=VALUE,KEY=VALUE] [--hosts] [--sizes tiny,medium,wide,large] [--rounds N] [--threads N] [--minutes M] [--csv FILE] [KEY=VALUE ...]

    tiny     tiny256 (3.8 MB of weights), batch 8, seq 16
    medium   gpt2 with two layers (54M parameters), batch 2, seq 16, to 1 and 2 of two ranks
    wide     the same, batch 4, four ranks
    large    gpt2 124M, batch 4, seq 64: 1.5 GB of state a rank under dp, so 4 ranks take 12 GB

--beside: another build, in turns with the first.  --turns: the same build with each of these keys, in turns: they count as builds.
--hosts: two agents of this machine with half of the ranks each instead: the second one joins, weft scale asks for a rank less and for all
again (where a host has two), and the first one gets SIGTERM and leaves; all of it twice.  ready is from the request to the fourth row after it.  learned_mb
is what a joiner had got before the pause; before_step and asked_step are the median steps of the four rows before the request, and of those between it and the pause.

Sizes take turns, and no round begins that would end after --minutes; FILE is written after each.

The pause is from the last row of the old ranks in metrics.jsonl to the first one of the new ranks, less one undisturbed step of the new ranks (the
median of the steps after it): the time without a step under way.  asked is from the moment in which ranks are asked to leave, which is after the step under way (new
ranks have prepared before, while the others trained), to the first step of the new ranks, less that step.  moved_mb is what had to be moved of the state.  Phases are those of incidents.jsonl: leave (the step under way ends), connect, build (plan
and program), move (memory and state), step.  What the machine did beside it is not measured: run it alone."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SIZES = {
    "tiny": dict(model="tiny256", seq=16, batch=8, micro_batch=1, lanes=4),
    "medium": dict(model="config", seq=16, batch=2, micro_batch=1, lanes=2),
    "wide": dict(model="config", seq=16, batch=4, micro_batch=1, lanes=4),
    "large": dict(model="gpt2", seq=64, batch=4, micro_batch=1, lanes=4),
}
PHASES = ("asked", "decide", "leave", "start", "connect", "build", "move", "step", "total", "moved_mb")
HOST_PHASES = ("leave", "connect", "build", "move", "step", "total", "ready", "before_step", "asked_step", "moved_mb", "made_mb", "learned_mb")
HOST_CHANGES = 2 * (("join", "join"), ("less", "scale"), ("more", "scale"), ("leave", "drain"))
TARGETS = {"tiny": (2, 4, 3, 1, 2), "medium": (1, 2, 1, 2), "wide": (2, 4, 3, 1, 2), "large": (2, 4, 3, 1, 2)}
RANKS = {"tiny": 4, "medium": 2, "wide": 4, "large": 4}
CONFIG = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_layer=2, n_embd=768, n_head=12, vocab_size=50257,
              n_positions=1024, n_ctx=1024)


def make_tokens(path):
    with open(path, "wb") as f:
        for i in range(1 << 16):
            f.write(((i * 2654435761) % 256).to_bytes(2, "little"))


def rows(output):
    try:
        with open(os.path.join(output, "metrics.jsonl")) as f:
            return [json.loads(line) for line in f.read().splitlines(True) if line.endswith("\n")]
    except OSError:
        return []


def count_rows(output):
    try:
        with open(os.path.join(output, "metrics.jsonl")) as f:
            return f.read().count("\n")
    except OSError:
        return 0


def make_config(folder):
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(CONFIG, f)


def write_keys(o, size, folder, output, n):
    tokens = os.path.join(folder, "tokens.bin")
    make_tokens(tokens)
    keys = dict(SIZES[size], data=tokens, data_format="u16", steps=1000000, init="random", reduction="invariant",
                recover="on", device="cpu", output=output, threads=o.threads, **{"checkpoint.every": 10000000})
    if keys["model"] == "config":
        keys["model"] = os.path.join(folder, "model")
        make_config(keys["model"])
    if not o.keys:
        keys.update(plan="off", dp=n)
    keys.update(word.split("=", 1) for word in o.turn + o.keys)
    return ["%s=%s" % x for x in keys.items()]


def run(o, weft, size, folder):
    """(target, pause in ms, phases) of each resize."""
    output = os.path.join(folder, "out")
    shutil.rmtree(output, ignore_errors=True)
    p = subprocess.Popen([weft, "run", "--nproc-per-node", "1:%d" % RANKS[size], "-q",
                          *write_keys(o, size, folder, output, RANKS[size])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found, seen = [], Rows(output)
    try:
        seen.await_rows(p, 2)
        for n in TARGETS[size]:
            asked = subprocess.Popen([weft, "scale", str(n), output], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            while asked.poll() is None:
                time.sleep(0.003)
                seen.poll()
            if asked.returncode:
                sys.exit("scale %d: %s" % (n, asked.stderr.read()))
            seen.await_rows(p, 4)
            if p.poll() is not None:
                sys.exit("scale %d: the job ended with %d" % (n, p.returncode))
            step_ms = statistics.median(r["step_ms"] for r in rows(output)[-4:])
            last = read_incidents(output, "scale")[-1]
            k = last["next_step"] - 1
            gap_ms = 1e3 * (seen.times[k] - seen.times[k - 1])
            ms = dict(last["ms"], asked=max(0.0, last["ms"]["total"] - step_ms), moved_mb=last.get("move", {}).get("bytes", 0) / 1e6)
            found.append((n, max(0.0, gap_ms - step_ms), step_ms, ms))
    finally:
        p.kill()  # SIGTERM would save
        p.wait()
    return found


class Rows:
    """Times at which rows of metrics.jsonl were seen."""
    def __init__(self, output):
        self.path, self.at, self.times = os.path.join(output, "metrics.jsonl"), 0, []

    def poll(self):
        try:
            with open(self.path) as f:
                f.seek(self.at)
                text = f.read()
        except OSError:
            return
        n = text.rfind("\n") + 1
        self.at += len(text[:n].encode())
        self.times += [time.monotonic()] * text[:n].count("\n")

    def await_rows(self, p, n):
        begin = len(self.times)
        while p.poll() is None and len(self.times) < begin + n:
            time.sleep(0.003)
            self.poll()


def read_incidents(output, cause):
    try:
        with open(os.path.join(output, "incidents.jsonl")) as f:
            return [i for i in map(json.loads, f) if i["cause"] == cause]
    except OSError:
        return []


def median_step(output, begin, end):
    return statistics.median([r["step_ms"] for r in rows(output)[max(0, begin):end]] or [0])


def measure_view(output, seen, p, cause, n_before):
    """(pause in ms, step, phases) of the view whose incident of that cause follows n_before others."""
    first = count_rows(output)
    limit = time.monotonic() + 120
    while p.poll() is None and len(read_incidents(output, cause)) <= n_before:
        time.sleep(0.003)
        seen.poll()
        if time.monotonic() > limit:
            sys.exit("%s: no incident within 120 s" % cause)
    seen.await_rows(p, 4)
    if p.poll() is not None:
        sys.exit("%s: the job ended with %d" % (cause, p.returncode))
    step_ms = statistics.median(r["step_ms"] for r in rows(output)[-4:])
    last = read_incidents(output, cause)[-1]
    k = last["next_step"] - 1
    gap_ms = 1e3 * (seen.times[k] - seen.times[k - 1])
    return max(0.0, gap_ms - step_ms), step_ms, dict(last["ms"], moved_mb=last.get("move", {}).get("bytes", 0) / 1e6,
                                                     made_mb=last.get("made_bytes", 0) / 1e6,
                                                     learned_mb=last.get("learned", 0) / 1e6,
                                                     before_step=median_step(output, first - 4, first),
                                                     asked_step=median_step(output, first + 1, k))


def run_hosts(o, weft, size, folder):
    """(what, pause in ms, step, phases) of each change; phases also have ready."""
    output = os.path.join(folder, "out")
    shutil.rmtree(output, ignore_errors=True)
    n = RANKS[size] // 2
    command = [weft, "run", "--nproc-per-node", str(n), "--nnodes", "1:2", "--rdzv", "file:" + folder, "--insecure-network", "-q",
               *write_keys(o, size, folder, output, 2 * n)]
    start = lambda: subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    agents, found, seen = [start()], [], Rows(output)
    try:
        seen.await_rows(agents[0], 4)
        for what, cause in HOST_CHANGES:
            asked, begin, before = None, time.monotonic(), len(read_incidents(output, cause))
            stays = agents[0]
            if what == "join":
                agents.append(start())
            elif what == "leave":
                stays = agents[1]
                agents[0].terminate()
            elif n > 1:
                asked = subprocess.Popen([weft, "scale", str(2 * n - (what == "less")), output], stdout=subprocess.DEVNULL,
                                         stderr=subprocess.PIPE, text=True)
            else:
                continue
            x = measure_view(output, seen, stays, cause, before)
            found.append((what, x[0], x[1], dict(x[2], ready=1e3 * (time.monotonic() - begin))))
            if asked and asked.wait():
                sys.exit("scale: %s" % asked.stderr.read())
            if what == "leave":
                agents.pop(0).wait()
    finally:
        for p in agents:
            p.kill()
            p.wait()
    return found


def summarize(size, build, n, of, names):
    """One line: a resize to n ranks, or a change of hosts, in all rounds."""
    pause = [x[1] for x in of]
    phases = ["%.1f" % statistics.median(x[3].get(p, 0) for x in of) for p in names]
    return "%s,%d,%s,%d,%.1f,%.1f,%.1f,%s" % (size, build, n, len(of), statistics.median(pause), max(pause),
                                             statistics.median(x[2] for x in of), ",".join(phases))


def write_table(o, found, names):
    """found: by size and build, the resizes of each round."""
    columns = [p if p.endswith("_mb") else p + "_ms" for p in names]
    lines = ["size,build,to,n,pause_ms_median,pause_ms_max,undisturbed_step_ms," + ",".join(columns)]
    for (size, build), rounds in found.items():
        for k, x in enumerate(rounds[0] if rounds else ()):
            lines.append(summarize(size, build, x[0], [f[k] for f in rounds], names))
    if o.csv:
        with open(o.csv, "w") as f:
            f.write("# bench/real/scale.py --sizes %s --rounds %d --threads %d --minutes %g%s, %d processors, load %.1f\n" % (
                o.sizes, o.rounds, o.threads, o.minutes, (" --hosts" if o.hosts else "") + (" --turns " + o.turns if o.turns else "") + "".join(" " + k for k in o.keys), len(os.sched_getaffinity(0)), os.getloadavg()[0]))
            f.write("\n".join(lines) + "\n")
    return lines


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("weft")
    a.add_argument("--beside")
    a.add_argument("--turns", default="")
    a.add_argument("--hosts", action="store_true")
    a.add_argument("--sizes", default="tiny,large")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--threads", type=int, default=1, help="of a rank")
    a.add_argument("--minutes", type=float, default=8)
    a.add_argument("--csv")
    a.add_argument("keys", nargs="*")
    o = a.parse_args()
    builds = [(os.path.abspath(w), t) for w in (o.weft, o.beside) if w for t in o.turns.split(",")]
    names = HOST_PHASES if o.hosts else PHASES
    found = {(size, b): [] for size in o.sizes.split(",") for b in range(len(builds))}
    until, took, lines = time.monotonic() + 60 * o.minutes, {}, []
    for _ in range(o.rounds):
        for (size, b), rounds in found.items():
            begin = time.monotonic()
            if begin + took.get(size, 0) > until:
                continue
            with tempfile.TemporaryDirectory(prefix="weft-scale-") as folder:
                o.turn = [builds[b][1]] if builds[b][1] else []
                rounds.append((run_hosts if o.hosts else run)(o, builds[b][0], size, folder))
            took[size] = time.monotonic() - begin
            lines = write_table(o, found, names)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
