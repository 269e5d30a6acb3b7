"""weights_xxh64, computed here from final/model.safetensors by another implementation of XXH64, is what
the command prints and what the checkpoint keeps: over the tensors by name in byte order, tied ones once, the
name, a zero byte, and the XXH64 of the tensor's fp32 bytes as 8 bytes, little-endian."""
import json
import os
import struct

from eco import Scratch, Tensors, end, reference_job, same, small_job, train

M = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rot(x, r):
    return (x << r | x >> 64 - r) & M


def mix(acc, x):
    return rot(acc + x * P2 & M, 31) * P1 & M


def xxh64(b, seed=0):
    n, at = len(b), 0
    if n >= 32:
        v = [(seed + P1 + P2) & M, (seed + P2) & M, seed, (seed - P1) & M]
        for a, c, d, e in struct.iter_unpack("<4Q", b[:n // 32 * 32]):
            v = [mix(v[0], a), mix(v[1], c), mix(v[2], d), mix(v[3], e)]
        at = n // 32 * 32
        h = (rot(v[0], 1) + rot(v[1], 7) + rot(v[2], 12) + rot(v[3], 18)) & M
        for x in v:
            h = ((h ^ mix(0, x)) * P1 + P4) & M
    else:
        h = (seed + P5) & M
    h = (h + n) & M
    for at in range(at, n - 7, 8):
        h = (rot(h ^ mix(0, struct.unpack_from("<Q", b, at)[0]), 27) * P1 + P4) & M
    at = n // 8 * 8
    if n - at >= 4:
        h = (rot(h ^ struct.unpack_from("<I", b, at)[0] * P1 & M, 23) * P2 + P3) & M
        at += 4
    for x in b[at:]:
        h = rot(h ^ x * P5 & M, 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return h ^ h >> 32


def weights_hash(path):
    t = Tensors(path)
    return "%016x" % xxh64(b"".join(n.encode() + b"\0" + struct.pack("<Q", xxh64(t.bytes(n)))
                                    for n in sorted(t.names(), key=str.encode)))


def self_test():
    same(xxh64(b""), 0xef46db3751d8e999, "XXH64 of nothing")
    same(xxh64(b"abc"), 0x44bc2cf5ad770999, "XXH64 of abc")
    try:
        import xxhash
    except ImportError:
        return
    for n in (1, 7, 8, 31, 32, 33, 100, 4095):
        b = bytes(i * 7 & 255 for i in range(n))
        same(xxh64(b), xxhash.xxh64(b).intdigest(), "XXH64 of %d bytes" % n)


with Scratch("hash") as s:
    self_test()
    jobs = [(m, reference_job(m)) for m in ("gpt2", "llama", "qwen2", "mixtral", "bert", "ernie")]
    jobs.append(("new weights", small_job(s)))
    jobs.append(("bf16", small_job(s, dtype="bf16")))
    for name, job in jobs:
        out = s.path(name)
        r = train(dict(job, steps=2, output=out))
        if not r:
            continue
        final = os.path.join(out, "final", "model.safetensors")
        step = os.path.join(out, "checkpoints", "step-00000002")
        same(r["weights_xxh64"], weights_hash(final), name + ": hash of final")
        same(r["weights_xxh64"], weights_hash(os.path.join(step, "model.safetensors")),
             name + ": hash of the checkpoint's weights")
        with open(os.path.join(step, "state.json")) as f:
            same(json.load(f)["weights_xxh64"], r["weights_xxh64"], name + ": hash in state.json")
    end()
