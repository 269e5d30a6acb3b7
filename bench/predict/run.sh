#!/bin/sh
# run.sh BUILD VALIDATION: predictions for every calibration row with the built-in constants, their score,
# slopes of scaling curves, and each source left out in turn (needs python3 with numpy).  Prints what README.md shows.
set -e
build=$1 data=$2 here=$(dirname "$0")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
set -- "$data"/calibrate/*.csv
head -n 1 "$1" >"$tmp/rows.csv"
for f; do tail -n +2 "$f" >>"$tmp/rows.csv"; done
"$build/weft" estimate --table "$tmp/rows.csv" --hardware "$data" >"$tmp/predictions.csv"
python3 "$data/score.py" -p "$tmp/predictions.csv" "$data/calibrate"
python3 "$here/slopes.py" "$tmp/predictions.csv" "$data/calibrate/mcore_weak.csv" "$data/calibrate/mcore_strong.csv"
${PYTHON:-python3} "$here/fit.py" --lib "$build/libweft.so" --data "$data" --leave-out --most 200 --iterations 9
