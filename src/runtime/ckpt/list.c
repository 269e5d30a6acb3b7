/* What lies in a directory of checkpoints, and what may be deleted.  In: the directory.
 * Out: its steps; fewer files.
 * (1) A manifest is renamed to a temporary name before the folder it names is deleted: from
 *     then on the step does not exist, and that name is the record that the folder is ours.
 * (2) Only temporary names, and folders with such a record, are deleted.
 * (3) Of these, none that a later epoch has begun: the writer of this one was replaced.
 * (4) What was just saved was read back from the device before an older one is deleted. */
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

void weft_ckpt__suffix(uint32_t epoch, char out[32])
{
    if (epoch)
        snprintf(out, 32, ".e%u" WEFT_CKPT__TMP, epoch);
    else
        snprintf(out, 32, WEFT_CKPT__TMP);
}

/* A temporary name of an epoch up to `epoch`; later: of a later one. */
static bool is_temporary(const char *name, uint32_t epoch, bool *later)
{
    size_t      n = strlen(name), k = strlen(WEFT_CKPT__TMP);
    const char *at   = strstr(name, ".e");
    unsigned    of   = 0;
    int         used = 0;

    *later = false;
    if (n <= k || strcmp(name + n - k, WEFT_CKPT__TMP) != 0) return false;
    if (at && sscanf(at, ".e%10u%n", &of, &used) == 1 &&
        strcmp(at + used, WEFT_CKPT__TMP) == 0)
        *later = of > epoch;
    return !*later;
}

/* The folder that a manifest under a temporary name says is ours, where no valid manifest
 * names it; else "".  Its name must be one that a save of that step chooses. */
static void find_recorded(const char *dir, const char *record, char out[128])
{
    weft_ckpt_manifest m    = {0};
    weft_text          path = {0};
    char              *text = NULL;
    size_t             n    = 0;
    int64_t            step;
    const char        *rest;

    out[0] = 0;
    weft_text_add(&path, "%s/%s", dir, record);
    if (path.s && weft_io_read_file(path.s, &text, &n) == WEFT_OK &&
        weft_ckpt_manifest_parse(path.s, text, n, &m) == WEFT_OK &&
        step_of(m.dir, WEFT_CKPT__STEP, &step, &rest) && step == m.step &&
        (!*rest || strncmp(rest, "-r", 2) == 0) && !is_spoken_for(dir, m.dir, step))
        snprintf(out, 128, "%s", m.dir);
    weft_ckpt_manifest_fini(&m);
    free(text);
    weft_text_fini(&path);
}

static weft_status remove_name(const char *dir, const char *name)
{
    weft_text   path = {0};
    weft_status st;

    weft_text_add(&path, "%s/%s", dir, name);
    st = weft_text_status(&path);
    if (st == WEFT_OK) st = weft_io_remove_tree(path.s);
    weft_text_fini(&path);
    return st;
}

typedef enum sweep_pass {
    SWEEP_FOLDERS, /* those that a record names */
    SWEEP_RECORDS, /* and other temporary names */
    SWEEP_WARN,    /* about folders of steps that nothing names */
} sweep_pass;

static weft_status sweep_one(const char *dir, const char *name, uint32_t epoch,
                             sweep_pass pass, bool *changed, weft_ckpt_findings *f)
{
    int64_t     step;
    const char *rest;
    char        folder[128];
    bool        later, tmp = is_temporary(name, epoch, &later);
    bool        record = tmp && step_of(name, WEFT_CKPT__MANIFEST, &step, &rest);

    if (later || (!record && !step_of(name, WEFT_CKPT__STEP, &step, &rest)))
        return WEFT_OK;
    if (pass == SWEEP_WARN) {
        if (!tmp && (!*rest || strncmp(rest, "-r", 2) == 0) &&
            !is_spoken_for(dir, name, step))
            weft_ckpt__warn(f,
                            "%s/%s: no manifest names this folder, so it is no "
                            "checkpoint; it is left there: delete it if nobody needs it",
                            dir, name);
        return WEFT_OK;
    }
    if (!tmp) return WEFT_OK;
    /* a manifest that we see may not be on the device yet, and goes first */
    if (!*changed) WEFT_TRY(weft_io_sync_dir(dir));
    *changed = true;
    if (pass == SWEEP_RECORDS) return remove_name(dir, name);
    if (!record) return WEFT_OK;
    find_recorded(dir, name, folder);
    return folder[0] ? remove_name(dir, folder) : WEFT_OK;
}

weft_status weft_ckpt__sweep(const char *dir, uint32_t epoch, weft_ckpt_findings *f)
{
    weft_status st      = WEFT_OK;
    bool        changed = false;

    for (int pass = SWEEP_FOLDERS; pass <= SWEEP_WARN && st == WEFT_OK; pass++) {
        DIR           *d = opendir(dir);
        struct dirent *e;

        if (!d) return WEFT_FAIL(WEFT_ERR_IO, "cannot read %s: %s", dir, strerror(errno));
        while (st == WEFT_OK && (e = readdir(d)))
            st = sweep_one(dir, e->d_name, epoch, (sweep_pass)pass, &changed, f);
        closedir(d);
        /* folders are gone for good before what says that they are ours */
        if (st == WEFT_OK && pass == SWEEP_FOLDERS && changed) st = weft_io_sync_dir(dir);
    }
    return st;
}

weft_status weft_ckpt_tidy(const char *dir, bool all, weft_ckpt_findings *f)
{
    uint32_t epoch = all ? UINT32_MAX : weft_ckpt__epoch(f);
    return weft_io_exists(dir) ? weft_ckpt__sweep(dir, epoch, f) : WEFT_OK;
}

/* The step exists no more; its folder is a leftover from now on. */
static weft_status retire_manifest(const char *dir, int64_t step, uint32_t epoch)
{
    weft_text   from = {0}, to = {0};
    char        suffix[32];
    weft_status st;

    weft_ckpt__suffix(epoch, suffix);
    weft_text_add(&from, "%s/" WEFT_CKPT__MANIFEST "%08lld", dir, (long long)step);
    weft_text_add(&to, "%s%s", from.s ? from.s : "", suffix);
    st = weft_text_status(&from);
    if (st == WEFT_OK) st = weft_text_status(&to);
    if (st == WEFT_OK) st = weft_io_rename(from.s, to.s);
    weft_text_fini(&from);
    weft_text_fini(&to);
    return st;
}

/* Is it whole, as read from the device?  Each is read once; after that its files are only
 * looked for. */
static bool is_whole(const char *dir, int64_t step, weft_ckpt_findings *f)
{
    weft_ckpt_manifest       m        = {0};
    weft_status              st       = weft_ckpt__load_manifest(dir, step, &m);
    uint32_t                 id       = st == WEFT_OK ? weft_ckpt__id(&m) : 0;
    const weft_ckpt_checked *note     = weft_ckpt__find_note(f, step, id);
    bool                     reported = note && !note->whole;

    if (st == WEFT_OK && !reported) st = weft_ckpt__verify(dir, &m, !note, true);
    if (!reported && st != WEFT_OK)
        weft_ckpt__warn(f, "CHECKPOINT OF STEP %lld IS DAMAGED AND DOES NOT COUNT: %s",
                        (long long)step, weft_error_text());
    weft_ckpt__note(f, step, id, st == WEFT_OK);
    weft_ckpt_manifest_fini(&m);
    return st == WEFT_OK && !reported;
}

static bool has_manifest(const char *dir, int64_t step)
{
    weft_ckpt_manifest m;

    if (weft_ckpt__load_manifest(dir, step, &m) != WEFT_OK) return false;
    weft_ckpt_manifest_fini(&m);
    return true;
}

weft_status weft_ckpt_prune(const char *dir, int64_t step, int keep,
                            weft_ckpt_findings *f)
{
    int64_t    *all = NULL;
    int         n = 0, first = 0, n_whole = 0, last;
    weft_status st = WEFT_OK;

    WEFT_GO(weft_ckpt__steps(dir, &all, &n));
    while (first < n && all[first] > step) first++;
    if (keep <= 0 || n - first <= keep) goto out;
    for (last = first; last < n && n_whole < keep; last++) {
        bool whole = is_whole(dir, all[last], f);

        if (last == first && !whole) goto out; /* the device is not to be trusted */
        n_whole += whole;
    }
    for (int i = n - 1; i >= last; i--)
        if (has_manifest(dir, all[i]))
            WEFT_GO(retire_manifest(dir, all[i], weft_ckpt__epoch(f)));
    if (last < n) WEFT_GO(weft_ckpt__sweep(dir, weft_ckpt__epoch(f), f));
out:
    free(all);
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
        x->status = weft_ckpt__verify(dir, &m, deep, deep);
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
