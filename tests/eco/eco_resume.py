"""A resume on other ranks: it goes on, or is refused in one line with a command that works.

    ranks      a job that began on one rank without micro_batch goes on with 2 and 4 ranks by the command that the error names
    remedies   every remedy of a table of refusals is followed, and works
    history    what --allow changed is in the log, in state.json and in weft ckpt ls; older checkpoints are read
    reduction  auto keeps the checkpoint's, fixed sums take more ranks than lanes
    pipeline   ranks that would compute sequentially are refused at a start, too
    eval       a request for evaluation that evaluates nothing is refused"""
import json
import os
import re
import shlex

from eco import SANITIZED, Scratch, check, end, metrics, read, same, small_job, tokens, u16, weft, words


def run(n, job, *more):
    return weft("run", "--nproc-per-node", str(n), *words(job), *more)


def refused(r, what, *texts):
    lines = [x for x in r.err.splitlines() if "error: " in x]
    same((r.code, len(lines)), (2, 1), "%s is refused in one line: %s" % (what, r))
    for t in texts:
        check(t in r.err, "%s: no '%s' in %s" % (what, t, r.err))


def follow(r, what):
    """Runs the command that an error names: 'weft run ... --allow lanes,micro_batch'."""
    m = re.search(r"; (weft (?:run|train) .*?) goes on with micro_batch (\d+) and lanes (\d+)", r.err)
    if not check(m is not None, "%s names no command: %s" % (what, r)):
        return None
    r = weft(*shlex.split(m.group(1))[1:])
    check(r.code == 0, "%s: the command it names fails: %s" % (what, r))
    check("micro_batch %s, lanes %s," % (m.group(2), m.group(3)) in r.err, "%s: %s" % (what, r))
    return r


def state(output):
    steps = sorted(x for x in os.listdir(output + "/checkpoints") if x.startswith("step-"))
    return json.loads(read(output + "/checkpoints/" + steps[-1] + "/state.json"))


def ranks(s):
    job = small_job(s, batch=8, steps=2, output=s.path("grow"))
    one = weft("train", *words(job))
    check(one.code == 0 and "micro_batch 8, lanes 1," in one.err, "one rank: %s" % one)
    job["steps"] = 4
    r = run(2, job)
    refused(r, "two ranks", "step-00000002: 2 ranks would compute sequentially", "on one rank", "--allow lanes,micro_batch goes on",
            "--nproc-per-node 1 works as it is", "--fresh starts anew")
    check(weft("run", "--nproc-per-node", "1", *words(dict(job, steps=3)), "-q").code == 0, "one rank works as it is")
    r = follow(r, "two ranks")
    check(r and "dp=2" in r.err and "lanes 2," in r.err, "two ranks are data parallel: %s" % r)
    check(r and "WARN micro_batch is 4 and lanes 2 from step 4 on, before they were 8 and 1 (--allow)" in r.err, "the change is logged: %s" % r)
    job["steps"] = 6
    r = run(4, job)
    refused(r, "four ranks", "4 ranks would compute sequentially", "--nproc-per-node 2 works as it is")
    check(run(2, dict(job, steps=5), "-q").code == 0, "two ranks work as it is")
    follow(r, "four ranks")
    same([m["step"] for m in metrics(job["output"])], [1, 2, 3, 4, 5, 6], "metrics")
    history = [{"step": 3, "key": "micro_batch", "from": 8, "to": 4}, {"step": 3, "key": "lanes", "from": 1, "to": 2},
               {"step": 5, "key": "micro_batch", "from": 4, "to": 2}, {"step": 5, "key": "lanes", "from": 2, "to": 4}]
    same(state(job["output"])["history"], history, "history")
    same(state(job["output"])["format"], 2, "format with a history")
    # back to one rank, with --allow given for nothing: it changes nothing where ranks can work
    r = weft("train", *words(dict(job, steps=7)), "--allow", "lanes,micro_batch")
    check(r.code == 0 and "WARN" not in r.err and "micro_batch 2, lanes 4," in r.err, "one rank again: %s" % r)
    same(state(job["output"])["history"], history, "history, kept")
    r = weft("ckpt", "ls", job["output"])
    check("from step 4 on: micro_batch 4 (was 8)\n" in r.out and "from step 6 on: lanes 4 (was 2)\n" in r.out,
          "weft ckpt ls: %s" % r.out)
    r = weft("ckpt", "ls", job["output"], "--json")
    same(json.loads(r.out)[0]["history"], history, "weft ckpt ls --json")
    check(weft("ckpt", "verify", job["output"]).code == 0, "verify")


def history(s):
    """Losses go on as they would have: the sum of a batch in another order.  And a state of format 1 is read."""
    job = small_job(s, batch=8, steps=4, output=s.path("kept"))
    check(weft("train", *words(job), "-q").code == 0, "kept")
    same((state(job["output"])["format"], "history" in state(job["output"])), (1, False), "without a change, format 1")
    other = dict(job, output=s.path("changed"), steps=2)
    check(weft("train", *words(other), "-q").code == 0, "changed")
    check(run(2, dict(other, steps=4), "-q", "--allow=lanes,micro_batch").code == 0, "from format 1 to 2")
    for a, b in zip(metrics(job["output"]), metrics(other["output"])):
        check(abs(a["loss"] - b["loss"]) < 1e-4, "step %d: %g and %g" % (a["step"], a["loss"], b["loss"]))


# words that begin a job on one rank, ranks of the resume, its words, what the refusal says
REFUSED = [
    ([], 2, ["dp=2"], "dp=2 is more than the job's 1 lane"),
    ([], 2, ["plan=off"], "dp=2 is more than the job's 1 lane"),
    ([], 2, ["dp=2", "micro_batch=4"], "micro_batch is 8 there and 4 here"),
    ([], 2, ["batch_split=1,1"], "dp=2 is more than the job's 1 lane"),
    ([], 1, ["micro_batch=4"], "micro_batch is 8 there and 4 here"),
    ([], 1, ["micro_batch=4", "lanes=2"], "lanes is 1 there and 2 here"),
    (["micro_batch=2", "lanes=1"], 2, ["dp=2"], "dp=2 is more than the job's 1 lane"),
    (["micro_batch=2", "lanes=2"], 1, ["micro_batch=2", "lanes=4"], "lanes is 2 there and 4 here"),
    (["micro_batch=2", "lanes=2"], 1, ["micro_batch=8"], "micro_batch is 2 there and 8 here"),
    (["micro_batch=8"], 2, ["micro_batch=8"], "2 ranks would compute sequentially"),
    ([], 4, ["dp=2", "pp=2"], "dp=2 is more than the job's 1 lane"),
]


def remedies(s):
    for i, (begin, n, more, text) in enumerate(REFUSED[::6] if SANITIZED else REFUSED):
        job = small_job(s, batch=8, steps=1, output=s.path("r%d" % i))
        what = "%s, then %d ranks with %s" % (begin, n, more)
        check(weft("train", *words(job), *begin, "-q").code == 0, what)
        job["steps"] = 2
        r = run(n, job, *more) if n > 1 else weft("train", *words(job), *more)
        refused(r, what, text)
        follow(r, what)
    # keys that --allow does not know: the value named goes on
    job = small_job(s, steps=1, output=s.path("lr"), batch=4)
    check(weft("train", *words(job), "-q").code == 0, "lr")
    job["steps"] = 2
    for key, value in (("optimizer.lr", "0.5"), ("seed", "3"), ("batch", "8"), ("optimizer.betas", "[0.5,0.6]"),
                       ("lr_schedule.name", "cosine"), ("reduction", "fixed")):
        r = weft("train", *words(job), key + "=" + value, "--allow", "lanes,micro_batch")
        refused(r, key, "is of another job: %s is" % key, "--fresh starts anew")
        m = re.search(r"here; (.*) goes on, --fresh", r.err)
        if check(m is not None, "%s: no remedy: %s" % (key, r.err)):
            r = weft("train", *words(job), key + "=" + value, *shlex.split(m.group(1)), "--print-plan")
            check(r.code == 0, "%s: the remedy fails: %s" % (key, r))
    bad_words = ("lr", "lanes,", "", "lanes;micro_batch", "micro-batch")
    for bad in bad_words[:2] if SANITIZED else bad_words:
        for command in (["train"], ["run", "--nproc-per-node", "2"]):
            r = weft(*command, *words(job), "--allow", bad)
            refused(r, "--allow '%s'" % bad, "lanes, micro_batch", "'%s'" % bad.split(",")[-1])


# a start that is refused, what it says, the remedy as words
AT_START = [
    (2, ["micro_batch=8", "dp=2"], "set lanes to at least 2 (and micro_batch to at most 4)", ["lanes=2", "micro_batch=4"]),
    (2, ["batch=1", "pp=2"], "batch 1 is no multiple of 2 (dp * pp); set micro_batch", ["micro_batch=1"]),
    (4, ["batch=6", "dp=4"], "batch 6 is no multiple of 4 (dp * pp); set micro_batch", ["micro_batch=1"]),
    (4, ["batch=2", "dp=4"], "take a larger one, fewer ranks", ["batch=4"]),
    (4, ["batch=2", "dp=4"], "or tp, cp or pp for some of them", ["dp=2", "tp=2"]),
    (2, ["dp=4"], "makes 4 ranks, but there are 2; weft run --nproc-per-node 4", ["dp=2"]),
    (2, ["mesh=tp=2"], "parallel sizes are plain keys now: dp=2 tp=2", None),
    (2, ["lanes=4", "micro_batch=8"], "lanes 4 is more than the 1 micro-batch of a step; set micro_batch to at most 2", ["micro_batch=2"]),
]


def starts(s):
    """Remedies of refusals that no checkpoint has to do with.  And lanes alone are enough: micro_batch follows."""
    for more in (["dp=2"], ["plan=off"], []):
        r = run(2, small_job(s, steps=1, batch=8, output=s.path("lanes%d" % len("".join(more)))), "lanes=4", *more)
        check(r.code == 0 and "micro_batch 2, lanes 4," in r.err, "lanes=4 %s: %s" % (more, r))
    for i, (n, keys, text, remedy) in enumerate(AT_START[::4] if SANITIZED else AT_START):
        job = small_job(s, steps=1, batch=8, output=s.path("s%d" % i))
        r = run(n, job, *keys)
        refused(r, " ".join(keys), text)
        check(not os.path.exists(job["output"]), "a refused start leaves nothing")
        r = run(n, job, *(keys + remedy if remedy else ["tp=2"]), "-q")
        check(r.code == 0, "%s: the remedy %s fails: %s" % (keys, remedy, r))


def few_changes(s):
    """Only the keys that have to change do, and only those have to be allowed."""
    job = small_job(s, batch=8, steps=1, output=s.path("fewest"))
    check(weft("train", *words(job), "micro_batch=2", "lanes=1", "-q").code == 0, "fewest")
    r = run(4, dict(job, steps=2), "dp=4")
    refused(r, "four ranks, one lane", "--allow lanes goes on with micro_batch 2 and lanes 4")
    follow(r, "four ranks, one lane")
    same(state(job["output"])["history"], [{"step": 1, "key": "lanes", "from": 1, "to": 4}], "lanes alone change")


def plan_files(s):
    """A plan file cuts the batch too: with --allow a resume goes on under it."""
    job = small_job(s, batch=8, steps=1, output=s.path("pf"))
    check(weft("train", *words(job), "-q").code == 0, "pf")
    p = run(2, dict(job, output=s.path("elsewhere")), "--print-plan")
    s.write("two.json", p.out)
    job = dict(job, steps=2, plan=s.path("two.json"))
    r = run(2, job)
    refused(r, "plan=FILE", "micro_batch is 8 there and 4 here, lanes is 1 there and 2 here")
    follow(r, "plan=FILE")
    # a file that is not for the job: with the value that the error names it is
    new = dict(job, output=s.path("named"), steps=1)
    for key, value in (("micro_batch", "2"), ("lanes", "1"), ("batch", "16"), ("seq", "8"), ("recompute", "full")):
        r = run(2, dict(new, **{key: value}))
        m = re.search(r"; set (%s=\S+?)(,|\n)" % key, r.err)
        if check(r.code == 2 and m is not None, "plan=FILE with %s=%s: %s" % (key, value, r)):
            r = run(2, dict(new, **{key: value}, output=s.path("named-" + key)), m.group(1), "-q")
            check(r.code == 0, "plan=FILE: the remedy %s fails: %s" % (m.group(1), r))
    r = weft("train", *words(new))
    refused(r, "plan=FILE of two ranks on one", "weft run --nproc-per-node 2 starts them")
    check(weft("run", "--nproc-per-node", "2", *words(new), "-q").code == 0, "the remedy works")


def pipeline(s):
    for keys, text in ((dict(batch=1), None), (dict(batch=8, micro_batch=8), "micro_batch=4 lanes=2 lets them share a step")):
        job = small_job(s, steps=1, output=s.path("p%d" % len(keys)), **keys)
        r = run(2, job)
        refused(r, "a start with %s" % keys, "2 ranks would compute sequentially", "--nproc-per-node 1 works as it is")
        check(not os.path.exists(job["output"]), "a refused start leaves nothing")
        if text:
            check(text in r.err, "no remedy: %s" % r.err)
            check(run(2, job, "micro_batch=4", "lanes=2", "-q").code == 0, "the remedy works")
        else:
            check("lets them share" not in r.err and run(1, job, "-q").code == 0, "one rank works: %s" % r.err)
    # a batch that can be split is data parallel
    r = run(2, small_job(s, steps=1, batch=2, output=s.path("split")))
    check(r.code == 0 and "micro_batch 1, lanes 2," in r.err, "two sequences on two ranks: %s" % r)
    # who asks for a pipeline by its key gets it
    check(run(2, small_job(s, steps=1, batch=1, output=s.path("asked")), "pp=2", "micro_batch=1", "-q").code == 0, "pp=2")


def reduction(s):
    """auto is what the checkpoint has; with fixed sums more ranks than lanes go on without --allow, and the log says so."""
    job = small_job(s, batch=8, micro_batch=1, steps=2, plan="off", output=s.path("fixed"))
    check(weft("train", *words(job), "reduction=fixed", "-q").code == 0, "fixed on one rank")
    r = run(2, dict(job, steps=3), "dp=2", "zero=2")
    check(r.code == 0 and "WARN lanes is 2 from step 3 on, before it was 1 (reduction: fixed)" in r.err, "two ranks: %s" % r)
    refused(run(2, dict(job, steps=4), "dp=2", "zero=2", "reduction=invariant"), "invariant after fixed",
            'reduction is "fixed" there and "invariant" here')
    job["output"] = s.path("invariant")
    check(weft("train", *words(job), "-q").code == 0, "invariant on one rank")
    refused(run(2, dict(job, steps=3), "dp=2"), "more ranks than lanes", "dp=2 is more than the job's 1 lane", "--allow lanes goes on")


def evaluation(s):
    job = small_job(s, steps=2, output=s.path("eval"))
    check(weft("train", *words(job), "-q").code == 0, "eval")
    data = ["eval.data=" + job["data"], "eval.batches=2"]
    refused(weft("train", *words(job), *data), "a finished job", "all 2 steps are done", "evaluation alone does not exist")
    refused(run(2, job, "dp=2", *data), "a finished job on two ranks", "evaluation alone does not exist")
    check(weft("train", *words(job)).code == 0, "without eval.data a finished job ends well")
    check(weft("train", *words(job), *data, "eval=null").code == 0, "nor does it with the remedy named")
    r = weft("train", *words(dict(job, steps=3)), *data, "--json", "-q")
    loss = json.loads(r.out)["eval_loss"]
    r = weft("train", *words(dict(job, steps=3)), *data, "--json", "-q")
    same((r.code, json.loads(r.out).get("eval_loss")), (0, loss), "the same evaluation again: its result")
    refused(weft("train", *words(dict(job, steps=3)), data[0], "eval.batches=3"), "another evaluation", "all 3 steps")
    # the file decides, not its name
    held = s.write("held.bin", u16(tokens(700, 97, 11)))
    four = [*words(dict(job, steps=4)), "eval.data=" + held, "eval.batches=2"]
    check(weft("train", *four, "-q").code == 0, "a fourth step")
    r = weft("train", *four)
    check(r.code == 0 and "is that of step 4, evaluated before on the same data" in r.err, "an old number is named: %s" % r)
    moved = s.write("moved.bin", u16(tokens(700, 97, 11)))
    check(weft("train", *four, "eval.data=" + moved).code == 0, "the same tokens elsewhere")
    s.write("held.bin", u16(tokens(700, 97, 12)))
    refused(weft("train", *four), "a changed evaluation file", "all 4 steps", "evaluation alone does not exist")
    check(weft("train", *four, "--print-plan").code == 2, "so does --print-plan")
    new = dict(job, output=s.path("never"))
    refused(weft("train", *words(new), "eval.every=2"), "every without data", "eval.every is given without eval.data")
    refused(weft("train", *words(new), "eval.batches=2"), "batches without data", "eval.batches is given without eval.data")
    few = s.write("few.bin", u16(tokens(16 * 3 + 1, 97)))
    refused(weft("train", *words(new), "eval.data=" + few), "less than a batch", "has 3 sequences of 16 tokens, less than a batch of 4")
    some = s.write("some.bin", u16(tokens(16 * 9 + 1, 97)))
    a = weft("train", *words(dict(job, output=s.path("e8"))), "eval.data=" + some)
    b = weft("train", *words(dict(job, output=s.path("e2"))), "eval.data=" + some, "eval.batches=2")
    check("some.bin has 2 batches of 4 sequences, not the 8 of eval.batches" in a.err and a.code == 0, "warned: %s" % a)
    check("WARN" not in b.err, "enough batches: %s" % b)
    loss = [re.findall(r"eval_loss +(\S+)", x.out) for x in (a, b)]
    check(loss[0] == loss[1] and len(loss[0]) == 1, "no batch counts twice: %s %s" % (a, b))


with Scratch("resume") as s:
    ranks(s)
    history(s)
    remedies(s)
    starts(s)
    few_changes(s)
    if not SANITIZED:  # more refusals and their remedies
        plan_files(s)
        pipeline(s)
    reduction(s)
    evaluation(s)
    end()
