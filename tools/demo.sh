#!/bin/sh
# demo.sh BUILD/weft: plans and trains a byte-level GPT on this project's own source with two processes, about a
# minute on two cores, and lets it write.  No download.
set -eu
weft=$1
out=${WEFT_DEMO_OUT:-out/demo}
steps=${WEFT_DEMO_STEPS:-700}
ranks=2

echo "== weft run: a byte-level GPT, 4 layers x 128, on the text of src/, planned for $ranks processes"
rm -rf "$out" "$out.json"
mkdir -p "$(dirname "$out")"
"$weft" run --nproc-per-node $ranks examples/first.yaml output="$out" steps="$steps" eval.every="$steps" \
    --json >"$out.json"

echo
echo "== the loss, in nats a byte ($out/metrics.jsonl; tensorboard --logdir $out shows it too)"
awk -v n="$steps" '
    { split($0, a, /"loss": |, "grad_norm"/); step = NR; loss = a[2]
      if (step == 1 || step % int(n / 10) == 0) {
          printf "  step %4d  %6.3f  ", step, loss
          for (i = 0; i < loss * 10; i++) printf "#"
          print "" } }' "$out/metrics.jsonl"
echo
cat "$out.json"

echo
echo "== weft sample: what it learnt"
"$weft" sample "$out" --prompt "static weft_status " --tokens 240 --temperature 0.7 --seed 1

echo
echo "== where to look next"
while IFS='|' read -r what why; do
    printf '  %-70s %s\n' "$what" "$why"
done <<END
$out/final|config.json and model.safetensors, as Hugging Face has them
$weft ckpt ls $out|the checkpoints
$weft run --nproc-per-node $ranks examples/first.yaml output=$out steps=800|the same job, continued
$weft train examples/first.yaml output=$out steps=900|... by one process, with the same bits
$weft graph tiny256 --batch 8 --seq 128|the model's graph
$weft lower tiny256 --batch 8 --seq 128|the program that ran
$weft sim tiny256 --batch 8 --seq 128|the same program in virtual time
$weft bench gpt2 --batch 4 --seq 64|a step's time, share of peak, memory
docs/job.md|the keys of a job
END
