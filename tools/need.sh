#!/bin/sh
# need.sh TOOL...: one clear line when a tool that a make target uses is not installed.
for t in "$@"; do
    command -v "$t" >/dev/null 2>&1 || { echo "$t is not installed; 'make deps' installs it" >&2; exit 1; }
done
