/* libcuda.so.1 without a GPU, for tests: memory is the host's, kernels are the plugin's own, run by plugin/cuda/emu.
 *
 * What is given to a stream runs late: when somebody waits for it.  So code that looks at results without waiting, or
 * lets memory go that a copy still reads, is found.  Device memory cannot be reached outside of that.
 * Work that waits for another process (call.h) holds its stream alone: other streams go on, and the lock is let go.
 *
 *     WEFT_STUB_FAIL=n       call n fails, once; WEFT_STUB_LOST=n: and all after it, as on a lost GPU
 *     WEFT_STUB_RANK=r       only in the process of rank r
 *     WEFT_STUB_LOG=file     every call as a line, with its number
 *     WEFT_STUB_GPUS, WEFT_STUB_CAPABILITY, WEFT_STUB_DRIVER, WEFT_STUB_MEMORY     what the machine is (1, 90, 13000, 8e9 bytes)
 *     WEFT_STUB_OTHERS=bytes  what other processes hold of its memory */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

#include "cuda_args.h"
#include "stub/work.h"

#define API extern "C" __attribute__((visibility("default")))

extern "C" {
#define CU(name, args) void weft_cuda_emu_##name(const void *p);
#include "kernels.def"
#undef CU
}

namespace
{

kernel kernels[] = {
#define CU(name, args) {"weft_cuda_" #name, sizeof(args), weft_cuda_emu_##name, 48 << 10},
#include "kernels.def"
#undef CU
};

double number(const char *name, double other)
{
    const char *x = getenv(name);
    return x && *x ? atof(x) : other;
}

size_t free_bytes()
{
    double left = number("WEFT_STUB_MEMORY", 8e9) - number("WEFT_STUB_OTHERS", 0) -
                  (double)device_bytes;
    return left > 0 ? (size_t)left : 0;
}

/* ---- every call comes by here ---- */

long fail, lost;
bool asked; /* for the environment's */

/* Of several ranks each has its own file. */
FILE *open_log()
{
    const char *path = getenv("WEFT_STUB_LOG"), *rank = getenv("WEFT_RANK");
    std::string name = path ? path : "";
    if (path && rank) name += std::string(".") + rank;
    return path ? fopen(name.c_str(), "w") : nullptr;
}

bool is_rank_of_failures()
{
    const char *one = getenv("WEFT_STUB_RANK"), *rank = getenv("WEFT_RANK");
    return !one || (rank && !strcmp(one, rank));
}

int enter(const char *name, const std::string &what = "")
{
    static FILE *file = open_log();
    if (!asked && is_rank_of_failures()) {
        fail = (long)number("WEFT_STUB_FAIL", 0);
        lost = (long)number("WEFT_STUB_LOST", 0);
    }
    asked = true;
    n_call++;
    if (file) {
        fprintf(file, "%ld %s%s%s\n", n_call, name, what.empty() ? "" : " ",
                what.c_str());
        fflush(file);
    }
    if (lost && n_call >= lost) return LAUNCH_FAILED;
    if (fail && n_call == fail)
        return std::string(name).find("Alloc") != std::string::npos ? OUT_OF_MEMORY
                                                                    : UNKNOWN;
    return OK;
}

#define ENTER(...)                                                                       \
    holding hold;                                                                        \
    if (int code = enter(__func__, ##__VA_ARGS__)) return code
#define NEED_CONTEXT                                                                     \
    if (!current) return INVALID_CONTEXT

bool is_in(const std::map<char *, size_t> &m, const char *p)
{
    auto at = m.upper_bound((char *)p);
    if (at == m.begin()) return false;
    --at;
    return p < at->first + at->second;
}

} // namespace

/* ---- the machine ---- */

API int cuInit(unsigned)
{
    ENTER();
    return number("WEFT_STUB_GPUS", 1) < 1 ? NO_DEVICE : OK;
}

API int cuDriverGetVersion(int *v)
{
    ENTER();
    *v = (int)number("WEFT_STUB_DRIVER", 13000);
    return OK;
}

API int cuDeviceGetCount(int *n)
{
    ENTER();
    *n = (int)number("WEFT_STUB_GPUS", 1);
    return OK;
}

API int cuDeviceGet(int *d, int i)
{
    ENTER();
    *d = i;
    return i >= 0 && i < number("WEFT_STUB_GPUS", 1) ? OK : INVALID_DEVICE;
}

API int cuDeviceCanAccessPeer(int *can, int, int)
{
    ENTER();
    *can = (int)number("WEFT_STUB_PEER", 1);
    return OK;
}

API int cuDeviceGetName(char *name, int n, int)
{
    ENTER();
    snprintf(name, (size_t)n, "Stub GPU");
    return OK;
}

/* WEFT_STUB_MACHINE: GPUs of another number are other GPUs. */
API int cuDeviceGetUuid_v2(unsigned char *uuid, int i)
{
    ENTER();
    memset(uuid, 0x57, 16);
    uuid[14] = (unsigned char)number("WEFT_STUB_MACHINE", 0);
    uuid[15] = (unsigned char)i;
    return OK;
}

API int cuDeviceGetPCIBusId(char *id, int n, int)
{
    ENTER();
    snprintf(id, (size_t)n, "0000:01:00.0");
    return OK;
}

API int cuDeviceTotalMem_v2(size_t *n, int)
{
    ENTER();
    *n = (size_t)number("WEFT_STUB_MEMORY", 8e9);
    return OK;
}

API int cuDeviceGetAttribute(int *x, int what, int)
{
    ENTER();
    int capability = (int)number("WEFT_STUB_CAPABILITY", 90);
    switch (what) {
    case 75: *x = capability / 10; return OK;
    case 76: *x = capability % 10; return OK;
    case 97: *x = 227 << 10; return OK;
    case 16: *x = 132; return OK; /* multiprocessors */
    default: *x = 0; return OK;
    }
}

API int cuDevicePrimaryCtxRetain(void **c, int)
{
    ENTER();
    n_context++;
    *c = &a_context;
    return OK;
}

API int cuDevicePrimaryCtxRelease_v2(int)
{
    ENTER();
    n_context--;
    return OK;
}

API int cuCtxSetCurrent(void *c)
{
    ENTER();
    current = c;
    return OK;
}

API int cuCtxGetCurrent(void **c)
{
    ENTER();
    *c = current;
    return OK;
}

API int cuMemGetInfo_v2(size_t *left, size_t *all)
{
    ENTER();
    NEED_CONTEXT;
    *all  = (size_t)number("WEFT_STUB_MEMORY", 8e9);
    *left = free_bytes();
    return OK;
}

/* ---- memory ---- */

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

static void unmap_file(char *m, size_t n)
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

/* ---- memory of other processes ---- */

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

/* ---- streams and events ---- */

API int cuStreamCreate(void **s, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    *s = *streams.insert(new stream).first;
    return OK;
}

API int cuStreamDestroy_v2(void *s)
{
    ENTER();
    if (!streams.count((stream *)s)) return INVALID_HANDLE;
    reach r;
    drain((stream *)s, ((stream *)s)->given);
    streams.erase((stream *)s);
    delete (stream *)s;
    return OK;
}

API int cuStreamSynchronize(void *s)
{
    ENTER();
    NEED_CONTEXT;
    stream *t = (stream *)s;
    if (!streams.count(t)) return INVALID_HANDLE;
    if (t->in) {
        t->in->valid = false;
        return UNSUPPORTED;
    }
    reach r;
    drain(t, t->given);
    return OK;
}

API int cuEventCreate(void **e, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    *e = *events.insert(new event).first;
    return OK;
}

API int cuEventDestroy_v2(void *e)
{
    ENTER();
    if (!events.erase((event *)e)) return INVALID_HANDLE;
    delete (event *)e;
    return OK;
}

API int cuEventRecord(void *e, void *s)
{
    ENTER();
    NEED_CONTEXT;
    event  *x = (event *)e;
    stream *t = (stream *)s;
    if (!events.count(x) || !streams.count(t)) return INVALID_HANDLE;
    if (t->in) {
        x->capture = t->in->number;
        x->on      = t;
        x->seen    = t->in->seen[t];
        return OK;
    }
    x->capture = 0;
    x->on      = t;
    x->at      = t->given + 1;
    operation o;
    o.what = operation::RECORD;
    o.e    = x;
    return give(t, std::move(o));
}

/* External records of a capture are operations of its graph; the event is outside of it. */
API int cuEventRecordWithFlags(void *e, void *s, unsigned flags)
{
    stream *t = (stream *)s;
    if (!(flags & 1)) return cuEventRecord(e, s);
    ENTER();
    NEED_CONTEXT;
    if (!events.count((event *)e) || !streams.count(t)) return INVALID_HANDLE;
    if (!t->in) return INVALID_VALUE;
    operation o;
    o.what = operation::RECORD;
    o.e    = (event *)e;
    return give(t, std::move(o));
}

API int cuStreamWaitEvent(void *s, void *e, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    event  *x = (event *)e;
    stream *t = (stream *)s;
    if (!events.count(x) || !streams.count(t)) return INVALID_HANDLE;
    if (x->capture) {
        auto c = captures.find(x->capture);
        if (c == captures.end()) return INVALID_VALUE; /* of a capture that ended */
        if (t->in && t->in != c->second) return ISOLATION;
        t->in = c->second;
        for (auto &seen : x->seen)
            if (t->in->seen[t][seen.first] < seen.second)
                t->in->seen[t][seen.first] = seen.second;
        return OK;
    }
    if (t->in && x->on) {
        t->in->valid = false;
        return ISOLATION;
    }
    if (!x->on) return OK;
    operation o;
    o.what = operation::WAIT;
    o.on   = x->on;
    o.at   = x->at;
    return give(t, std::move(o));
}

static int wait_for_event(event *x, bool patient)
{
    if (!events.count(x)) return INVALID_HANDLE;
    if (x->capture) return UNSUPPORTED;
    reach r;
    if (!x->on || !streams.count(x->on)) return OK;
    return drain(x->on, x->at, patient) ? OK : NOT_READY;
}

API int cuEventQuery(void *e)
{
    ENTER();
    return wait_for_event((event *)e, false);
}

API int cuEventSynchronize(void *e)
{
    ENTER();
    return wait_for_event((event *)e, true);
}

API int cuEventElapsedTime(float *ms, void *a, void *b)
{
    ENTER();
    if (!events.count((event *)a) || !events.count((event *)b)) return INVALID_HANDLE;
    *ms = (float)(1e3 * (((event *)b)->time_s - ((event *)a)->time_s));
    return OK;
}

API int cuStreamWriteValue32_v2(void *s, ptr p, uint32_t value, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    operation o;
    o.what  = operation::FILL;
    o.word  = true;
    o.to    = (char *)(uintptr_t)p;
    o.value = (int)value;
    return give((stream *)s, std::move(o));
}

struct awaited_word {
    uint32_t *p, value;
    unsigned  how;
};

static int look_at_word(void *args)
{
    const awaited_word *w = (const awaited_word *)args;
    uint32_t            x = __atomic_load_n(w->p, __ATOMIC_ACQUIRE);
    return !(w->how == 1 ? x == w->value : (int32_t)(x - w->value) >= 0);
}

API int cuStreamWaitValue32_v2(void *s, ptr p, uint32_t value, unsigned how)
{
    ENTER();
    NEED_CONTEXT;
    if (how > 1 ||
        (!is_in(device, (char *)(uintptr_t)p) && !is_in(pinned, (char *)(uintptr_t)p)))
        return INVALID_VALUE;
    awaited_word w = {(uint32_t *)(uintptr_t)p, value, how};
    operation    o;
    o.what = operation::POLL;
    o.poll = look_at_word;
    o.data.assign((const char *)&w, (const char *)(&w + 1));
    return give((stream *)s, std::move(o));
}

/* ---- kernels ---- */

API int cuLibraryLoadData(void **l, const void *image, void *, void *, unsigned, void *,
                          void *, unsigned)
{
    ENTER();
    NEED_CONTEXT;
    if (*(const uint32_t *)image != 0xba55ed50u)
        return INVALID_IMAGE; /* a fatbin's first word */
    *l = kernels;
    return OK;
}

API int cuLibraryUnload(void *)
{
    ENTER();
    return OK;
}

API int cuLibraryGetKernel(void **k, void *, const char *name)
{
    ENTER();
    for (kernel &x : kernels)
        if (std::string(x.name) == name) {
            *k = &x;
            return OK;
        }
    return NOT_FOUND;
}

API int cuKernelGetFunction(void **f, void *k)
{
    ENTER();
    *f = k;
    return OK;
}

API int cuFuncGetAttribute(int *x, int, void *)
{
    ENTER();
    *x = 0;
    return OK;
}

API int cuFuncSetAttribute(void *f, int what, int x)
{
    ENTER();
    if (what == 8) ((kernel *)f)->max_shared = x;
    return x < 0 || x > 227 << 10 ? INVALID_VALUE : OK;
}

API int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned tx,
                       unsigned ty, unsigned tz, unsigned shared, void *s, void **args,
                       void **)
{
    kernel *k = (kernel *)f;
    ENTER(std::string(k->name) + " " + std::to_string(x) + "x" + std::to_string(y) + "x" +
          std::to_string(z) + " " + std::to_string(tx) + " " + std::to_string(shared));
    NEED_CONTEXT;
    if (!x || x > 0x7fffffffu || !y || y > 65535 || !z || z > 65535 || !tx || tx > 1024 ||
        ty != 1 || tz != 1 || (int)shared > k->max_shared)
        return INVALID_VALUE;
    operation o;
    o.what    = operation::KERNEL;
    o.k       = k;
    o.grid    = {x, y, z};
    o.threads = tx;
    o.shared  = shared;
    o.data.assign((const char *)args[0], (const char *)args[0] + k->bytes);
    return give((stream *)s, std::move(o));
}

/* A call of a stub library (call.h). */
API int stub_gpu_enter(const char *name)
{
    holding hold;
    return enter(name);
}

/* For tests of many runs in one process.  From here on calls are counted from 1; call n fails, or
 * all from it on where `all` is set; 0: none. */
API void stub_gpu_fail(long n, int all)
{
    holding hold;
    n_call = 0;
    asked  = true;
    fail   = all ? 0 : n;
    lost   = all ? n : 0;
}

API long stub_gpu_calls()
{
    return n_call;
}

/* Things of this process that were not given back; forget: as if they had been. */
API long stub_gpu_held(int forget)
{
    holding hold;
    long    n = (long)(device.size() + pinned.size() + streams.size() + events.size() +
                    graphs.size()) +
             n_context;
    if (forget) {
        for (auto &m : device) unmap_file(m.first, m.second);
        for (auto &m : files) close(m.second);
        files.clear();
        for (auto &m : pinned) free(m.first);
        for (stream *s : streams) delete s;
        for (event *e : events) delete e;
        for (graph *g : graphs) delete g;
        device.clear(), pinned.clear(), streams.clear(), events.clear(), graphs.clear();
        captures.clear();
        device_bytes = 0;
        n_context    = 0;
    }
    return n;
}

/* What a stub library does on a stream (call.h). */
API int stub_gpu_call(void *s, const char *name, void (*run)(const void *),
                      const void *args, size_t bytes)
{
    ENTER(name);
    NEED_CONTEXT;
    operation o;
    o.what = operation::CALL;
    o.run  = run;
    o.data.assign((const char *)args, (const char *)args + bytes);
    return give((stream *)s, std::move(o));
}

/* The same for work that waits for another process: poll(args) until it is 0, args being its own
 * memory. */
API int stub_gpu_poll(void *s, const char *name, int (*poll)(void *), const void *args,
                      size_t bytes)
{
    ENTER(name);
    NEED_CONTEXT;
    operation o;
    o.what = operation::POLL;
    o.poll = poll;
    o.data.assign((const char *)args, (const char *)args + bytes);
    return give((stream *)s, std::move(o));
}

/* Graphs that have such work, whose arguments begin with this word. */
API int stub_gpu_graphs_with(const void *word)
{
    holding hold;
    int     n = 0;
    for (const graph *g : graphs)
        for (const operation &o : g->work)
            n += o.what == operation::POLL && !memcmp(o.data.data(), &word, sizeof word);
    return n;
}

/* ---- graphs ---- */

API int cuStreamBeginCapture_v2(void *s, int)
{
    ENTER();
    NEED_CONTEXT;
    stream *t = (stream *)s;
    if (t->in) return UNSUPPORTED;
    capture *c          = new capture;
    c->number           = ++n_capture;
    c->origin           = t;
    captures[n_capture] = c;
    t->in               = c;
    return OK;
}

API int cuStreamEndCapture(void *s, void **g)
{
    ENTER();
    capture *c    = ((stream *)s)->in;
    int      code = OK;
    *g            = nullptr;
    if (!c || c->origin != s) return UNSUPPORTED;
    for (auto &last : c->last)
        if (c->seen[c->origin][last.first] < last.second) code = UNJOINED;
    if (!c->valid) code = INVALIDATED;
    for (stream *t : streams)
        if (t->in == c) t->in = nullptr;
    if (!code) {
        graph *x = new graph;
        x->work  = std::move(c->work);
        graphs.insert(x);
        *g = x;
    }
    captures.erase(c->number);
    delete c;
    return code;
}

API int cuGraphInstantiateWithFlags(void **exec, void *g, unsigned long long)
{
    ENTER(std::to_string(((graph *)g)->work.size()));
    *exec = *graphs.insert(new graph(*(graph *)g)).first;
    return OK;
}

API int cuGraphLaunch(void *exec, void *s)
{
    ENTER(std::to_string(((graph *)exec)->work.size()));
    NEED_CONTEXT;
    operation o;
    o.what = operation::GRAPH;
    o.g    = (graph *)exec;
    return give((stream *)s, std::move(o));
}

static int free_graph(void *g)
{
    if (!graphs.erase((graph *)g)) return INVALID_HANDLE;
    delete (graph *)g;
    return OK;
}

/* Never asked: attribute 127 says that there are no tensor maps. */
API int cuTensorMapEncodeTiled(void *, int, unsigned, void *, const uint64_t *,
                               const uint64_t *, const uint32_t *, const uint32_t *, int,
                               int, int, int)
{
    ENTER();
    return NOT_SUPPORTED;
}

API int cuGraphDestroy(void *g)
{
    ENTER();
    return free_graph(g);
}

API int cuGraphExecDestroy(void *g)
{
    ENTER();
    reach r;
    drain_all();
    return free_graph(g);
}

/* ---- errors ---- */

API int cuGetErrorString(int code, const char **text)
{
    static const std::map<int, const char *> known = {
        {OUT_OF_MEMORY, "out of memory"},
        {INVALID_VALUE, "invalid argument"},
        {INVALID_CONTEXT, "invalid device context"},
        {LAUNCH_FAILED, "unspecified launch failure"},
        {UNKNOWN, "unknown error"}};
    auto at = known.find(code);
    *text   = at == known.end() ? "an error of the stub" : at->second;
    return OK;
}

/* What a process still holds when it ends is named: tests look for it. */
__attribute__((destructor)) static void report_leaks()
{
    const char *path = getenv("WEFT_STUB_LEAKS");
    FILE       *f    = path ? fopen(path, "w") : nullptr;
    if (!f) return;
    fprintf(f,
            "calls %ld, device memory %zu, pinned %zu, streams %zu, events %zu, graphs "
            "%zu, contexts %d\n",
            n_call, device.size(), pinned.size(), streams.size(), events.size(),
            graphs.size(), n_context);
    fclose(f);
}
