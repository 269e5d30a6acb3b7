#!/bin/sh
# embed.sh NAME FILE: a C file with the text of FILE as const char NAME[].
printf '/* Made from %s by tools/embed.sh. */\nextern const char %s[];\nconst char %s[] =\n' "${2##*/}" "$1" "$1"
sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/    "&\\n"/' "$2" || exit 1
echo '    "";'
