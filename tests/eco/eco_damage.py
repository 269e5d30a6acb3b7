"""Damaged checkpoints block nothing and are reported, also under --quiet; what is not ours in the folder stays.

    flipped     one byte of each file of the newest checkpoint: the run goes on from the one before, saves, prunes, comes
                past the damaged one, and ends with the weights of an undisturbed run
    manifests   one that is empty, cut off, or of a step far ahead
    copied      a folder of a step without a manifest"""
import json
import os
import shutil

from eco import Scratch, check, end, read, same, small_job, train, weft, words

EVERY = dict(every=3, keep=2, wait=60)


def job_of(s, output, steps, **checkpoint):
    return small_job(s, steps=steps, output=output, checkpoint=checkpoint or EVERY)


def flip(path, at):
    data = bytearray(read(path))
    data[at if at >= 0 else len(data) + at] ^= 16
    with open(path, "wb") as f:
        f.write(data)


def goes_on(s, out, whole, damaged, first, what):
    """All that is left of the job; the damage is said and counted."""
    r = weft("train", *words(job_of(s, out, 14)), "--json", "--quiet")
    if not check(r.code == 0, "%s: %s" % (what, r)):
        return
    result = json.loads(r.out)
    same(result["weights_xxh64"], whole["weights_xxh64"], what + ": weights")
    same(result["resumed_from"], first, what + ": resumed from")
    same(result["damaged_checkpoints"], damaged, what + ": damaged_checkpoints")
    for step in damaged:
        same(r.err.count("CHECKPOINT OF STEP %d IS DAMAGED" % step), 1, what + ": said once")
    again = weft("train", *words(job_of(s, out, 14)), "--json", "--quiet")
    check(again.code == 0, "%s: again: %s" % (what, again))


def flipped(s, good, whole):
    for name, at in (("model.safetensors", -5), ("optimizer.safetensors", -5), ("state.json", 20),
                     ("config.json", 3)):
        out = s.path("flipped-" + name)
        shutil.copytree(good, out)
        flip(os.path.join(out, "checkpoints", "step-00000010", name), at)
        goes_on(s, out, whole, [10], 5, name)
        v = weft("ckpt", "verify", os.path.join(out, "checkpoints"))
        check(v.code == 0, "%s: the damaged one is gone: %s%s" % (name, v, v.out))


def manifests(s, good, whole):
    for name, damaged, first, change in (
            ("empty", [99999999], 10, lambda d: open(os.path.join(d, "MANIFEST-99999999"), "w").close()),
            ("cut off", [10], 5, lambda d: os.truncate(os.path.join(d, "MANIFEST-00000010"), 40)),
            ("both", [99999999, 10], 5, lambda d: (open(os.path.join(d, "MANIFEST-99999999"), "w").close(),
                                                   flip(os.path.join(d, "MANIFEST-00000010"), 30)))):
        out = s.path("manifest-" + name.replace(" ", "-"))
        shutil.copytree(good, out)
        change(os.path.join(out, "checkpoints"))
        goes_on(s, out, whole, damaged, first, "a manifest, " + name)


def copied(s, good, whole):
    out = s.path("copied")
    shutil.copytree(good, out)
    folder = os.path.join(out, "checkpoints", "step-00000007")
    shutil.copytree(os.path.join(out, "checkpoints", "step-00000005"), folder)
    before = sorted((n, read(os.path.join(folder, n))) for n in os.listdir(folder))
    r = weft("train", *words(job_of(s, out, 14)), "--json", "--quiet")
    check(r.code == 0, "copied: %s" % r)
    check("step-00000007: no manifest names this folder" in r.err, "copied: said: %r" % r.err)
    check(os.path.isdir(folder), "copied: it is there")
    same(sorted((n, read(os.path.join(folder, n))) for n in os.listdir(folder)), before, "copied: its files")


with Scratch("damage") as s:
    good = s.path("good")
    whole = train(job_of(s, s.path("whole"), 14))
    if train(job_of(s, good, 10, every=5, keep=2, wait=60)) and whole:
        flipped(s, good, whole)
        manifests(s, good, whole)
        copied(s, good, whole)
    end()
