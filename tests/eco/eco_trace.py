"""--trace: JSON that Perfetto and Chrome open.  Events carry what the format asks for, those of one thread
lie in one another or apart, never half across, and together they cover the step that metrics.jsonl timed."""
import json

from eco import Scratch, check, end, metrics, reference_job, small_job, train, weft, words


def lanes(events):
    """Events by (process, thread)."""
    out = {}
    for e in events:
        out.setdefault((e["pid"], e["tid"]), []).append(e)
    return out


def nests(events, what):
    open_until = []
    for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        while open_until and open_until[-1] <= e["ts"] + 1e-6:
            open_until.pop()
        if open_until and not check(e["ts"] + e["dur"] <= open_until[-1] + 1e-3,
                                    "%s: %s at %g reaches out of what it lies in" % (what, e["name"], e["ts"])):
            return
        open_until.append(e["ts"] + e["dur"])


def covered(events):
    """Microseconds in which some event runs, and from the first to the last."""
    busy, at = 0.0, min(e["ts"] for e in events)
    begin = at
    for e in sorted(events, key=lambda e: e["ts"]):
        a, b = max(at, e["ts"]), e["ts"] + e["dur"]
        if b > a:
            busy += b - a
            at = b
    return busy, at - begin


def look(path, row, what):
    with open(path) as f:
        t = json.load(f)
    all_events = t["traceEvents"] if isinstance(t, dict) else t
    events = [e for e in all_events if e["ph"] == "X"]
    if not check(len(events) > 10, what + ": %d events" % len(events)):
        return
    for e in all_events:
        if not check("ph" in e and "pid" in e and "name" in e, "%s: %r" % (what, e)):
            return
    for e in events:
        good = isinstance(e["name"], str) and e["ts"] >= 0 and e["dur"] >= 0
        if not check(good and isinstance(e["tid"], int), "%s: %r" % (what, e)):
            return
    for k, lane in lanes(events).items():
        nests(lane, "%s, thread %s" % (what, k))
    named = [e for e in all_events if e["ph"] == "M"]
    check(any(e["name"] in ("process_name", "thread_name") for e in named), what + ": rows have names")
    busy, span = covered(events)
    step = 1e3 * row["step_ms"]
    return (span <= 1.05 * step + 200 and busy >= 0.8 * step - 300,
            "%s: events cover %g us of %g us in a step of %g us" % (what, busy, span, step))


def flows(events):
    """Messages by (what, micro-batch): when the sends began and the receives ended."""
    out = {}
    for e in events:
        if e["cat"] in ("send", "recv"):
            out.setdefault((e["name"], e["args"]["micro"]), {}).setdefault(e["cat"], []).append(e)
    return out


def look_ranks(path, row, what, n):
    """One file of n ranks on a common clock: all of one step, no message arrives before it was sent."""
    with open(path) as f:
        events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
    ranks = sorted({e["pid"] for e in events})
    if not check(ranks == list(range(n)), "%s: ranks %s" % (what, ranks)):
        return
    for k, lane in lanes(events).items():
        nests(lane, "%s, rank and thread %s" % (what, k))
    check(all(e["ts"] >= 0 for e in events), what + ": nothing before zero")
    pairs = 0
    for key, by in flows(events).items():
        if len(by) != 2:
            continue
        for got in by["recv"]:
            sent = min(e["ts"] for e in by["send"])
            pairs += 1
            if not check(got["ts"] + got["dur"] >= sent, "%s: %s arrived before it was sent" % (what, key)):
                return
    check(pairs > 0, what + ": messages are told")
    begin, finish = min(e["ts"] for e in events), max(e["ts"] + e["dur"] for e in events)
    step = 1e3 * row["step_ms"]
    check(finish - begin <= 3 * step + 1e6, "%s: ranks lie %g us apart in a step of %g us" %
          (what, finish - begin, step))


with Scratch("trace") as s:
    jobs = [(m, reference_job(m)) for m in ("gpt2", "mixtral", "bert")]
    jobs.append(("micro-batches", small_job(s, micro_batch=1)))
    for name, job in jobs:
        for attempt in range(8):  # a busy machine may take the processor away between two events
            out, path = s.path("%s-%d" % (name, attempt)), s.path(name + ".json")
            fits = train(dict(job, steps=3, output=out), "--trace", path) and \
                look(path, metrics(out)[-1], name)
            if not fits or fits[0]:
                break
        if fits:
            check(*fits)
    out, path = s.path("ranks"), s.path("ranks.json")
    job = small_job(s, micro_batch=1, lanes=2, steps=3, threads=1, dp=2, pp=2, output=out)
    r = weft("run", "--nproc-per-node", "4", *words(job), "--trace", path, "--quiet")
    if check(r.code == 0, str(r)):
        look_ranks(path, metrics(out)[-1], "ranks", 4)
    end()
