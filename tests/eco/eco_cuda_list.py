"""What a step gives to the driver, as text (tests/cuda/launches.txt): every kernel with its grid, every copy, event and
wait, of a small gpt2 with own kernels.  WEFT_TEST_WRITE=1 writes the text anew: look at the difference before it is
committed.

Checked besides: a step is two graphs; nothing is allocated, freed or waited for while they are captured; a step that
is replayed gives two graphs and the step's scalars, and the host waits where the step before it ends, before pinned
memory is written and at its commit point; copies of graphs are between pinned and device memory."""
import os
import re

from cuda_stub import REAL, run
from eco import ROOT, Scratch, check, end, same, skip, small_model, tokens, u16

GOLDEN = os.path.join(ROOT, "tests", "cuda", "launches.txt")
FORBIDDEN = re.compile("Alloc|Free|Synchronize|Query|Create|Destroy|Load|GetInfo")

if REAL:
    skip("the stub driver writes the list")


def segments(calls):
    """The calls of each capture."""
    found, now = [], None
    for name, what in calls:
        if name == "cuStreamBeginCapture_v2":
            now = []
        elif name == "cuStreamEndCapture":
            found.append(now)
            now = None
        elif now is not None:
            now.append((name, what))
    return found


def last_step(calls):
    """From the wait before the last step to the launch of its second graph."""
    launches = [i for i, x in enumerate(calls) if x[0] == "cuGraphLaunch"]
    begin = launches[-2]
    while calls[begin - 1][0] not in ("cuGraphLaunch", "cuCtxSetCurrent") and begin > launches[-3] + 1:
        begin -= 1
    return calls[begin:launches[-1] + 1]


with Scratch("cuda-list", memory=True) as s:
    log = s.path("log")
    job = dict(model=small_model(s, n_embd=16, n_layer=2, vocab_size=33, n_positions=16, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0),
               data=s.write("tokens.bin", u16(tokens(600, 33))), seq=8, batch=4, micro_batch=2, lanes=1, steps=5, seed=5,
               device="cuda", plan="off", init="random", optimizer=dict(name="adamw", lr=3e-3, clip=1.0), output=s.path("out"))
    if run(job, env=dict(WEFT_STUB_LOG=log)):
        calls = [(x.split()[1], " ".join(x.split()[2:])) for x in open(log)]
        captured = segments(calls)
        same(len(captured), 2, "captures")
        text = ""
        for k, part in enumerate(captured):
            bad = [x for x in part if FORBIDDEN.search(x[0])]
            same(bad, [], "allocated, freed or waited for in graph %d" % (k + 1))
            check(not any("paged" in x[1] for x in part), "copies of memory that is not pinned: %r" % part)
            text += "graph %d\n" % (k + 1) + "".join("    %s %s\n" % x for x in part)
        step = last_step(calls)
        names = [x[0] for x in step]
        same(names.count("cuGraphLaunch"), 2, "graphs of a step")
        check(names.count("cuStreamSynchronize") <= 3, "waits of a step: %r" % names)
        same([x for x in names if re.search("Alloc|Free|LaunchKernel|Create|Destroy", x)], [], "calls of a step that is replayed")
        text += "a step that is replayed\n" + "".join("    %s %s\n" % x for x in step)
        text = re.sub(r" +\n", "\n", text)
        if os.environ.get("WEFT_TEST_WRITE") == "1":
            with open(GOLDEN, "w") as f:
                f.write(text)
        with open(GOLDEN) as f:
            golden = f.read()
        if text != golden:
            a, b = golden.splitlines(), text.splitlines()
            at = next((i for i in range(min(len(a), len(b))) if a[i] != b[i]), min(len(a), len(b)))
            check(False, "tests/cuda/launches.txt differs from line %d on: %r there, %r now (WEFT_TEST_WRITE=1 writes it anew)" %
                  (at + 1, a[at:at + 3], b[at:at + 3]))
        check(text.count("cuLaunchKernel") > 50, "launches: %d" % text.count("cuLaunchKernel"))
end()
