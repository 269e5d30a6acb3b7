#!/usr/bin/env python3
"""rediscover.py WEFT: what the planner finds beside what people found, and a weak-scaling band; prints markdown."""
import json
import subprocess
import sys
import tempfile

WEFT = sys.argv[1]


def plan(config, cluster, batch, seq, *words):
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/config.json", "w") as f:
            json.dump(config, f)
        out = subprocess.run([WEFT, "plan", "--model", d, "--cluster", cluster, "--batch", str(batch), "--seq",
                              str(seq), "--json", *words], capture_output=True, text=True)
    if out.returncode:
        return {"error": out.stderr.strip()}
    return json.loads(out.stdout)["choices"][0]


def words(c):
    if "error" in c:
        return c["error"]
    s = "tp%d" % c["tp"]
    for k in "cp", "ep":
        if c[k] > 1:
            s += " %s%d" % (k, c[k])
    s += " pp%d dp%d mb%d" % (c["pp"], c["dp"], c["micro_batch"])
    if c["chunks"] > 1:
        s += " chunks%d" % c["chunks"]
    return s + " zero%d %s" % (c["zero"], c["recompute"])


def gpt(layers, hidden, heads, vocab=51200):
    return {"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads, "vocab_size": vocab,
            "n_positions": 2048}


LLAMA = {"model_type": "llama", "num_hidden_layers": 126, "hidden_size": 16384, "num_attention_heads": 128,
         "num_key_value_heads": 8, "intermediate_size": 53248, "vocab_size": 128256,
         "max_position_embeddings": 131072, "tie_word_embeddings": False, "rms_norm_eps": 1e-5}
SC21 = [("1.7B", 24, 2304, 24, 4, 512, "tp1 pp1 dp32"), ("18B", 40, 6144, 48, 32, 1024, "tp8 pp1 dp32"),
        ("39B", 48, 8192, 64, 64, 1536, "tp8 pp2 dp32"), ("76B", 60, 10240, 80, 128, 1792, "tp8 pp4 dp32"),
        ("145B", 80, 12288, 96, 192, 2304, "tp8 pp8 dp24"), ("310B", 96, 16384, 128, 240, 2160, "tp8 pp16 dp15"),
        ("530B", 105, 20480, 128, 315, 2520, "tp8 pp35 dp9"), ("1T", 128, 25600, 160, 384, 3072, "tp8 pp64 dp6")]

print("| case | known | found | step | the known degrees | found is faster by |")
print("|---|---|---|---|---|---|")
ROWS = [("GPT %s, %d a100-80g" % (n, 8 * nodes), known, gpt(l, h, a), "%d x (8 x a100-80g)" % nodes, b, 2048)
        for n, l, h, a, nodes, b, known in SC21]
ROWS += [("Llama-3 405B, 8,192 h100, 8k tokens", "tp8 pp16 dp64", LLAMA, "1024 x (8 x h100-80g)", 2048, 8192),
         ("Llama-3 405B, 16,384 h100, 8k tokens", "tp8 pp16 dp128", LLAMA, "2048 x (8 x h100-80g)", 2048, 8192),
         ("Llama-3 405B, 16,384 h100, 131k tokens", "tp8 cp16 pp16 dp8", LLAMA, "2048 x (8 x h100-80g)", 128, 131072)]
for name, known, config, cluster, batch, seq in ROWS:
    engine = [] if "Llama" in name else ["--engine", "megatron"]  # what they could do
    found = plan(config, cluster, batch, seq, *engine)
    pins = [w[:2] + "=" + w[2:] for w in known.split()]
    if "cp" not in known:
        pins.append("cp=1")
    theirs = plan(config, cluster, batch, seq, *engine, *pins)
    a, b = found.get("step_s"), theirs.get("step_s")
    print("| %s | %s | %s | %s | %s | %s |" % (
        name, known, words(found), "%.3g s" % a if a else "-", "%.3g s" % b if b else theirs["error"],
        "%.1f %%" % (100 * (b / a - 1)) if a and b else "-"), flush=True)

print("\nERNIE 3.0 Titan 260B (48 layers, 12288 wide, 96 heads assumed), ascend910, sequences of 512, weak scaling from "
      "480 devices;\nthe paper says 91.7 % on 1,920\n")
print("| sequences a device | plan at | 480 | 960 | 1,920 | 3,840 |")
print("|---|---|---|---|---|---|")
for each in (0.5, 1, 2, 4):
    for how in ("tp=8 pp=10 cp=1", "planned"):
        base, cells = None, []
        for nodes in (60, 120, 240, 480):
            pins = [] if how == "planned" else how.split()
            c = plan(gpt(48, 12288, 96), "%d x (8 x ascend910)" % nodes, int(8 * nodes * each), 512,
                     "--precision", "fp16", "--engine", "megatron", *pins)
            rate = 1 / c["step_s"] if "step_s" in c else 0
            base = base or rate
            cells.append("%.1f %%" % (100 * rate / base) if rate else "does not fit")
        print("| %g | %s | %s |" % (each, how, " | ".join(cells)), flush=True)
