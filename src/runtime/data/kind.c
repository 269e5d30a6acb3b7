/* What a file is, by the ending of its name.  In: a path.  Out: a kind, or the line that refuses
 * it. Text is a list of known endings: a file that is not on it is never read as text unless the
 * job says so. */
#include <ctype.h>
#include <string.h>

#include "data/data_priv.h"

/* Lists of endings, each between spaces. */
static const char text[] =
    " txt text md markdown mdx rst org tex ltx bib adoc asciidoc texinfo texi log srt "
    "vtt tokens raw"
    " c h cc cpp cxx c++ hh hpp hxx h++ inc inl ipp cu cuh cl m mm s asm"
    " py pyi pyx pxd rb pl pm t php js mjs cjs jsx ts tsx java kt kts scala groovy "
    "gradle go rs swift dart"
    " cs fs fsx vb r jl lua nim zig d f for f77 f90 f95 f03 f08 pas ada adb ads v sv vhd "
    "vhdl"
    " hs lhs ml mli elm ex exs erl hrl clj cljs lisp lsp el scm rkt pro"
    " sh bash zsh fish ksh csh bat ps1 awk sed tcl vim sql graphql proto thrift"
    " html htm xhtml xml xsl css scss sass less svg vue svelte"
    " yaml yml toml ini cfg conf properties cmake mk make am ac m4 in def patch diff po "
    "pot ";
static const char tokens[] = " bin idx safetensors ";

static const struct foreign {
    const char *endings, *what, *remedy;
} foreign[] = {
    {" npy npz ", "a NumPy file",
     "write its tokens with .astype('uint32').tofile('x.bin')"},
    {" jsonl ndjson json csv tsv parquet arrow feather orc avro ", "a table of records",
     "tokenize its text into a .bin"},
    {" tfrecord tfrecords mds lmdb mdb ", "a file of another framework",
     "write its tokens into a .bin"},
    {" gz zst zstd bz2 xz lz4 br zip tar tgz 7z rar ", "a packed file", "unpack it"},
    {" pt pth pkl pickle ckpt h5 hdf5 gguf onnx msgpack ",
     "a file of weights or Python objects", "write its tokens into a .bin"},
};

const char *weft_data__ending(const char *path)
{
    const char *name = strrchr(path, '/'), *dot;

    name = name ? name + 1 : path;
    dot  = strrchr(name, '.');
    return dot && dot != name ? dot + 1 : "";
}

/* Is ending, in small letters, on the list? */
static bool has_ending(const char *list, const char *ending)
{
    char   word[24] = " ";
    size_t n        = strlen(ending);

    if (n == 0 || n + 3 > sizeof word) return false;
    for (size_t i = 0; i < n; i++) word[1 + i] = (char)tolower((unsigned char)ending[i]);
    word[n + 1] = ' ';
    return strchr(ending, ' ') == NULL && strstr(list, word) != NULL;
}

weft_data__kind weft_data__kind_of(const char *path)
{
    const char *ending = weft_data__ending(path);

    if (!ending[0]) return WEFT_DATA__KIND_PLAIN;
    if (has_ending(text, ending)) return WEFT_DATA__KIND_TEXT;
    if (has_ending(tokens, ending)) return WEFT_DATA__KIND_TOKENS;
    for (size_t i = 0; i < WEFT_COUNT(foreign); i++)
        if (has_ending(foreign[i].endings, ending)) return WEFT_DATA__KIND_FOREIGN;
    return WEFT_DATA__KIND_OTHER;
}

weft_status weft_data__refuse_kind(const char *path)
{
    const char *ending = weft_data__ending(path);

    if (has_ending(tokens, ending))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s is a file of tokens: only one is read, not a pattern or "
                         "folder of them; join "
                         "them into one (docs/data.md)",
                         path);
    for (size_t i = 0; i < WEFT_COUNT(foreign); i++)
        if (has_ending(foreign[i].endings, ending))
            return WEFT_FAIL(WEFT_ERR_ARG,
                             "%s: .%s is %s, which weft does not read: %s first "
                             "(docs/data.md), or set "
                             "data_format: text to read its bytes",
                             path, ending, foreign[i].what, foreign[i].remedy);
    return WEFT_FAIL(WEFT_ERR_ARG,
                     "%s: weft knows no data with the ending .%s: set data_format to u16 "
                     "or u32 for raw "
                     "tokens, to text to read its bytes (docs/data.md)",
                     path, ending);
}

int64_t weft_data__find_binary(const uint8_t *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if ((p[i] < 32 && !(p[i] >= '\a' && p[i] <= '\r') && p[i] != 27) || p[i] == 127)
            return i;
    return -1;
}
