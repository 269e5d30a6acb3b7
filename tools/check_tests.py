#!/usr/bin/env python3
"""Tests mirror sources.

tests/<module>/test_<file>.c, or test_<file>_<what>.c, tests <file>.c, <file>.h or <file>.cu of that module:
src/<group>/<module>, include/weft, plugin/<module>.  A test across modules is in a folder of ACROSS.  A test that
names no source is an error.  Sources without a test of their own are counted, and listed with --list.
test_<plugin>_<what>.c tests a plugin through its interface.
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Folders whose tests are of several modules; CONTRIBUTING.md says what is in each.
ACROSS = {"flow", "fault", "golden", "eco", "hosts", "fuzz", "recorded"}


def sources_of(module):
    """File names without ending of a module: its sources and headers, and the public headers of its name."""
    names = set()
    for folder in [*ROOT.glob(f"src/*/{module}"), *ROOT.glob(f"plugin/{module}")]:
        names |= {p.stem for p in folder.rglob("*") if p.suffix in (".c", ".h", ".cu", ".cpp")}
    if (ROOT / "plugin" / module).is_dir() or (ROOT / "include/weft" / (module + ".h")).exists():
        names.add(module)
    return names


def source_named(test, names):
    """The source that a test's name begins with; the longest such."""
    words = test.split("_")
    for n in range(len(words), 0, -1):
        if "_".join(words[:n]) in names:
            return "_".join(words[:n])
    return None


def main():
    errors = []
    tested = set()
    n_test = n_across = 0
    for path in sorted((ROOT / "tests").glob("**/test_*.c")):
        module = path.relative_to(ROOT / "tests").parts[0]
        n_test += 1
        if module in ACROSS:
            n_across += 1
            continue
        source = source_named(path.stem.removeprefix("test_"), sources_of(module))
        if source:
            tested.add((module, source))
        else:
            errors.append(f"{path.relative_to(ROOT)}: names no file of module {module}; rename it, or move it to one of "
                          f"tests/{{{','.join(sorted(ACROSS))}}}")
    sources = sorted({(p.parent.name, p.stem, str(p.relative_to(ROOT))) for p in ROOT.glob("src/*/*/*.c")})
    alone = [path for module, name, path in sources if (module, name) not in tested]
    if "--list" in sys.argv[1:]:
        print("\n".join(alone))
    print(f"tests: {n_test - n_across} name their source, {n_across} are across modules; "
          f"{len(alone)} of {len(sources)} sources have no test of their own"
          + ("" if "--list" in sys.argv[1:] else " (tools/check_tests.py --list)"))
    for e in errors:
        print(e, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
