#!/bin/sh
# Installs the Debian packages that building and testing need, or those named; does nothing when all are there.
packages='gcc libc6-dev clang libclang-rt-dev clang-format cmake ninja-build pkg-config python3
          libcmocka-dev libssl-dev libucx-dev libcurl4-openssl-dev iproute2 procps spin'

[ $# -gt 0 ] && packages=$*

missing=
for p in $packages; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

command -v apt-get >/dev/null 2>&1 || {
    echo "not a Debian system; install by hand what corresponds to:$missing" >&2; exit 1; }
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || {
        echo "run as root, or with sudo installed: apt-get install$missing" >&2; exit 1; }
    sudo=sudo
fi
echo "installing:$missing" >&2
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
{ $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends $missing; } \
    >"$log" 2>&1 || { tail -20 "$log" >&2; rm -f "$log"; exit 1; }
rm -f "$log"
