"""A real full disk: small file systems in memory, each a little larger than the last, so that the room runs
out in metrics, events, checkpoints and final/.  A line for each checkpoint that was given up, exit code 1 and one
line of what ended the run; what was saved still loads; with more
room the same command goes on to the weights of an undisturbed run.  Needs root, to mount.

    WEFT_FAULT_SIZES  how many sizes (8)"""
import os
import subprocess

from eco import Scratch, check, end, metrics, same, skip, small_job, steps_of, train, weft, words

SIZES = int(os.environ.get("WEFT_FAULT_SIZES", "8"))
STEPS = 5


def mount(where, kib):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=%dk" % kib, "weft-eco", where],
                          stderr=subprocess.DEVNULL).returncode == 0


def resize(where, kib):
    subprocess.run(["mount", "-o", "remount,size=%dk" % kib, where], check=True)


def job_of(s, output):
    return small_job(s, steps=STEPS, checkpoint=dict(every=1, keep=2, wait=60), output=output)


def filled(s, where, kib, whole):
    what = "%d KiB" % kib
    job = job_of(s, os.path.join(where, "out"))
    r = weft("train", *words(job), "--json", "--quiet")
    if r.code == 0:
        return False
    same(r.code, 1, what + ": exit code")
    lines = r.err.splitlines()
    check(lines and "error: " in lines[-1] and all("No space left" in x for x in lines), "%s: %r" % (what, r.err))
    check(all("was given up: " in x for x in lines[:-1]), "%s: %r" % (what, r.err))
    top = os.path.join(where, "out", "checkpoints")
    saved = sorted(f for f in os.listdir(top) if f.startswith("MANIFEST")) if os.path.isdir(top) else []
    if any(not f.endswith(".tmp") for f in saved):
        v = weft("ckpt", "verify", top)
        check(v.code == 0, "%s: %s" % (what, v))
    resize(where, 16384)
    after = train(job)
    if after:
        same(after["weights_xxh64"], whole[0], what + ": weights")
        same([m["loss"] for m in metrics(job["output"])], whole[1], what + ": losses")
        same(steps_of(job["output"]), list(range(1, STEPS + 1)), what + ": steps")
        check(after["resumed_from"] > 0 or not saved, "%s: resumes where %s was saved" % (what, saved))
    print("%s: stopped with %s, went on from step %s" % (
        what, saved or "no checkpoint", after and after["resumed_from"]))
    return True


with Scratch("disk") as s:
    os.makedirs(s.path("disk"))
    if os.geteuid() != 0 or not mount(s.path("disk"), 16384):
        skip("only root may mount a small file system")
    subprocess.run(["umount", s.path("disk")], check=True)
    r = train(job_of(s, s.path("whole")))
    if r:
        whole = r["weights_xxh64"], [m["loss"] for m in metrics(s.path("whole"))]
        need = 1300  # three checkpoints at a time and final/, in KiB
        full = 0
        for i in range(SIZES):
            if not check(mount(s.path("disk"), 8 + need * i // SIZES), "mount"):
                break
            try:
                full += filled(s, s.path("disk"), 8 + need * i // SIZES, whole)
            finally:
                subprocess.run(["umount", s.path("disk")], check=True)
        check(full >= SIZES // 2, "%d of %d disks were full" % (full, SIZES))
    end()
