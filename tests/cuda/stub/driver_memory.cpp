/* Memory of the stub driver: of the device, of the host, of other processes; copies. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "stub/enter.h"

using namespace stub;

/* ---- of the device ---- */

/* Device memory is a file without a name, so that other processes can open it. */
/* Between pages that are never there: a kernel that leaves its slab is found. */
static void *map_file(int fd, size_t n)
{
    size_t whole = (n + PAGE - 1) / PAGE * PAGE + 2 * (size_t)PAGE;
    void  *room  = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED) return nullptr;
    void *m = mmap((char *)room + PAGE, n, n_inside ? PROT_READ | PROT_WRITE : PROT_NONE,
                   MAP_SHARED | MAP_FIXED, fd, 0);
    if (m == MAP_FAILED) munmap(room, whole);
    return m == MAP_FAILED ? nullptr : m;
}

void stub::unmap_file(char *m, size_t n)
{
    munmap(m - PAGE, (n + PAGE - 1) / PAGE * PAGE + 2 * (size_t)PAGE);
}

API int cuMemAlloc_v2(ptr *p, size_t n)
{
    ENTER(std::to_string(n));
    NEED_CONTEXT;
    if (n > free_bytes()) return OUT_OF_MEMORY;
    size_t whole = (n + 4095) / 4096 * 4096;
    int    fd    = memfd_create("stub_gpu", MFD_CLOEXEC);
    void  *m = fd >= 0 && !ftruncate(fd, (off_t)whole) ? map_file(fd, whole) : nullptr;
    if (!m) {
        if (fd >= 0) close(fd);
        return OUT_OF_MEMORY;
    }
    device[(char *)m] = whole;
    files[(char *)m]  = fd;
    device_bytes += whole;
    { /* what was there before is anything; pages that nobody writes cost nothing */
        reach  r;
        size_t part = n < (size_t)POISONED ? n : (size_t)POISONED;
        memset(m, 0xa5, part);
        memset((char *)m + n - part, 0xa5, part);
    }
    *p = (ptr)(uintptr_t)m;
    return OK;
}

API int cuMemFree_v2(ptr p)
{
    ENTER();
    auto at = device.find((char *)(uintptr_t)p);
    if (at == device.end()) return INVALID_VALUE;
    reach r;
    drain_all();
    unmap_file(at->first, at->second);
    device_bytes -= at->second;
    close(files[at->first]);
    files.erase(at->first);
    device.erase(at);
    return OK;
}

API int cuMemGetAddressRange_v2(ptr *base, size_t *n, ptr p)
{
    ENTER();
    for (auto &m : device)
        if ((char *)(uintptr_t)p >= m.first &&
            (char *)(uintptr_t)p < m.first + m.second) {
            if (base) *base = (ptr)(uintptr_t)m.first;
            if (n) *n = m.second;
            return OK;
        }
    return INVALID_VALUE;
}

/* ---- of other processes ---- */

struct ipc_handle {
    char bytes[64];
};
struct ipc_memory {
    int    pid, fd;
    size_t n;
};

API int cuIpcGetMemHandle(ipc_handle *h, ptr p)
{
    ENTER();
    NEED_CONTEXT;
    auto at = files.find((char *)(uintptr_t)p);
    if (at == files.end()) return INVALID_VALUE;
    ipc_memory m = {(int)getpid(), at->second, device[at->first]};
    memset(h, 0, sizeof *h);
    memcpy(h, &m, sizeof m);
    return OK;
}

API int cuIpcOpenMemHandle_v2(ptr *p, ipc_handle h, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    ipc_memory x;
    memcpy(&x, &h, sizeof x);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", x.pid, x.fd);
    int   fd = x.pid == (int)getpid() ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *m  = fd >= 0 ? map_file(fd, x.n) : nullptr;
    if (fd >= 0) close(fd);
    if (!m) return INVALID_CONTEXT;
    device[(char *)m] = x.n;
    imports.insert((char *)m);
    *p = (ptr)(uintptr_t)m;
    return OK;
}

API int cuIpcCloseMemHandle(ptr p)
{
    ENTER();
    char *m = (char *)(uintptr_t)p;
    if (!imports.erase(m)) return INVALID_VALUE;
    reach r;
    drain_all();
    unmap_file(m, device[m]);
    device.erase(m);
    return OK;
}

API int cuMemHostRegister_v2(void *p, size_t n, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    if (!registered.insert((char *)p).second) return INVALID_VALUE;
    pinned[(char *)p] = n;
    return OK;
}

API int cuMemHostUnregister(void *p)
{
    ENTER();
    if (!registered.erase((char *)p)) return INVALID_VALUE;
    pinned.erase((char *)p);
    return OK;
}

API int cuMemHostGetDevicePointer_v2(ptr *d, void *p, unsigned)
{
    ENTER();
    *d = (ptr)(uintptr_t)p;
    return is_in(pinned, (char *)p) ? OK : INVALID_VALUE;
}

API int cuMemHostAlloc(void **p, size_t n, unsigned)
{
    ENTER(std::to_string(n));
    NEED_CONTEXT;
    *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
    if (!*p) return OUT_OF_MEMORY;
    pinned[(char *)*p] = n;
    return OK;
}

API int cuMemFreeHost(void *p)
{
    ENTER();
    if (!pinned.erase((char *)p)) return INVALID_VALUE;
    free(p);
    return OK;
}

API int cuMemsetD8Async(ptr p, unsigned char x, size_t n, void *s)
{
    ENTER();
    NEED_CONTEXT;
    operation o;
    o.what  = operation::FILL;
    o.to    = (char *)(uintptr_t)p;
    o.value = x;
    o.bytes = n;
    return give((stream *)s, std::move(o));
}

static std::string kind_of(ptr p)
{
    const char *at = (const char *)(uintptr_t)p;
    return is_in(device, at) ? " device" : is_in(pinned, at) ? " pinned" : " paged";
}

/* Memory that is not pinned is read at once, and written before the return. */
API int cuMemcpyAsync(ptr to, ptr from, size_t n, void *s)
{
    ENTER(std::to_string(n) + kind_of(from) + kind_of(to));
    NEED_CONTEXT;
    stream   *t = (stream *)s;
    operation o;
    o.what          = operation::COPY;
    o.to            = (char *)(uintptr_t)to;
    o.from          = (const char *)(uintptr_t)from;
    o.bytes         = n;
    bool paged_from = !is_in(device, o.from) && !is_in(pinned, o.from);
    bool paged_to   = !is_in(device, o.to) && !is_in(pinned, o.to);
    if (paged_from && !t->in) o.data.assign(o.from, o.from + n);
    if (int code = give(t, std::move(o))) return code;
    if (paged_to && !t->in) {
        reach r;
        drain(t, t->given);
    }
    return OK;
}
