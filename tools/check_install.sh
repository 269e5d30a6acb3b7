#!/bin/sh
# check_install.sh BUILD: installs into BUILD/stage and compiles a program as a user would, with
# pkg-config, against the shared and the static library; then runs the installed command.
set -e
build=$(cd "$1" && pwd)
stage=$build/stage
rm -rf "$stage"
cmake --install "$build" --prefix "$stage" >/dev/null

pc=$(find "$stage" -name weft.pc)
lib=$(dirname "$(dirname "$pc")")
cat >"$stage/user.c" <<'END'
#include <stdio.h>
#include <weft/base.h>
#include <weft/tensor.h>

int main(void)
{
    weft_shape s = weft_shape_make(2, (int64_t[]){2, 3});
    printf("%s %d\n", weft_status_name(WEFT_OK), (int)weft_shape_count(&s));
    return 0;
}
END
flags() { PKG_CONFIG_PATH=$(dirname "$pc") pkg-config --define-variable=prefix="$stage" "$@" weft; }
${CC:-cc} -std=c11 "$stage/user.c" $(flags --cflags --libs) -Wl,-rpath,"$lib" -o "$stage/shared"
${CC:-cc} -std=c11 "$stage/user.c" $(flags --cflags) "$lib/libweft.a" \
    $(flags --static --libs | sed 's/-lweft//') -o "$stage/static"
for x in shared static; do
    [ "$("$stage/$x")" = "ok 6" ] || { echo "install: the $x program failed" >&2; exit 1; }
done
if [ -x "$build/weft" ]; then "$stage/bin/weft" version >/dev/null; fi
