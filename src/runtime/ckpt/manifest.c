/* The manifest, out and in.  Reading is strict by construction: what was understood is
 * printed again and must give the same bytes. */
#include "ckpt/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define MAX_NAME 128
#define MAX_FILE 100000

bool weft_ckpt_name_ok(const char *s)
{
    size_t n =
        strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n > 0 && n < MAX_NAME && s[n] == 0 && s[0] != '.';
}

static void print_file(const weft_ckpt_entry *f, weft_text *t)
{
    weft_text_add(t, "file %s %" PRId64 " %" PRId64 " %016" PRIx64, f->name, f->sum.bytes,
                  f->sum.n_block, weft_store_sum_hash(&f->sum));
    for (int64_t i = 0; i < f->sum.n_block; i++)
        weft_text_add(t, "%s%08" PRIx32, i % 8 ? " " : "\ncrc ", f->sum.crc[i]);
    weft_text_add(t, "\n");
}

weft_status weft_ckpt_manifest_print(const weft_ckpt_manifest *m, weft_text *t)
{
    size_t from = t->n;

    weft_text_add(t, "weft-manifest 1\nstep %" PRId64 "\ndir %s\nblock %d\n", m->step,
                  m->dir, WEFT_STORE_BLOCK);
    for (int i = 0; i < m->n_file; i++) print_file(&m->file[i], t);
    WEFT_TRY(weft_text_status(t));
    weft_text_add(t, "end %08" PRIx32 "\n",
                  weft_hash_crc32c(0, t->s + from, t->n - from));
    return weft_text_status(t);
}

void weft_ckpt_manifest_fini(weft_ckpt_manifest *m)
{
    for (int i = 0; i < m->n_file; i++) {
        free(m->file[i].name);
        weft_store_sum_fini(&m->file[i].sum);
    }
    free(m->file);
    free(m->dir);
    *m = (weft_ckpt_manifest){0};
}

typedef struct reader {
    const char *at, *end;
} reader;

static bool take(reader *r, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static bool take_int(reader *r, int64_t *out)
{
    int64_t     v  = 0;
    const char *at = r->at;

    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        if (v > (INT64_MAX - 9) / 10) return false;
        v = v * 10 + (*r->at - '0');
    }
    *out = v;
    return r->at > at;
}

static bool take_hex(reader *r, int digits, uint64_t *out)
{
    uint64_t v = 0;

    if (r->end - r->at < digits) return false;
    for (int i = 0; i < digits; i++, r->at++) {
        char c = *r->at;
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;

        if (d < 0) return false;
        v = v << 4 | (uint64_t)d;
    }
    *out = v;
    return true;
}

static bool take_name(reader *r, char **out)
{
    char   buf[MAX_NAME];
    size_t n = 0;

    while (r->at < r->end && *r->at != ' ' && *r->at != '\n' && n + 1 < sizeof buf)
        buf[n++] = *r->at++;
    buf[n] = 0;
    *out   = weft_ckpt_name_ok(buf) ? strdup(buf) : NULL;
    return *out != NULL;
}

static bool take_crcs(reader *r, weft_store_sum *s)
{
    int64_t n = s->bytes / WEFT_STORE_BLOCK + (s->bytes % WEFT_STORE_BLOCK != 0);

    if (s->n_block != n || n > (r->end - r->at) / 9) return false;
    s->crc = malloc(sizeof s->crc[0] * (size_t)(n + 1));
    if (!s->crc) return false;
    for (int64_t i = 0; i < n; i++) {
        uint64_t c;

        if (!take(r, i % 8 ? " " : "\ncrc ") || !take_hex(r, 8, &c)) return false;
        s->crc[i] = (uint32_t)c;
    }
    return take(r, "\n");
}

static bool take_file(reader *r, weft_ckpt_manifest *m, int *cap)
{
    weft_ckpt_entry *f;
    uint64_t         hash;

    if (m->n_file == *cap) {
        f = realloc(m->file, sizeof *f * (size_t)(*cap * 2 + 8));
        if (!f) return false;
        m->file = f;
        *cap    = *cap * 2 + 8;
    }
    f  = &m->file[m->n_file];
    *f = (weft_ckpt_entry){0};
    if (!take_name(r, &f->name)) return false;
    m->n_file++;
    return take(r, " ") && take_int(r, &f->sum.bytes) && take(r, " ") &&
           take_int(r, &f->sum.n_block) && take(r, " ") && take_hex(r, 16, &hash) &&
           take_crcs(r, &f->sum);
}

/* The words; checksum and canonical form are looked at outside. */
static bool take_all(reader *r, weft_ckpt_manifest *m)
{
    int64_t block;
    int     cap = 0;

    if (!take(r, "weft-manifest 1\nstep ") || !take_int(r, &m->step) ||
        !take(r, "\ndir ") || !take_name(r, &m->dir) || !take(r, "\nblock ") ||
        !take_int(r, &block) || !take(r, "\n"))
        return false;
    if (block != WEFT_STORE_BLOCK) return false;
    while (take(r, "file "))
        if (m->n_file >= MAX_FILE || !take_file(r, m, &cap)) return false;
    return r->at == r->end;
}

static bool prints_as(const weft_ckpt_manifest *m, const char *text, size_t n)
{
    weft_text t    = {0};
    bool      same = weft_ckpt_manifest_print(m, &t) == WEFT_OK && t.n == n &&
                memcmp(t.s, text, n) == 0;

    weft_text_fini(&t);
    return same;
}

static bool no_name_twice(const weft_ckpt_manifest *m)
{
    for (int i = 0; i < m->n_file; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(m->file[i].name, m->file[k].name) == 0) return false;
    return true;
}

#define N_END 13 /* "end 89abcdef\n" */

weft_status weft_ckpt_manifest_parse(const char *name, const char *text, size_t n,
                                     weft_ckpt_manifest *out)
{
    weft_ckpt_manifest m = {0};
    reader             r = {text, text + (n < N_END ? 0 : n - N_END)};
    reader             e = {r.end, text + n};
    uint64_t           crc;

    if (n < N_END || !take(&e, "end ") || !take_hex(&e, 8, &crc) || !take(&e, "\n"))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: the manifest is cut off", name);
    if (crc != weft_hash_crc32c(0, text, n - N_END))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: the manifest's checksum is wrong", name);
    if (!take_all(&r, &m) || !no_name_twice(&m) || !prints_as(&m, text, n)) {
        weft_ckpt_manifest_fini(&m);
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: not a manifest that this version can read",
                         name);
    }
    *out = m;
    return WEFT_OK;
}
