/* Any bytes as what a process has left in the agent's memory for the one that takes its place: what
 * is found lies within the memory, cards have texts that end, slabs are of the program. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/hosts.h"
#include "comm/shm.h"
#include "session/kept.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum {
    ROOM    = 1 << 16, /* of a slab */
    N_SLAB  = 20,      /* of the largest program: more than a record has */
    JOURNAL = 1000     /* bytes of it, and for each thread */
};

static _Alignas(4096) uint8_t slab[ROOM];
static weft_comm_shm_slot slot;

/* ---- in the place of shared memory ---- */

weft_comm *weft_comm_shared_end(weft_comm *c)
{
    return c;
}

weft_comm_shm_slot *weft_comm_shm_kept_slot(const weft_comm *c)
{
    (void)c;
    return &slot;
}

weft_comm_shm_slot *weft_comm_shm_kept_slot_of(const weft_comm *c, int which)
{
    (void)c;
    return which ? NULL : &slot;
}

int weft_comm_shm_own_slot(const weft_comm *c)
{
    (void)c;
    return 0;
}

void *weft_comm_shm_reach(const weft_comm *c, int which, int64_t offset, int64_t bytes)
{
    (void)c;
    if (which || offset < 0 || bytes < 1 || bytes > ROOM || offset > ROOM - bytes)
        return NULL;
    return slab + offset;
}

weft_status weft_comm_shm_adopt(weft_comm *c, int64_t offset, int64_t bytes, void **p)
{
    *p = weft_comm_shm_reach(c, 0, offset, bytes);
    return *p ? WEFT_OK : WEFT_FAIL(WEFT_ERR_MEM, "it is not there");
}

weft_status weft_comm_shm_alloc(weft_comm *c, int64_t bytes, void **p)
{
    (void)c, (void)bytes, (void)p;
    return WEFT_FAIL(WEFT_ERR_MEM, "nothing is made here");
}

void weft_comm_shm_free(weft_comm *c, void *p)
{
    (void)c, (void)p;
}

int weft_comm_shm_find(const weft_comm *c, const void *p, int64_t *offset)
{
    (void)c, (void)p, (void)offset;
    return -1;
}

int64_t weft_exec_journal_bytes(const weft_program *p, int n_thread)
{
    (void)p;
    return JOURNAL * (1 + (int64_t)n_thread);
}

/* ---- what is there ---- */

static uint8_t touched;

static void touch(const void *p, int64_t n)
{
    const uint8_t *b = p;
    if (n < 0 || b < slab || (size_t)n > (size_t)(slab + ROOM - b)) abort();
    for (int64_t i = 0; i < n; i += 64) touched ^= b[i];
    if (n) touched ^= b[n - 1];
}

static void check_card(const weft_kept_card *c, int64_t step)
{
    if (!c) return;
    touch(c, sizeof *c);
    if (strnlen(c->reduction, sizeof c->reduction) == sizeof c->reduction ||
        strnlen(c->folder, sizeof c->folder) == sizeof c->folder || c->steps != step)
        abort();
}

static void check_program(const weft_kept *k, int n_slab)
{
    static weft_slab of[N_SLAB];
    weft_program     p    = {.n_slab = n_slab, .slab = of};
    const int64_t   *at   = weft_kept_slabs(k, &p);
    int              many = weft_kept_threads(k, &p);
    if (at) touch(at, n_slab * (int64_t)sizeof *at);
    if (many < 0) abort();
    if (many)
        touch(weft_kept_journal((weft_kept *)(uintptr_t)k),
              weft_exec_journal_bytes(&p, many));
}

static void check_kept(weft_comm *c)
{
    const weft_kept *k = weft_kept_find(c);
    int64_t          bytes;
    weft_kept_need   need = {.rank = 1, .program = &(weft_program){0}, .n_thread = 1};
    weft_kept       *mine;
    if (!k) return;
    touch(k, weft_kept_bytes(k));
    const char *plan = weft_kept_plan(k, &bytes);
    touch(plan, bytes);
    check_card(weft_kept_find_card(k, 6), 6);
    check_card(weft_kept_find_card(k, 7), 7);
    const weft_kept_card *newest = weft_kept_newest(k);
    if (newest) check_card(newest, newest->steps);
    check_program(k, 3);
    check_program(k, N_SLAB);
    need.plan       = plan;
    need.plan_bytes = bytes;
    if (weft_kept_adopt(c, &need, &mine)) {
        touch(mine, weft_kept_record_bytes(&need));
        weft_kept_close(c, mine);
    }
}

/* First the place of the record; then places in it and values of 8 bytes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const weft_comm_ops ops   = {0};
    weft_comm                  c     = {.op = &ops, .world = 1};
    int64_t                    begin = 0;
    if (n < 1) return 0;
    memset(slab, 0, sizeof slab);
    if (data[0] & 1 && n >= 9) memcpy(&begin, data + 1, sizeof begin);
    atomic_store(&slot.record, begin == INT64_MAX ? begin : begin + 1);
    for (data += 9, n = n > 9 ? n - 9 : 0; n >= 10; data += 10, n -= 10)
        memcpy(slab + (data[0] | data[1] << 8) % (ROOM - 8), data + 2, 8);
    check_kept(&c);
    return 0;
}
