#!/usr/bin/env python3
"""Check a page of weft plan --html: well-formed, self-contained, all sections there, SVGs parse as XML.

    tests/report/check_page.py PAGE

Prints what is wrong and exits 1."""
import html.parser, re, sys
import xml.etree.ElementTree as xml

VOID = {'meta', 'br', 'hr', 'img', 'input', 'link'}
SECTIONS = ['topology', 'timeline', 'breakdown', 'memory', 'runners', 'sure']
wrong = []

class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.scripts, self.svg = [], [], 0, 0

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        for key in ('src', 'href', 'xlink:href', 'data', 'action'):
            if key in attrs and not attrs[key].startswith('#'):
                wrong.append(f'<{tag}> loads {attrs[key]}')
        if any(k.startswith('on') for k in attrs):
            wrong.append(f'<{tag}> has a handler: {attrs}')
        if tag in ('link', 'iframe', 'img', 'object', 'embed', 'base', 'form'):
            wrong.append(f'<{tag}> has no place here')
        if 'id' in attrs:
            self.ids.append(attrs['id'])
        self.scripts += tag == 'script'
        self.svg += tag == 'svg'
        if tag not in VOID:
            self.open.append((tag, self.getpos()))

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            wrong.append(f'</{tag}> at line {self.getpos()[0]}, open: {self.open[-3:]}')
        else:
            self.open.pop()

path = sys.argv[1]
data = open(path, 'rb').read()
text = data.decode('utf-8')
page = Page()
page.feed(text)
page.close()
if page.open:
    wrong.append(f'never closed: {page.open}')
if page.scripts != 1:
    wrong.append(f'{page.scripts} scripts')
if not page.svg:
    wrong.append('no drawing')
if len(set(page.ids)) != len(page.ids):
    wrong.append(f'an id twice: {page.ids}')
if 'plans without later' not in text and 'plans of this search space' not in text:
    wrong.append('does not say what the bound is of')
wrong += [f'no section {s}' for s in SECTIONS if s not in page.ids]
for m in re.finditer(r'<svg.*?</svg>', text, re.S):
    try:
        xml.fromstring(m.group(0))
    except xml.ParseError as e:
        wrong.append(f'svg: {e}: {m.group(0)[:120]}')
for m in re.finditer(r'(?:https?:)?//[a-z0-9]|url\(|@import', text):
    wrong.append(f'a load: {text[m.start():m.start() + 60]!r}')
if re.search(r'\b(nan|inf)\b', re.sub(r'<(script|style)>.*?</\1>', '', text, flags=re.S)):
    wrong.append('a number that is none')
if len(data) >= 1000000:
    wrong.append(f'{len(data)} bytes')
for w in wrong:
    print(f'{path}: {w}')
sys.exit(bool(wrong))
