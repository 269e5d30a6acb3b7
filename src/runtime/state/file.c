#include "state/file.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/progress.h"
#include "state/convert.h"

enum {
    CHUNK = WEFT_MOVE_CHUNK / 8, /* elements made or read at a time */
    /* the same for a device: a copy to it costs much, more where ranks share it */
    DEVICE_CHUNK = 1 << 20,
    READ_GAP     = 4096 /* bytes that are read rather than skipped */
};

/* ---- into the state ---- */

/* A chunk of a region that is made and then written to the tensors that hold some of it. */
typedef struct filling {
    weft_state_make_fn       make; /* NULL: file */
    const void              *arg;
    const weft_store_tensor *file;
    weft_dtype               dtype; /* of what is made */
    int64_t                  gap;   /* elements that are made though they are not held */
    int64_t                  most;  /* elements of a chunk */
    int64_t                  first, n;  /* the chunk, in the region's order */
    int64_t                  lo, hi;    /* of a run that is not made yet */
    bool                     complete;  /* all of the chunk is made */
    char                    *buf;       /* of the chunk */
    float                   *numbers;   /* the same as fp32 */
    char                    *converted; /* the same in a tensor's type */
} filling;

static weft_status make_run(filling *f)
{
    int64_t size = weft_dtype_bytes(f->dtype), n = f->hi - f->lo;
    char   *to = f->buf + (f->lo - f->first) * size;
    if (f->complete) return WEFT_OK;
    f->complete = n == f->n;
    if (f->make) return f->make(f->arg, f->lo, n, (float *)(void *)to);
    return weft_store_read(f->file, f->lo * size, to, (size_t)(n * size));
}

/* Runs that are close to each other are made as one. */
static weft_status add_run(void *arg, int64_t at, int64_t index, int64_t n)
{
    filling *f = arg;
    (void)at;
    if (f->hi > f->lo && index - f->hi <= f->gap) {
        f->hi = index + n;
        return WEFT_OK;
    }
    if (f->hi > f->lo) WEFT_TRY(make_run(f));
    f->lo = index;
    f->hi = index + n;
    return WEFT_OK;
}

static weft_status convert_numbers(weft_dtype from, weft_dtype to, const char *in,
                                   int64_t n, float *numbers, char *out)
{
    WEFT_TRY(weft_convert_to_f32(from, in, n, numbers));
    return weft_convert_from_f32(to, numbers, n, out);
}

/* What a tensor holds of the chunk, which is box. */
static weft_status fill_chunk(weft_state *s, int tensor, const weft_region *r,
                              const weft_region *box, filling *f)
{
    const weft_state_tensor *t    = weft_state_at(s, tensor);
    bool                     same = t->dtype == f->dtype;
    f->lo = f->hi = f->first;
    WEFT_TRY(weft_part_walk(t->part, r, f->first, f->n, add_run, f));
    if (f->hi == f->lo) return WEFT_OK;
    WEFT_TRY(make_run(f));
    if (!same)
        WEFT_TRY(
            convert_numbers(f->dtype, t->dtype, f->buf, f->n, f->numbers, f->converted));
    return weft_state_write(s, tensor, box, same ? f->buf : f->converted);
}

static weft_status fill_region(weft_state *s, const weft_state_target *to, filling *f)
{
    weft_region box;
    for (int64_t at = 0;
         f->first   = at, weft_region_next_chunk(&to->region, f->most, &at, &box);) {
        f->n        = at - f->first;
        f->complete = false;
        for (int i = 0; i < to->n_tensor; i++)
            if (weft_state_at(s, to->tensor[i])->part)
                WEFT_TRY(fill_chunk(s, to->tensor[i], &to->region, &box, f));
    }
    return WEFT_OK;
}

static int64_t find_chunk(const weft_state *s, const weft_region *r)
{
    const weft_memory *m   = weft_state_memory(s);
    int64_t            all = weft_region_count(r);
    if (!m->bytes || weft_memory_host(m) || all < CHUNK) return CHUNK;
    return all < DEVICE_CHUNK ? all : DEVICE_CHUNK;
}

static weft_status fill(weft_state *s, const weft_state_target *to, filling *f)
{
    weft_status st   = WEFT_OK;
    bool        held = false, converts = false;
    for (int i = 0; i < to->n_tensor; i++) {
        const weft_state_tensor *t = weft_state_at(s, to->tensor[i]);
        held                       = held || t->part;
        converts                   = converts || (t->part && t->dtype != f->dtype);
    }
    if (!held) return WEFT_OK;
    f->most      = find_chunk(s, &to->region);
    f->buf       = calloc((size_t)f->most, (size_t)weft_dtype_bytes(f->dtype));
    f->numbers   = converts ? malloc((size_t)f->most * sizeof *f->numbers) : NULL;
    f->converted = converts ? malloc((size_t)f->most * 8) : NULL;
    if (!f->buf || (converts && (!f->numbers || !f->converted)))
        WEFT_GO(WEFT_FAIL(WEFT_ERR_MEM, "out of memory"));
    WEFT_GO(fill_region(s, to, f));
out:
    free(f->buf);
    free(f->numbers);
    free(f->converted);
    return st;
}

weft_status weft_state_fill(weft_state *s, const weft_state_target *to,
                            weft_state_make_fn make, const void *arg)
{
    filling f = {.make = make, .arg = arg, .dtype = WEFT_DTYPE_F32};
    return fill(s, to, &f);
}

weft_status weft_state_load(weft_state *s, const weft_state_target *to,
                            const weft_store_tensor *file)
{
    filling f = {.file  = file,
                 .dtype = file->dtype,
                 .gap   = READ_GAP / weft_dtype_bytes(file->dtype)};
    return fill(s, to, &f);
}

/* ---- into files ---- */

typedef struct source {
    weft_gather *gather;
    int          tensor;
    weft_region  region;
    weft_dtype   dtype; /* of the file */
} source;

/* Elements [first, first + n) in the file's type. */
static weft_status read_elements(const source *s, int64_t first, int64_t n, void *to)
{
    weft_dtype have = weft_state_at(weft_gather_state(s->gather), s->tensor)->dtype;
    if (have == s->dtype)
        return weft_gather_read(s->gather, s->tensor, &s->region, first, n, to);
    char  raw[8192];
    float numbers[1024];
    for (int64_t k; n > 0; n -= k, first += k) {
        k = n < (int64_t)WEFT_COUNT(numbers) ? n : (int64_t)WEFT_COUNT(numbers);
        WEFT_TRY(weft_gather_read(s->gather, s->tensor, &s->region, first, k, raw));
        WEFT_TRY(convert_numbers(have, s->dtype, raw, k, numbers, to));
        to = (char *)to + k * weft_dtype_bytes(s->dtype);
    }
    return WEFT_OK;
}

/* Bytes that begin or end inside an element go through a small copy. */
static weft_status read_source(void *arg, int64_t offset, void *buf, size_t bytes)
{
    const source *s    = arg;
    int64_t       size = weft_dtype_bytes(s->dtype), left = (int64_t)bytes;
    char         *to = buf;
    while (left) {
        int64_t skip = offset % size, n = left / size, done;
        if (skip || !n) {
            char one[8];
            WEFT_TRY(read_elements(s, offset / size, 1, one));
            done = size - skip < left ? size - skip : left;
            memcpy(to, one + skip, (size_t)done);
        } else {
            WEFT_TRY(read_elements(s, offset / size, n, to));
            done = n * size;
        }
        to += done;
        offset += done;
        left -= done;
    }
    return WEFT_OK;
}

weft_status weft_gather_source(weft_gather *g, int tensor, const weft_region *r,
                               weft_dtype dtype, weft_arena *a, weft_store_source *out)
{
    source *s = WEFT_ARENA_NEW(a, source);
    if (!s) return weft_arena_status(a);
    *s   = (source){g, tensor, *r, dtype};
    *out = (weft_store_source){.read = read_source, .arg = s};
    return WEFT_OK;
}

weft_status weft_gather_hash(weft_gather *g, int tensor, const weft_region *r,
                             uint64_t *out)
{
    weft_dtype      dtype = weft_state_at(weft_gather_state(g), tensor)->dtype;
    int64_t         n = weft_region_count(r), most = 16384 / weft_dtype_bytes(dtype);
    char            buf[16384];
    weft_hash_state h;
    weft_hash_init(&h, 0);
    for (int64_t at = 0, k; at < n; at += k) {
        k = n - at < most ? n - at : most;
        WEFT_TRY(weft_gather_read(g, tensor, r, at, k, buf));
        weft_hash_add(&h, buf, (size_t)(k * weft_dtype_bytes(dtype)));
    }
    *out = weft_hash_value(&h);
    return WEFT_OK;
}
