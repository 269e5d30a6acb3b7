#!/usr/bin/env python3
"""How far predictions are from measured steps of engines and devices that nothing was fitted to.

    bench/predict/unseen.py bench/results/predict-DATE.txt

Reads the lines of `fit.py --leave-out --clean` ("left out SOURCE x %  bias b  max m" after "# --clean"): each source of measured
steps removed, the rest refitted, what occurs nowhere else forgotten.  Prints the root mean square over sources of
log(measured / predicted) of a source's mean, and the longest measured / predicted of the source whose device was forgotten
(amp_homo: nobody else has a T4).  src/planning/cost/unseen.c takes both."""
import math
import re
import sys

ALONE = 'amp_homo'  # the one source whose device no other source has and whose constants --clean forgets

clean = open(sys.argv[1]).read().split('# --clean')[1]
rows = re.findall(r'left out (\S+)\s+([\d.]+) %\s+bias\s+([-+\d.]+)\s+max\s+([\d.]+)', clean)
logs = [-math.log1p(float(bias) / 100) for _, _, bias, _ in rows]
most = {name: float(m) for name, _, _, m in rows}
print(f'{len(rows)} sources: spread {math.sqrt(sum(x * x for x in logs) / len(logs)):.3f}; '
      f'device unknown: measured at most {1 / (1 - most[ALONE] / 100):.2f} times predicted')
