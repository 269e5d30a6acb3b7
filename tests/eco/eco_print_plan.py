"""--print-plan prints what the same command runs: micro_batch, lanes, recompute, the plan's shape and the memory of rank 0,
for weft train and weft run, at a start and on a resume, with and without plan=FILE.  And the comments of the shipped
examples are true."""
import json
import os
import re

from eco import SANITIZED, FAMILIES, ROOT, Scratch, check, end, same, small_job, tokens, u16, weft, words

REST = 64 << 20  # of a rank's memory by plan: what is not its program


def printed(what, args):
    r = weft(*args, "--print-plan")
    if not check(r.code == 0, "%s: %s" % (what, r)):
        return None
    return json.loads(r.out)


def shape(p):
    """What of a plan decides a run."""
    return {k: p.get(k) for k in ("mesh", "chunks", "schedule", "zero", "micro_batch", "lanes", "recompute",
                                  "lane_axis", "batch_split", "bucket_bytes", "stages", "marks")}


def ran(what, args, output):
    """What the run says and writes."""
    r = weft(*args)
    if not check(r.code == 0, "%s: %s" % (what, r)):
        return None
    m = re.search(r"memory \d+ bytes: state (\d+), work (\d+), staging (\d+)", r.err)
    check(m is not None, "%s: no memory line in %s" % (what, r.err))
    with open(os.path.join(output, "job.json")) as f:
        job = json.load(f)
    log = re.search(r"micro_batch (\d+), lanes (\d+)", r.err)
    same((int(log.group(1)), int(log.group(2))), (job["micro_batch"], job["lanes"]), what + ": log and job.json")
    chosen = re.search(r"plan: (\d+) ranks?, (.*): [0-9.e-]+ s a step predicted", r.err)
    return dict(job=job, memory=sum(int(x) for x in m.groups()), chosen=chosen and chosen.group(2))


def compare(what, args, output, again):
    """Prints, runs, prints the plan into a file, and runs that in another folder; again(file, output) gives the words."""
    p = printed(what, args)
    run = p and ran(what, args, output)
    if not run:
        return
    for key in ("micro_batch", "lanes", "recompute"):
        same(p[key], run["job"][key], "%s: %s printed, and run" % (what, key))
    memory = p.get("predicted", {}).get("mem_bytes")
    if memory:
        same(memory[0] - REST, run["memory"], what + ": memory printed, and run")
    if run["chosen"]:
        size = {x["axis"]: x["size"] for x in p["mesh"]}
        want = "tp=%d pp=%d dp=%d " % (size.get("tp", 1), len(p["stages"]) // p["chunks"], size.get("dp", 1))
        check(run["chosen"].startswith(want), "%s: %s is not the plan printed, %s" % (what, run["chosen"], want))
    if not again:
        return
    args, output = again
    file = output + ".json"
    with open(file, "w") as f:
        json.dump(p, f)
    args = [*args, "plan=" + file]
    q = printed(what + ", plan=FILE", args)
    if q:
        same(shape(q), shape(p), what + ": the plan printed from its own file")
    run2 = ran(what + ", plan=FILE", args, output)
    if run2:
        same(run2["memory"], run["memory"], what + ": memory with plan=FILE")
        same((run2["job"]["micro_batch"], run2["job"]["lanes"]), (p["micro_batch"], p["lanes"]),
             what + ": cut with plan=FILE")


JOBS = [dict(batch=8), dict(batch=8, micro_batch=2), dict(batch=8, micro_batch=2, lanes=1),
        dict(batch=8, micro_batch=1, recompute="full")]


def fresh_and_resumed(s):
    for i, keys in enumerate(JOBS[::2] if SANITIZED else JOBS):
        for ranks in (0, 2) if i % 2 == 0 else (0, 4):
            command = ["train"] if not ranks else ["run", "--nproc-per-node", str(ranks)]
            if keys.get("lanes") and ranks:
                continue
            what = "%s %s" % (" ".join(command), keys)
            out, other = s.path("out-%d-%d" % (i, ranks)), s.path("file-%d-%d" % (i, ranks))
            job = small_job(s, steps=2, output=out, **keys)
            on_file = [*command, *words(dict(job, output=other))]
            if keys.get("recompute"):
                on_file.remove("recompute=full")
            compare(what, [*command, *words(job)], out, (on_file, other))
            # on a resume, with as many ranks and with one
            compare(what + ", resumed", [*command, *words(dict(job, steps=3))], out, None)
            compare(what + ", resumed on one", ["train", *words(dict(job, steps=4))], out, None)


def keys_and_refusals(s):
    """Of a job's own keys; and what the run refuses, --print-plan refuses in the same words."""
    job = small_job(s, batch=8, steps=2, output=s.path("keys"))
    two = ["run", "--nproc-per-node", "2"]
    for more in (["dp=2"], ["plan=off"], ["pp=2", "micro_batch=2"], ["tp=2"]):
        compare("run " + " ".join(more), [*two, *words(dict(job, output=s.path("keys" + more[0]))), *more],
                s.path("keys" + more[0]), None)
    one = small_job(s, batch=8, steps=2, output=s.path("one"))
    check(weft("train", *words(one), "-q").code == 0, "one rank trains")
    for more in ([], ["dp=2"], ["optimizer.lr=0.5"], ["micro_batch=2"]):
        args = [*two, *words(dict(one, steps=4)), *more]
        a, b = weft(*args, "--print-plan"), weft(*args)
        same((a.code, b.code), (2, 2), "refused, printed and run: %s" % more)
        text = a.err.split("error: ")[-1]
        check(text and text in b.err, "%s: --print-plan says %s, the run %s" % (more, a.err, b.err))
    same(sorted(os.listdir(s.dir)).count("never"), 0, "nothing yet")
    check(weft(*two, *words(dict(job, output=s.path("never"))), "--print-plan").code == 0, "prints")
    check(not os.path.exists(s.path("never")), "--print-plan writes nothing")


def fewer_copies(s):
    """More copies than ranks: the planner's plan has as many as there can be, and the log says how many."""
    job = small_job(s, batch=8, steps=2, output=s.path("fewer"), recover="on", copies=3)
    for n in (2, 4):
        r = weft("run", "--nproc-per-node", str(n), *words(dict(job, output=s.path("fewer-%d" % n))))
        text = ("WARN copies is 3, and of some of the state there are 2" if n == 2 else "is in the memory of at least ")
        check(r.code == 0 and text in r.err, "copies: 3 on %d ranks: %s" % (n, r))


def guard_without_parameters(s):
    """A file whose last stage is the loss alone: it has no clipping scale, by which a replica of the first would be updated."""
    job = small_job(s, batch=8, steps=2, output=s.path("guard"), recover="on", copies=2)
    two = ["run", "--nproc-per-node", "2", *words(job)]
    plan = printed("pp=2 copies=2", [*two, "pp=2"])
    plan["stages"][1]["first"] = "loss_rows"
    r = weft(*two, "plan=" + s.write("loss-alone.json", json.dumps(plan)))
    check(r.code == 2 and "a stage without parameters of its own can hold no standby replica of another one: give it a layer" in r.err,
          "a stage without parameters: %s" % r)


def data_refusals(s):
    """What the run refuses for its data, --print-plan refuses in the same words."""
    job = small_job(s, batch=8, steps=2, output=s.path("never2"))
    text = s.write("a.txt", "text " * 400)
    other = s.write("other.bin", u16(tokens(4000, 97, 77)))
    one = dict(job, output=s.path("one2"))
    check(weft("train", *words(one), "-q").code == 0, "one rank trains")
    bert = os.path.join(FAMILIES, "bert")
    few = s.write("few.bin", u16(tokens(40, 97)))
    for what, keys, more in (("text", job, ["data=" + text]), ("a missing file", job, ["data=" + s.path("nowhere.bin")]),
                             ("a stream for BERT", job, ["model=" + bert, "seq=8"]),
                             ("a vocabulary", job, ["model=" + os.path.join(ROOT, "tests/fixtures/gpt2/init"), "seq=8"]),
                             ("eval.data missing", job, ["eval.data=" + s.path("nowhere.bin")]),
                             ("eval.data too short", job, ["eval.data=" + few]),
                             ("eval.data of a finished job", one, ["eval.data=" + other]),
                             ("other data", dict(one, steps=3), ["data=" + other])):
        for command in (["train"], ["run", "--nproc-per-node", "2", "plan=off"]):
            if keys is not job and len(command) > 1:
                continue
            args = [*command, *words(keys), *more]
            a, b = weft(*args, "--print-plan"), weft(*args)
            same((a.code, b.code), (2, 2), "%s, %s: printed and run: %s %s" % (command[0], what, a, b))
            error = a.err.split("error: ")[-1]
            check(error and error in b.err, "%s: --print-plan says %s, the run %s" % (what, a.err, b.err))
    check(not os.path.exists(s.path("never2", "job.json")), "nothing is written")


def examples(s):
    """examples/finetune.yaml: less memory with its micro_batch than with the whole batch; its model is a folder with weights."""
    s.write("train.bin", b"\x01\x00" * 4000)
    args = ["train", "examples/finetune.yaml", "model=gpt2", "data=" + s.path("train.bin"), "output=" + s.path("fine")]
    as_shipped, whole = printed("finetune", args), printed("finetune, whole batch", args + ["micro_batch=8"])
    two = printed("finetune, two lanes", args + ["lanes=2"])
    if as_shipped and whole and two:
        m, w, t = (x["predicted"]["mem_bytes"][0] for x in (as_shipped, whole, two))
        check(m < 0.85 * w, "finetune.yaml needs %d bytes with its micro_batch, %d with the whole batch" % (m, w))
        check(0.6e9 < t - m < 0.7e9, "a doubling of lanes costs %d bytes, not the 0.65 GB of the comment" % (t - m))
        same((as_shipped["micro_batch"], as_shipped["lanes"]), (2, 1), "finetune.yaml")
    with open(os.path.join(ROOT, "examples", "finetune.yaml")) as f:
        model = re.search(r"^model: (\S+)", f.read(), re.M).group(1)
    check("/" in model, "finetune.yaml: model %s reads as a folder, no preset" % model)
    folder = small_job(s, steps=1, output=s.path("first"))
    check(weft("train", *words(folder), "-q").code == 0, "a model to go on from")
    r = weft("train", "examples/finetune.yaml", "model=" + s.path("first/final"), "data=" + folder["data"], "seq=16",
             "steps=2", "output=" + s.path("tuned"))
    check(r.code == 0 and "weights from " in r.err, "finetune.yaml goes on from a folder's weights: %s" % r)
    r = weft("train", "examples/first.yaml", "steps=2", "lr_schedule.warmup=1", "output=" + s.path("ex1"))
    check(r.code == 0 and "eval_loss" in r.err and "WARN" not in r.err, "first.yaml: %s" % r)


with Scratch("print-plan") as s:
    fresh_and_resumed(s)
    keys_and_refusals(s)
    fewer_copies(s)
    guard_without_parameters(s)
    data_refusals(s)
    examples(s)
    end()
