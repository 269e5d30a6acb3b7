/* Blocks and fibers. */
#include "emu/emu.h"

#include <mutex>
#include <ucontext.h>
#include <vector>

emu_dim threadIdx, blockIdx, blockDim, gridDim;
char   *emu_shared;

namespace
{

enum {
    STACK_BYTES = 64 << 10,
    WARP        = 32
};

/* Threads that come together: how many still run, how many wait, and how often all have met. */
struct barrier {
    int  alive, waiting;
    long met;
};

struct fiber {
    ucontext_t        context;
    void             *sp; /* of one that does not run */
    std::vector<char> stack;
    emu_dim           index;
    bool              done;
    unsigned          shown; /* how often it has shown a word */
};

std::mutex         lock;   /* one launch at a time: blockIdx and the others are global */
std::vector<fiber> fibers; /* the first n_thread of them run */
int                n_thread;
/* What lanes show each other, twice: who has read one may already write the other. */
std::vector<uint64_t> words[2];
barrier               of_block;
std::vector<barrier>  of_warp;
fiber                 scheduler;
int                   current;
void (*body)(const void *);
const void *arguments;

void run_fiber();

/* Changing fibers is what emulation costs.  swapcontext asks the kernel for the signal mask each
 * time (0.3 us), so on x86-64 the registers that a call keeps are pushed and popped here (0.01
 * us); sanitizers know swapcontext only. */
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void weft_cuda_emu_switch(void **save, void *to);
__asm__(".text\n"
        ".type weft_cuda_emu_switch, @function\n"
        "weft_cuda_emu_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n"
        "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n"
        "    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n");

void change(fiber &from, fiber &to)
{
    weft_cuda_emu_switch(&from.sp, to.sp);
}

/* As if it had called weft_cuda_emu_switch at the start of run_fiber. */
void prepare(fiber &f)
{
    uintptr_t top = ((uintptr_t)f.stack.data() + f.stack.size()) & ~(uintptr_t)15;
    void    **at =
        (void **)top - 8; /* six registers, where to go on, and a return address */
    memset(at, 0, 8 * sizeof *at);
    at[6] = (void *)run_fiber;
    f.sp  = at;
}
#else
void change(fiber &from, fiber &to)
{
    swapcontext(&from.context, &to.context);
}

void prepare(fiber &f)
{
    getcontext(&f.context);
    f.context.uc_stack.ss_sp   = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link          = &scheduler.context;
    makecontext(&f.context, run_fiber, 0);
}
#endif

/* Another fiber that is not done goes on, the next one in order; the scheduler where there is
 * none. */
void go_on(int me)
{
    int next = me;
    do next = next + 1 == n_thread ? 0 : next + 1;
    while (fibers[(size_t)next].done && next != me);
    if (next == me && !fibers[(size_t)me].done) return;
    if (next == me) {
        change(fibers[(size_t)me], scheduler);
        return;
    }
    current   = next;
    threadIdx = fibers[(size_t)next].index;
    change(fibers[(size_t)me], fibers[(size_t)next]);
}

void open_if_all(barrier &b)
{
    if (b.waiting < b.alive || b.alive == 0) return;
    b.waiting = 0;
    b.met++;
}

/* Until all fibers of the barrier that still run have come. */
void meet(barrier &b)
{
    long before = b.met;
    b.waiting++;
    open_if_all(b);
    while (b.met == before) go_on(current);
}

void meet_warp()
{
    meet(of_warp[(size_t)(current / WARP)]);
}

void run_fiber()
{
    fiber &me = fibers[(size_t)current];
    body(arguments);
    me.done = true;
    of_block.alive--;
    open_if_all(of_block);
    barrier &warp = of_warp[(size_t)(current / WARP)];
    warp.alive--;
    open_if_all(warp);
    go_on(current);
}

void run_block()
{
    int n    = n_thread;
    of_block = {n, 0, 0};
    of_warp.assign((size_t)((n + WARP - 1) / WARP), barrier{});
    for (int i = 0; i < n; i++) {
        of_warp[(size_t)(i / WARP)].alive++;
        fibers[(size_t)i].done  = false;
        fibers[(size_t)i].shown = 0;
        fibers[(size_t)i].index = {(unsigned)i, 0, 0};
        prepare(fibers[(size_t)i]);
    }
    current   = 0;
    threadIdx = fibers[0].index;
    change(scheduler, fibers[0]); /* until all are done */
}

} // namespace

void __syncthreads(void)
{
    meet(of_block);
}

void __syncwarp(unsigned)
{
    meet_warp();
}

int emu_lane(void)
{
    return current % WARP;
}

/* Shows a word to the warp; the words of all its lanes. */
static const uint64_t *show(uint64_t word)
{
    std::vector<uint64_t> &all = words[fibers[(size_t)current].shown++ % 2];
    all[(size_t)current]       = word;
    meet_warp();
    return &all[(size_t)(current / WARP * WARP)];
}

uint64_t emu_exchange(uint64_t word, int from)
{
    return show(word)[from];
}

unsigned emu_match(uint64_t word)
{
    int             lo = current / WARP * WARP, n = n_thread - lo;
    unsigned        same = 0;
    const uint64_t *all  = show(word);
    for (int i = 0; i < WARP && i < n; i++)
        if (!fibers[(size_t)(lo + i)].done && all[i] == word) same |= 1u << i;
    meet_warp(); /* nobody ends before all have looked */
    return same;
}

void emu_run(void (*kernel)(const void *), emu_dim grid, unsigned threads,
             unsigned shared_bytes, const void *args)
{
    std::lock_guard<std::mutex> hold(lock);
    std::vector<char>           shared(shared_bytes + 256);
    emu_shared = (char *)(((uintptr_t)shared.data() + 255) / 256 * 256);
    n_thread   = (int)threads;
    while (fibers.size() < threads) {
        fibers.emplace_back();
        fibers.back().stack.resize(STACK_BYTES);
    }
    for (std::vector<uint64_t> &w : words) w.assign(threads + WARP, 0);
    gridDim   = grid;
    blockDim  = {threads, 1, 1};
    body      = kernel;
    arguments = args;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) run_block();
}
