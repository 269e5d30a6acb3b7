#!/bin/sh
# build_id.sh SOURCE HEADER: writes WEFT_BUILD, the commit that SOURCE is at, with -dirty where tracked files differ from it,
# or "" where SOURCE is not the top of a git repository.  A header that says so already is left alone, so nothing is compiled again.
id=
if top=$(git -C "$1" rev-parse --show-toplevel 2>/dev/null) && [ "$top" = "$(cd "$1" && pwd -P)" ]; then
    id=$(GIT_OPTIONAL_LOCKS=0 git -C "$1" describe --always --dirty 2>/dev/null | tr -cd 'A-Za-z0-9._+-' | cut -c 1-80)
fi
line="#define WEFT_BUILD \"$id\""
[ "$(cat "$2" 2>/dev/null)" = "$line" ] || echo "$line" >"$2"
