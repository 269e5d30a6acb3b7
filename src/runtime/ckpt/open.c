/* Loading a checkpoint.  In: a directory.  Out: the newest step whose every block is what
 * was written, and loud words about each newer one that is not. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "ckpt/ckpt_priv.h"

typedef struct member {
    const char      *name;
    weft_store_file *tensors; /* or */
    char            *text;
    size_t           n_text;
} member;

struct weft_ckpt {
    weft_arena *arena;
    int64_t     step;
    const char *path;
    member     *file;
    int         n_file;
};

static weft_status open_member(weft_ckpt *c, const weft_ckpt_entry *e)
{
    member     *f    = &c->file[c->n_file];
    const char *path = weft_arena_printf(c->arena, "%s/%s", c->path, e->name);
    size_t      n = strlen(e->name), k = strlen(".safetensors");

    f->name = weft_arena_strdup(c->arena, e->name);
    WEFT_TRY(weft_arena_status(c->arena));
    c->n_file++;
    if (n > k && strcmp(e->name + n - k, ".safetensors") == 0)
        return weft_store_open(path, &f->tensors);
    return weft_io_read_as(path, WEFT_IO_LARGE, &f->text, &f->n_text);
}

static weft_status open_whole(const char *dir, const weft_ckpt_manifest *m,
                              weft_ckpt **out)
{
    weft_arena *a  = NULL;
    weft_ckpt  *c  = NULL;
    weft_status st = WEFT_OK;

    WEFT_TRY(weft_ckpt__verify(dir, m, true, false));
    WEFT_TRY(weft_arena_create(&a));
    c = WEFT_ARENA_NEW(a, weft_ckpt);
    if (!c) {
        weft_arena_destroy(a);
        return WEFT_FAIL(WEFT_ERR_MEM, "%s: no memory to open it", dir);
    }
    c->arena = a;
    c->step  = m->step;
    c->path  = weft_arena_printf(a, "%s/%s", dir, m->dir);
    c->file  = WEFT_ARENA_ARRAY(a, member, m->n_file + 1);
    WEFT_GO(weft_arena_status(a));
    for (int i = 0; i < m->n_file; i++) WEFT_GO(open_member(c, &m->file[i]));
    *out = c;
out:
    if (st != WEFT_OK) weft_ckpt_close(c);
    return st;
}

static weft_status open_step(const char *dir, int64_t step, weft_ckpt_findings *f,
                             weft_ckpt **out)
{
    weft_ckpt_manifest m  = {0};
    weft_status        st = weft_ckpt__load_manifest(dir, step, &m);
    uint32_t           id = st == WEFT_OK ? weft_ckpt__id(&m) : 0;

    if (st == WEFT_OK) st = open_whole(dir, &m, out);
    if (st != WEFT_ERR_MEM) weft_ckpt__note(f, step, id, st == WEFT_OK);
    weft_ckpt_manifest_fini(&m);
    return st;
}

weft_status weft_ckpt_open(const char *dir, int64_t step, weft_ckpt_findings *f,
                           weft_ckpt **out)
{
    int64_t    *v  = NULL;
    int         n  = 0;
    weft_status st = WEFT_OK;

    if (step >= 0) return open_step(dir, step, f, out);
    WEFT_TRY(weft_ckpt__steps(dir, &v, &n));
    if (n == 0) WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: no checkpoint there", dir));
    for (int i = 0; i < n; i++) {
        st = open_step(dir, v[i], f, out);
        if (st == WEFT_OK || st == WEFT_ERR_MEM) goto out;
        weft_ckpt__warn(f, "CHECKPOINT OF STEP %lld IS DAMAGED AND PASSED OVER: %s",
                        (long long)v[i], weft_error_text());
    }
    st = weft_fail_in(WEFT_ERR_ARG,
                      "%s: none of %d checkpoints is whole; the oldest: ", dir, n);
out:
    free(v);
    return st;
}

void weft_ckpt_close(weft_ckpt *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_file; i++) {
        weft_store_close(c->file[i].tensors);
        free(c->file[i].text);
    }
    weft_arena_destroy(c->arena);
}

int64_t weft_ckpt_step(const weft_ckpt *c)
{
    return c->step;
}

const char *weft_ckpt_path(const weft_ckpt *c)
{
    return c->path;
}

static const member *find(const weft_ckpt *c, const char *name)
{
    static const member none;

    for (int i = 0; i < c->n_file; i++)
        if (strcmp(c->file[i].name, name) == 0) return &c->file[i];
    return &none;
}

const weft_store_file *weft_ckpt_tensors(const weft_ckpt *c, const char *name)
{
    return find(c, name)->tensors;
}

const char *weft_ckpt_text(const weft_ckpt *c, const char *name, size_t *n)
{
    const member *f = find(c, name);

    if (n) *n = f->n_text;
    return f->text;
}
