"""The same tokens in every format train to the same weights; the Megatron files are written here, from
the description of the format, and by weft data convert, which must agree."""
import json
import os
import struct
import sys
import types

from eco import (FAMILIES, GPT2, ROOT, Scratch, check, end, metrics, read, safetensors, same, small_job, small_model, tokens, train,
                 u16, weft, words)

VOCAB, SEQ, BATCH = 97, 16, 4
CODE = {"b": 2, "B": 1, "h": 3, "i": 4, "q": 5, "H": 8}


def megatron(s, name, sequences, kind="H", documents=None, order=None):
    """NAME.bin and NAME.idx: sequences, laid into the .bin in another order where one is given."""
    size = struct.calcsize("<" + kind)
    at, offset, blob = 0, [0] * len(sequences), b""
    for i in order or range(len(sequences)):
        offset[i] = at
        blob += struct.pack("<%d%s" % (len(sequences[i]), kind), *sequences[i])
        at += size * len(sequences[i])
    documents = documents or list(range(len(sequences) + 1))
    idx = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODE[kind], len(sequences), len(documents))
    idx += struct.pack("<%di" % len(sequences), *map(len, sequences))
    idx += struct.pack("<%dq" % len(offset), *offset)
    idx += struct.pack("<%dq" % len(documents), *documents)
    s.write(name + ".bin", blob)
    s.write(name + ".idx", idx)
    return s.path(name)


def cut(flat, sizes):
    out, at = [], 0
    for n in sizes:
        out.append(flat[at:at + n])
        at += n
    return out + [flat[at:]]


def rows(flat):
    n = (len(flat) - 1) // SEQ
    return [flat[i * SEQ:(i + 1) * SEQ] for i in range(n)], \
           [flat[i * SEQ + 1:(i + 1) * SEQ + 1] for i in range(n)]


def as_safetensors(flat, kind="i", dtype="I32"):
    x, y = rows(flat)
    b = lambda m: b"".join(struct.pack("<%d%s" % (SEQ, kind), *r) for r in m)
    return safetensors([("input_ids", dtype, (len(x), SEQ), b(x)), ("labels", dtype, (len(y), SEQ), b(y))])


def forms(s, flat):
    """Name of a form, the path that the job is given, and more of its keys."""
    s.write("t.bin", u16(flat))
    yield "raw u16", s.path("t.bin"), {}
    s.write("t32.bin", struct.pack("<%dI" % len(flat), *flat))
    yield "raw u32", s.path("t32.bin"), {}
    yield "raw u32, named", s.path("t32.bin"), dict(data_format="u32")
    for name, magic, version, kind in (("gpt-2", 20240520, 1, "H"), ("llama-3", 20240801, 7, "I")):
        head = struct.pack("<256i", magic, version, len(flat), *[0] * 253)
        s.write("llmc-" + kind + ".bin", head + struct.pack("<%d%s" % (len(flat), kind), *flat))
        yield "llm.c " + name, s.path("llmc-" + kind + ".bin"), {}
    yield "megatron u16", megatron(s, "one", [flat]) + ".idx", {}
    pieces = cut(flat, [1, 5, 200, 3, 77])
    yield "megatron, six documents", megatron(s, "six", pieces) + ".bin", {}
    yield "megatron, by its prefix", s.path("six"), {}
    yield "megatron, .bin in another order", megatron(s, "mixed", pieces, order=[3, 5, 0, 4, 2, 1]) + ".idx", {}
    yield "megatron, two documents", megatron(s, "docs", pieces, documents=[0, 2, 6]) + ".idx", {}
    for kind in "Bhiq":
        yield "megatron " + kind, megatron(s, "kind-" + kind, pieces, kind) + ".idx", {}
    s.write("t.safetensors", as_safetensors(flat))
    yield "safetensors i32", s.path("t.safetensors"), dict(labels_shifted=True)
    s.write("t64.safetensors", as_safetensors(flat, "q", "I64"))
    yield "safetensors i64", s.path("t64.safetensors"), dict(labels_shifted=True)
    s.write("t.txt", bytes(flat))
    yield "text", s.path("t.txt"), dict(data_format="text", tokenizer="bytes")


def trains_alike(s):
    flat = tokens(40 * SEQ + 1, VOCAB, 5)
    want = None
    for i, (name, path, more) in enumerate(forms(s, flat)):
        for shuffle in (False, True):
            out = s.path("out-%d-%d" % (i, shuffle))
            r = train(small_job(s, data=path, steps=12, seq=SEQ, batch=BATCH, shuffle=shuffle, output=out,
                                **more))
            if not r:
                continue
            got = [m["loss"] for m in metrics(out)]
            if want is None:
                want = {}
            want.setdefault(shuffle, (got, r["weights_xxh64"]))
            same((got, r["weights_xxh64"]), want[shuffle], "%s, shuffle %s" % (name, shuffle))
    check(want[False][0] != want[True][0], "shuffling changes the losses")


def repeats(s):
    """10 samples, 4 a step: the first step of the third epoch sees what the first step saw."""
    s.write("short.bin", u16(tokens(10 * SEQ + 1, VOCAB, 9)))
    out = s.path("short-out")
    job = small_job(s, data=s.path("short.bin"), steps=6, seq=SEQ, batch=BATCH, output=out,
                    optimizer=dict(name="sgd", lr=0))
    if train(job):
        got = [m["loss"] for m in metrics(out)]
        same(got[5], got[0], "20 samples later the same batch")
        check(len(set(got[:5])) == 5, "batches within two epochs differ: %r" % got)


def converts(s):
    flat = tokens(1000, VOCAB, 3)
    s.write("c.bin", u16(flat))
    mega = megatron(s, "ours", cut(flat, [10, 400]))
    for a, b, more in ((s.path("c.bin"), s.path("d.idx"), ()), (s.path("d.idx"), s.path("e.bin"), ("--to", "bin")),
                       (mega + ".idx", s.path("f.bin"), ("--to", "bin"))):
        r = weft("data", "convert", a, b, *more)
        check(r.code == 0, str(r))
    same(read(s.path("e.bin")), u16(flat), "there and back")
    same(read(s.path("f.bin")), u16(flat), "from Megatron")
    d = read(s.path("d.idx"))
    same(d[:9], b"MMIDIDX\0\0", "magic of the index")
    version, code, n_seq, n_doc = struct.unpack_from("<QBQQ", d, 9)
    same((version, code in CODE.values(), n_doc), (1, True, n_seq + 1), "head of the index")
    length = struct.unpack_from("<%di" % n_seq, d, 34)
    offset = struct.unpack_from("<%dq" % n_seq, d, 34 + 4 * n_seq)
    doc = struct.unpack_from("<%dq" % n_doc, d, 34 + 12 * n_seq)
    same(len(d), 34 + 12 * n_seq + 8 * n_doc, "bytes of the index")
    same((sum(length), offset[0], doc[0], doc[-1]), (1000, 0, 0, n_seq), "arrays of the index")
    r = weft("data", "inspect", s.path("c.bin"), "--seq", str(SEQ), "--json")
    if check(r.code == 0, str(r)):
        i = json.loads(r.out)
        same(i["tokens"], 1000, "tokens by inspect")


def bytes_are_named(s):
    """Text that was converted is tokens of bytes: convert says so, and training a model of another vocabulary warns."""
    text = s.write("all.txt", "To be, or not to be, that is the question.\n" * 100)
    r = weft("data", "convert", text, s.path("bytes.bin"))
    check(r.code == 0 and ": 4300 tokens, one a byte: for models whose tokens are bytes; " in r.out, "convert: %s%s" % (r, r.out))
    r = weft("data", "convert", text, s.path("bytes.bin"), "--json")
    same(json.loads(r.out), dict(path=s.path("bytes.bin"), tokens=4300, bytes=True), "convert --json")
    r = weft("data", "convert", s.path("bytes.bin"), s.path("same.bin"))
    check(r.out.endswith(": 4300 tokens\n"), "tokens are not bytes: %s" % r.out)
    s.write("large/config.json", json.dumps(dict(GPT2, vocab_size=2048)))
    job = dict(model=s.path("large"), data=s.path("bytes.bin"), seq=16, batch=2, steps=1)
    r = weft("train", *words(dict(job, output=s.path("b1"))))
    check(r.code == 0 and "WARN data " in r.err and "all its ids are below 256" in r.err, "a BPE model on bytes: %s" % r)
    r = weft("train", *words(dict(job, output=s.path("b2"))), "tokenizer=bytes")
    check(r.code == 0 and "below 256" not in r.err, "the same, named: %s" % r)


def decoder_starts(s):
    """The decoder's first token is the configuration's; decoder_input_ids that differ from what it sees are warned of."""
    loss, seq = {}, 8
    with open(os.path.join(FAMILIES, "t5", "config.json")) as f:
        config = json.load(f)
    flat = tokens(16 * seq, 20, 4)
    shifted = [5 if i % seq == 0 else flat[i - 1] for i in range(len(flat))]
    pack = lambda v: struct.pack("<%di" % len(v), *v)
    data = s.write("t5.safetensors", safetensors([(n, "I32", (16, seq), pack(v)) for n, v in
                                                  (("input_ids", flat), ("labels", flat), ("decoder_input_ids", shifted))]))
    for start in (0, 5, 1000):
        s.write("t5-%d/config.json" % start, json.dumps(dict(config, decoder_start_token_id=start)))
        r = weft("train", "model=" + s.path("t5-%d" % start), "data=" + data, "batch=4", "steps=1", "output=" + s.path("o-%d" % start))
        if start == 1000:
            check(r.code == 2 and "decoder_start_token_id: is no token" in r.err, "no such token: %s" % r)
            continue
        check(r.code == 0, str(r))
        same("decoder_input_ids are not used, and differ" in r.err, start != 5, "decoder_input_ids, start %d: %s" % (start, r))
        loss[start] = metrics(s.path("o-%d" % start))[0]["loss"]
    check(loss[0] != loss[5], "the start token is seen")


def no_old_tokenizer(s):
    """A run on bytes leaves no tokenizer of a run before it in final/; the model's own stays."""
    model = small_model(s)
    s.write("with/config.json", read(os.path.join(model, "config.json")))
    s.write("with/tokenizer.json", "{}")
    s.write("with.txt", bytes(tokens(400, 90, 2)))
    job = dict(model=s.path("with"), data=s.path("with.txt"), data_format="text", tokenizer="bytes", seq=16, batch=2,
               steps=1, output=s.path("with-out"))
    s.write("with-out/final/tokenizer.json", "{}")
    check(weft("train", *words(job), "-q").code == 0, "bytes over an older folder")
    check(not os.path.exists(s.path("with-out/final/tokenizer.json")), "its tokenizer.json is gone")
    check(os.path.exists(s.path("with/tokenizer.json")), "the model's own stays")


class Tokenizer:
    """What docs/data.md needs of Hugging Face's: a token a word, and a first one before each text."""
    @staticmethod
    def from_file(path):
        return Tokenizer()

    def encode(self, text, add_special_tokens=True):
        return types.SimpleNamespace(ids=[1] * add_special_tokens + [100000 + len(w) for w in text.split()])

    def token_to_id(self, text):
        return None


class Array:
    """... and of NumPy, whose integers wrap."""
    def __init__(self, ids, dtype):
        size = struct.calcsize("<" + dtype)
        self.bytes = b"".join((i % 256 ** size).to_bytes(size, "little") for i in ids)

    def tofile(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes)


def documented_lines(s):
    """The lines of docs/data.md: no id is lost, an end after each document, nothing before it."""
    with open(os.path.join(ROOT, "docs", "data.md")) as f:
        lines = f.read().split("```python\n")[1].split("```")[0]
    s.write("four/model/config.json", json.dumps(dict(eos_token_id=7)))
    s.write("four/all.txt", "a bb\n\nccc")
    sys.modules["tokenizers"] = types.SimpleNamespace(Tokenizer=Tokenizer)
    sys.modules["numpy"] = types.SimpleNamespace(uint16="H", uint32="I", array=Array)
    at = os.getcwd()
    os.chdir(s.path("four"))
    exec(lines, {})
    os.chdir(at)
    same(struct.unpack("<5I", read(s.path("four/all.bin"))), (100001, 100002, 7, 100003, 7), "the documented lines")


with Scratch("data") as s:
    trains_alike(s)
    documented_lines(s)
    bytes_are_named(s)
    decoder_starts(s)
    no_old_tokenizer(s)
    repeats(s)
    converts(s)
    end()
