/* Writing a safetensors file.  In: names, types, shapes, then bytes.  Out: the file.
 * (1) The header is known before the first byte of data, so the file's size is too.
 * (2) With `like`, header and layout are that file's bytes: what no item replaces comes
 *     out as it went in. */
#include "store/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text.h"

typedef struct part { /* one tensor's bytes, in data order */
    const char       *name;
    int64_t           bytes;
    weft_store_source from;
} part;

struct weft_store_writer {
    weft_text      header; /* length word included */
    part          *part;
    int            n_part;
    int64_t        bytes;
    weft_store_out out;
};

static weft_status check_item(const weft_store_item *it)
{
    if (!it->name || !it->name[0])
        return WEFT_FAIL(WEFT_ERR_ARG, "a tensor to be written has no name");
    if (strcmp(it->name, "__metadata__") == 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "no tensor may be called __metadata__");
    if (weft_shape_verify(&it->shape) != WEFT_OK)
        return weft_fail_in(WEFT_ERR_ARG, "tensor '%s': ", it->name);
    return WEFT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const weft_store_item *const *)a)->name,
                  (*(const weft_store_item *const *)b)->name);
}

static weft_status check_unique(const weft_store_spec *s)
{
    const weft_store_item **v  = malloc(sizeof *v * (size_t)(s->n_item + 1));
    weft_status             st = WEFT_OK;

    if (!v) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d names", s->n_item);
    for (int i = 0; i < s->n_item; i++) v[i] = &s->item[i];
    qsort(v, (size_t)s->n_item, sizeof *v, by_name);
    for (int i = 1; i < s->n_item; i++)
        if (strcmp(v[i - 1]->name, v[i]->name) == 0)
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "two tensors to be written are called '%s'",
                              v[i]->name));
out:
    free(v);
    return st;
}

static void put_length(weft_text *t)
{
    uint64_t n = t->n - 8;

    for (int i = 0; i < 8; i++) t->s[i] = (char)(n >> (8 * i));
}

static void print_entry(weft_text *t, const weft_store_item *it, int64_t begin,
                        int64_t end)
{
    weft_text_put_quoted(t, it->name);
    weft_text_add(t, ":{\"dtype\":\"%s\",\"shape\":[", weft_dtype_st_name(it->dtype));
    for (int k = 0; k < it->shape.n; k++)
        weft_text_add(t, "%s%lld", k ? "," : "", (long long)it->shape.d[k]);
    weft_text_add(t, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)end);
}

/* A header of our own: metadata, then the items as given, spaces up to a multiple of
 * 8. */
static weft_status plan_new(weft_store_writer *w, const weft_store_spec *s)
{
    weft_text  *t   = &w->header;
    int64_t     at  = 0;
    const char *sep = "";

    WEFT_TRY(check_unique(s));
    weft_text_put(t, "\0\0\0\0\0\0\0\0{", 9);
    if (s->n_meta > 0) {
        weft_text_add(t, "\"__metadata__\":{");
        for (int i = 0; i < s->n_meta; i++) {
            weft_text_add(t, "%s", i ? "," : "");
            weft_text_put_quoted(t, s->meta[i].key);
            weft_text_add(t, ":");
            weft_text_put_quoted(t, s->meta[i].value);
        }
        weft_text_add(t, "}");
        sep = ",";
    }
    for (int i = 0; i < s->n_item; i++) {
        const weft_store_item *it = &s->item[i];
        int64_t n = weft_shape_count(&it->shape) * weft_dtype_bytes(it->dtype);

        weft_text_add(t, "%s", sep);
        print_entry(t, it, at, at + n);
        w->part[w->n_part++] = (part){it->name, n, it->from};
        at += n;
        sep = ",";
    }
    weft_text_add(t, "}");
    while (t->n % 8 != 0 && !t->failed) weft_text_add(t, " ");
    WEFT_TRY(weft_text_status(t));
    put_length(t);
    w->bytes = (int64_t)t->n + at;
    return WEFT_OK;
}

static weft_status read_tensor(void *arg, int64_t offset, void *buf, size_t n)
{
    return weft_store_read(arg, offset, buf, n);
}

/* The header of another file, with some tensors' bytes replaced. */
static weft_status plan_like(weft_store_writer *w, const weft_store_spec *s)
{
    const weft_store_tensor *first =
        weft_store_count(s->like) ? weft_store_at(s->like, 0) : NULL;
    int         n = weft_store_count(s->like);
    size_t      n_header;
    const char *h    = weft_store_header(s->like, &n_header);
    int        *item = calloc((size_t)n + 1, sizeof *item); /* item + 1 */
    weft_status st   = WEFT_OK;

    if (!item) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d names", n);
    for (int i = 0; i < s->n_item; i++) {
        const weft_store_item   *it = &s->item[i];
        const weft_store_tensor *t  = weft_store_find(s->like, it->name);

        if (!t)
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "%s: holds no tensor '%s' to replace",
                              weft_store_path(s->like), it->name));
        if (t->dtype != it->dtype || !weft_shape_equal(&t->shape, &it->shape))
            WEFT_GO(WEFT_FAIL(
                WEFT_ERR_ARG,
                "%s: tensor '%s' has another type or shape than what shall replace "
                "it",
                weft_store_path(s->like), it->name));
        if (item[t - first])
            WEFT_GO(WEFT_FAIL(WEFT_ERR_ARG, "two tensors to be written are called '%s'",
                              it->name));
        item[t - first] = i + 1;
    }
    for (int i = 0; i < n; i++) {
        const weft_store_tensor *t = weft_store_at_data(s->like, i);
        int                      k = item[t - first];

        w->part[w->n_part++] = (part){
            t->name, t->bytes,
            k ? s->item[k - 1].from
              : (weft_store_source){.read = read_tensor, .arg = (void *)(uintptr_t)t}};
    }
    weft_text_put(&w->header, "\0\0\0\0\0\0\0\0", 8);
    weft_text_put(&w->header, h, n_header);
    WEFT_GO(weft_text_status(&w->header));
    put_length(&w->header);
    w->bytes = (int64_t)w->header.n + weft_store_data_bytes(s->like);
out:
    free(item);
    return st;
}

weft_status weft_store_writer_create(const weft_store_spec *s, weft_store_writer **out)
{
    weft_store_writer *w  = calloc(1, sizeof *w);
    int                n  = s->like ? weft_store_count(s->like) : s->n_item;
    weft_status        st = WEFT_OK;

    if (!w) return WEFT_FAIL(WEFT_ERR_MEM, "no memory for a writer");
    w->out.fd = -1;
    w->part   = calloc((size_t)n + 1, sizeof w->part[0]);
    if (!w->part) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for %d tensors", n));
    for (int i = 0; i < s->n_item; i++) WEFT_GO(check_item(&s->item[i]));
    WEFT_GO(s->like ? plan_like(w, s) : plan_new(w, s));
    *out = w;
out:
    if (st != WEFT_OK) weft_store_writer_destroy(w);
    return st;
}

int64_t weft_store_writer_bytes(const weft_store_writer *w)
{
    return w->bytes;
}

weft_status weft_store_writer_align(weft_store_writer *w, int64_t align)
{
    int64_t before = (int64_t)w->header.n, spaces = (align - before % align) % align;

    weft_text_add(&w->header, "%*s", (int)spaces, "");
    WEFT_TRY(weft_text_status(&w->header));
    put_length(&w->header);
    w->bytes += spaces;
    return WEFT_OK;
}

const char *weft_store_writer_header(const weft_store_writer *w, size_t *n)
{
    *n = w->header.n;
    return w->header.s;
}

/* Takes fd. */
static weft_status begin_on(weft_store_writer *w, int fd, const char *path)
{
    WEFT_TRY(weft_store_out_use(&w->out, fd, path, w->bytes));
    return weft_store_out_put(&w->out, w->header.s, w->header.n);
}

weft_status weft_store_writer_begin(weft_store_writer *w, const char *path)
{
    int fd = -1;

    WEFT_TRY(weft_io_open_write(path, true, &fd));
    return begin_on(w, fd, path);
}

/* Bytes that a function yields, block by block through buf. */
static weft_status put_read(weft_store_writer *w, const part *p, uint8_t *buf)
{
    for (int64_t at = 0; at < p->bytes;) {
        int64_t n = p->bytes - at < WEFT_STORE_BLOCK ? p->bytes - at : WEFT_STORE_BLOCK;

        WEFT_TRY(p->from.read(p->from.arg, at, buf, (size_t)n));
        WEFT_TRY(weft_store_out_put(&w->out, buf, (size_t)n));
        at += n;
    }
    return WEFT_OK;
}

weft_status weft_store_writer_put_all(weft_store_writer *w)
{
    uint8_t    *buf = NULL;
    weft_status st  = WEFT_OK;

    for (int i = 0; i < w->n_part; i++) {
        const part *p = &w->part[i];

        if (p->from.read) {
            if (!buf) buf = malloc(WEFT_STORE_BLOCK);
            if (!buf) WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "no memory for a block"));
            WEFT_GO(put_read(w, p, buf));
        } else if (p->from.data || p->bytes == 0) {
            WEFT_GO(weft_store_out_put(&w->out, p->from.data, (size_t)p->bytes));
        } else {
            WEFT_GO(WEFT_FAIL(WEFT_ERR_INTERNAL, "tensor '%s' has no source", p->name));
        }
    }
out:
    free(buf);
    return st;
}

weft_status weft_store_writer_end(weft_store_writer *w, weft_store_sum *sum)
{
    return weft_store_out_close(&w->out, sum);
}

void weft_store_writer_destroy(weft_store_writer *w)
{
    if (!w) return;
    weft_store_out_drop(&w->out);
    weft_text_fini(&w->header);
    free(w->part);
    free(w);
}

weft_status weft_store_write(const char *path, const weft_store_spec *spec)
{
    weft_store_writer  *w  = NULL;
    weft_io_replacement r  = {.fd = -1};
    weft_status         st = WEFT_OK;
    int                 fd;

    WEFT_GO(weft_store_writer_create(spec, &w));
    WEFT_GO(weft_io_replace_begin(path, &r));
    fd   = r.fd;
    r.fd = -1; /* the writer's, which syncs and closes it */
    WEFT_GO(begin_on(w, fd, path));
    WEFT_GO(weft_store_writer_put_all(w));
    WEFT_GO(weft_store_writer_end(w, NULL));
    WEFT_GO(weft_io_replace_end(&r, path));
out:
    weft_io_replace_drop(&r);
    weft_store_writer_destroy(w);
    return st;
}
