/* The host's shared memory: files without a name, which another process opens through the one that
 * has them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/device_priv.h"

enum {
    PAGE = 4096
};

typedef struct shared_file {
    struct shared_file *next;
    char               *address;
    int64_t             bytes;
    int                 fd;
} shared_file;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static shared_file    *files;

/* What a weft_memory_handle holds. */
typedef struct shared_memory {
    int32_t  pid, fd;
    uint64_t file; /* its number: descriptors are used again */
    int64_t  offset, bytes;
} shared_memory;

_Static_assert(sizeof(shared_memory) <= sizeof(weft_memory_handle), "a handle holds it");

char *weft_device__share_map(size_t n)
{
    shared_file *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->fd   = memfd_create("weft", MFD_CLOEXEC);
    void *p = MAP_FAILED;
    if (f->fd >= 0 && !ftruncate(f->fd, (off_t)n))
        p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, 0);
    if (p == MAP_FAILED) {
        int failed = errno;
        if (f->fd >= 0) close(f->fd);
        free(f);
        errno = failed;
        return NULL;
    }
    f->address = p;
    f->bytes   = (int64_t)n;
    pthread_mutex_lock(&lock);
    f->next = files;
    files   = f;
    pthread_mutex_unlock(&lock);
    return p;
}

void weft_device__share_close(const void *address)
{
    shared_file *f = NULL;
    pthread_mutex_lock(&lock);
    for (shared_file **at = &files; *at; at = &(*at)->next)
        if ((*at)->address == address) {
            f   = *at;
            *at = f->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (f) close(f->fd);
    free(f);
}

/* With the lock held. */
static const shared_file *find_file(const weft_memory *m)
{
    const char *p = m->address;
    for (const shared_file *f = files; f; f = f->next)
        if (p >= f->address && p + m->bytes <= f->address + f->bytes) return f;
    return NULL;
}

weft_status weft_device__export(weft_device *d, const weft_memory *m,
                                weft_memory_handle *out)
{
    struct stat   st = {0};
    shared_memory s  = {.pid = (int32_t)getpid(), .fd = -1, .bytes = m->bytes};
    pthread_mutex_lock(&lock);
    const shared_file *f = m->address ? find_file(m) : NULL;
    if (f) {
        s.fd     = f->fd;
        s.offset = (char *)m->address - f->address;
    }
    pthread_mutex_unlock(&lock);
    if (s.fd < 0 || fstat(s.fd, &st))
        return WEFT_FAIL(WEFT_ERR_ARG,
                         "%s: only memory of space shared can be exported, not %s memory",
                         d->name, weft_space_name(m->space));
    s.file = (uint64_t)st.st_ino;
    memset(out, 0, sizeof *out);
    memcpy(out, &s, sizeof s);
    return WEFT_OK;
}

/* Where in the file the mapping begins: at a page. */
static int64_t page_of(const shared_memory *s)
{
    return s->offset / PAGE * PAGE;
}

static weft_status open_file(const shared_memory *s, int *out)
{
    char        path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", s->pid, s->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return WEFT_FAIL(WEFT_ERR_IO, "memory of process %d: %s", s->pid,
                         strerror(errno));
    if (fstat(fd, &st) || (uint64_t)st.st_ino != s->file || s->offset < 0 ||
        s->bytes <= 0 || s->bytes > st.st_size || s->offset > st.st_size - s->bytes) {
        close(fd);
        return WEFT_FAIL(WEFT_ERR_ARG, "memory of process %d is gone", s->pid);
    }
    *out = fd;
    return WEFT_OK;
}

weft_status weft_device__import(weft_device *d, const weft_memory_handle *h,
                                weft_memory *out)
{
    shared_memory s;
    int           fd = -1;
    memcpy(&s, h, sizeof s);
    WEFT_TRY(open_file(&s, &fd));
    int64_t first = page_of(&s), in = s.offset - first;
    void   *p = mmap(NULL, (size_t)(in + s.bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                     (off_t)first);
    close(fd);
    if (p == MAP_FAILED)
        return WEFT_FAIL(WEFT_ERR_MEM, "memory of process %d: %s", s.pid,
                         strerror(errno));
    *out = (weft_memory){.device  = d,
                         .space   = WEFT_SPACE_SHARED,
                         .address = (char *)p + in,
                         .bytes   = s.bytes};
    return WEFT_OK;
}

void weft_device__import_close(weft_device *d, const weft_memory_handle *h,
                               const weft_memory *m)
{
    shared_memory s;
    (void)d;
    memcpy(&s, h, sizeof s);
    int64_t in = s.offset - page_of(&s);
    if (m->address) munmap((char *)m->address - in, (size_t)(in + m->bytes));
}
