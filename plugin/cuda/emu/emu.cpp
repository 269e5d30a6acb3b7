/* Blocks and their threads, as fibers. */
#include "emu/emu.h"

#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__) || defined(__SANITIZE_THREAD__)
#define SWAPCONTEXT 1
#include <ucontext.h>
#endif

emu_dim threadIdx, blockIdx, blockDim, gridDim;
char   *emu_shared;

namespace
{

enum {
    STACK_BYTES = 64 << 10,
    WARP        = 32,
    MAX_WARPS   = 32
};

/* What runs threads, one after another: a stack, and where its thread was left. */
struct fiber {
    std::unique_ptr<char[]> memory;
#ifdef SWAPCONTEXT
    ucontext_t context;
#else
    void *sp;
#endif
#ifdef ASAN
    const void *bottom;
    size_t      bytes;
    void       *fake;
#endif
};

/* A warp: bits of its lanes. */
struct warp {
    uint32_t alive;    /* have not ended */
    uint32_t ready;    /* neither ended nor waiting */
    uint32_t at_warp;  /* wait for the warp */
    uint32_t at_block; /* wait for the block */
    uint32_t met;      /* came when all waited for the warp last */
};

std::mutex lock; /* one launch at a time: blockIdx and the others are global */
warp       warps[MAX_WARPS];
uint32_t   ready_warps; /* those with a lane that is ready */
int        n_thread, n_alive, n_at_block;
int        current;
/* What lanes show each other, twice: who has read one may already write the other. */
uint64_t words[2][WARP * MAX_WARPS];
uint8_t  shown[WARP * MAX_WARPS]; /* how often a thread has shown a word */
int      n_yield;      /* threads that waited in vain since something happened */
int      met[16];      /* threads at a named barrier */
unsigned round_of[16]; /* how often it was passed */

std::vector<std::unique_ptr<fiber>> fibers;
std::vector<fiber *>                idle; /* no thread is on them */
fiber *on[WARP * MAX_WARPS];              /* of a thread that has begun and not ended */
fiber  caller;
void (*body)(const void *);
const void *arguments;

void run_threads();

/* ---- changing fibers: what emulation costs ---------------------------------------------- */

#ifdef SWAPCONTEXT
void switch_stack(fiber &from, fiber &to)
{
    swapcontext(&from.context, &to.context);
}

void prepare(fiber &f)
{
    getcontext(&f.context);
    f.context.uc_stack.ss_sp   = f.memory.get();
    f.context.uc_stack.ss_size = STACK_BYTES;
    f.context.uc_link          = &caller.context;
    makecontext(&f.context, run_threads, 0);
}
#else
/* swapcontext asks the kernel for the signal mask each time (0.3 us), so the registers that a call
 * keeps are pushed and popped here (0.01 us). */
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

void switch_stack(fiber &from, fiber &to)
{
    weft_cuda_emu_switch(&from.sp, to.sp);
}

/* As if it had called weft_cuda_emu_switch at the start of run_threads. */
void prepare(fiber &f)
{
    uintptr_t top = ((uintptr_t)f.memory.get() + STACK_BYTES) & ~(uintptr_t)15;
    /* six registers, where to go on, and a return address */
    void **at = (void **)top - 8;
    memset(at, 0, 8 * sizeof *at);
    at[6] = (void *)run_threads;
    f.sp = at;
}
#endif

/* ends: nothing goes on where `from` is. */
void change(fiber &from, fiber &to, bool ends)
{
#ifdef ASAN
    __sanitizer_start_switch_fiber(ends ? NULL : &from.fake, to.bottom, to.bytes);
    switch_stack(from, to);
    __sanitizer_finish_switch_fiber(from.fake, NULL, NULL);
#else
    (void)ends;
    switch_stack(from, to);
#endif
}

/* The first thing done on a fiber: ASan learns that it runs, and where the caller's stack is. */
void arrive(void)
{
#ifdef ASAN
    const void *bottom;
    size_t      bytes;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &bytes);
    if (!caller.bytes) caller.bottom = bottom, caller.bytes = bytes;
#endif
}

fiber *take_fiber()
{
    if (idle.empty()) {
        std::unique_ptr<fiber> f(new fiber());
        f->memory.reset(new char[STACK_BYTES]);
#ifdef ASAN
        f->bottom = f->memory.get();
        f->bytes  = STACK_BYTES;
#endif
        idle.push_back(f.get());
        fibers.push_back(std::move(f));
    }
    fiber *f = idle.back();
    idle.pop_back();
    prepare(*f);
    return f;
}

/* ---- whose turn it is ------------------------------------------------------------------- */

uint32_t bit(int i)
{
    return 1u << i;
}

/* The first bit above `at`, else the first of all. */
int next_bit(uint32_t bits, int at)
{
    uint32_t above = bits & ~(bit(at) | (bit(at) - 1));
    return __builtin_ctz(above ? above : bits);
}

/* Lanes of a warp take turns until none of them can go on: few stacks are in use at a time. */
int find_ready()
{
    int w = current / WARP, lane = current % WARP;
    if (!ready_warps) {
        fprintf(stderr, "emu: threads of a block wait at different barriers\n");
        abort();
    }
    if (!(ready_warps & bit(w))) {
        w    = next_bit(ready_warps, w);
        lane = WARP - 1;
    }
    return w * WARP + next_bit(warps[w].ready, lane);
}

void set_current(int i)
{
    current     = i;
    threadIdx.x = (unsigned)i;
}

void clear_ready(int i)
{
    warp &w = warps[i / WARP];
    w.ready &= ~bit(i % WARP);
    if (!w.ready) ready_warps &= ~bit(i / WARP);
}

bool open_warp(int w)
{
    if (warps[w].at_warp != warps[w].alive || !warps[w].alive) return false;
    warps[w].met = warps[w].at_warp;
    warps[w].ready |= warps[w].at_warp;
    warps[w].at_warp = 0;
    ready_warps |= bit(w);
    return true;
}

bool open_block()
{
    if (n_at_block != n_alive || !n_alive) return false;
    for (int w = 0; w * WARP < n_thread; w++) {
        warps[w].ready |= warps[w].at_block;
        warps[w].at_block = 0;
        if (warps[w].ready) ready_warps |= bit(w);
    }
    n_at_block = 0;
    return true;
}

/* Another thread goes on, until the caller's thread is chosen again. */
void run_thread(int next)
{
    fiber &me = *on[current];
    if (!on[next]) on[next] = take_fiber();
    set_current(next);
    change(me, *on[next], false);
}

void let_others_run()
{
    run_thread(find_ready());
}

/* The next thread in order that is ready: the caller's, if there is no other. */
int find_next()
{
    int      w = current / WARP, lane = current % WARP;
    uint32_t above = lane == WARP - 1 ? 0 : warps[w].ready & ~(bit(lane + 1) - 1);
    if (above) return w * WARP + __builtin_ctz(above);
    w = next_bit(ready_warps, w);
    return w * WARP + __builtin_ctz(warps[w].ready);
}

/* Until all lanes that still run have come. */
void meet_warp()
{
    int w = current / WARP;
    warps[w].at_warp |= bit(current % WARP);
    clear_ready(current);
    if (!open_warp(w)) let_others_run();
}

/* One thread after another, until the next one has already begun: that one is on another fiber. */
void run_threads()
{
    arrive();
    for (;;) {
        fiber *me = on[current];
        body(arguments);
        int w = current / WARP;
        clear_ready(current);
        warps[w].alive &= ~bit(current % WARP);
        n_alive--;
        n_yield     = 0;
        on[current] = NULL;
        if (!n_alive) {
            idle.push_back(me);
            change(*me, caller, true);
        }
        open_warp(w);
        open_block();
        int next = find_ready();
        set_current(next);
        if (on[next]) {
            idle.push_back(me);
            change(*me, *on[next], true);
        }
        on[next] = me;
    }
}

void run_block()
{
    ready_warps = 0;
    for (int w = 0; w * WARP < n_thread; w++) {
        int      n     = n_thread - w * WARP;
        uint32_t lanes = n >= WARP ? ~0u : bit(n) - 1;
        warps[w]       = {lanes, lanes, 0, 0, 0};
        ready_warps |= bit(w);
    }
    n_alive    = n_thread;
    n_at_block = 0;
    n_yield    = 0;
    memset(met, 0, sizeof met);
    memset(shown, 0, (size_t)n_thread);
    set_current(0);
    on[0] = take_fiber();
    change(caller, *on[0], false); /* until all have ended */
}

} // namespace

void __syncthreads(void)
{
    warps[current / WARP].at_block |= bit(current % WARP);
    n_at_block++;
    clear_ready(current);
    if (!open_block()) let_others_run();
}

void __syncwarp(unsigned)
{
    meet_warp();
}

void emu_note_event(void)
{
    n_yield = 0;
}

bool emu_yield(void)
{
    int next = find_next();
    if (next == current || n_yield > 2 * n_thread) {
        n_yield = 0;
        return false;
    }
    n_yield++;
    run_thread(next);
    return true;
}

void emu_meet(int id, int threads)
{
    unsigned now = round_of[id];
    n_yield      = 0;
    if (++met[id] == threads) {
        met[id] = 0;
        round_of[id]++;
    }
    while (round_of[id] == now)
        if (!emu_yield()) emu_stuck();
}

int emu_lane(void)
{
    return current % WARP;
}

/* Shows a word to the warp; the words of all its lanes. */
static const uint64_t *show(uint64_t word)
{
    uint64_t *all = words[shown[current]++ % 2];
    all[current]  = word;
    meet_warp();
    return &all[current / WARP * WARP];
}

uint64_t emu_exchange(uint64_t word, int from)
{
    return show(word)[from];
}

unsigned emu_match(uint64_t word)
{
    const uint64_t *all  = show(word);
    uint32_t        met  = warps[current / WARP].met;
    unsigned        same = 0;
    for (int i = 0; i < WARP; i++)
        if ((met & bit(i)) && all[i] == word) same |= bit(i);
    return same;
}

void emu_run(void (*kernel)(const void *), emu_dim grid, unsigned threads,
             unsigned shared_bytes, const void *args)
{
    std::lock_guard<std::mutex> hold(lock);
    std::vector<char>           shared(shared_bytes + 1024);
    emu_shared = (char *)(((uintptr_t)shared.data() + 1023) / 1024 * 1024);
    if (!threads || threads > WARP * MAX_WARPS) {
        fprintf(stderr, "emu: %u threads in a block\n", threads);
        abort();
    }
    n_thread = (int)threads;
#ifdef ASAN
    caller.bytes = 0; /* another thread may have called before */
#endif
    for (uint64_t *all : words) memset(all, 0, threads * sizeof *all);
    gridDim   = grid;
    blockDim  = {threads, 1, 1};
    body      = kernel;
    arguments = args;
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) run_block();
}
