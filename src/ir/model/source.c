/* What models are built from: what a name means, read and parsed once. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/suggest.h"
#include "model/model_priv.h"

static bool ends_in(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && !strcmp(s + n - k, end);
}

static weft_status refuse_name(const char *what)
{
    const char *word[64];
    weft_text   list = {0};
    int         n    = 0;
    for (const char *s; n < (int)WEFT_COUNT(word) && (s = weft_model_preset(n)); n++) {
        word[n] = s;
        weft_text_add(&list, "%s%s", n ? ", " : "", s);
    }
    const char *near = weft_suggest(what, word, n);
    weft_status st =
        WEFT_FAIL(WEFT_ERR_ARG,
                  "model %s: no folder with config.json, no .graph file, no preset%s%s%s "
                  "presets are %s",
                  what, near ? "; did you mean '" : "", near ? near : "",
                  near ? "'?" : ";", list.s ? list.s : "");
    weft_text_fini(&list);
    return st;
}

/* text ends in NUL, which n does not count. */
static weft_status take_config(weft_model_source *s, const char *text, size_t n)
{
    s->text   = weft_arena_memdup(s->arena, text, n + 1);
    s->n_text = n;
    WEFT_TRY(weft_arena_status(s->arena));
    WEFT_TRY(weft_doc_parse_json(s->file, text, n, &s->doc));
    return weft_model__find_family(s->doc, &s->family);
}

static weft_status read_config(weft_model_source *s)
{
    char  *text = NULL;
    size_t n;
    WEFT_TRY(weft_io_read_as(s->file, 0, &text, &n));
    weft_status st = take_config(s, text, n);
    free(text);
    return st;
}

/* It is parsed where a model is built: a model changes its graph. */
static weft_status read_graph(weft_model_source *s)
{
    char  *text = NULL;
    size_t n;
    WEFT_TRY(weft_io_read_as(s->file, WEFT_IO_LARGE, &text, &n));
    s->text   = weft_arena_memdup(s->arena, text, n + 1);
    s->n_text = n;
    free(text);
    return weft_arena_status(s->arena);
}

static weft_status read_file(weft_model_source *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    s->file           = weft_arena_strdup(s->arena, path);
    s->dir = slash ? weft_arena_strndup(s->arena, path, (size_t)(slash - path) + 1) : ".";
    WEFT_TRY(weft_arena_status(s->arena));
    return ends_in(path, ".graph") ? read_graph(s) : read_config(s);
}

static weft_status read_preset(weft_model_source *s, const char *name)
{
    const char *text = weft_model__preset_text(name);
    if (!text) return refuse_name(name);
    s->name = weft_arena_strdup(s->arena, name);
    s->file = weft_arena_printf(s->arena, "preset %s", name);
    WEFT_TRY(weft_arena_status(s->arena));
    return take_config(s, text, strlen(text));
}

static weft_status read_source(weft_model_source *s, const char *what)
{
    if (what[0] == '{') { /* the configuration itself */
        s->name = s->file = "model";
        return take_config(s, what, strlen(what));
    }
    s->file = weft_arena_printf(s->arena, "%s/config.json", what);
    WEFT_TRY(weft_arena_status(s->arena));
    if (weft_io_exists(s->file)) {
        s->dir = weft_arena_strdup(s->arena, what);
        WEFT_TRY(weft_arena_status(s->arena));
        return read_config(s);
    }
    if (ends_in(what, ".json") || ends_in(what, ".graph")) return read_file(s, what);
    return read_preset(s, what);
}

static weft_status create_source(weft_model_source **out)
{
    weft_arena *a;
    WEFT_TRY(weft_arena_create(&a));
    *out = WEFT_ARENA_NEW(a, weft_model_source);
    if (!*out) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a model's source");
    }
    **out = (weft_model_source){.arena = a};
    return WEFT_OK;
}

weft_status weft_model_source_open(const char *what, weft_model_source **out)
{
    weft_model_source *s;
    WEFT_TRY(create_source(&s));
    weft_status st = read_source(s, what);
    if (st == WEFT_OK)
        *out = s;
    else
        weft_model_source_destroy(s);
    return st;
}

weft_status weft_model_source_of_graph(const weft_graph *g, weft_model_source **out)
{
    WEFT_TRY(create_source(out));
    (*out)->graph = g;
    return WEFT_OK;
}

int64_t weft_model_source_bytes(const weft_model_source *s)
{
    if (!s) return 0;
    return weft_arena_bytes(s->arena) + (s->doc ? weft_doc_bytes(s->doc) : 0);
}

void weft_model_source_destroy(weft_model_source *s)
{
    if (!s) return;
    weft_doc_destroy(s->doc);
    weft_arena_destroy(s->arena); /* s itself is in it */
}

weft_status weft_model_load(const char *what, const weft_model_options *o,
                            weft_model **out)
{
    weft_model_source *s;
    WEFT_TRY(weft_model__check_options(o));
    WEFT_TRY(weft_model_source_open(what, &s));
    weft_status st = weft_model_build(s, o, out);
    weft_model_source_destroy(s);
    return st;
}
