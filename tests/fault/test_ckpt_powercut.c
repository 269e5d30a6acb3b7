/* Power cuts.  The system calls that change files are recorded; then, for a cut after
 * each of them, a disk is made on which everything that was synced is there and of the
 * rest some part is: any subset of names, any subset of writes, each of them perhaps
 * torn.  The checkpoint that was committed must load from each such disk. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/io.h"
#include "base/status.h"
#include "support/ckpt_case.h"
#include "support/files.h"

/* ---- the record ---- */

typedef enum kind {
    ADD,
    DROP,
    MOVE,
    WRITE,
    EXTEND,
    SYNC
} kind;

typedef struct event {
    kind    kind;
    int     at;   /* the file or folder that must be synced to make it last */
    int     node; /* ADD, MOVE: what gets the name */
    char    name[64], to[64];
    int64_t offset, n;
    char   *data;
} event;

#define MAX_EVENT 4096
#define MAX_NODE  512
#define ROOT      0

static event   ev[MAX_EVENT];
static int     n_ev, n_node = 1;
static bool    on;
static char    root[512];
static bool    is_dir[MAX_NODE] = {true};
static int     node_of_fd[1024];
static int64_t pos_of_fd[1024];

/* names as they are now */
static struct {
    int  dir, node;
    char name[64];
} live[MAX_NODE];
static int n_live;

static int find(int dir, const char *name, size_t n)
{
    for (int i = 0; i < n_live; i++)
        if (live[i].dir == dir && strlen(live[i].name) == n &&
            !memcmp(live[i].name, name, n))
            return i;
    return -1;
}

/* Splits a path under root into its folder's node and its last name; -1: not ours. */
static int walk(const char *path, const char **last)
{
    int dir = ROOT;

    if (!on || strncmp(path, root, strlen(root)) != 0) return -1;
    path += strlen(root);
    while (*path == '/') path++;
    for (const char *end; (end = strchr(path, '/')); path = end + 1) {
        int i = find(dir, path, (size_t)(end - path));

        if (i < 0) return -1;
        dir = live[i].node;
    }
    *last = path;
    return dir;
}

static event *add_event(kind k, int at)
{
    if (n_ev == MAX_EVENT) abort();
    ev[n_ev] = (event){.kind = k, .at = at};
    return &ev[n_ev++];
}

static int add_name(int dir, const char *name, bool folder)
{
    event *e = add_event(ADD, dir);

    if (n_node == MAX_NODE || n_live == MAX_NODE) abort();
    snprintf(e->name, sizeof e->name, "%s", name);
    e->node           = n_node;
    is_dir[n_node]    = folder;
    live[n_live].dir  = dir;
    live[n_live].node = n_node;
    snprintf(live[n_live++].name, 64, "%s", name);
    return n_node++;
}

static void drop_name(const char *path)
{
    const char *name;
    int         dir = walk(path, &name), i;
    event      *e;

    if (dir < 0 || (i = find(dir, name, strlen(name))) < 0) return;
    e = add_event(DROP, dir);
    snprintf(e->name, sizeof e->name, "%s", name);
    live[i] = live[--n_live];
}

/* ---- the system calls, overheard ---- */

/* Threads of a snapshot call, too. */
static pthread_mutex_t record = PTHREAD_MUTEX_INITIALIZER;

int open(const char *path, int flags, ...)
{
    va_list     ap;
    const char *name;
    int         mode, fd, dir, i;

    va_start(ap, flags);
    mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd < 0 || fd >= 1024) return fd;
    pthread_mutex_lock(&record);
    node_of_fd[fd] = -1;
    pos_of_fd[fd]  = 0;
    if (strcmp(path, root) == 0 && on) node_of_fd[fd] = ROOT;
    dir = walk(path, &name);
    if (dir >= 0 && *name) {
        i              = find(dir, name, strlen(name));
        node_of_fd[fd] = i >= 0            ? live[i].node
                         : flags & O_CREAT ? add_name(dir, name, false)
                                           : -1;
    }
    pthread_mutex_unlock(&record);
    return fd;
}

static int node_at(int fd)
{
    return on && fd >= 0 && fd < 1024 ? node_of_fd[fd] : -1;
}

static void add_write(int fd, const void *p, ssize_t k, int64_t at)
{
    event *e;

    if (k <= 0 || node_at(fd) < 0) return;
    pthread_mutex_lock(&record);
    e         = add_event(WRITE, node_at(fd));
    e->offset = at;
    e->n      = k;
    e->data   = malloc((size_t)k);
    memcpy(e->data, p, (size_t)k);
    pthread_mutex_unlock(&record);
}

ssize_t write(int fd, const void *p, size_t n)
{
    ssize_t k = syscall(SYS_write, fd, p, n);

    if (fd >= 0 && fd < 1024) add_write(fd, p, k, pos_of_fd[fd]);
    if (k > 0 && node_at(fd) >= 0) pos_of_fd[fd] += k;
    return k;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    ssize_t k = syscall(SYS_pwrite64, fd, p, n, at);

    add_write(fd, p, k, at);
    return k;
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    if (syscall(SYS_fallocate, fd, 0, at, n) != 0) return errno;
    pthread_mutex_lock(&record);
    if (node_at(fd) >= 0) add_event(EXTEND, node_at(fd))->n = at + n;
    pthread_mutex_unlock(&record);
    return 0;
}

int fdatasync(int fd)
{
    pthread_mutex_lock(&record);
    if (node_at(fd) >= 0) add_event(SYNC, node_at(fd));
    pthread_mutex_unlock(&record);
    return 0; /* the disk is ours: no need to wait for the real one */
}

int fsync(int fd)
{
    return fdatasync(fd);
}

int rename(const char *from, const char *to)
{
    const char *a, *b;
    int         d = walk(from, &a), d2 = walk(to, &b), i, old;
    event      *e;

    if (syscall(SYS_rename, from, to) != 0) return -1;
    if (d < 0 || (i = find(d, a, strlen(a))) < 0) return 0;
    if (d2 != d) abort(); /* ours stay in one folder */
    e       = add_event(MOVE, d);
    e->node = live[i].node;
    snprintf(e->name, sizeof e->name, "%s", a);
    snprintf(e->to, sizeof e->to, "%s", b);
    old = find(d, b, strlen(b));
    snprintf(live[i].name, 64, "%s", b);
    if (old >= 0) live[old] = live[--n_live];
    return 0;
}

int mkdir(const char *path, mode_t mode)
{
    const char *name;
    int         dir = walk(path, &name);

    if (syscall(SYS_mkdir, path, mode) != 0) return -1;
    if (dir >= 0) add_name(dir, name, true);
    return 0;
}

int unlink(const char *path)
{
    if (syscall(SYS_unlink, path) != 0) return -1;
    drop_name(path);
    return 0;
}

int rmdir(const char *path)
{
    if (syscall(SYS_rmdir, path) != 0) return -1;
    drop_name(path);
    return 0;
}

/* ---- the disk after a cut ---- */

static uint32_t rng;

static uint32_t roll(uint32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) % n;
}

/* Was event i made to last before event `cut`? */
static bool lasts(int i, int cut)
{
    for (int k = i + 1; k < cut; k++)
        if (ev[k].kind == SYNC && ev[k].at == ev[i].at) return true;
    return false;
}

typedef struct disk {
    char   *data[MAX_NODE];
    int64_t n[MAX_NODE];
    int     n_name;
    struct {
        int  dir, node;
        char name[64];
    } name[MAX_NODE];
} disk;

static void set_name(disk *d, int dir, const char *name, int node)
{
    int i;

    for (i = 0; i < d->n_name; i++)
        if (d->name[i].dir == dir && strcmp(d->name[i].name, name) == 0) break;
    if (node < 0) {
        if (i < d->n_name) d->name[i] = d->name[--d->n_name];
        return;
    }
    if (i == d->n_name) d->n_name++;
    d->name[i].dir  = dir;
    d->name[i].node = node;
    snprintf(d->name[i].name, 64, "%s", name);
}

static void grow(disk *d, int node, int64_t n)
{
    if (n <= d->n[node]) return;
    d->data[node] = realloc(d->data[node], (size_t)n);
    memset(d->data[node] + d->n[node], 0, (size_t)(n - d->n[node]));
    d->n[node] = n;
}

static void apply(disk *d, const event *e, bool torn)
{
    int64_t n = torn ? roll((uint32_t)e->n + 1) : e->n;

    switch (e->kind) {
    case ADD: set_name(d, e->at, e->name, e->node); break;
    case DROP: set_name(d, e->at, e->name, -1); break;
    case MOVE:
        set_name(d, e->at, e->name, -1);
        set_name(d, e->at, e->to, e->node);
        break;
    case WRITE:
        grow(d, e->at, e->offset + n);
        if (n) memcpy(d->data[e->at] + e->offset, e->data, (size_t)n);
        break;
    case EXTEND: grow(d, e->at, n); break;
    case SYNC: break;
    }
}

static void make_tree(const disk *d, int dir, const char *path)
{
    syscall(SYS_mkdir, path, 0777);
    for (int i = 0; i < d->n_name; i++) {
        char sub[1024];
        int  node = d->name[i].node;

        if (d->name[i].dir != dir) continue;
        snprintf(sub, sizeof sub, "%s/%s", path, d->name[i].name);
        if (is_dir[node])
            make_tree(d, node, sub);
        else
            test_files_write(sub, d->data[node], (size_t)d->n[node]);
    }
}

/* chance of 4: how much of what was not synced is there. */
static void cut_after(int cut, uint32_t chance, const char *to)
{
    static disk d;

    memset(&d, 0, sizeof d);
    for (int i = 0; i < cut; i++) {
        bool sure = lasts(i, cut);

        if (sure || roll(4) < chance) apply(&d, &ev[i], !sure && chance < 4 && roll(2));
    }
    make_tree(&d, ROOT, to);
    for (int i = 0; i < MAX_NODE; i++) free(d.data[i]);
}

/* ---- the trials ---- */

typedef enum act {
    SAVE_FIRST,
    SAVE_NEXT,
    SAVE_AGAIN,
    PRUNE,
    N_ACT
} act;

static weft_status perform(const char *dir, act what)
{
    if (what == SAVE_NEXT) return test_ckpt_save(dir, 20, 2);
    if (what == PRUNE) return weft_ckpt_prune(dir, 20, 1, NULL);
    return test_ckpt_save(dir, 10, 2);
}

static void check(const char *dir, act what, bool done, int cut)
{
    weft_ckpt_findings found = {0};
    int                seed  = test_ckpt_newest(dir, NULL, &found);
    bool               fine  = seed == 2 || (seed == 1 && !done && what != PRUNE) ||
                (seed == -2 && !done && what == SAVE_FIRST && !weft_ckpt_any(dir));

    if (!fine || found.warn.n)
        fail_msg("act %d, cut after %d: seed %d %s", (int)what, cut, seed,
                 found.warn.n ? found.warn.s : "");
    if (weft_ckpt_any(dir)) { /* and no older one pretends to be there */
        weft_ckpt_info *list;
        int             n;

        assert_int_equal(weft_ckpt_list(dir, true, &list, &n), WEFT_OK);
        for (int i = 0; i < n; i++)
            if (list[i].status != WEFT_OK) fail_msg("cut after %d: %s", cut, list[i].why);
        free(list);
    }
    if (roll(8) == 0) { /* life goes on */
        assert_int_equal(test_ckpt_save(dir, 30, 3), WEFT_OK);
        assert_int_equal(weft_ckpt_prune(dir, 30, 1, &found), WEFT_OK);
        assert_int_equal(test_ckpt_newest(dir, NULL, &found), 3);
        assert_int_equal(found.warn.n, 0);
    }
    weft_ckpt_findings_fini(&found);
}

static void forget(void)
{
    for (int i = 0; i < n_ev; i++) free(ev[i].data);
    n_ev = n_live = 0;
    n_node        = 1;
}

static void power_cuts(void **state)
{
    int trials = 0;
    (void)state;

    for (int k = 0; k < 2 * N_ACT; k++) { /* by one writer, then by three */
        act         what = (act)(k % N_ACT);
        const char *real = test_files_path("real-%d", k);
        char        dir[600];
        int         from;

        test_ckpt_n_writer = k < N_ACT ? 1 : 3;
        snprintf(root, sizeof root, "%s", real);
        snprintf(dir, sizeof dir, "%s/out/checkpoints", real);
        syscall(SYS_mkdir, real, 0777);
        on = true;
        if (what != SAVE_FIRST) assert_int_equal(test_ckpt_save(dir, 10, 1), WEFT_OK);
        if (what == PRUNE) assert_int_equal(test_ckpt_save(dir, 20, 2), WEFT_OK);
        from = n_ev;
        assert_int_equal(perform(dir, what), WEFT_OK);
        on = false;
        assert_true(n_ev - from > 5);
        for (int cut = from; cut <= n_ev; cut++)
            for (uint32_t trial = 0; trial < 12;
                 trial += WEFT_TEST_SANITIZED ? 5 : 1, trials++) {
                const char *where  = test_files_path("disk");
                uint32_t    chance = trial == 0 ? 0 : trial == 1 ? 4 : 1 + trial % 3;

                rng = (uint32_t)cut * 1000 + trial;
                cut_after(cut, chance, where);
                check(test_files_path("disk/out/checkpoints"), what, cut == n_ev, cut);
                weft_io_remove_tree(where);
            }
        forget();
    }
    print_message("%d disks after a cut\n", trials);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(power_cuts)};

    return cmocka_run_group_tests(tests, test_files_setup, test_files_teardown);
}
