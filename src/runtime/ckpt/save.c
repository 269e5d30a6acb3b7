/* Saving a checkpoint.  In: files as text and tensors.  Out: step-N and MANIFEST-N, or
 * neither.  The order, each line done before the next begins:
 * (1) every file is open in step-N.tmp with its room reserved, the manifest's too; where N
 *     is saved again, MANIFEST-N-old.tmp is the record of the folder that is replaced;
 * (2) every file is written, synced and closed; a sync that failed is never tried again;
 * (3) the manifest is written and synced as MANIFEST-N.tmp, the record that step-N is
 *     ours, and dir is synced;
 * (4) step-N.tmp is synced, renamed to step-N, and dir is synced;
 * (5) MANIFEST-N.tmp is renamed to MANIFEST-N, and dir is synced: N exists.
 * Temporary names also have the writer's epoch (step-N.e3.tmp).  A later writer removes them before
 * it begins, so a writer that was stopped fails in (4) or (5), whose names are gone, or at
 * the folder step-N, which is there and not empty. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "ckpt/ckpt_priv.h"

struct weft_ckpt_draft {
    weft_arena           *arena;
    const char           *dir;
    int64_t               step;
    uint32_t              epoch;
    int                   again; /* K of step-N-rK; 0: step-N */
    const weft_ckpt_file *file;
    int                   n_file;
    weft_store_writer   **writer; /* of tensor files */
    weft_store_out       *out;    /* of text files */
    const char          **path;
    int                  *fd;    /* of files by blocks, until their room is reserved */
    bool                 *ready; /* the file is written, its sum is in m */
    weft_ckpt_manifest    m;
    const char           *name;                                  /* of the folder */
    const char           *tmp, *final, *manifest, *manifest_tmp; /* paths */
    const char           *old;     /* the record of what is replaced; NULL: nothing is */
    weft_store_out        record;  /* the manifest being written */
    bool                  renamed; /* step-N is there: records stay until it is swept */
    bool                  committed;
};
typedef struct weft_ckpt_draft job;

static weft_status check_files(const weft_ckpt_file *file, int n_file)
{
    for (int i = 0; i < n_file; i++) {
        if (!file[i].name || !weft_ckpt_name_ok(file[i].name))
            return WEFT_FAIL(WEFT_ERR_ARG, "'%s' is no name for a file of a checkpoint",
                             file[i].name ? file[i].name : "");
        for (int k = 0; k < i; k++)
            if (strcmp(file[i].name, file[k].name) == 0)
                return WEFT_FAIL(WEFT_ERR_ARG, "a checkpoint would hold %s twice",
                                 file[i].name);
    }
    return WEFT_OK;
}

/* dir and its parents, each new one on the device before anything lies in it. */
static weft_status make_dir(job *j)
{
    size_t n = strlen(j->dir);

    for (size_t i = 1; i <= n; i++) {
        const char *path, *end;

        if (i < n && j->dir[i] != '/') continue;
        path = weft_arena_strndup(j->arena, j->dir, i);
        WEFT_TRY(weft_arena_status(j->arena));
        if (weft_io_exists(path)) continue;
        WEFT_TRY(weft_io_mkdirs(path));
        end  = strrchr(path, '/');
        path = !end          ? "."
               : end == path ? "/"
                             : weft_arena_strndup(j->arena, path, (size_t)(end - path));
        WEFT_TRY(weft_arena_status(j->arena));
        WEFT_TRY(weft_io_sync_dir(path));
    }
    return WEFT_OK;
}

/* The step's folder, or the first step-N-rK that is free when N is saved again; called again, the
 * first from there on. */
static weft_status choose_folder(job *j)
{
    weft_arena *a = j->arena;
    for (;; j->again = j->again ? j->again + 1 : 2) {
        const char *name =
            weft_arena_printf(a, WEFT_CKPT__STEP "%08lld", (long long)j->step);
        WEFT_TRY(weft_arena_status(a));
        if (j->again) name = weft_arena_printf(a, "%s-r%d", name, j->again);
        WEFT_TRY(weft_arena_status(a));
        j->final = weft_arena_printf(a, "%s/%s", j->dir, name);
        j->name  = name;
        WEFT_TRY(weft_arena_status(a));
        if (!weft_io_exists(j->final)) return WEFT_OK;
    }
}

static weft_status choose_names(job *j)
{
    weft_arena *a = j->arena;
    char        suffix[32];

    WEFT_TRY(choose_folder(j));
    weft_ckpt__suffix(j->epoch, suffix);
    j->tmp          = weft_arena_printf(a, "%s%s", j->final, suffix);
    j->manifest     = weft_arena_printf(a, "%s/" WEFT_CKPT__MANIFEST "%08lld", j->dir,
                                        (long long)j->step);
    j->manifest_tmp = weft_arena_printf(a, "%s%s", j->manifest, suffix);
    WEFT_TRY(weft_arena_status(a));
    j->m.dir = strdup(j->name);
    return j->m.dir ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "no memory to save a checkpoint");
}

/* Records the folder of an earlier save of the same step.  Of a manifest that cannot be
 * read nothing is known: its folder stays. */
static weft_status record_old(job *j)
{
    weft_ckpt_manifest m;
    weft_text          t   = {0};
    weft_store_out     out = {.fd = -1};
    char               suffix[32];
    weft_status        st = WEFT_OK;

    if (weft_ckpt__load_manifest(j->dir, j->step, &m) != WEFT_OK) return WEFT_OK;
    weft_ckpt__suffix(j->epoch, suffix);
    j->old = weft_arena_printf(j->arena, "%s-old%s", j->manifest, suffix);
    WEFT_GO(weft_arena_status(j->arena));
    WEFT_GO(weft_ckpt_manifest_print(&m, &t));
    WEFT_GO(weft_store_out_open(&out, j->old, (int64_t)t.n));
    WEFT_GO(weft_store_out_put(&out, t.s, t.n));
    WEFT_GO(weft_store_out_close(&out, NULL));
out:
    weft_store_out_drop(&out);
    weft_text_fini(&t);
    weft_ckpt_manifest_fini(&m);
    return st;
}

static weft_status open_file(job *j, int i)
{
    const weft_ckpt_file *f    = &j->file[i];
    const char           *path = weft_arena_printf(j->arena, "%s/%s", j->tmp, f->name);

    WEFT_TRY(weft_arena_status(j->arena));
    j->path[i] = path;
    if (f->block_bytes) return weft_io_open_write(path, true, &j->fd[i]);
    if (f->text || f->n_text)
        return weft_store_out_open(&j->out[i], path, (int64_t)f->n_text);
    WEFT_TRY(weft_store_writer_create(&f->tensors, &j->writer[i]));
    if (!f->tensors.like) /* as files that ranks write by blocks */
        WEFT_TRY(weft_store_writer_align(j->writer[i], WEFT_IO_ALIGN));
    return weft_store_writer_begin(j->writer[i], path);
}

/* The manifest with zeroes for checksums is as long as the real one. */
static weft_status reserve_manifest(job *j)
{
    weft_text   t  = {0};
    weft_status st = WEFT_OK;

    j->m.file = calloc((size_t)j->n_file + 1, sizeof j->m.file[0]);
    if (!j->m.file) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to save a checkpoint");
    for (int i = 0; i < j->n_file; i++) {
        weft_ckpt_entry *e = &j->m.file[j->m.n_file++];
        int64_t          n = j->writer[i] ? weft_store_writer_bytes(j->writer[i])
                             : j->file[i].block_bytes ? j->file[i].block_bytes
                                                      : (int64_t)j->file[i].n_text;

        e->name        = strdup(j->file[i].name);
        e->sum.bytes   = n;
        e->sum.n_block = (n + WEFT_STORE_BLOCK - 1) / WEFT_STORE_BLOCK;
        e->sum.crc     = calloc((size_t)e->sum.n_block + 1, sizeof e->sum.crc[0]);
        if (!e->name || !e->sum.crc)
            return WEFT_FAIL(WEFT_ERR_MEM, "no memory to save a checkpoint");
    }
    WEFT_GO(weft_ckpt_manifest_print(&j->m, &t));
    WEFT_GO(weft_store_out_open(&j->record, j->manifest_tmp, (int64_t)t.n));
out:
    weft_text_fini(&t);
    return st;
}

static void set_sum(job *j, int i, weft_store_sum *sum)
{
    weft_store_sum_fini(&j->m.file[i].sum);
    j->m.file[i].sum = *sum;
    *sum             = (weft_store_sum){0};
    j->ready[i]      = true;
}

weft_status weft_ckpt_set_sum(weft_ckpt_draft *d, int i, weft_store_sum *sum)
{
    if (sum->bytes != d->file[i].block_bytes)
        return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s: %lld bytes written, %lld announced",
                         d->file[i].name, (long long)sum->bytes,
                         (long long)d->file[i].block_bytes);
    set_sum(d, i, sum);
    return WEFT_OK;
}

weft_status weft_ckpt_set_text(weft_ckpt_draft *d, int i, const char *text, size_t n)
{
    weft_store_sum sum = {0};

    WEFT_TRY(weft_store_out_put(&d->out[i], text, n));
    WEFT_TRY(weft_store_out_close(&d->out[i], &sum));
    set_sum(d, i, &sum);
    return WEFT_OK;
}

static weft_status write_tensors(job *j, int i)
{
    weft_store_sum sum = {0};

    WEFT_TRY(weft_store_writer_put_all(j->writer[i]));
    WEFT_TRY(weft_store_writer_end(j->writer[i], &sum));
    set_sum(j, i, &sum);
    return WEFT_OK;
}

/* What nobody else has written. */
static weft_status write_file(job *j, int i)
{
    const weft_ckpt_file *f = &j->file[i];

    if (j->ready[i]) return WEFT_OK;
    if (f->text) return weft_ckpt_set_text(j, i, f->text, f->n_text);
    if (j->writer[i]) return write_tensors(j, i);
    return WEFT_FAIL(WEFT_ERR_INTERNAL, "%s of a checkpoint was not written", f->name);
}

weft_status weft_ckpt_reserve(weft_ckpt_draft *d)
{
    for (int i = 0; i < d->n_file; i++) {
        int fd = d->fd[i];

        if (fd < 0) continue;
        WEFT_TRY(weft_io_reserve(fd, weft_ckpt_draft_path(d, i), d->file[i].block_bytes));
        d->fd[i] = -1;
        WEFT_TRY(weft_io_close(fd, weft_ckpt_draft_path(d, i)));
    }
    return WEFT_OK;
}

const char *weft_ckpt_draft_path(const weft_ckpt_draft *d, int i)
{
    return d->path[i];
}

static weft_status commit(job *j)
{
    weft_text   t  = {0};
    weft_status st = WEFT_OK;

    WEFT_GO(weft_ckpt_manifest_print(&j->m, &t));
    WEFT_GO(weft_store_out_put(&j->record, t.s, t.n));
    WEFT_GO(weft_store_out_close(&j->record, NULL));
    WEFT_GO(weft_io_sync_dir(j->dir));
    WEFT_GO(weft_io_sync_dir(j->tmp));
    j->renamed = true; /* perhaps: an error may come after the deed */
    WEFT_GO(weft_io_rename(j->tmp, j->final));
    WEFT_GO(weft_io_sync_dir(j->dir));
    WEFT_GO(weft_io_rename(j->manifest_tmp, j->manifest));
    WEFT_GO(weft_io_sync_dir(j->dir));
out:
    weft_text_fini(&t);
    return st;
}

/* Frees the room again, or leaves that to the next sweep where it is not certain how far
 * the commit came.  The first error's words are what the caller shall see. */
static void give_up(job *j)
{
    char text[1024];

    snprintf(text, sizeof text, "%s", weft_error_text());
    if (j->tmp) weft_io_remove_tree(j->tmp);
    if (j->manifest_tmp && !j->renamed) weft_io_remove_tree(j->manifest_tmp);
    if (j->old && !j->renamed) weft_io_remove_tree(j->old);
    (void)WEFT_FAIL(WEFT_ERR_IO, "%s", text);
}

static void fini(job *j)
{
    for (int i = 0; i < j->n_file; i++) {
        if (j->writer) weft_store_writer_destroy(j->writer[i]);
        if (j->out) weft_store_out_drop(&j->out[i]);
        if (j->fd && j->fd[i] >= 0) close(j->fd[i]);
    }
    weft_store_out_drop(&j->record);
    weft_ckpt_manifest_fini(&j->m);
    weft_arena_destroy(j->arena);
}

static weft_status init(job *j)
{
    WEFT_TRY(weft_arena_create(&j->arena));
    j->writer = WEFT_ARENA_ARRAY(j->arena, weft_store_writer *, j->n_file + 1);
    j->out    = WEFT_ARENA_ARRAY(j->arena, weft_store_out, j->n_file + 1);
    j->path   = WEFT_ARENA_ARRAY(j->arena, const char *, j->n_file + 1);
    j->fd     = WEFT_ARENA_ARRAY(j->arena, int, j->n_file + 1);
    j->ready  = WEFT_ARENA_ARRAY(j->arena, bool, j->n_file + 1);
    j->dir    = weft_arena_strdup(j->arena, j->dir);
    for (int i = 0; i < j->n_file && j->out; i++) j->out[i].fd = -1;
    for (int i = 0; i < j->n_file && j->fd; i++) j->fd[i] = -1;
    return weft_arena_status(j->arena);
}

/* A folder where the manifest belongs is not ours: it is renamed, not deleted. */
static weft_status move_folder_away(const job *j, weft_ckpt_findings *f)
{
    struct stat info;
    if (lstat(j->manifest, &info) != 0 || !S_ISDIR(info.st_mode)) return WEFT_OK;
    const char *to = weft_arena_printf(j->arena, "%s.folder-%08llx", j->manifest,
                                       (unsigned long long)info.st_ino);
    WEFT_TRY(weft_arena_status(j->arena));
    WEFT_TRY(weft_io_rename(j->manifest, to));
    weft_ckpt__warn(f, "%s is a folder: it is %s now", j->manifest, to);
    return WEFT_OK;
}

weft_status weft_ckpt_begin(const char *dir, int64_t step, const weft_ckpt_file *file,
                            int n_file, weft_ckpt_findings *f, weft_ckpt_draft **out)
{
    weft_status st = WEFT_OK;
    job        *j;

    if (step < 0)
        return WEFT_FAIL(WEFT_ERR_ARG, "a checkpoint of step %lld", (long long)step);
    WEFT_TRY(check_files(file, n_file));
    j = malloc(sizeof *j);
    if (!j) return WEFT_FAIL(WEFT_ERR_MEM, "no memory to save a checkpoint");
    *j = (job){.dir       = dir,
               .step      = step,
               .epoch     = weft_ckpt__epoch(f),
               .file      = file,
               .n_file    = n_file,
               .m.step    = step,
               .record.fd = -1};
    WEFT_GO(init(j));
    WEFT_GO(make_dir(j));
    /* a folder that is swept may still be deleted by an earlier writer that wakes: not its name */
    if (j->epoch) WEFT_GO(choose_folder(j));
    WEFT_GO(weft_ckpt__sweep(dir, j->epoch, f));
    WEFT_GO(choose_names(j));
    WEFT_GO(move_folder_away(j, f));
    WEFT_GO(weft_io_mkdirs(j->tmp));
    for (int i = 0; i < n_file; i++) WEFT_GO(open_file(j, i));
    WEFT_GO(reserve_manifest(j));
    WEFT_GO(record_old(j));
    *out = j;
    j    = NULL;
out:
    weft_ckpt_draft_close(j);
    return st;
}

weft_status weft_ckpt_commit(weft_ckpt_draft *d, weft_ckpt_findings *f)
{
    for (int i = 0; i < d->n_file; i++) WEFT_TRY(write_file(d, i));
    WEFT_TRY(commit(d));
    d->committed = true;
    if (d->old)
        (void)weft_ckpt__sweep(d->dir, d->epoch,
                               f); /* what stays is swept another time */
    return WEFT_OK;
}

void weft_ckpt_draft_close(weft_ckpt_draft *d)
{
    if (!d) return;
    if (!d->committed) give_up(d);
    fini(d);
    free(d);
}

weft_status weft_ckpt_save(const char *dir, int64_t step, const weft_ckpt_file *file,
                           int n_file, weft_ckpt_findings *f)
{
    weft_ckpt_draft *d  = NULL;
    weft_status      st = weft_ckpt_begin(dir, step, file, n_file, f, &d);

    if (st == WEFT_OK) st = weft_ckpt_commit(d, f);
    weft_ckpt_draft_close(d);
    return st;
}
