#!/bin/bash
# gpu_run.sh [-b BUILD] [-o DIR] BLOCK ...: tests and measurements on a GPU, from a prebuilt tree.
# gpu_run.sh [-b BUILD] pack DIR: what the blocks need of BUILD, stripped, for -b DIR on a machine that has no compiler.
#
#   ops         every operator of the table on the device against the reference kernels; products and attention by warpgroups
#   reference   models of ../shared/reference and tests/fixtures, 20 steps in fp32; t5 and resnet50 beside the CPU
#   bits        run to run beside another process, graphs or none, resumes, ranks that share the GPU; commands; experts' losses
#               and biases; bad input
#   ranks       ranks that share the GPU: communication on the device against the host's, a killed rank, jobs over staged
#               and peer against one rank, the speed of a sum of 128 MB
#   matrix      the plans of make matrix with at most four ranks, which share the GPU and keep their processes, over peer and staged
#               (matrix-peer, matrix-staged: over one of them; FIRST=21: without the first 21)
#   jobs        the recorded jobs of tests/eco, near their recorded losses (JOBS=8: every eighth)
#   steps       weft bench of a few models, with and without graphs
#   speed       five models beside PyTorch in the same run: ratios, memory (tools/gpu_speed.py)
#   fp8         dtype=fp8: every matmul against the reference kernels, 100 steps of gpt2 beside bf16 (losses, bits), how matmuls
#               run; steps of GPT 1.3B and a llama of 1.2B in fp8 beside bf16 (tools/gpu_fp8.py)
#   fp8-codes   the passes that make codes, after a check: ms and GB/s, ms a layer; products by result and steps; then block fp8
#   fp8-torch   the same two models beside PyTorch's scaled matmuls: compiled first, then steps in turn
#   fp8-matmul  matmuls alone at those models' shapes, ours and PyTorch's: ms and TFLOP/s
#   fp8-tune    algorithms of cublasLt measured for the fp8 matmuls of the two models: DIR/pinned-fp8.tsv
#   kernels     own kernels alone, at the shapes of gpt2 and of a llama: ms and GB/s
#   attention   its gradient at shapes of models, by warpgroups and by cuDNN: ms, TFLOP/s and scratch, after a check
#   classes     the time of gpt2's instructions by kind and size
#   nccl        NCCL with ranks that share the GPU: bits, aborts, kills; two launchers in two network namespaces
#   machines    ranks on several GPUs: GPUS of each machine, of those that the file HOSTS names (tools/gpu_machines.sh)
#   tune        algorithms of cublasLt measured for the same five models: DIR/pinned.tsv, for data/cuda/, then gpt2 with it
#   predict     20 models: steps and memory predicted from a calibration (CLUSTER=file: that one), then measured
#   shared      1, 2 and 4 ranks that share the GPU: steps predicted from a calibration (CLUSTER=file: that one), then measured
#   sanitize    two steps of two-layer models under compute-sanitizer: memcheck, racecheck of own kernels (MODELS=mixtral: of it)
#   soak        2,000 steps: no growth of host or device memory
#   starts      gpt2: from the start to the first step, twice
#   wall        gpt2 by wall clock: 200 steps of weft train and of PyTorch, weft bench's step, cores of the host
#   gaps        how long the GPU has nothing to do between two steps: gpt2, a GPT of 40M at batch 1, GPT 1.3B with a checkpoint
#               each 20 steps, which its file takes longer than
#   offload     GPT 1.3B and llama3-8b with optimizer states in the host's memory, beside none: step, memory, bits
#   survive     20 kills of ranks that share the GPU, over peer and staged, ZeRO and pipeline: bits, committed steps run again; GPT 1.3B:
#               pauses, cost of snapshots and of an asynchronous checkpoint (tools/gpu_survive.py; SEED=2: other kills)
#   survive-hosts  agents of several hosts that share the GPU: ranks are killed, hosts are lost (tests/eco/eco_cuda_hosts.py)
#   survive-scale  ranks that share the GPU become fewer and more, some are killed meanwhile (tests/eco/eco_cuda_scale.py)
#   pauses      needs no GPU: pauses after lost ranks, tiny256 on 4 and 16 ranks of one thread, gpt2 on 2 and 4 ranks of four (16 cores,
#               4 minutes; bench/real/pauses.py)
#   resizes     needs no GPU: pauses of weft scale 2, 4, 3, 1, 2, tiny256 and gpt2 (16 cores; bench/real/scale.py)
#   long        500 steps of gpt2 on real text, bf16 against the spread of three fp32 seeds
#
# Each block writes DIR/gpu-BLOCK.txt: commit, device, driver and library versions, then its output; the last line of
# the run is one line a block.  Nothing is compiled: BUILD (build) and tests/ come from the machine that built them.
set -u
build=build out=gpu-results
while getopts b:o: option; do
    case $option in
    b) build=$OPTARG ;;
    o) out=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2; }
case $build in /*) ;; *) build=$(cd "$(dirname "$0")/.." && pwd)/$build ;; esac
cd "$(dirname "$0")/.." || exit 2
if [ "$1" = pack ]; then
    mkdir -p "$2"
    for f in weft libweft_cuda.so libhang_kernel.so test_trains test_cuda_device test_cuda_replay test_cuda_ops test_cuda_many test_cuda_fused test_cuda_comm test_cuda_grouped test_cuda_attention test_cuda_matrix test_cuda_families bench_cuda_ops bench_cuda_attention; do
        [ -e "$build/$f" ] && cp "$build/$f" "$2/" && strip --strip-debug "$2/$f"
    done
    ldd "$build/weft" "$build/test_cuda_ops" 2>/dev/null | awk '/cmocka|crypto|libssl/ {print $3}' | xargs -I{} cp -L {} "$2/"
    git rev-parse --short HEAD >"$2/commit"
    du -sh "$2"
    exit
fi
ls "$build"/lib*.so.[0-9]* >/dev/null 2>&1 && export LD_LIBRARY_PATH=$build${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "$out"
export WEFT=$build/weft WEFT_PLUGINS=$build WEFT_TEST_GPU=1

describe() {
    echo "commit $(cat "$build/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%Y-%m-%dT%H:%MZ)"
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.sm --format=csv,noheader 2>&1
    "$WEFT" cluster discover 2>/dev/null | grep -E '^(cublasLt|cuDNN|NCCL) '
    uname -sr
}

bench() { # label, environment, arguments
    echo "== $1"
    env $2 "$WEFT" bench $3 --device cuda --steps 20 --json
}

run_block() {
    case $1 in
    ops) "$build/test_cuda_ops" && "$build/test_cuda_grouped" && "$build/test_cuda_attention" ;;
    reference)
        [ -e ../shared/reference ] || export WEFT_TEST_REFERENCE=$PWD/shared/reference
        WEFT_TEST_DEVICE=cuda "$build/test_trains" && "$build/test_cuda_families"
        ;;
    bits)
        "$build/test_cuda_device" && "$build/test_cuda_replay" && "$build/test_cuda_many" && "$build/test_cuda_fused" &&
            tests/eco/run.sh cuda && tests/eco/run.sh experts && tests/eco/run.sh cuda_bad
        ;;
    ranks) "$build/test_cuda_comm" && "$build/test_cuda_comm" speed && python3 tools/gpu_ranks.py "$WEFT" ;;
    matrix) "$build/test_cuda_matrix" "all:${FIRST:-0}" ;;
    matrix-*) "$build/test_cuda_matrix" "all:${FIRST:-0}" "${1#matrix-}" ;;
    jobs) WEFT_TEST_DEVICE=cuda WEFT_TEST_JOBS=${JOBS:-1} tests/eco/run.sh recorded ;;
    steps)
        bench "tiny256, batch 8" A=1 "tiny256 --batch 8 --seq 128" &&
            bench "gpt2 fp32, batch 4" A=1 "gpt2 --batch 4 --seq 256" &&
            bench "gpt2 bf16, batch 32" A=1 "gpt2 --batch 32 --seq 1024 --dtype bf16" &&
            bench "gpt2 bf16, batch 32, no graphs" WEFT_CUDA_GRAPH=0 "gpt2 --batch 32 --seq 1024 --dtype bf16" &&
            bench "gpt2 bf16, batch 1" A=1 "gpt2 --batch 1 --seq 128 --dtype bf16"
        ;;
    speed)
        python3 tools/gpu_speed.py "$WEFT" compile --limit 160
        python3 tools/gpu_speed.py "$WEFT" steps
        ;;
    fp8)
        WEFT_TEST_OPS=matmul "$build/test_cuda_ops" && python3 tools/gpu_fp8.py "$WEFT" check &&
            python3 tools/gpu_fp8.py "$WEFT" steps --no-torch
        ;;
    fp8-codes) "$build/test_cuda_fused" && "$build/bench_cuda_ops" codes && "$build/bench_cuda_ops" products && run_block fp8 ;;
    fp8-torch)
        python3 tools/gpu_fp8.py "$WEFT" compile --limit 240
        python3 tools/gpu_fp8.py "$WEFT" steps
        ;;
    fp8-matmul) "$build/bench_cuda_ops" matmul && python3 bench/gpu/torch_matmul.py ;;
    fp8-tune)
        rm -f "$out/pinned-fp8.tsv"
        for name in gpt-1.3b llama-1.2b; do
            python3 tools/gpu_speed.py "$WEFT" tune --rows $name --dtype fp8 --out "$out/pinned-fp8.tsv" --limit 150 || return
        done
        cat "$out/pinned-fp8.tsv"
        WEFT_CUDA_PINNED="$out/pinned-fp8.tsv" python3 tools/gpu_fp8.py "$WEFT" steps --no-torch
        ;;
    nccl) # 77: this machine lets us make no namespaces
        "$build/test_cuda_comm" nccl && { tests/hosts/nccl.sh "$build/weft" || [ $? = 77 ]; }
        ;;
    machines) tools/gpu_machines.sh "$build" ;;
    kernels) "$build/bench_cuda_ops" ;;
    attention) "$build/test_cuda_attention" && "$build/bench_cuda_attention" ;;
    classes)
        bench "gpt2 bf16, traced" A=1 "gpt2 --batch 32 --seq 1024 --dtype bf16 --trace $out/trace.json" &&
            python3 tools/trace_sum.py "$out/trace.json"
        ;;
    tune)
        rm -f "$out/pinned.tsv"
        python3 tools/gpu_speed.py "$WEFT" tune --out "$out/pinned.tsv" &&
            bench "gpt2, first offers" A=1 "gpt2 --batch 32 --seq 1024 --dtype bf16" &&
            bench "gpt2, pinned" "WEFT_CUDA_PINNED=$out/pinned.tsv" "gpt2 --batch 32 --seq 1024 --dtype bf16" &&
            cat "$out/pinned.tsv"
        ;;
    predict | shared)
        cluster=${CLUSTER:-$out/gpus.yaml}
        [ -n "${CLUSTER:-}" ] || "$WEFT" cluster calibrate --only gpus --list "$out/calibration.csv" -o "$cluster" || return
        if [ "$1" = shared ]; then
            python3 bench/predict/shared_gpu.py --weft "$WEFT" --cluster "$cluster"
        else
            python3 bench/predict/own_gpu.py --weft "$WEFT" --cluster "$cluster" --out "$out/predict"
        fi
        ;;
    survive)
        WEFT_VIEWS_KILLS=20 WEFT_VIEWS_JOBS=3 WEFT_VIEWS_SEED=${SEED:-1} tests/eco/run.sh cuda_views &&
            python3 tools/gpu_survive.py "$WEFT" --seconds 240 --folder /dev/shm
        ;;
    survive-hosts) tests/eco/run.sh cuda_hosts ;;
    survive-scale) tests/eco/run.sh cuda_scale ;;
    pauses)
        python3 bench/real/pauses.py "$WEFT" --cases tiny:4,tiny:16,large:2x4,large:4x4 --faults 20 --minutes 4 --csv "$out/pauses.csv" &&
            cat "$out/pauses.csv"
        ;;
    resizes) python3 bench/real/scale.py "$WEFT" --sizes tiny,large --rounds 2 --threads 4 --minutes 2 --csv "$out/scale.csv" ;;
    sanitize | soak | starts | wall | gaps | long | offload) python3 tools/gpu_jobs.py "$WEFT" "$1" ;;
    *)
        echo "no block $1"
        return 2
        ;;
    esac
}

failed=0
for block; do
    file=$out/gpu-$block.txt
    describe >"$file"
    start=$(date +%s)
    timeout -k 10 "${BLOCK_TIMEOUT:-480}" bash -c "$(declare -f run_block bench); build=$build out=$out; run_block $block" >>"$file" 2>&1
    code=$?
    echo "exit code $code after $(($(date +%s) - start)) s" >>"$file"
    echo "$block: exit code $code, $(($(date +%s) - start)) s, $file; $(grep -c -i 'FAILED' "$file") lines with FAILED"
    [ $code = 0 ] || failed=1
done
exit $failed
