/* What a run has found out about its checkpoints.  In: damage, and what was verified.
 * Out: warnings, each once. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "ckpt/ckpt_priv.h"

void weft_ckpt__warn(weft_ckpt_findings *f, const char *fmt, ...)
{
    char    line[1536];
    va_list ap;
    int     n;

    if (!f) return;
    va_start(ap, fmt);
    n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    for (int i = 0; i < n; i++)
        if (line[i] == '\n') line[i] = ' ';
    line[n]     = '\n';
    line[n + 1] = 0;
    if (!f->warn.s || !strstr(f->warn.s, line)) weft_text_add(&f->warn, "%s", line);
}

bool weft_ckpt_next_warning(weft_ckpt_findings *f, const char **text, int *n)
{
    const char *at, *end;

    if (!f->warn.s || f->n_shown >= f->warn.n) return false;
    at    = f->warn.s + f->n_shown;
    end   = strchr(at, '\n');
    *text = at;
    *n    = end ? (int)(end - at) : (int)strlen(at);
    f->n_shown += (size_t)*n + 1;
    return true;
}

void weft_ckpt_findings_fini(weft_ckpt_findings *f)
{
    weft_text_fini(&f->warn);
    free(f->checked);
    *f = (weft_ckpt_findings){0};
}

uint32_t weft_ckpt__id(const weft_ckpt_manifest *m)
{
    uint32_t id = weft_hash_crc32c(1, m->dir, strlen(m->dir));

    for (int i = 0; i < m->n_file; i++) {
        uint64_t sum = weft_store_sum_hash(&m->file[i].sum);

        id = weft_hash_crc32c(id, m->file[i].name, strlen(m->file[i].name));
        id = weft_hash_crc32c(id, &sum, sizeof sum);
    }
    return id ? id : 1;
}

const weft_ckpt_checked *weft_ckpt__find_note(const weft_ckpt_findings *f, int64_t step,
                                              uint32_t id)
{
    for (int i = 0; f && i < f->n; i++)
        if (f->checked[i].step == step && f->checked[i].id == id) return &f->checked[i];
    return NULL;
}

void weft_ckpt__note(weft_ckpt_findings *f, int64_t step, uint32_t id, bool whole)
{
    if (!f || weft_ckpt__find_note(f, step, id)) return;
    if (f->n == f->cap) {
        weft_ckpt_checked *more =
            realloc(f->checked, sizeof *more * (size_t)(f->cap * 2 + 8));

        if (!more) return; /* it is read back once more */
        f->checked = more;
        f->cap     = f->cap * 2 + 8;
    }
    f->checked[f->n++] = (weft_ckpt_checked){step, id, whole};
}
