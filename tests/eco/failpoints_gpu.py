"""Failpoints of states on GPUs (eco_failpoints.py): snapshots on their way to the memory of the own host and of another one, what is read
back, states of replicas.  The job goes on, losses and weights are bit by bit those of one undisturbed rank, and at most
snapshot_every committed steps are run again.  Over the driver and the libraries without a GPU of tests/cuda/stub.

Those of the second copy have a third action: all of the host is killed, and its shards come from the other one."""
import os
import time

from eco import WEFT, check, same, small_model, tokens, u16, words
import eco_hosts
from eco_views import Job, bits, children, gone, incidents

BUILD = os.path.dirname(WEFT)
IS_BUILT = os.path.exists(os.path.join(BUILD, "libweft_cuda.so"))
STUB = dict(LD_LIBRARY_PATH=os.path.join(BUILD, "stub_gpu"), WEFT_CUDA_LIBS=os.path.join(BUILD, "cuda_stub"))
STEPS, EVERY = 24, 3
KEYS = {"seq": 8, "batch": 8, "micro_batch": 2, "lanes": 4, "steps": STEPS, "seed": 5, "dropout": True, "device": "cuda", "plan": "off",
        "init": "random", "share_gpu": True, "reduction": "invariant", "optimizer.name": "adamw", "optimizer.lr": 3e-3,
        "optimizer.clip": 1.0}
LOSS = "step.begin:kill:rank=1:nth=6"
SLOW = "snapshot.piece_down:delay=40:nth=every"  # a snapshot is under way when the state changes, most times
# keys, a fault before it, delays, hosts
SCENES = {
    "shards": (dict(dp=2, zero=1), "", "", 1),
    "shards-slow": (dict(dp=2, zero=1), "", SLOW, 1),
    "shards-lost": (dict(dp=2, zero=1), LOSS, "", 1),
    "replica-lost": (dict(dp=2), LOSS, "", 1),
    "two-hosts": (dict(dp=2, zero=1), "", "", 2),
}
ANY = (0, 1)
# name: (scene, ranks that get there, the last of its times to draw from)
POINTS = {
    "snapshot.begin": ("shards", ANY, 4),
    "snapshot.started": ("shards", ANY, 4),
    "snapshot.buffer": ("shards", ANY, 4),
    "snapshot.piece_down": ("shards", ANY, 4),
    "snapshot.copied": ("shards-slow", ANY, 12),
    "snapshot.await": ("shards", ANY, 4),
    "snapshot.awaited": ("shards", ANY, 4),
    "snapshot.whole": ("shards", ANY, 4),
    "snapshot.marked": ("shards", ANY, 4),
    "snapshot.look": ("shards-lost", ANY, 1),
    "snapshot.found": ("shards-lost", ANY, 1),
    "snapshot.read": ("shards-lost", ANY, 1),
    "snapshot.piece_up": ("shards-lost", ANY, 1),
    "snapshot.filled": ("shards-lost", ANY, 1),
    "snapshot.forget": ("shards-lost", ANY, 1),
    "replica.offered": ("replica-lost", ANY, 1),
    "replica.copy": ("replica-lost", ANY, 1),
    "replica.copied": ("replica-lost", ANY, 1),
    "far.guards": ("two-hosts", (1,), 1),
    "far.send": ("two-hosts", ANY, 4),
    "far.chunk_sent": ("two-hosts", ANY, 8),
    "far.sent": ("two-hosts", ANY, 4),
    "far.receive": ("two-hosts", ANY, 4),
    "far.chunk_received": ("two-hosts", ANY, 8),
    "far.received": ("two-hosts", ANY, 4),
    "far.kept": ("two-hosts", ANY, 4),
}


def actions(name):
    return ("kill", "delay=150", "host") if POINTS[name][0] == "two-hosts" else ("kill", "delay=150")


def find_keys(scratch):
    model = small_model(scratch, "model-gpu", n_embd=16, n_layer=2, vocab_size=33, n_positions=16, resid_pdrop=0.1, embd_pdrop=0.1)
    keys = dict(KEYS, model=model, data=scratch.write("tokens-gpu.bin", u16(tokens(600, 33))))
    return dict(x.split("=", 1) for x in words(keys))


def run_plain(scratch):
    job = Job(1, find_keys(scratch), scratch.path("gpu-reference"), env=STUB)
    result, text = job.end()
    check(result is not None, "undisturbed on the GPU: " + text)
    return result and result["weights_xxh64"], bits(job.output)


class Hosts(eco_hosts.Job):
    """A rank on each of two hosts; where one is lost the other goes on, by the register in a folder.  While the first is alone its
    steps take long, so that most steps are those of both."""

    def __init__(self, scratch, name, keys, env):
        eco_hosts.PLANS[name] = (1, {})
        self.alone = scratch.write(name + "-alone", b"")
        env = dict(env, WEFT_FAILPOINT=env["WEFT_FAILPOINT"] + ",step.begin:delay=300:nth=every:while=" + self.alone)
        super().__init__(scratch, name, name, "1:2", ["--failure-timeout", "2"], 2, dict(STUB, WEFT_GPU_COMM="nccl", **env),
                         "file:" + scratch.path(name + "-register"), **keys)

    def command(self, number):
        return ["env", "WEFT_STUB_MACHINE=%d" % number, "NCCL_HOSTID=%d" % number]


def check_again(found, what):
    for i in found:
        if i["next_step"] < STEPS:
            check(i["step"] + 1 - i["next_step"] <= EVERY, "%s: more than %d steps are run again: %r" % (what, EVERY, i))


def run_hosts(scratch, name, keys, env, action, rank, what):
    """Its result, processes, incidents and text; codes of agents are looked at."""
    job = Hosts(scratch, name, {k: v for k, v in keys.items() if k != "plan"}, env)
    check(job.await_text(job.agents[0], ": 2 hosts"), what + ": no two hosts")
    os.remove(job.alone)
    pids = sum((children(a.p.pid) for a in job.agents), [])
    codes = job.end()
    lost = action == "host"
    check(sorted(codes) == ([-9, 0] if lost else [0, 0]), "%s: codes %r\n%s" % (what, codes, job.text))
    return job, job.result, pids, job.text


def run_ranks(scratch, name, keys, env):
    job = Job(2, keys, scratch.path(name), "--failure-timeout", "5", env=dict(STUB, WEFT_GPU_COMM="peer", **env))
    job.await_step(1)
    pids = children(job.p.pid)
    result, text = job.end()
    return job, result, pids, text


def hit(scratch, k, name, action, draw, reference):
    """One run, as eco_failpoints.hit()."""
    scene, ranks, most = POINTS[name]
    keys, before, slow, n_host = SCENES[scene]
    rank, nth = draw.choice(ranks), draw.randint(1, most)
    entry = "%s:%s:rank=%d:nth=%d" % (name, action, rank, nth)
    what = "%d %s (%s)" % (k, entry, scene)
    once, begin = scratch.path("gpu-once-%d" % k), time.monotonic()
    env = dict(WEFT_FAILPOINT=",".join(filter(None, (before, slow, entry))), WEFT_FAILPOINT_ONCE=once)
    keys = dict(find_keys(scratch), **keys, recover="on", snapshot_every=EVERY)
    if n_host > 1:
        job, result, pids, text = run_hosts(scratch, "gpu-%d" % k, keys, env, action, rank, what)
    else:
        job, result, pids, text = run_ranks(scratch, "gpu-%d" % k, keys, env)
    reached = os.path.exists("%s.%d" % (once, 1 if before else 0))
    check(reached, what + ": was not reached: " + text[-1500:])
    if check(result is not None, "%s: no result: %s" % (what, text[-2500:])):
        same((result["weights_xxh64"], bits(job.output)), reference, what + ": weights and losses")
    check(gone(pids), what + ": processes are left")
    found = incidents(job.output)
    check_again(found, what + text[-1500:])
    lost = [i for i in found if "rank" in i]
    check(len(lost) <= bool(before) + (action != "delay=150"), "%s: incidents %r" % (what, found))
    return "snapshot" if scene != "replica-lost" else "view change", "gpu-" + scene, rank, nth, time.monotonic() - begin, len(lost), reached
