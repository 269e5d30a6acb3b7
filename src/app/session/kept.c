#include "session/kept.h"

#include <stdatomic.h>
#include <string.h>

#include "comm/hosts.h"
#include "comm/shm.h"

#define MAGIC UINT64_C(0x3274706b74666577) /* "weftkpt2" */

enum {
    ALIGN     = 4096,
    HUGE_PAGE = 1 << 21
};

struct weft_kept {
    uint64_t        magic;
    int64_t         bytes; /* of all */
    int64_t         plan_at, plan_bytes, journal_at, journal_bytes;
    int32_t         n_slab, rank;
    int64_t         slab_at[WEFT_KEPT_MAX_SLAB], slab_bytes[WEFT_KEPT_MAX_SLAB];
    _Atomic int64_t valid[2]; /* 1 + the step of the card; 0: it is not there */
    weft_kept_card  card[2];  /* of even and of odd steps */
};

static int64_t round_up(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Sizes and places alone. */
static weft_kept lay_out(const weft_kept_need *need)
{
    weft_kept k  = {.magic = MAGIC, .plan_bytes = need->plan_bytes};
    k.plan_at    = round_up(sizeof k);
    k.journal_at = k.plan_at + round_up(need->plan_bytes);
    k.journal_bytes =
        need->journals ? weft_exec_journal_bytes(need->program, need->n_thread) : 0;
    k.bytes = k.journal_at + round_up(k.journal_bytes);
    return k;
}

/* From 2 MB on memory of a slab begins at a multiple of that. */
static int64_t round_slab(int64_t bytes)
{
    int64_t page = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
    return (bytes + page - 1) / page * page;
}

int64_t weft_kept_record_bytes(const weft_kept_need *need)
{
    return lay_out(need).bytes;
}

int64_t weft_kept_room(const weft_kept_need *need)
{
    const weft_program *p     = need->program;
    int64_t             bytes = lay_out(need).bytes + 2 * HUGE_PAGE; /* and tables */
    for (int i = 0; i < p->n_slab; i++)
        if (p->slab[i].kind != WEFT_SLAB_STAGING &&
            !weft_slab_kind_is_host(p->slab[i].kind))
            bytes += round_slab(p->slab[i].bytes);
    return round_slab(bytes);
}

/* ---- reading ---- */

/* Are all places within it?  Its writer may have been killed, or may be another build. */
static bool is_whole(const weft_kept *k)
{
    return k->plan_at >= (int64_t)sizeof *k && k->plan_bytes >= 0 &&
           k->journal_at >= k->plan_at && k->journal_bytes >= 0 &&
           k->journal_at <= k->bytes && k->journal_bytes <= k->bytes - k->journal_at &&
           k->plan_bytes <= k->journal_at - k->plan_at && !(k->journal_at % ALIGN) &&
           k->n_slab >= 0 && k->n_slab <= WEFT_KEPT_MAX_SLAB;
}

const weft_kept *weft_kept_find_of(weft_comm *comm, int slot)
{
    weft_comm          *end  = weft_comm_shared_end(comm);
    weft_comm_shm_slot *s    = end ? weft_comm_shm_kept_slot_of(end, slot) : NULL;
    int64_t             told = s ? atomic_load(&s->record) : 0;
    int64_t             size = sizeof(weft_kept);
    bool                none = told < 1 || (told - 1) % (int64_t)sizeof(int64_t);
    const weft_kept    *k = none ? NULL : weft_comm_shm_reach(end, slot, told - 1, size);
    if (!k || k->magic != MAGIC || k->bytes < size ||
        !weft_comm_shm_reach(end, slot, told - 1, k->bytes))
        return NULL;
    return is_whole(k) ? k : NULL;
}

const weft_kept *weft_kept_find(weft_comm *comm)
{
    weft_comm *end = weft_comm_shared_end(comm);
    return end ? weft_kept_find_of(comm, weft_comm_shm_own_slot(end)) : NULL;
}

/* Is it of that step, and do its texts end? */
static bool is_card(const weft_kept_card *c, int64_t step)
{
    return c->steps == step && memchr(c->reduction, 0, sizeof c->reduction) &&
           memchr(c->folder, 0, sizeof c->folder);
}

const weft_kept_card *weft_kept_find_card(const weft_kept *k, int64_t step)
{
    int i = (int)(step & 1);
    if (!k || step < 0 || step == INT64_MAX || atomic_load(&k->valid[i]) != step + 1)
        return NULL;
    return is_card(&k->card[i], step) ? &k->card[i] : NULL;
}

const weft_kept_card *weft_kept_newest(const weft_kept *k)
{
    if (!k) return NULL;
    int64_t a = atomic_load(&k->valid[0]), b = atomic_load(&k->valid[1]);
    int64_t newest = a > b ? a : b;
    return newest > 0 ? weft_kept_find_card(k, newest - 1) : NULL;
}

const char *weft_kept_plan(const weft_kept *k, int64_t *bytes)
{
    *bytes = k->plan_bytes;
    return (const char *)k + k->plan_at;
}

int weft_kept_rank(const weft_kept *k)
{
    return k->rank;
}

int64_t weft_kept_bytes(const weft_kept *k)
{
    return k->bytes;
}

const int64_t *weft_kept_slabs(const weft_kept *k, const weft_program *p)
{
    if (k->n_slab != p->n_slab) return NULL;
    for (int i = 0; i < p->n_slab; i++)
        if (k->slab_at[i] >= 0 && k->slab_bytes[i] != p->slab[i].bytes) return NULL;
    return k->slab_at;
}

int weft_kept_threads(const weft_kept *k, const weft_program *p)
{
    int64_t one  = weft_exec_journal_bytes(p, 1);
    int64_t each = weft_exec_journal_bytes(p, 2) - one, more = k->journal_bytes - one;
    if (k->journal_at < k->plan_at || k->journal_bytes > k->bytes - k->journal_at ||
        more < 0 || (each ? more % each || more / each > INT16_MAX : more))
        return 0;
    return each ? (int)(more / each) + 1 : 1;
}

void *weft_kept_journal(weft_kept *k)
{
    return (char *)k + k->journal_at;
}

/* ---- writing ---- */

/* Is it what lay_out() makes of need, with the same plan and rank? */
static bool is_for(const weft_kept *k, const weft_kept_need *need)
{
    weft_kept   want = lay_out(need);
    int64_t     n;
    const char *text = weft_kept_plan(k, &n);
    return k->bytes == want.bytes && k->plan_at == want.plan_at &&
           k->journal_at == want.journal_at && k->journal_bytes == want.journal_bytes &&
           k->rank == need->rank && n == need->plan_bytes &&
           (!n || !memcmp(text, need->plan, (size_t)n));
}

weft_kept *weft_kept_reserve(weft_comm *comm)
{
    const weft_kept *there = weft_kept_find(comm);
    weft_comm       *end   = weft_comm_shared_end(comm);
    void            *p;
    if (!there) return NULL;
    int64_t at = atomic_load(&weft_comm_shm_kept_slot(end)->record) - 1;
    return weft_comm_shm_adopt(end, at, there->bytes, &p) == WEFT_OK ? p : NULL;
}

bool weft_kept_adopt(weft_comm *comm, const weft_kept_need *need, weft_kept **out)
{
    const weft_kept *there = weft_kept_find(comm);
    weft_kept       *k = there && is_for(there, need) ? weft_kept_reserve(comm) : NULL;
    if (k) *out = k;
    return k != NULL;
}

weft_status weft_kept_create(weft_comm *comm, const weft_kept_need *need, weft_kept **out)
{
    weft_kept k = lay_out(need);
    void     *p;
    WEFT_TRY(weft_comm_shm_alloc(weft_comm_shared_end(comm), k.bytes, &p));
    memcpy(p, &k, sizeof k);
    *out = p;
    return WEFT_OK;
}

void weft_kept_close(weft_comm *comm, weft_kept *k)
{
    if (k) weft_comm_shm_free(weft_comm_shared_end(comm), k);
}

void weft_kept_describe(weft_kept *k, weft_comm *comm, const weft_kept_need *need,
                        const int64_t *slab_at, const weft_kept *before)
{
    weft_comm          *end  = weft_comm_shared_end(comm);
    weft_comm_shm_slot *slot = weft_comm_shm_kept_slot(end);
    const weft_program *p    = need->program;
    int64_t             at   = 0;
    k->n_slab                = p->n_slab <= WEFT_KEPT_MAX_SLAB ? p->n_slab : 0;
    for (int i = 0; i < k->n_slab; i++) {
        k->slab_at[i]    = slab_at[i];
        k->slab_bytes[i] = p->slab[i].bytes;
    }
    k->rank       = need->rank;
    k->plan_bytes = need->plan_bytes;
    if (need->plan_bytes)
        memcpy((char *)k + k->plan_at, need->plan, (size_t)need->plan_bytes);
    for (int i = 0; i < 2 && before; i++) {
        k->card[i] = before->card[i];
        atomic_store(&k->valid[i], atomic_load(&before->valid[i]));
    }
    if (weft_comm_shm_find(end, k, &at) == weft_comm_shm_own_slot(end))
        atomic_store(&slot->record, at + 1);
}

void weft_kept_put_card(weft_kept *k, const weft_kept_card *c)
{
    int i = (int)(c->steps & 1);
    atomic_store(&k->valid[i], 0);
    if (atomic_load(&k->valid[!i]) > c->steps + 1) /* all went back */
        atomic_store(&k->valid[!i], 0);
    memcpy(&k->card[i], c, sizeof *c);
    atomic_thread_fence(memory_order_seq_cst);
    atomic_store(&k->valid[i], c->steps + 1);
}
