"""Ranks on GPUs of several hosts, here agents on 127.0.0.1, with recover: on: ranks are killed and hosts are lost while a job
runs.  State comes from a replica; else from snapshots in the agents' memory, of which a second copy is on another host.
Every loss and the hash of the weights are those of the undisturbed run, bit by bit.

Over the stub driver and NCCL of tests/cuda/stub; with WEFT_TEST_GPU=1 all hosts share the machine's own GPU.  Hosts that
communicate through host memory have a /dev/shm of their own, so that nothing else takes them for one machine."""
import os
import subprocess
import sys

import eco_hosts
from cuda_stub import BUILD, REAL, STUB, small_job
from eco import LONG, Scratch, check, end, same, words
from eco_views import Job as OneHost, bits, incidents

STEPS = 150 if REAL else 14
EVERY = 4  # steps that may be run again
LIBS = (dict(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1") if REAL else
        dict(STUB, WEFT_CUDA_LIBS=os.path.join(BUILD, "cuda_stub")))
APART = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs shm /dev/shm && exec "$@"', "sh"]


class Job(eco_hosts.Job):
    """By nccl, or staged through the hosts' transports."""
    def __init__(self, scratch, name, base, comm, n, nnodes="2", n_agent=2, **keys):
        self.comm = comm
        eco_hosts.PLANS[name] = (n, {})
        eco_hosts.BASE = dict(x.split("=", 1) for x in words(dict(base, recover="on", snapshot_every=EVERY, share_gpu=True,
                                                                  reduction="invariant", **keys)))
        super().__init__(scratch, name, name, nnodes=nnodes, n_agent=n_agent, env=dict(LIBS, WEFT_GPU_COMM=comm),
                         options=["--failure-timeout", "1"])

    def command(self, number):
        host = ["env", "WEFT_STUB_MACHINE=%d" % number, "NCCL_HOSTID=%d" % number]
        return host if self.comm == "nccl" else APART + host


def is_apart():
    return subprocess.run(APART + ["true"], stderr=subprocess.DEVNULL).returncode == 0


def run_plain(scratch, base):
    job = OneHost(1, dict(x.split("=", 1) for x in words(base)), scratch.path("plain"), env=LIBS)
    result, text = job.end()
    check(result is not None, "undisturbed: %s" % text[-1500:])
    return result["weights_xxh64"], bits(job.output)


def again(job):
    """Committed steps that were run again, at each incident."""
    return [max(0, i["step"] + 1 - i["next_step"]) for i in incidents(job.output) if i["next_step"] < STEPS]


def rank_killed(scratch, base, ref):
    """dp over NCCL: the new rank gets the state of the other host's."""
    job = Job(scratch, "replica", base, "nccl", 1, dp=2)
    job.await_step(5)
    check(job.kill(1), "there is a rank 1")
    eco_hosts.compare("replica", job, ref, [0, 0])
    same(again(job), [0], "replica: steps run again %s" % job.text)


def shard_killed(scratch, base, ref):
    """ZeRO through the hosts' transports: all go back to the snapshot."""
    job = Job(scratch, "shards", base, "staged", 1, dp=2, zero=1)
    job.await_step(7)
    check(job.kill(0), "there is a rank 0")
    eco_hosts.compare("shards", job, ref, [0, 0])
    check(len(again(job)) == 1 and again(job)[0] <= EVERY, "shards: %r %s" % (incidents(job.output), job.text))


def host_lost(scratch, base, ref):
    """A stage on each of two hosts, a third one waits and takes the place of the one that is lost."""
    job = Job(scratch, "stages", base, "staged", 1, nnodes="2:2", n_agent=2, pp=2)
    check(job.await_text(job.agents[1], ": 2 hosts"), "stages: both hosts are there")
    job.join()
    job.await_step(7)
    job.agents[1].kill_all()
    got = job.end()
    if check(job.result is not None and got[0] == 0 and got[2] == 0, "stages: codes %r\n%s" % (got, job.text)):
        same(job.result["weights_xxh64"], ref[0], "stages: weights")
        same(bits(job.output), ref[1], "stages: losses")
        check(len(again(job)) >= 1 and max(again(job)) <= EVERY, "stages: %r %s" % (incidents(job.output), job.text))


def replica_host_lost(scratch, base, ref):
    """A second host joins one that trains, and is lost: the first has a replica, and goes on alone."""
    job = Job(scratch, "alone", base, "nccl", 1, nnodes="1:2", dp=2)
    check(job.await_text(job.agents[0], ": 2 hosts"), "alone: a host joins")
    job.agents[1].kill_all()
    got = job.end()
    if check(job.result is not None and got[0] == 0, "alone: codes %r\n%s" % (got, job.text)):
        same(job.result["weights_xxh64"], ref[0], "alone: weights")
        same(bits(job.output), ref[1], "alone: losses")
        same(max(again(job)), 0, "alone: steps run again %s" % job.text)


def run_mixed_plain(scratch, base, keys):
    """The same plan with the ranks of both hosts on one."""
    of = dict(base, share_gpu=True, reduction="invariant", **dict(keys, device="cuda:0,cpu,cuda:0,cpu"))
    job = OneHost(4, dict(x.split("=", 1) for x in words(of)), scratch.path("plain-" + "-".join(keys)), env=dict(LIBS, WEFT_GPU_COMM="staged"))
    result, text = job.end()
    check(result is not None, "undisturbed, CPUs and GPUs: %s" % text[-1500:])
    return result and result["weights_xxh64"], bits(job.output)


def mixed(scratch, base, _):
    """A rank on a GPU and one on CPUs on each host: one of either kind is killed; with replicas no step is run again."""
    plans = [("mixed-replica", "nccl", dict(dp=4), (1, 2), 0), ("mixed-shards", "nccl", dict(dp=4, zero=1), (3, 0), EVERY)]
    if is_apart():  # messages of stages over NCCL and sums through the host wait for each other (LIMITATIONS.md)
        plans += [("mixed-stages", "staged", dict(dp=2, pp=2), (0, 3), 0)]
    for name, comm, keys, ranks, most in plans if LONG else plans[:2]:
        job = Job(scratch, name, base, comm, 2, device="cuda:0,cpu", **keys)
        for k, rank in enumerate(ranks):
            job.await_step(4 + 6 * k)
            check(job.kill(rank), "%s: there is a rank %d" % (name, rank))
        eco_hosts.compare(name, job, run_mixed_plain(scratch, base, keys), [0, 0])
        check(len(again(job)) >= 1 and max(again(job)) <= most, "%s: %r %s" % (name, incidents(job.output), job.text))


def mixed_host_lost(scratch, base, _):
    """Of shards on CPUs and GPUs the second copies of snapshots are on the other host, where a third one takes its place."""
    keys = dict(dp=4, zero=1)
    job = Job(scratch, "mixed-lost", base, "nccl", 2, nnodes="2:2", n_agent=2, device="cuda:0,cpu", **keys)
    check(job.await_text(job.agents[1], ": 2 hosts"), "mixed: both hosts are there")
    job.join()
    job.await_step(8)
    job.agents[1].kill_all()
    got = job.end()
    if check(job.result is not None and got[0] == 0 and got[2] == 0, "mixed: codes %r\n%s" % (got, job.text)):
        ref = run_mixed_plain(scratch, base, keys)
        same(job.result["weights_xxh64"], ref[0], "mixed, a host is lost: weights")
        same(bits(job.output), ref[1], "mixed, a host is lost: losses")
        check(len(again(job)) >= 1 and max(again(job)) <= EVERY, "mixed: %r %s" % (incidents(job.output), job.text))


def main():
    cases = [rank_killed, replica_host_lost, mixed, mixed_host_lost]
    if is_apart():
        cases += [shard_killed, host_lost]
    else:
        print("hosts with a /dev/shm of their own: left out, this machine lets us make no mount namespace")
    with Scratch("cuda_hosts") as scratch:
        base = small_job(scratch, steps=STEPS, batch=8, lanes=4)
        ref = run_plain(scratch, base)
        for case in cases:
            if not sys.argv[1:] or case.__name__ in sys.argv[1:]:
                case(scratch, base, ref)
        end()


if __name__ == "__main__":
    main()
