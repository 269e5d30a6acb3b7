"""Bad input: one line on standard error that names what is wrong, exit code 2, nothing on standard output.

Every row of the table is a job that differs from a good one in one thing, and words that the line must
hold.  The good one is run too, so that each row fails for its own reason."""
import json
import os
import re
import shutil
import struct

from eco import (GPT2, Scratch, Tensors, check, end, read, safetensors, same, small_job, small_model, tokens, train,
                 u16, weft, words)

ROWS = []  # (name, maker of job words, words in the message)


def row(*said):
    def add(make):
        ROWS.append((make.__name__, make, said))
        return make
    return add


def refused(r, name, said):
    lines = r.err.splitlines()
    good = same(r.code, 2, name + ": exit code")
    good &= same(len(lines), 1, "%s: lines on standard error (%s)" % (name, r.err.strip()))
    same(r.out, "", name + ": standard output")
    if not good:
        return
    check(re.match(r"weft( [a-z]+)*: error: \S", lines[0]), "%s: '%s'" % (name, lines[0]))
    check("Error" not in lines[0] and "null" not in lines[0], "%s: '%s'" % (name, lines[0]))
    for w in said:
        check(w in lines[0], "%s: no '%s' in '%s'" % (name, w, lines[0]))


# ---- job ----

def key(said, **change):
    """A row that changes keys of the job."""
    name = "job: " + " ".join(words(change))
    ROWS.append((name, lambda s: small_job(s, **change), said))


key(["bacth", "batch"], bacth=4)
key(["optimizer", "lrr", "lr"], optimizer=dict(lrr=1))
key(["optimiser", "optimizer"], optimiser=dict(lr=1))
key(["checkpoint", "evry", "every"], checkpoint=dict(evry=1))
key(["batch"], batch="four")
key(["batch"], batch=4.5)
key(["batch"], batch=0)
key(["batch"], batch=-4)
key(["batch"], batch=10**18)
key(["steps"], steps=0)
key(["steps"], steps=-1)
key(["steps"], steps=[1, 2])
key(["seq"], seq=-1)
key(["seq"], seq=0)
key(["seq", "32"], seq=33)
key(["seq"], seq=10**15)
key(["micro_batch"], micro_batch=3)
key(["micro_batch"], micro_batch=8)
key(["lanes"], micro_batch=1, lanes=3)
key(["lanes"], micro_batch=1, lanes=8)
key(["lanes"], lanes=-1)
key(["reduction"], reduction="quick")
key(["shuffle"], shuffle="perhaps")
key(["dtype"], dtype="fp16")
key(["dtype"], dtype="e4m3")
key(["fp8_format"], dtype="fp8", fp8_format="e5m2")
key(["fp8_format"], dtype="bf16", fp8_format="hybrid")
key(["dtype"], dtype=16)
key(["recompute"], recompute="some")
key(["threads"], threads=-1)
key(["threads"], threads=10**9)
key(["seed"], seed="x")
key(["optimizer.name"], optimizer=dict(name="adamm"))
key(["optimizer.lr"], optimizer=dict(lr=".nan"))
key(["optimizer.lr"], optimizer=dict(lr=".inf"))
key(["optimizer.lr"], optimizer=dict(lr=-1e-3))
key(["optimizer.lr"], optimizer=dict(lr="fast"))
key(["optimizer.betas"], optimizer=dict(betas=[0.9]))
key(["optimizer.betas"], optimizer=dict(betas=[0.9, 1.5]))
key(["optimizer.eps"], optimizer=dict(eps=-1))
key(["optimizer.weight_decay"], optimizer=dict(weight_decay=-1))
key(["optimizer.clip"], optimizer=dict(clip=-1))
key(["optimizer.clip"], optimizer=dict(clip=".nan"))
key(["lr_schedule.name"], lr_schedule=dict(name="cosin"))
key(["lr_schedule.warmup"], lr_schedule=dict(warmup=-1))
key(["lr_schedule"], lr_schedule=dict(name="cosine", warmup=10, decay_steps=5))
key(["lr_schedule.min_lr"], lr_schedule=dict(name="cosine", min_lr=".nan"))
key(["checkpoint.keep"], checkpoint=dict(keep=0))
key(["checkpoint.every"], checkpoint=dict(every=-2))
key(["eval.batches"], eval=dict(batches=0))
key(["data_format"], data_format="csv")
key(["model"], model="gpt22")
key(["model"], model="")


@row("nowhere.bin")
def eval_data_missing(s):
    return small_job(s, eval=dict(data=s.path("nowhere.bin")))


@row("nowhere")
def model_missing(s):
    return small_job(s, model=s.path("nowhere"))


@row("nowhere.bin")
def data_missing(s):
    return small_job(s, data=s.path("nowhere.bin"))


@row("config.json")
def model_folder_without_config(s):
    os.makedirs(s.path("nothing"), exist_ok=True)
    return small_job(s, model=s.path("nothing"))


@row("resnet50")
def model_without_tokens(s):
    return small_job(s, model="resnet50")


# ---- output ----

@row("a-file")
def output_is_a_file(s):
    s.write("a-file", "x")
    return small_job(s, output=s.path("a-file"))


@row("a-file")
def output_below_a_file(s):
    s.write("a-file", "x")
    return small_job(s, output=s.path("a-file", "below"))


@row("/proc")
def output_cannot_be_made(s):
    return small_job(s, output="/proc/weft-out")


# ---- config.json ----

def config(said, **change):
    name = "config: " + " ".join(words(change))
    ROWS.append((name, lambda s: small_job(s, model=small_model(s, "bad-model", **change)), said))


config(["n_head", "n_embd"], n_head=3)
config(["n_head"], n_head=0)
config(["n_head"], n_head=-2)
config(["n_embd"], n_embd=-32)
config(["n_embd"], n_embd=0)
config(["n_embd"], n_embd=2**40)
config(["n_embd"], n_embd="wide")
config(["n_embd"], n_embd=32.5)
config(["n_layer"], n_layer=-1)
config(["n_layer"], n_layer=10**9)
config(["vocab_size"], vocab_size=0)
config(["vocab_size"], vocab_size=2**50)
config(["n_positions", "seq"], n_positions=8)
config(["n_positions"], n_positions=-1)
config(["layer_norm_epsilon"], layer_norm_epsilon=-1)
config(["layer_norm_epsilon"], layer_norm_epsilon="small")
config(["activation_function"], activation_function="swoosh")
config(["n_inner"], n_inner=-5)
config(["model_type", "gpt3"], model_type="gpt3")
config(["model_type"], model_type=7)
config(["model_type"], model_type=None)
config(["vocab_size"], vocab_size=None)

LLAMA = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=32, intermediate_size=48,
             num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=97,
             max_position_embeddings=32, rms_norm_eps=1e-6, hidden_act="silu")
MIXTRAL = dict(LLAMA, architectures=["MixtralForCausalLM"], model_type="mixtral", num_local_experts=4,
               num_experts_per_tok=2)


def whole_config(name, said, c):
    def make(s):
        s.write("bad-config/config.json", c if isinstance(c, (str, bytes)) else json.dumps(c))
        return small_job(s, model=s.path("bad-config"))
    ROWS.append(("config: " + name, make, said))


whole_config("kv heads do not divide heads", ["num_key_value_heads"], dict(LLAMA, num_key_value_heads=3))
whole_config("more kv heads than heads", ["num_key_value_heads"], dict(LLAMA, num_key_value_heads=8))
whole_config("odd heads under rotary", ["head_dim"], dict(LLAMA, head_dim=7))
whole_config("heads do not divide the width", ["num_attention_heads"], dict(LLAMA, num_attention_heads=6,
                                                                           num_key_value_heads=2))
whole_config("no rotary base", ["rope_theta"], dict(LLAMA, rope_theta=0))
whole_config("rotary of another kind", ["rope"], dict(LLAMA, rope_parameters=dict(rope_type="spiral")))
whole_config("more experts a token than experts", ["num_experts_per_tok"], dict(MIXTRAL, num_experts_per_tok=5))
whole_config("no experts", ["num_local_experts"], dict(MIXTRAL, num_local_experts=0))
whole_config("a list", ["config.json"], "[1, 2]")
whole_config("cut off", ["config.json"], json.dumps(GPT2)[:40])
whole_config("empty", ["config.json"], "")
whole_config("nested without end", ["config.json"], "[" * 100000)
whole_config("no text", ["config.json"], bytes(range(128, 256)))
whole_config("twice the same key", ["n_embd"], '{"n_embd": 1, "n_embd": 2}')


# ---- weights ----

def weights(name, said, change):
    """change(bytes of a good file, s) gives the bytes of a bad one."""
    def make(s):
        d = s.path("bad-weights")
        shutil.rmtree(d, ignore_errors=True)
        shutil.copytree(s.path("good", "final"), d)
        s.write("bad-weights/model.safetensors", change(read(os.path.join(d, "model.safetensors"))))
        return small_job(s, model=d)
    ROWS.append(("weights: " + name, make, said))


def header(change):
    """A change of the header's text."""
    def f(b):
        n = struct.unpack("<Q", b[:8])[0]
        h = change(b[8:8 + n].decode()).encode()
        return struct.pack("<Q", len(h)) + h + b[8 + n:]
    return f


def entries(change):
    """A change of the list of (name, dtype, shape, bytes)."""
    def f(b):
        n = struct.unpack("<Q", b[:8])[0]
        e = json.loads(b[8:8 + n])
        e.pop("__metadata__", None)
        data = b[8 + n:]
        e = [(k, v["dtype"], v["shape"], data[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in e.items()]
        return safetensors(change(e))
    return f


def transposed(e):
    return [(n, d, x[::-1] if n.endswith("c_fc.weight") else x, b) for n, d, x, b in e]


FILE = ["model.safetensors"]
for n in (0, 4, 8, 60, -1):
    weights("cut to %s bytes" % n, FILE, lambda b, n=n: b[:n])
weights("a byte too many", FILE, lambda b: b + b"\0")
weights("header longer than the file", FILE, lambda b: struct.pack("<Q", 2**40) + b[8:])
weights("header of 2^64-1 bytes", FILE, lambda b: b"\xff" * 8 + b[8:])
weights("header is no JSON", FILE, header(lambda h: "x" + h[1:]))
weights("header is a list", FILE, lambda b: struct.pack("<Q", 8) + b"[1,2,3] ")
weights("offsets backwards", FILE, header(lambda h: h.replace('"data_offsets":[0,', '"data_offsets":[8,', 1)))
weights("negative shape", FILE, header(lambda h: h.replace('"shape":[', '"shape":[-', 1)))
weights("huge shape", FILE, header(lambda h: h.replace('"shape":[', '"shape":[99999999999,', 1)))
weights("unknown dtype", FILE, header(lambda h: h.replace('"F32"', '"F33"', 1)))
weights("wrong shape", FILE + ["shape", "c_fc.weight"], entries(transposed))
weights("a tensor missing", FILE + ["missing", "init: random"], entries(lambda e: e[1:]))
weights("integers for weights", FILE + ["i32"], entries(lambda e: [(n, "I32", x, b) for n, _, x, b in e]))


@row("model-00002-of-00002.safetensors")
def weights_shard_missing(s):
    d = s.path("bad-shards")
    shutil.rmtree(d, ignore_errors=True)
    small_model(s, "bad-shards")
    t = Tensors(s.path("good", "final", "model.safetensors"))
    n = t.names()
    s.write("bad-shards/model.safetensors.index.json", json.dumps(
        dict(metadata={}, weight_map={k: "model-0000%d-of-00002.safetensors" % (1 + (k == n[0])) for k in n})))
    s.write("bad-shards/model-00001-of-00002.safetensors",
            safetensors([(k, t.dtype(k), t.entry[k]["shape"], t.bytes(k)) for k in n[1:]]))
    return small_job(s, model=d)


@row("pytorch_model.bin", "safetensors", "init: random")
def weights_of_another_format(s):
    s.write("pickled/pytorch_model.bin", "PK")
    return small_job(s, model=small_model(s, "pickled"))


@row("index.json")
def weights_index_leads_out(s):
    small_model(s, "bad-index")
    s.write("bad-index/model.safetensors.index.json",
            json.dumps(dict(metadata={}, weight_map={"transformer.wte.weight": "../../etc/passwd"})))
    return small_job(s, model=s.path("bad-index"))


# ---- data ----

def data(name, said, blob, ending=".bin", **more):
    def make(s):
        path = s.write("bad-data" + ending, blob)
        return small_job(s, data=path, **more)
    ROWS.append(("data: " + name, make, said))


GOOD = tokens(400, 97)
data("empty", ["bad-data.bin"], b"")
data("odd number of bytes", ["bad-data.bin"], u16(GOOD)[:-1])
data("one token", ["bad-data.bin"], u16([1]))
data("shorter than seq", ["bad-data.bin", "seq"], u16(GOOD[:16]))
data("token past the vocabulary", ["bad-data.bin", "97"], u16(GOOD[:20] + [97] + GOOD))
data("late token past the vocabulary", ["bad-data.bin", "97"], u16(GOOD + [97] + GOOD))
data("65535", ["bad-data.bin", "65535"], u16(GOOD[:3] + [65535] + GOOD))
data("empty text", ["bad-data.txt"], b"", ".txt")
data("text past the vocabulary", ["bad-data.txt", "255"], b"\xff" * 400, ".txt", tokenizer="bytes")
data("text without bytes", ["97 tokens", "tokenizer: bytes", "docs/data.md"], b"text\n" * 100, ".txt")
for name, ending in (("a NumPy file", ".npy"), ("a table", ".jsonl"), ("an unknown ending", ".dat")):
    data(name, ["bad-data" + ending, "data_format"], b"text\n" * 100, ending)
data("64-bit tokens", ["64-bit"], struct.pack("<400q", *GOOD))
data("empty safetensors", ["bad-data.safetensors"], b"", ".safetensors")


def rows_of(n, width, kind="I32", bad=None, labels=None):
    size = dict(I32=4, F32=4, I64=8)[kind]
    x = tokens(n * width, 97)
    if bad is not None:
        x[3] = bad
    y = x if labels is None else labels
    pack = {"I32": "i", "F32": "f", "I64": "q"}[kind]
    f = lambda v: struct.pack("<%d%s" % (len(v), pack), *v)
    return safetensors([("input_ids", kind, (n, width), f(x)), ("labels", kind, (n, width), f(y))])


ST = dict(ending=".safetensors")
data("safetensors without labels", ["labels"], safetensors([("input_ids", "I32", (4, 16), bytes(256))]), **ST)
data("safetensors of floats", ["input_ids"], rows_of(8, 16, "F32"), **ST)
data("safetensors of another width", ["seq"], rows_of(8, 12), **ST)
data("safetensors with an id past the vocabulary", ["97"], rows_of(8, 16, bad=97), **ST)
data("safetensors with a negative id", ["-3"], rows_of(8, 16, bad=-3), **ST)
data("safetensors with a huge id", ["input_ids"], rows_of(8, 16, "I64", bad=2**40), **ST)
data("safetensors with a label of -5", ["labels"], rows_of(8, 16, labels=[-5] * 128), **ST)


def idx(name, said, change):
    def make(s):
        flat = tokens(400, 97)
        s.write("mega.bin", u16(flat))
        good = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 2, 3) + struct.pack("<2i", 100, 300)
        good += struct.pack("<2q", 0, 200) + struct.pack("<3q", 0, 1, 2)
        s.write("mega.idx", change(good))
        return small_job(s, data=s.path("mega.idx"))
    ROWS.append(("index: " + name, make, said))


IDX = ["mega.idx"]
idx("cut", IDX, lambda b: b[:40])
idx("empty", IDX, lambda b: b"")
idx("wrong magic", IDX, lambda b: b"MMIDIDY" + b[7:])
idx("version 2", IDX, lambda b: b[:9] + struct.pack("<Q", 2) + b[17:])
idx("floats", IDX, lambda b: b[:17] + b"\x07" + b[18:])
idx("2^60 sequences", IDX, lambda b: b[:18] + struct.pack("<Q", 2**60) + b[26:])
idx("negative length", IDX, lambda b: b[:34] + struct.pack("<i", -1) + b[38:])
idx("offset past the end", IDX, lambda b: b[:50] + struct.pack("<q", 2**40) + b[58:])


@row("mega.bin")
def index_without_tokens(s):
    s.write("lonely/mega.idx", b"MMIDIDX\0\0")
    return small_job(s, data=s.path("lonely", "mega.idx"))


# ---- checkpoints of something else ----

def other(name, said, **change):
    def make(s):
        shutil.rmtree(s.path("other"), ignore_errors=True)
        shutil.copytree(s.path("good"), s.path("other"))
        job = small_job(s, output=s.path("other"), steps=5)
        for k, v in change.items():
            job[k] = v(s) if callable(v) else v
        return job
    ROWS.append(("checkpoint of another " + name, make, said))


def new_tokens(s):
    return s.write("new.bin", u16(tokens(5000, 97, 77)))


other("model", ["step-00000003", "model"], model=lambda s: small_model(s, "wider", n_embd=64))
other("depth", ["step-00000003", "model"], model=lambda s: small_model(s, "deeper", n_layer=3))
other("job: seed", ["seed"], seed=9)
other("job: batch", ["batch"], batch=8)
other("job: lr", ["lr"], optimizer=dict(lr=0.5))
other("job: micro_batch", ["micro_batch"], micro_batch=2)
other("job: dtype", ["dtype"], dtype="bf16")
other("data", ["data"], data=new_tokens)


def last_is_damaged(s):
    """Both checkpoints damaged: nothing to go on from, and that is said."""
    shutil.rmtree(s.path("rotten"), ignore_errors=True)
    shutil.copytree(s.path("good"), s.path("rotten"))
    top = s.path("rotten", "checkpoints")
    for d in os.listdir(top):
        p = os.path.join(top, d, "model.safetensors")
        if os.path.exists(p):
            b = bytearray(read(p))
            b[-5] ^= 1
            with open(p, "wb") as f:
                f.write(b)
    return weft("train", *words(small_job(s, output=s.path("rotten"), steps=5)))


# ---- words of the command ----

def command_line(s):
    job = words(small_job(s))
    s.write("job.yaml", "model: tiny\n\tdata: x\n")
    s.write("twice.yaml", "model: tiny\nmodel: tiny\n")
    s.write("list.yaml", "- a\n- b\n")
    s.write("deep.json", '{"a":' * 50000)
    for name, args, said in (
            ("no job", ["train"], ["job"]),
            ("unknown option", ["train", "--frsh", *job], ["--frsh", "--fresh"]),
            ("missing job file", ["train", s.path("no.yaml")], ["no.yaml"]),
            ("two job files", ["train", "a.yaml", "b.yaml"], ["a.yaml", "b.yaml"]),
            ("a tab in YAML", ["train", s.path("job.yaml")], ["job.yaml", "2"]),
            ("a key twice", ["train", s.path("twice.yaml")], ["twice.yaml", "model"]),
            ("a list for a job", ["train", s.path("list.yaml")], ["list.yaml"]),
            ("deep JSON", ["train", s.path("deep.json")], ["deep.json"]),
            ("a folder for a job", ["train", s.dir], [s.dir]),
            ("no model", ["train", "data=x", "batch=1", "steps=1"], ["model"]),
            ("no data", ["train", "model=tiny", "batch=1", "steps=1"], ["data"]),
            ("no key", ["train", *job, "=3"], ["=3"]),
            ("no value's map", ["train", *job, "batch.size=3"], ["batch"]),
            ("a map for a number", ["train", *job, "batch={a: 1}"], ["batch"]),
            ("a number for a map", ["train", *job, "optimizer=3"], ["optimizer"]),
            ("unknown command", ["trian"], ["trian", "train"]),
            ("ckpt of nothing", ["ckpt", "ls", s.path("nowhere")], ["nowhere"]),
            ("verify of nothing", ["ckpt", "verify", s.path("nowhere")], ["nowhere"]),
            ("data of nothing", ["data", "inspect", s.path("nowhere")], ["nowhere"]),
            ("graph of nothing", ["graph", s.path("nowhere")], ["nowhere"]),
            ("trace nowhere", ["train", *job, "--trace", s.path("no", "such", "trace.json")],
             ["trace.json"])):
        refused(weft(*args), name, said)


with Scratch("bad") as s:
    good = small_job(s, output=s.path("good"), steps=3, checkpoint=dict(every=1))
    if train(good):
        for name, make, said in ROWS:
            shutil.rmtree(s.path("out"), ignore_errors=True)
            r = weft("train", *words(make(s)))
            refused(r, name, said)
            if "init: random" in r.err:
                check(train(dict(make(s), init="random")), name + ": what its line proposes")
        drops = small_job(s, model=small_model(s, "drops", attn_pdrop=0.1), data=s.path("nowhere.bin"))
        refused(weft("train", *words(drops)), "a configuration with dropout", ["nowhere.bin"])
        refused(last_is_damaged(s), "every checkpoint damaged", ["checkpoint"])
        command_line(s)
        check(train(small_job(s, output=s.path("still"))), "the good job still trains")
    end()
