"""Hugging Face's transformers and weft read each other's models.

Out: what weft trained loads with from_pretrained, from final/ and from every checkpoint, no tensor missing or
left over, and gives the loss that weft had in the next step.  In: what save_pretrained wrote (one file,
shards, bf16, tied embeddings) gives transformers' loss in the first step; with a learning rate of 0 every file
comes out as the same bytes; with another, the header and what is not trained do."""
import os

from eco import Scratch, Tensors, check, end, metrics, near, need, read, safetensors, same, train

torch, tf, st = need("torch", "transformers", "safetensors.torch")
tf.logging.set_verbosity_error()
if hasattr(tf.logging, "disable_progress_bar"):
    tf.logging.disable_progress_bar()
torch.set_num_threads(1)

SMALL = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             vocab_size=101, max_position_embeddings=64)
NO_DROP = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
ENDS = dict(bos_token_id=0, eos_token_id=0)
SEQ, BATCH = 24, 3


def gpt2(**more):
    return tf.GPT2Config(n_embd=32, n_head=4, n_layer=2, vocab_size=101, n_positions=64, resid_pdrop=0,
                         embd_pdrop=0, attn_pdrop=0, **ENDS, **more)


MODELS = {  # name: configuration, keywords of save_pretrained, storage
    "gpt2": (gpt2(), {}, "float32"),
    "gpt2-untied": (gpt2(tie_word_embeddings=False), {}, "float32"),
    "gpt2-sharded": (gpt2(), dict(max_shard_size="20KB"), "float32"),
    "llama": (tf.LlamaConfig(**SMALL, num_key_value_heads=2), {}, "float32"),
    "llama-tied-bf16": (tf.LlamaConfig(**SMALL, tie_word_embeddings=True), {}, "bfloat16"),
    "llama-sharded": (tf.LlamaConfig(**SMALL, num_key_value_heads=1), dict(max_shard_size="20KB"),
                      "bfloat16"),
    "mistral": (tf.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=7), {}, "float32"),
    "qwen2": (tf.Qwen2Config(**SMALL, num_key_value_heads=2, tie_word_embeddings=True), {}, "float32"),
    "qwen2-sharded": (tf.Qwen2Config(**SMALL, num_key_value_heads=2, tie_word_embeddings=True),
                      dict(max_shard_size="15KB"), "float32"),
    "mixtral": (tf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=4), {}, "float32"),
    "mixtral-sharded": (tf.MixtralConfig(**SMALL, num_key_value_heads=2, num_local_experts=3),
                        dict(max_shard_size="20KB"), "bfloat16"),
    "bert": (tf.BertConfig(**SMALL, **NO_DROP), {}, "float32"),
    "bert-sharded": (tf.BertConfig(**SMALL, **NO_DROP), dict(max_shard_size="20KB"), "float32"),
    "ernie": (tf.ErnieConfig(**SMALL, **NO_DROP, use_task_id=False), {}, "float32"),
    "llama-f16": (tf.LlamaConfig(**SMALL, num_key_value_heads=2), {}, "float16"),
}


def masked(config):
    return config.model_type in ("bert", "ernie")


def auto(config):
    return tf.AutoModelForMaskedLM if masked(config) else tf.AutoModelForCausalLM


def load(folder):
    """The model in fp32, and a check that its files were exactly what transformers expects."""
    config = tf.AutoConfig.from_pretrained(folder)
    model, info = auto(config).from_pretrained(folder, dtype=torch.float32, output_loading_info=True,
                                               attn_implementation="eager")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        left = [k for k in info.get(kind, ()) if "position_ids" not in str(k)]
        check(not left, "%s: %s %s" % (folder, kind, left[:4]))
    return model.eval()


def batch(ids, labels, step):
    """Inputs and labels of a step, counted from 1."""
    rows = [i % len(ids) for i in range((step - 1) * BATCH, step * BATCH)]
    return ids[rows], labels[rows]


def loss(model, x, y):
    with torch.no_grad():
        logits = model(input_ids=x).logits
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).double(),
                                                 y.reshape(-1), ignore_index=-100).item()


def make_data(s, name, config):
    """Tokens as weft reads them, and the same as rows of inputs and labels."""
    g = torch.Generator().manual_seed(7)
    v = config.vocab_size
    if masked(config):
        ids = torch.randint(0, v, (4 * BATCH, SEQ), generator=g)
        labels = torch.where(torch.rand(ids.shape, generator=g) < 0.3, ids, -100)
        path = s.path(name + ".data.safetensors")
        st.save_file(dict(input_ids=ids.int(), labels=labels.int()), path)
        return path, ids, labels
    flat = torch.randint(0, v, (4 * BATCH * SEQ + 1,), generator=g)
    path = s.path(name + ".bin")
    flat.numpy().astype("<u2").tofile(path)
    rows = range(0, len(flat) - SEQ, SEQ)
    return (path, torch.stack([flat[i:i + SEQ] for i in rows]),
            torch.stack([flat[i + 1:i + 1 + SEQ] for i in rows]))


def make_model(s, name, config, keywords, dtype):
    torch.manual_seed(3)
    model = auto(config).from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape))
    folder = s.path(name)
    model.to(getattr(torch, dtype)).save_pretrained(folder, **keywords)
    return folder


def weight_files(folder):
    return sorted(f for f in os.listdir(folder) if "safetensors" in f)


def same_folder(a, b, what):
    """Every file of a, byte for byte."""
    for f in sorted(os.listdir(a)):
        if check(os.path.exists(os.path.join(b, f)), "%s: %s is missing" % (what, f)):
            check(read(os.path.join(a, f)) == read(os.path.join(b, f)), "%s: %s changed" % (what, f))
    same(weight_files(b), weight_files(a), what + ": files")


def comes_out_as_it_was(folder, job, what):
    out = job["output"] + "-lr0"
    if train(dict(job, steps=2, output=out, optimizer=dict(name="adamw", lr=0, weight_decay=0.1))):
        same_folder(folder, os.path.join(out, "final"), what + ", lr 0")


def trained_files(folder, out, what):
    """Same files, same headers, other numbers."""
    same(weight_files(out), weight_files(folder), what + ": weight files")
    for f in weight_files(folder):
        a, b = os.path.join(folder, f), os.path.join(out, f)
        if f.endswith(".index.json"):
            same(read(b), read(a), "%s: %s" % (what, f))
            continue
        x, y = Tensors(a), Tensors(b)
        same(y.header, x.header, "%s: header of %s" % (what, f))
        check(x.data != y.data, "%s: %s was not trained" % (what, f))


def both_ways(s, name, config, keywords, dtype):
    folder = make_model(s, name, config, keywords, dtype)
    if "max_shard_size" in keywords:
        check(len(weight_files(folder)) > 3, name + ": is not sharded")
    data, ids, labels = make_data(s, name, config)
    out = s.path(name + "-out")
    job = dict(model=folder, data=data, seq=SEQ, batch=BATCH, output=out, steps=4,
               checkpoint=dict(every=1, keep=9, wait=60), optimizer=dict(lr=3e-3, weight_decay=0.1, clip=1.0))
    comes_out_as_it_was(folder, job, name)
    if not train(job):
        return
    trained_files(folder, os.path.join(out, "final"), name)
    at = {1: folder}
    for n in range(1, 5):
        at[n + 1] = os.path.join(out, "checkpoints", "step-%08d" % n)
    models = {n: load(p) for n, p in at.items()}
    final = load(os.path.join(out, "final"))
    if not train(dict(job, steps=5)):  # resumes: step 5 is what the final weights give
        return
    rows = metrics(out)
    for n, model in models.items():
        near(rows[n - 1]["loss"], loss(model, *batch(ids, labels, n)), 1e-5,
             "%s: loss of step %d" % (name, n))
    near(rows[4]["loss"], loss(final, *batch(ids, labels, 5)), 1e-5 if dtype == "float32" else 2e-2,
         name + ": loss of final")


def labels_of_rows(s, name, config):
    """input_ids and labels as transformers takes them: the loss of the first step is model(..., labels=...).loss."""
    folder = make_model(s, name + "-rows", config, {}, "float32")
    g = torch.Generator().manual_seed(11)
    ids = torch.randint(0, config.vocab_size, (BATCH, SEQ), generator=g)
    labels = torch.where(torch.rand(ids.shape, generator=g) < 0.2, -100, ids)
    for right in (SEQ, SEQ - 5):  # padding on the right, masked, its labels ignored
        mask = (torch.arange(SEQ) < right).long().expand(BATCH, SEQ).contiguous()
        rows = dict(input_ids=ids, labels=torch.where(mask == 1, labels, -100), attention_mask=mask)
        if masked(config) and right < SEQ:
            continue  # refused: every token would see the padding
        path = s.path("%s-%d.rows.safetensors" % (name, right))
        st.save_file(rows, path)
        out = s.path("%s-%d-rows-out" % (name, right))
        if train(dict(model=folder, data=path, batch=BATCH, output=out, steps=1)):
            with torch.no_grad():
                want = load(folder)(**rows).loss.item()
            near(metrics(out)[0]["loss"], want, 1e-5, "%s: loss of rows, %d tokens" % (name, right))


def from_nothing(s, name, config):
    """Weights that weft drew itself load too."""
    folder, out = s.path(name + "-config"), s.path(name + "-new")
    os.makedirs(folder)
    config.architectures = [auto(config)._model_mapping[type(config)].__name__]
    config.save_pretrained(folder)
    data, ids, labels = make_data(s, name + "-new", config)
    job = dict(model=folder, data=data, seq=SEQ, batch=BATCH, output=out, steps=1, seed=5)
    if train(job):
        model = load(os.path.join(out, "final"))
        if train(dict(job, steps=2)):
            near(metrics(out)[1]["loss"], loss(model, *batch(ids, labels, 2)), 1e-5,
                 name + ": loss of weights that weft drew")


def untouched(s):
    """Tensors that are no weights, odd order of names, metadata, dtypes: all stay."""
    config = gpt2()
    folder = make_model(s, "odd", config, {}, "float32")
    path = os.path.join(folder, "model.safetensors")
    t = Tensors(path)
    entry = [(n, t.dtype(n), t.entry[n]["shape"], t.bytes(n)) for n in reversed(t.names())]
    mask = bytes(i & 1 for i in range(64))
    entry.insert(3, ("transformer.h.0.attn.bias", "U8", (1, 1, 8, 8), mask))
    entry.append(("of.somebody.else", "I64", (2,), bytes(range(16))))
    entry.append(("empty", "F32", (0,), b""))
    with open(path, "wb") as f:
        f.write(safetensors(entry, dict(format="pt", zebra="last", note="a\nb\"\u00e9")))
    data, *_ = make_data(s, "odd", config)
    job = dict(model=folder, data=data, seq=SEQ, batch=BATCH, output=s.path("odd-out"), steps=3)
    comes_out_as_it_was(folder, job, "odd")
    if train(job):
        final = os.path.join(s.path("odd-out"), "final")
        trained_files(folder, final, "odd")
        a, b = Tensors(path), Tensors(os.path.join(final, "model.safetensors"))
        for n in ("transformer.h.0.attn.bias", "of.somebody.else", "empty"):
            same(b.bytes(n), a.bytes(n), "odd: bytes of " + n)
        st.load_file(os.path.join(final, "model.safetensors"))


def rename(path, change, more=()):
    """The file at path with other names, and more tensors."""
    t = Tensors(path)
    entry = [(change(n), t.dtype(n), t.entry[n]["shape"], t.bytes(n)) for n in t.names()]
    with open(path, "wb") as f:
        f.write(safetensors(entry + list(more), t.meta))


def old_names(n):
    return n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def names_of_the_hub(s):
    """Files as they lie on the hub: without the prefix, with masks and tied tensors, with old names of norms."""
    mask = ("h.0.attn.bias", "F32", (1, 1, 4, 4), bytes(64))
    ids = ("bert.embeddings.position_ids", "I64", (1, 8), bytes(64))
    cos = ("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", (4,), bytes(16))
    for name, change, more in (("gpt2", lambda n: n.replace("transformer.", "", 1), [mask]),
                               ("bert", old_names, [ids]), ("llama", lambda n: n, [cos])):
        config = MODELS[name][0]
        what = "hub-" + name
        folder = make_model(s, what, config, {}, "float32")
        data, *rows = make_data(s, what, config)
        want = loss(load(folder), *batch(*rows, 1))  # before the file changes under the model's map of it
        rename(os.path.join(folder, "model.safetensors"), change, more)
        out = s.path(what + "-out")
        job = dict(model=folder, data=data, seq=SEQ, batch=BATCH, output=out, steps=2)
        comes_out_as_it_was(folder, job, what)
        if train(job):
            near(metrics(out)[0]["loss"], want, 1e-5, what + ": loss of step 1")
            trained_files(folder, os.path.join(out, "final"), what)


def presets(s):
    """What a preset's name trains loads by its config.json."""
    out = s.path("tiny256")
    if train(dict(model="tiny256", data=os.path.join(os.path.dirname(__file__), "eco.py"), seq=32, batch=2,
                  steps=1, output=out)):
        load(os.path.join(out, "final"))


with Scratch("transformers") as s:
    for name, (config, keywords, dtype) in MODELS.items():
        both_ways(s, name, config, keywords, dtype)
    for name in ("gpt2", "llama", "mistral", "qwen2", "mixtral", "bert", "ernie"):
        from_nothing(s, name, MODELS[name][0])
    for name in ("gpt2", "llama", "mixtral", "bert"):
        labels_of_rows(s, name, MODELS[name][0])
    untouched(s)
    names_of_the_hub(s)
    presets(s)
    end()
