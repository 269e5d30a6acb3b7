"""What tests of the CUDA plugin share: the driver without a GPU of tests/cuda/stub, whose kernels run on the CPU; with
WEFT_TEST_GPU=1 the machine's own driver and GPU."""
import json
import os
import re

from eco import WEFT, check, skip, small_model, tokens, u16, weft, words

BUILD = os.path.dirname(WEFT)
REAL = os.environ.get("WEFT_TEST_GPU") == "1"
STUB = {} if REAL else dict(LD_LIBRARY_PATH=os.path.join(BUILD, "stub_gpu"), WEFT_CUDA_LIBS="none")

if not os.path.exists(os.path.join(BUILD, "libweft_cuda.so")):
    skip("there is no libweft_cuda.so: built without nvcc")


def run(job, ranks=1, env=None, code=0, timeout=120):
    """The result as --json prints it, or the error's text where another exit code is expected."""
    start = ["run", "--nproc-per-node", str(ranks)] if ranks > 1 else ["train"]
    r = weft(*start, *words(job), "--json", "--quiet", env=dict(STUB, **(env or {})), timeout=timeout)
    if not check(r.code == code, "exit code %d: %s" % (code, r)):
        return None
    return json.loads(r.out) if code == 0 else r.err


def says(error, *parts):
    """One line has "error" in it, and all of these patterns."""
    if error is not None:
        lines = [x for x in error.splitlines() if "error" in x]
        check(len(lines) == 1 and all(re.search(p, lines[0]) for p in parts), "%r in %r" % (parts, error))


def small_job(s, **keys):
    """A job of two layers on cuda, in the scratch folder s."""
    model = small_model(s, n_embd=16, n_layer=2, vocab_size=33, n_positions=16, resid_pdrop=0.1, embd_pdrop=0.1)
    data = s.write("tokens.bin", u16(tokens(600, 33)))
    return dict(dict(model=model, data=data, seq=8, batch=4, micro_batch=2, lanes=1, steps=4, seed=5, dropout=True,
                     device="cuda", plan="off", init="random",
                     optimizer=dict(name="adamw", lr=3e-3, weight_decay=0.1, clip=1.0)), **keys)
