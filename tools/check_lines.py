#!/usr/bin/env python3
"""No line of C, C++ or CUDA is above 100 columns, no file above 800 lines, and the formatter breaks no declaration for its
comment:

    tools/check_lines.py [FILE ...]        default: all sources of the project

    int64_t
            bucket_bytes; /* a comment that did not fit */        wrong: the comment goes above the field
"""
import os, re, sys

LIMIT = 100
LINES = 800
ENDINGS = ('.c', '.h', '.cpp', '.cu', '.cuh')
TYPE = re.compile(r'^\s+(const )?(struct |enum |unsigned )*[a-z_]\w*( const)?( \*+)?$')
REST = re.compile(r'^\s{6,}\**[a-z_][\w\[\]]*;\s*/\*')
WORDS = {'else', 'do', 'break', 'return', 'continue'}


def check(path):
    bad, before, n = [], '', 0
    for n, line in enumerate(open(path, errors='replace'), 1):
        line = line.rstrip('\n')
        if len(line) > LIMIT:
            bad.append(f'{path}:{n}: {len(line)} columns, at most {LIMIT}')
        if TYPE.match(before) and before.strip() not in WORDS and REST.match(line):
            bad.append(f'{path}:{n}: the comment of {line.split(";")[0].strip()} goes above it')
        before = line
    if n > LINES:
        bad.append(f'{path}: {n} lines, at most {LINES}')
    return bad


def sources():
    for top in ('include', 'src', 'plugin', 'tests', 'examples', 'bench'):
        for where, _, files in os.walk(top):
            yield from (os.path.join(where, f) for f in sorted(files) if f.endswith(ENDINGS))


def main():
    files = sys.argv[1:] or list(sources())
    bad = [b for f in files for b in check(f)]
    print(*bad, sep='\n', end='\n' if bad else '')
    print(f'{len(files)} files, {len(bad)} lines to fix', file=sys.stderr)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
