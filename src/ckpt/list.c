/* What lies in a directory of checkpoints, and what may go.  In: the directory.  Out: its
 * steps; fewer files.
 * (1) A manifest goes before the folder it names: what is left over is swept, never
 *     loaded.
 * (2) The newest checkpoint was read back from the device before an older one goes. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "ckpt/ckpt_priv.h"

/* "MANIFEST-00000020" -> 20; only names as we write them. */
static bool step_of(const char *name, const char *prefix, int64_t *out, const char **rest)
{
    size_t    n = strlen(prefix);
    long long v;
    char     *end;

    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9') return false;
    errno = 0;
    v     = strtoll(name + n, &end, 10);
    if (errno || end - (name + n) < 8 || (end - (name + n) > 8 && name[n] == '0'))
        return false;
    *out  = v;
    *rest = end;
    return true;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x > y ? -1 : x < y;
}

weft_status weft_ckpt__steps(const char *dir, int64_t **out, int *n)
{
    int64_t       *v = NULL;
    int            k = 0, cap = 0;
    DIR           *d = opendir(dir);
    struct dirent *e;

    *out = NULL;
    *n   = 0;
    if (!d && errno == ENOENT) return WEFT_OK;
    if (!d) return WEFT_FAIL(WEFT_ERR_ARG, "cannot read %s: %s", dir, strerror(errno));
    while ((e = readdir(d))) {
        int64_t     step;
        const char *rest;

        if (!step_of(e->d_name, WEFT_CKPT__MANIFEST, &step, &rest) || *rest) continue;
        if (k == cap) {
            int64_t *more = realloc(v, sizeof *v * (size_t)(cap = cap * 2 + 16));

            if (!more) {
                free(v);
                closedir(d);
                return WEFT_FAIL(WEFT_ERR_MEM, "no memory to list %s", dir);
            }
            v = more;
        }
        v[k++] = step;
    }
    closedir(d);
    if (k > 1) qsort(v, (size_t)k, sizeof *v, newest_first);
    *out = v;
    *n   = k;
    return WEFT_OK;
}

bool weft_ckpt_any(const char *dir)
{
    int64_t *v;
    int      n;

    if (weft_ckpt__steps(dir, &v, &n) != WEFT_OK)
        return true; /* then open says what is wrong */
    free(v);
    return n > 0;
}

/* Does a manifest speak for this folder?  One that cannot be read speaks for all of its
 * step: damage is for people to look at, not for us to delete. */
static bool is_spoken_for(const char *dir, const char *name, int64_t step)
{
    weft_ckpt_manifest m;
    weft_text          path = {0};
    bool               is;

    weft_text_add(&path, "%s/" WEFT_CKPT__MANIFEST "%08lld", dir, (long long)step);
    is = !path.s || weft_io_exists(path.s);
    weft_text_fini(&path);
    if (!is || weft_ckpt__load_manifest(dir, step, &m) != WEFT_OK) return is;
    is = strcmp(m.dir, name) == 0;
    weft_ckpt_manifest_fini(&m);
    return is;
}

static bool is_leftover(const char *dir, const char *name)
{
    size_t      n = strlen(name), k = strlen(WEFT_CKPT__TMP);
    int64_t     step;
    const char *rest;
    bool        tmp = n > k && strcmp(name + n - k, WEFT_CKPT__TMP) == 0;

    if (step_of(name, WEFT_CKPT__MANIFEST, &step, &rest)) return tmp;
    if (!step_of(name, WEFT_CKPT__STEP, &step, &rest)) return false;
    if (tmp) return true;
    if (*rest && strncmp(rest, "-r", 2) != 0) return false; /* someone else's */
    return !is_spoken_for(dir, name, step);
}

weft_status weft_ckpt__sweep(const char *dir)
{
    weft_text      path = {0};
    DIR           *d    = opendir(dir);
    struct dirent *e;
    bool           synced = false;
    weft_status    st     = WEFT_OK;

    if (!d) return WEFT_FAIL(WEFT_ERR_IO, "cannot read %s: %s", dir, strerror(errno));
    while ((e = readdir(d))) {
        if (!is_leftover(dir, e->d_name)) continue;
        /* a manifest that we see may not be on the device yet, and goes first */
        if (!synced) WEFT_GO(weft_io_sync_dir(dir));
        synced = true;
        path.n = 0;
        weft_text_add(&path, "%s/%s", dir, e->d_name);
        WEFT_GO(weft_text_status(&path));
        WEFT_GO(weft_io_remove_tree(path.s));
    }
out:
    closedir(d);
    weft_text_fini(&path);
    return st;
}

/* The step exists no more; its folder is a leftover from now on. */
static weft_status remove_manifest(const char *dir, int64_t step)
{
    weft_text   path = {0};
    weft_status st;

    weft_text_add(&path, "%s/" WEFT_CKPT__MANIFEST "%08lld", dir, (long long)step);
    st = weft_text_status(&path);
    if (st == WEFT_OK) st = weft_io_remove_tree(path.s);
    weft_text_fini(&path);
    return st;
}

/* Is it there, with the right lengths?  deep: and with the right bytes, from the
 * device. */
static weft_status look(const char *dir, int64_t step, bool deep)
{
    weft_ckpt_manifest m;
    weft_status        st;

    WEFT_TRY(weft_ckpt__load_manifest(dir, step, &m));
    st = weft_ckpt__verify(dir, &m, deep, deep);
    weft_ckpt_manifest_fini(&m);
    return st;
}

weft_status weft_ckpt_prune(const char *dir, int keep)
{
    int64_t    *step = NULL;
    int         n = 0, good = 0, last = 0;
    weft_status st = WEFT_OK;

    WEFT_GO(weft_ckpt__steps(dir, &step, &n));
    if (keep <= 0 || n <= keep) goto out;
    for (last = 0; last < n && good < keep; last++)
        good += look(dir, step[last], false) == WEFT_OK;
    if (last == n) goto out; /* there are not more than keep whole ones */
    st = look(dir, step[0], true);
    if (st != WEFT_OK) {
        st = weft_fail_in(st,
                          "the newest checkpoint does not read back, so no older one is "
                          "deleted: ");
        goto out;
    }
    for (int i = n - 1; i >= last; i--) WEFT_GO(remove_manifest(dir, step[i]));
    WEFT_GO(
        weft_ckpt__sweep(dir)); /* syncs, then the folders that nobody names any more */
out:
    free(step);
    return st;
}

static void describe(const char *dir, int64_t step, bool deep, weft_ckpt_info *x)
{
    weft_ckpt_manifest m = {0};

    *x        = (weft_ckpt_info){.step = step};
    x->status = weft_ckpt__load_manifest(dir, step, &m);
    if (x->status == WEFT_OK) {
        snprintf(x->dir, sizeof x->dir, "%s", m.dir);
        x->n_file = m.n_file;
        for (int i = 0; i < m.n_file; i++) x->bytes += m.file[i].sum.bytes;
        x->status = weft_ckpt__verify(dir, &m, deep, false);
        weft_ckpt_manifest_fini(&m);
    }
    if (x->status != WEFT_OK) snprintf(x->why, sizeof x->why, "%s", weft_error_text());
}

weft_status weft_ckpt_list(const char *dir, bool deep, weft_ckpt_info **out, int *n)
{
    weft_ckpt_info *v    = NULL;
    int64_t        *step = NULL;
    int             k;

    if (!weft_io_exists(dir))
        return WEFT_FAIL(WEFT_ERR_ARG, "%s: no such directory", dir);
    WEFT_TRY(weft_ckpt__steps(dir, &step, &k));
    v = calloc((size_t)k + 1, sizeof *v);
    if (!v) {
        free(step);
        return WEFT_FAIL(WEFT_ERR_MEM, "no memory to list %s", dir);
    }
    for (int i = 0; i < k; i++) describe(dir, step[i], deep, &v[i]);
    free(step);
    *out = v;
    *n   = k;
    return WEFT_OK;
}
