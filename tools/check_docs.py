#!/usr/bin/env python3
"""What documents name exists.

    tools/check_docs.py [FILE ...]        default: README.md, bench/RESULTS.md, docs/ but docs/dev/, each README of src, plugin, tests, bench

In a document a source file (comm/comm.h, tests/flow/test_emu.c) is there under a path that ends so; in the README of a
module a name without a folder is a file of that module, or a test of it.  Under results/ a table is committed (in a README
commands name what they will write).  A name of ours in backquotes (`weft_comm_run`, `weft_state_create_*`) is a word of the
sources.  A link to a file is to one that is there.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = re.compile(r"(?<![\w./*<-])((?:[\w.-]+/)*[\w-]+\.(?:c|h|cu|cuh|def|pml|py|sh))(?![\w/*.-]*\w)")
RESULT = re.compile(r"(?<![\w./*<-])(?:bench/)?(results/[\w.-]+\.(?:csv|txt|yaml))(?![\w/*.-]*\w)")
QUOTED = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"\bweft_[a-z]\w*\*?")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
# Files of others, of users, and what stands for several (x_avx2.c).
NOT_OURS = re.compile(r"llm\.c|train\.py|score\.py|x[._].*")
CODE = (".c", ".h", ".cu", ".cuh", ".cpp", ".def", ".py", ".sh", ".txt", ".in", ".cmake", ".map")


def list_files():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [f for f in out.stdout.splitlines() if (ROOT / f).is_file()]


def list_documents(files):
    where = re.compile(r"README\.md|bench/RESULTS\.md|docs/(?!dev/).*\.md|(src|plugin|tests|bench)/(.*/)?README\.md")
    return [f for f in files if where.fullmatch(f)]


def list_words(files):
    """All names of ours in sources, as one set."""
    words = set()
    for f in files:
        if f.endswith(CODE):
            words |= set(re.findall(r"\bweft_\w+", (ROOT / f).read_text(errors="replace")))
    return words


class Checker:
    def __init__(self):
        self.files = list_files()
        self.ends = {"/".join(f.split("/")[k:]) for f in self.files for k in range(f.count("/") + 1)}
        self.words = list_words(self.files)
        self.errors = []

    def has_file(self, document, name):
        name = name.removeprefix("../")
        if NOT_OURS.fullmatch(name):
            return True
        module = re.fullmatch(r"(src/\w+/(\w+))/README\.md", document)
        if not module or "/" in name:
            return name in self.ends
        return f"{module[1]}/{name}" in self.ends or f"tests/{module[2]}/{name}" in self.ends

    def has_name(self, name):
        return any(w.startswith(name[:-1]) for w in self.words) if name.endswith("*") else name in self.words

    def check_line(self, document, at, line):
        wrong = [f for f in FILE.findall(line) if not self.has_file(document, f)]
        if not document.endswith("README.md"):  # there commands name what they will write
            wrong += [f for f in RESULT.findall(line) if "bench/" + f not in self.ends]
        for quoted in QUOTED.findall(line):
            wrong += [n for n in NAME.findall(quoted) if not self.has_name(n)]
        for link in LINK.findall(line):
            if not (ROOT / document).parent.joinpath(link).exists():
                wrong.append(link)
        self.errors += [f"{document}:{at}: {w} is not there" for w in wrong]

    def check(self, document):
        for at, line in enumerate((ROOT / document).read_text().splitlines(), 1):
            self.check_line(document, at, line)


def main():
    checker = Checker()
    documents = sys.argv[1:] or list_documents(checker.files)
    for d in documents:
        checker.check(d)
    print(f"documents: {len(documents)} name files and functions that exist" if not checker.errors else
          f"documents: {len(checker.errors)} names of files and functions that do not exist")
    for e in checker.errors:
        print(e, file=sys.stderr)
    return 1 if checker.errors else 0


if __name__ == "__main__":
    sys.exit(main())
