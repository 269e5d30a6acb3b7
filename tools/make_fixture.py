#!/usr/bin/env python3
"""Writes tests/fixtures/<model>: tiny models trained for a few steps in double precision by numpy.

An implementation of its own, sharing nothing with the library: a few array operators with
reverse-mode gradients, two models on top, AdamW.  Each folder holds what tests/session/test_fixture.c reads:

    init/config.json, init/model.safetensors   starting weights, fp32
    tokens.bin                                 raw u16
    expected.json                              job, and loss and gradient norm of every step
    final.safetensors                          weights after the last step, rounded to fp32

    tools/make_fixture.py            needs numpy; the same files every time
"""
import json, os, struct
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fixtures")


class V:
    """A value with its gradient."""

    def __init__(self, x, parents=(), back=None):
        self.x, self.parents, self.back, self.g = np.asarray(x, np.float64), parents, back, None

    def __add__(self, o):
        return V(self.x + o.x, (self, o), lambda g: (fit(g, self), fit(g, o)))

    def __mul__(self, o):
        return V(self.x * o.x, (self, o), lambda g: (fit(g * o.x, self), fit(g * self.x, o)))

    def __matmul__(self, o):
        return V(self.x @ o.x, (self, o),
                 lambda g: (fit(g @ o.x.swapaxes(-1, -2), self), fit(self.x.swapaxes(-1, -2) @ g, o)))

    def view(self, *s):
        return V(self.x.reshape(s), (self,), lambda g: (g.reshape(self.x.shape),))

    def perm(self, *p):
        return V(self.x.transpose(p), (self,), lambda g: (g.transpose(np.argsort(p)),))

    def part(self, a, b):
        def back(g):
            z = np.zeros_like(self.x)
            z[..., a:b] = g
            return (z,)
        return V(self.x[..., a:b], (self,), back)

    def spread(self, axis, n):  # repeats each index of an axis n times in a row
        s = self.x.shape
        return V(np.repeat(self.x, n, axis), (self,),
                 lambda g: (g.reshape(s[:axis] + (s[axis], n) + s[axis + 1:]).sum(axis + 1),))


def fit(g, v):
    """Sums a gradient back to the shape it was broadcast from."""
    while g.ndim > v.x.ndim:
        g = g.sum(0)
    for i, n in enumerate(v.x.shape):
        if n == 1 and g.shape[i] != 1:
            g = g.sum(i, keepdims=True)
    return g


def const(x):
    return V(x)


def map1(v, y, dy):
    return V(y, (v,), lambda g: (g * dy,))


def gelu_tanh(v):
    c, x = np.sqrt(2 / np.pi), v.x
    t = np.tanh(c * (x + 0.044715 * x**3))
    return map1(v, 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x))


def silu(v):
    s = 1 / (1 + np.exp(-v.x))
    return map1(v, v.x * s, s * (1 + v.x * (1 - s)))


def rsqrt(v):
    return map1(v, v.x**-0.5, -0.5 * v.x**-1.5)


def mean(v):
    n = v.x.shape[-1]
    return V(v.x.mean(-1, keepdims=True), (v,), lambda g: (np.broadcast_to(g / n, v.x.shape),))


def layer_norm(v, w, b, eps):
    d = v + mean(v) * const(-1.0)
    return d * rsqrt(mean(d * d) + const(eps)) * w + b


def rms_norm(v, w, eps):
    return v * rsqrt(mean(v * v) + const(eps)) * w


def softmax(v):
    e = np.exp(v.x - v.x.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    return V(y, (v,), lambda g: (y * (g - (g * y).sum(-1, keepdims=True)),))


def rows(table, ids):
    def back(g):
        z = np.zeros_like(table.x)
        np.add.at(z, ids, g)
        return (z,)
    return V(table.x[ids], (table,), back)


def cross_entropy(v, labels):
    x = v.x - v.x.max(-1, keepdims=True)
    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    n = labels.size
    hot = np.eye(x.shape[-1])[labels]
    loss = -(np.log(p) * hot).sum() / n
    return V(loss, (v,), lambda g: (g * (p - hot) / n,))


def backward(v):
    order, seen = [], set()

    def visit(u):
        if id(u) in seen:
            return
        seen.add(id(u))
        for p in u.parents:
            visit(p)
        order.append(u)
    visit(v)
    v.g = np.ones_like(v.x)
    for u in reversed(order):
        if u.back is None:
            continue
        for p, g in zip(u.parents, u.back(u.g)):
            p.g = g if p.g is None else p.g + g


def attend(q, k, v, scale):  # (b,h,s,e)
    s = q.x.shape[2]
    mask = const(np.triu(np.full((s, s), -1e300), 1))
    return softmax(q @ k.perm(0, 1, 3, 2) * const(scale) + mask) @ v


def gpt2(w, c, ids):
    b, s = ids.shape
    d, h = c["n_embd"], c["n_head"]
    x = rows(w["transformer.wte.weight"], ids) + rows(w["transformer.wpe.weight"], np.arange(s))
    for i in range(c["n_layer"]):
        n = f"transformer.h.{i}."
        y = layer_norm(x, w[n + "ln_1.weight"], w[n + "ln_1.bias"], 1e-5)
        y = y @ w[n + "attn.c_attn.weight"] + w[n + "attn.c_attn.bias"]
        q, k, v = (y.part(j * d, j * d + d).view(b, s, h, d // h).perm(0, 2, 1, 3) for j in range(3))
        y = attend(q, k, v, (d // h)**-0.5).perm(0, 2, 1, 3).view(b, s, d)
        x = x + y @ w[n + "attn.c_proj.weight"] + w[n + "attn.c_proj.bias"]
        y = layer_norm(x, w[n + "ln_2.weight"], w[n + "ln_2.bias"], 1e-5)
        y = gelu_tanh(y @ w[n + "mlp.c_fc.weight"] + w[n + "mlp.c_fc.bias"])
        x = x + y @ w[n + "mlp.c_proj.weight"] + w[n + "mlp.c_proj.bias"]
    x = layer_norm(x, w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], 1e-5)
    return x @ w["transformer.wte.weight"].perm(1, 0)


def rotate(x, theta):  # (b,h,s,e), halves
    s, e = x.x.shape[2:]
    a = np.outer(np.arange(s), theta**(-np.arange(0, e, 2) / e))
    cos, sin = const(np.cos(np.concatenate([a, a], -1))), const(np.sin(np.concatenate([a, a], -1)))
    swap = np.zeros((e, e))
    for i in range(e // 2):
        swap[i + e // 2, i], swap[i, i + e // 2] = -1, 1
    return x * cos + (x @ const(swap)) * sin


def llama(w, c, ids):
    b, s = ids.shape
    d, h, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    e, eps = d // h, c["rms_norm_eps"]
    lin = lambda x, name: x @ w[name + ".weight"].perm(1, 0)
    x = rows(w["model.embed_tokens.weight"], ids)
    for i in range(c["num_hidden_layers"]):
        n = f"model.layers.{i}."
        y = rms_norm(x, w[n + "input_layernorm.weight"], eps)
        q = rotate(lin(y, n + "self_attn.q_proj").view(b, s, h, e).perm(0, 2, 1, 3), c["rope_theta"])
        k = rotate(lin(y, n + "self_attn.k_proj").view(b, s, kv, e).perm(0, 2, 1, 3), c["rope_theta"])
        v = lin(y, n + "self_attn.v_proj").view(b, s, kv, e).perm(0, 2, 1, 3)
        y = attend(q, k.spread(1, h // kv), v.spread(1, h // kv), e**-0.5)
        x = x + lin(y.perm(0, 2, 1, 3).view(b, s, d), n + "self_attn.o_proj")
        y = rms_norm(x, w[n + "post_attention_layernorm.weight"], eps)
        y = silu(lin(y, n + "mlp.gate_proj")) * lin(y, n + "mlp.up_proj")
        x = x + lin(y, n + "mlp.down_proj")
    x = rms_norm(x, w["model.norm.weight"], eps)
    return lin(x, "lm_head")


def gpt2_shapes(c):
    d = c["n_embd"]
    yield "transformer.wte.weight", (c["vocab_size"], d)
    yield "transformer.wpe.weight", (c["n_positions"], d)
    for i in range(c["n_layer"]):
        n = f"transformer.h.{i}."
        for ln in "ln_1", "ln_2":
            yield n + ln + ".weight", (d,)
            yield n + ln + ".bias", (d,)
        for name, a, b in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d),
                           ("mlp.c_proj", 4 * d, d)):
            yield n + name + ".weight", (a, b)
            yield n + name + ".bias", (b,)
    yield "transformer.ln_f.weight", (d,)
    yield "transformer.ln_f.bias", (d,)


def llama_shapes(c):
    d, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
    yield "model.embed_tokens.weight", (v, d)
    for i in range(c["num_hidden_layers"]):
        n = f"model.layers.{i}."
        for name, a, b in (("self_attn.q_proj", d, d), ("self_attn.k_proj", kv, d),
                           ("self_attn.v_proj", kv, d), ("self_attn.o_proj", d, d),
                           ("mlp.gate_proj", f, d), ("mlp.up_proj", f, d), ("mlp.down_proj", d, f)):
            yield n + name + ".weight", (a, b)
        yield n + "input_layernorm.weight", (d,)
        yield n + "post_attention_layernorm.weight", (d,)
    yield "model.norm.weight", (d,)
    yield "lm_head.weight", (v, d)


MODELS = {
    "gpt2": (gpt2, gpt2_shapes, {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 61, "n_positions": 16,
        "n_embd": 16, "n_head": 2, "n_layer": 2, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-05, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
        "tie_word_embeddings": True, "torch_dtype": "float32"}),
    "llama": (llama, llama_shapes, {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 53, "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
        "max_position_embeddings": 32, "hidden_act": "silu", "tie_word_embeddings": False,
        "attention_bias": False, "dtype": "float32"}),
}
JOB = {"seq": 13, "batch": 6, "steps": 8, "lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8,
       "weight_decay": 0.1, "clip": 1.0}


def write_safetensors(path, tensors):
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, x in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def train(model, w, c, tokens):
    b, t, clip = JOB["batch"], JOB["seq"], JOB["clip"]
    m = {k: np.zeros_like(v.x) for k, v in w.items()}
    s = {k: np.zeros_like(v.x) for k, v in w.items()}
    losses, norms = [], []
    for step in range(JOB["steps"]):
        at = (step * b + np.arange(b)[:, None]) * t + np.arange(t + 1)
        x = tokens[at]
        for v in w.values():
            v.g = None
        loss = cross_entropy(model(w, c, x[:, :-1]), x[:, 1:])
        backward(loss)
        norm = np.sqrt(sum((v.g**2).sum() for v in w.values()))
        scale = min(1.0, clip / (norm + 1e-6))
        for k, v in w.items():
            g = v.g * scale
            m[k] = JOB["betas"][0] * m[k] + (1 - JOB["betas"][0]) * g
            s[k] = JOB["betas"][1] * s[k] + (1 - JOB["betas"][1]) * g * g
            mh, sh = m[k] / (1 - JOB["betas"][0]**(step + 1)), s[k] / (1 - JOB["betas"][1]**(step + 1))
            if v.x.ndim >= 2:
                v.x = v.x * (1 - JOB["lr"] * JOB["weight_decay"])
            v.x = v.x - JOB["lr"] * mh / (np.sqrt(sh) + JOB["eps"])
        losses.append(float(loss.x))
        norms.append(float(norm))
    return losses, norms


def main():
    for number, (name, (model, shapes, c)) in enumerate(MODELS.items()):
        rng = np.random.default_rng(number)
        at = os.path.join(ROOT, name)
        os.makedirs(os.path.join(at, "init"), exist_ok=True)
        init = {}
        for k, shape in shapes(c):
            x = rng.standard_normal(shape) * (0.2 if len(shape) > 1 else 0.1)
            if len(shape) == 1 and k.endswith("weight"):
                x = x + 1
            init[k] = x.astype(np.float32)
        n = JOB["steps"] * JOB["batch"] * JOB["seq"] + 1
        tokens = (rng.zipf(1.3, n) % c["vocab_size"]).astype(np.uint16)
        w = {k: V(x) for k, x in init.items()}
        losses, norms = train(model, w, c, tokens.astype(np.int64))
        with open(os.path.join(at, "init", "config.json"), "w") as f:
            json.dump(c, f, indent=2)
            f.write("\n")
        write_safetensors(os.path.join(at, "init", "model.safetensors"), init)
        write_safetensors(os.path.join(at, "final.safetensors"),
                          {k: v.x.astype(np.float32) for k, v in w.items()})
        tokens.tofile(os.path.join(at, "tokens.bin"))
        with open(os.path.join(at, "expected.json"), "w") as f:
            json.dump(dict(JOB, loss=losses, grad_norm=norms), f, indent=1)
            f.write("\n")
        print(name, "loss", losses[0], "->", losses[-1])


if __name__ == "__main__":
    main()
