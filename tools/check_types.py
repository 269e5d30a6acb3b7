#!/usr/bin/env python3
"""Types and enumerators have one meaning: no two headers under src/ and include/ define the same name, and no
source file defines one that a header of its module has, or that starts with weft_ or WEFT_.

    tools/check_types.py [--root DIR]

The linker sees functions only (tools/check_names.sh); two headers with one enumerator break the first file that
needs both.  Prints each name with the places that define it, and exits 1 if there is any.
"""
import argparse, collections, os, re, sys

# One meaning, several implementations: the header that declares it says so.
VARIANTS = {'weft_comm_group', 'weft_comm_channel', 'vf', 'vi', 'vm'}
NOISE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
TAGGED = re.compile(r'\b(struct|union|enum)\s+([A-Za-z_]\w*)\s*\{')
BODY = re.compile(r'\benum\b\s*[A-Za-z_]*\w*\s*\{([^{}]*)\}')
NAMED = re.compile(r'\}\s*([A-Za-z_]\w*)\s*;')
PLAIN = re.compile(r'\btypedef\s+[^;{}()]*?\b([A-Za-z_]\w*)\s*;')
FUNCTION = re.compile(r'\btypedef\s+[^;{}]*?\(\s*\*\s*([A-Za-z_]\w*)\s*\)\s*\(')


def blank(match):
    return re.sub(r'[^\n]', ' ', match[0])


def typedef_ends(text):
    """Offsets and names of  typedef struct .. { .. } NAME;  with nested braces."""
    for m in re.finditer(r'\btypedef\s+(?:struct|union|enum)\b[^;{}]*\{', text):
        depth, at = 1, m.end()
        while depth and at < len(text):
            depth += {'{': 1, '}': -1}.get(text[at], 0)
            at += 1
        name = NAMED.match(text, at - 1)
        if name:
            yield name.start(1), name[1]


def defined(text):
    """{(kind, name): line}; a forward  typedef struct x x;  defines nothing."""
    found = {}

    def add(kind, name, at):
        found.setdefault((kind, name), text.count('\n', 0, at) + 1)

    for m in TAGGED.finditer(text):
        add('type', m[2], m.start())
    for at, name in typedef_ends(text):
        add('type', name, at)
    for pattern in (PLAIN, FUNCTION):
        for m in pattern.finditer(text):
            if not re.match(r'typedef\s+(struct|union|enum)\s+\w+\s+\w+\s*;', m[0]):
                add('type', m[1], m.start())
    for m in BODY.finditer(text):
        for one in m[1].split(','):
            name = re.match(r'\s*([A-Za-z_]\w*)', one)
            if name:
                add('enumerator', name[1], m.start())
    return found


def module_of(place):
    return os.path.dirname(place)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--root', default='.')
    root = ap.parse_args().root
    in_header, in_source = collections.defaultdict(list), collections.defaultdict(list)
    for top in ('src', 'include'):
        for where, dirs, files in os.walk(os.path.join(root, top)):
            dirs.sort()
            for f in sorted(files):
                if not f.endswith(('.h', '.c')):
                    continue
                path = os.path.join(where, f)
                text = NOISE.sub(blank, open(path, errors='replace').read())
                table = in_header if f.endswith('.h') else in_source
                for key, line in defined(text).items():
                    table[key].append('%s:%d' % (os.path.relpath(path, root), line))
    bad = 0
    for (kind, name), places in sorted(in_header.items()):
        for place in in_source.get((kind, name), []):
            if name.lower().startswith('weft_') or module_of(place) in map(module_of, places):
                places.append(place)
        # x_impl.h is included by several files in turn, each with its own constants
        places = [p for p in places if not p.split(':')[0].endswith('_impl.h')]
        if len(places) > 1 and name not in VARIANTS:
            print('%s %s: %s' % (kind, name, ', '.join(places)))
            bad = 1
    print('%d types and enumerators in headers, %s' % (len(in_header), 'duplicates above' if bad else 'none twice'), file=sys.stderr)
    return bad


if __name__ == '__main__':
    sys.exit(main())
