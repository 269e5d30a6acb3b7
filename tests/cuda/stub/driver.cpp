/* libcuda.so.1 without a GPU, for tests: memory is the host's, kernels are the plugin's own, run by
 * plugin/cuda/emu.  Memory is in driver_memory.cpp; streams, events and graphs are in
 * driver_stream.cpp.
 *
 * What is given to a stream runs late: when somebody waits for it.  So code that looks at results
 * without waiting, or lets memory go that a copy still reads, is found.  Device memory cannot be
 * reached outside of that.  Work that waits for another process (call.h) holds its stream alone:
 * other streams go on, and the lock is let go.
 *
 *     WEFT_STUB_FAIL=n        call n fails, once; WEFT_STUB_LOST=n: and all after it, as on a lost
 *                             GPU
 *     WEFT_STUB_RANK=r        only in the process of rank r
 *     WEFT_STUB_LOG=file      every call as a line, with its number
 *     WEFT_STUB_GPUS, WEFT_STUB_CAPABILITY, WEFT_STUB_DRIVER, WEFT_STUB_MEMORY,
 *     WEFT_STUB_SHARED, WEFT_STUB_MULTIPROCESSORS, WEFT_STUB_TENSOR_MAPS
 *                             what the machine is (1, 90, 13000, 8e9 bytes, 227 KiB, 132, 0: none,
 *                             so that kernels of warpgroups, which are slow on the CPU, get no
 *                             work)
 *     WEFT_STUB_OTHERS=bytes  what other processes hold of its memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

#include "cuda_args.h"
#include "emu/wgmma.h"
#include "stub/enter.h"

extern "C" {
#define CU(name, args) void weft_cuda_emu_##name(const void *p);
#include "kernels.def"
#undef CU
}

using namespace stub;

static kernel kernels[] = {
#define CU(name, args) {"weft_cuda_" #name, sizeof(args), weft_cuda_emu_##name, 48 << 10},
#include "kernels.def"
#undef CU
};

double stub::number(const char *name, double other)
{
    const char *x = getenv(name);
    return x && *x ? atof(x) : other;
}

/* ---- every call comes by here ---- */

static long fail, lost;
static bool asked; /* for the environment's */

/* Of several ranks each has its own file. */
static FILE *open_log()
{
    const char *path = getenv("WEFT_STUB_LOG"), *rank = getenv("WEFT_RANK");
    std::string name = path ? path : "";
    if (path && rank) name += std::string(".") + rank;
    return path ? fopen(name.c_str(), "w") : nullptr;
}

static bool is_rank_of_failures()
{
    const char *one = getenv("WEFT_STUB_RANK"), *rank = getenv("WEFT_RANK");
    return !one || (rank && !strcmp(one, rank));
}

int stub::enter(const char *name, const std::string &what)
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

/* Bytes of shared memory that a block may ask for. */
static int most_shared(void)
{
    return (int)number("WEFT_STUB_SHARED", 227 << 10);
}

API int cuDeviceGetAttribute(int *x, int what, int)
{
    ENTER();
    int capability = (int)number("WEFT_STUB_CAPABILITY", 90);
    switch (what) {
    case 75: *x = capability / 10; return OK;
    case 76: *x = capability % 10; return OK;
    case 97: *x = most_shared(); return OK;
    case 16: *x = (int)number("WEFT_STUB_MULTIPROCESSORS", 132); return OK;
    case 127: *x = (int)number("WEFT_STUB_TENSOR_MAPS", 0); return OK;
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
    return x < 0 || x > most_shared() ? INVALID_VALUE : OK;
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

/* bf16 in rows of 128 bytes that change places, zeros outside: what emu/wgmma.cpp copies.  The
 * checks are the driver's. */
API int cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *p,
                               const uint64_t *size, const uint64_t *stride,
                               const uint32_t *box, const uint32_t *step, int interleave,
                               int swizzle, int, int fill)
{
    ENTER();
    uint64_t d[4] = {1, 1, 1, 1}, bytes[3] = {16, 16, 16};
    uint32_t b[4] = {1, 1, 1, 1};
    if (!number("WEFT_STUB_TENSOR_MAPS", 0)) return NOT_SUPPORTED;
    if (type != 9 || rank < 3 || rank > 4 || interleave || swizzle != 3 || fill)
        return NOT_SUPPORTED;
    if ((uintptr_t)out % 64 || (uintptr_t)p % 16) return INVALID_VALUE;
    for (unsigned i = 0; i < rank; i++) {
        if (!size[i] || size[i] > (uint64_t)1 << 32 || !box[i] || box[i] > 256 ||
            step[i] != 1)
            return INVALID_VALUE;
        d[i] = size[i], b[i] = box[i];
    }
    for (unsigned i = 0; i < rank - 1; i++) {
        if (!stride[i] || stride[i] % 16 || stride[i] >= (uint64_t)1 << 40)
            return INVALID_VALUE;
        bytes[i] = stride[i];
    }
    if (b[0] != 64) return NOT_SUPPORTED;
    *(weft_cuda_tensor_map *)out = emu_map(p, d, bytes, b);
    return OK;
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
