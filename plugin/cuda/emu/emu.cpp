/* Blocks and fibers; weft_cuda_launch for the CPU. */
#include "emu/emu.h"

#include <mutex>
#include <ucontext.h>
#include <vector>

extern "C" {
#include "cuda_priv.h"
}

emu_dim threadIdx, blockIdx, blockDim, gridDim;
char   *emu_shared;

namespace {

enum {
    STACK_BYTES = 64 << 10,
    WARP        = 32
};

struct fiber {
    ucontext_t        context;
    std::vector<char> stack;
    emu_dim           index;
    bool              done;
    long              barriers, warp_barriers;
};

std::mutex            lock; /* one launch at a time: blockIdx and the others are global */
std::vector<fiber>    fibers;
std::vector<uint64_t> words; /* what lanes show each other */
ucontext_t            scheduler;
int                   current;
void (*body)(const void *);
const void *arguments;

void yield()
{
    int me = current;
    swapcontext(&fibers[(size_t)me].context, &scheduler);
    current   = me;
    threadIdx = fibers[(size_t)me].index;
}

/* Until all fibers of [lo, hi) that still run have come as often as this one. */
void meet(long fiber::*count, int lo, int hi)
{
    long n = ++(fibers[(size_t)current].*count);
    for (;;) {
        bool all = true;
        for (int i = lo; i < hi; i++)
            all = all && (fibers[(size_t)i].done || fibers[(size_t)i].*count >= n);
        if (all) return;
        yield();
    }
}

void meet_warp()
{
    int lo = current / WARP * WARP, n = (int)fibers.size();
    meet(&fiber::warp_barriers, lo, lo + WARP < n ? lo + WARP : n);
}

void start()
{
    body(arguments);
    fibers[(size_t)current].done = true;
    swapcontext(&fibers[(size_t)current].context, &scheduler);
}

void run_block()
{
    for (size_t i = 0; i < fibers.size(); i++) {
        fiber &f   = fibers[i];
        f.done     = false;
        f.barriers = f.warp_barriers = 0;
        f.index                      = {(unsigned)i, 0, 0};
        getcontext(&f.context);
        f.context.uc_stack.ss_sp   = f.stack.data();
        f.context.uc_stack.ss_size = f.stack.size();
        f.context.uc_link          = &scheduler;
        makecontext(&f.context, start, 0);
    }
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < fibers.size(); i++) {
            if (fibers[i].done) continue;
            current   = (int)i;
            threadIdx = fibers[i].index;
            swapcontext(&scheduler, &fibers[i].context);
            more = more || !fibers[i].done;
        }
    }
}

} // namespace

void __syncthreads(void)
{
    meet(&fiber::barriers, 0, (int)fibers.size());
}

void __syncwarp(unsigned)
{
    meet_warp();
}

int emu_lane(void)
{
    return current % WARP;
}

uint64_t emu_exchange(uint64_t word, int from)
{
    int lo                 = current / WARP * WARP;
    words[(size_t)current] = word;
    meet_warp();
    word = words[(size_t)(lo + from)];
    meet_warp(); /* nobody writes before all have read */
    return word;
}

extern "C" {
#define CU(name, args) void weft_cuda_emu_##name(const void *p);
#include "kernels.def"
#undef CU

weft_status weft_cuda_launch(const weft_kernel_ctx *, weft_cuda_kernel k,
                             weft_cuda_grid grid, const void *args)
{
    static void (*const bodies[])(const void *) = {
#define CU(name, args) weft_cuda_emu_##name,
#include "kernels.def"
#undef CU
    };
    std::lock_guard<std::mutex> hold(lock);
    std::vector<char>           shared(grid.shared_bytes + 256);
    emu_shared = (char *)(((uintptr_t)shared.data() + 255) / 256 * 256);
    fibers.resize(grid.threads);
    for (fiber &f : fibers) f.stack.resize(STACK_BYTES);
    words.assign(grid.threads + WARP, 0);
    gridDim   = {grid.x, grid.y, grid.z};
    blockDim  = {grid.threads, 1, 1};
    body      = bodies[k];
    arguments = args;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) run_block();
    return WEFT_OK;
}
}
