#!/usr/bin/env python3
"""No line of C, C++ or CUDA is above 100 columns (tables of *_terms.def: 160), no file above 800 lines, and the formatter
breaks no declaration for its comment:

    tools/check_lines.py [FILE ...]        default: all sources of the project

    int64_t batch,
        micro_batch; /* a comment that did not fit */              wrong: the comment goes above the field
"""
import os, re, sys

LIMIT = 100
TABLE_LIMIT = 160                    # of *_terms.def: one row is one line, its columns are aligned
CODE = 90                            # ColumnLimit of .clang-format
LINES = 800
ENDINGS = ('.c', '.h', '.cpp', '.cu', '.cuh', '.def')
STRING = re.compile(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'')
# Code, then a comment: the second group is empty where the comment goes on in the next line.
TRAILING = re.compile(r'^(\s*(?!/\*|\*(?:[ /]|$))\S.*?)\s*/\*(?:(?!\*/).)*(\*/)?$')
# What precedes the first line of a declaration: the end of another, an enumerator, a comment, a preprocessor line.
ENDED = re.compile(r'(^|[;{}:]|\*/)$|^\s*[A-Z]\w*( += .*)?,$|^\s*#')
# A declaration, of variables, fields, a function or a pointer to one: two words, or a word and a pointer.
DECLARATION = re.compile(r'^\s*(?!(?:return|else|case|goto|do|if|for|while|switch|throw|delete)\b)'
                         r'(?:[\w:]+(?:<.*?>)?(?:\s+|\s*\*+\s*))+(?:\w|\(\*)')
# An enumerator whose value is on the next line.
ENUMERATOR = re.compile(r'^\s+[A-Z]\w* =(\s|$)')
# The dimension of an array alone on its line: a comment stands within the declaration.
DIMENSION = re.compile(r'^\s*(\[\w+\])+;')


def broken(lines, n):
    """The first of the lines that are one declaration, broken only for the comment at the end of line n; else None."""
    code = TRAILING.match(lines[n]).group(1)
    first = n
    while first and not ENDED.search(lines[first - 1]):
        first -= 1
    joined = ' '.join(' '.join(lines[first:n] + [code]).split()).replace('( ', '(').replace(' [', '[')
    indent = len(lines[first]) - len(lines[first].lstrip())
    declares = code.endswith(';') and DECLARATION.match(joined) or ENUMERATOR.match(lines[first])
    return first if first < n and code.lstrip()[0] != '}' and declares and indent + len(joined) <= CODE else None


def check(path, whole):
    limit = TABLE_LIMIT if path.endswith('_terms.def') else LIMIT
    lines = [STRING.sub(lambda s: '_' * len(s.group()), line) for line in whole]
    lines = ['#' if before.endswith('\\') else line for before, line in zip([''] + lines, lines)]
    bad = [f'{path}:{n}: {len(line)} columns, at most {limit}' for n, line in enumerate(whole, 1) if len(line) > limit]
    for n, line in enumerate(lines):
        comment = TRAILING.match(line)
        if comment and not comment.group(2):
            bad.append(f'{path}:{n + 1}: a comment of more than one line goes above the declaration')
        elif comment and (first := broken(lines, n)) is not None:
            bad.append(f'{path}:{first + 1}: broken for its comment, which goes above it')
        elif DIMENSION.match(line):
            bad.append(f'{path}:{n + 1}: a comment within a declaration goes above it')
    if len(lines) > LINES:
        bad.append(f'{path}: {len(lines)} lines, at most {LINES}')
    return bad


# Each form that is refused, and what is like it but is not: these are checked first.
EXAMPLES = {
    '    int64_t  batch,\n        micro_batch; /* samples */': 1,
    '    int64_t batch,\n        *of; /* samples */': 1,
    '    int\n        bucket_bytes; /* a comment */': 1,
    '    int open\n        [4]; /* a comment */': 1,
    '    int open\n        /* a comment */\n        [4];': 1,
    '    A = 1,\n    LONG_NAME =\n        1 << 6, /* a comment */': 1,
    '    LONG_NAME =\n        1 << 6 /* a comment */\n};': 1,
    'int64_t weft_bytes(\n        const weft_state *s); /* a comment */': 1,
    'void weft_end(weft_writer *w,\n              weft_sum *sum); /* a comment */': 1,
    '    bool (*arm)(\n        struct end *e); /* a comment */': 1,
    '    double x =\n        f(1); /* a comment */': 1,
    '    int lanes[4]; /* as equal as can be,\n                   * larger first */': 1,
    '    "/* no comment */",\n    int x; /* a comment */': 0,
    '    A = 1,\n    B,\n    C = 3, /* a comment */': 0,
    '    int batch, micro_batch; /* a comment */\n    int n; /* a comment */': 0,
    '    if (x)\n        return 1; /* a comment */': 0,
    '    f(x,\n      y); /* a comment */': 0,
    '    const char *' + 'a' * 40 + ',\n        *' + 'b' * 40 + '; /* a comment */': 0,
    '/* two\n * lines */\nint x; /* a comment */': 0,
    'x' * 100: 0,
    'x' * 101: 1,
}


def sources():
    for top in ('include', 'src', 'plugin', 'tests', 'examples', 'bench'):
        for where, _, files in os.walk(top):
            yield from (os.path.join(where, f) for f in sorted(files) if f.endswith(ENDINGS))


def main():
    files = sys.argv[1:] or list(sources())
    for lines, n_bad in EXAMPLES.items():
        assert len(check('example.h', lines.split('\n'))) == n_bad, f'this check finds other than {n_bad} in:\n{lines}'
    bad = [b for f in files for b in check(f, open(f, errors='replace').read().removesuffix('\n').split('\n'))]
    print(*bad, sep='\n', end='\n' if bad else '')
    print(f'{len(files)} files, {len(bad)} lines to fix', file=sys.stderr)
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
