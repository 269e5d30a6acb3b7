#!/bin/sh
# kernels_id.sh OUT FILE...: writes a C file with weft_cuda_kernels_id, the first digits of a hash of all FILEs' text: what a
# checkpoint and other ranks compare, so that kernels of other sources are not taken for these.
out=$1
shift
id=$(cat "$@" | sha256sum | cut -c 1-8)
[ ${#id} = 8 ] || { echo "kernels_id.sh: no hash of $# files" >&2; exit 1; }
printf '#include "library.h"\n\nconst char weft_cuda_kernels_id[] = "%s";\n' "$id" >"$out"
