/* Slabs of memory that outlives epochs, for a process that is not in one yet. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "comm/shm.h"
#include "comm/shm_priv.h"

#define ALONE_S 60 /* nobody is waited for */

static weft_status find_slab(int kept, int slot, int64_t bytes, int64_t *at)
{
    shm_head h;
    WEFT_TRY(weft_comm__shm_read_head(kept, &h));
    if (slot < 0 || slot >= (int)h.world || bytes < 0 || bytes > (int64_t)h.slab_bytes)
        return WEFT_FAIL(WEFT_ERR_ARG, "%lld bytes are not in slab %d", (long long)bytes,
                         slot);
    *at = (int64_t)(h.slab_at + h.slab_bytes * (uint64_t)slot);
    return WEFT_OK;
}

weft_status weft_comm_shm_prepare_slab(int kept, int slot, int64_t bytes)
{
    int64_t             at;
    weft_comm_shm_slot *words;
    WEFT_TRY(find_slab(kept, slot, bytes, &at));
    WEFT_TRY(weft_comm_shm_map_slot(kept, slot, &words));
    if (atomic_load(&words->record) || atomic_load(&words->clean_to))
        return WEFT_FAIL(WEFT_ERR_ARG, "slab %d is in use", slot);
    /* at a multiple of 2 MB, so that large pages can be made */
    size_t room = (size_t)bytes + SHM_HUGE;
    char  *all  = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return WEFT_FAIL(WEFT_ERR_MEM, "mmap: %s", strerror(errno));
    char *p  = (char *)(((uintptr_t)all + SHM_HUGE - 1) / SHM_HUGE * SHM_HUGE);
    void *to = mmap(p, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    kept, (off_t)at);
    weft_status st = to == MAP_FAILED
                         ? WEFT_FAIL(WEFT_ERR_MEM, "mmap: %s", strerror(errno))
                         : weft_comm__shm_make_pages(kept, at, p, bytes);
    munmap(all, room);
    if (st != WEFT_OK) return st;
    atomic_store(&words->clean_from, 0);
    atomic_store(&words->clean_to, bytes);
    return WEFT_OK;
}

static weft_status create_epoch(const shm_head *kept, int slot, weft_comm_shm **out)
{
    int  world = (int)kept->world, n = 1;
    int *order = calloc((size_t)world, sizeof *order);
    if (!order) return WEFT_FAIL(WEFT_ERR_MEM, "out of memory");
    order[0] = slot;
    for (int k = 0; k < world; k++)
        if (k != slot) order[n++] = k;
    weft_status st = weft_comm_shm_create(world, out);
    if (st == WEFT_OK) weft_comm_shm_set_slots(*out, 1, order);
    free(order);
    return st;
}

weft_status weft_comm_shm_join_alone(int kept, int slot, weft_comm **out)
{
    shm_head       h;
    weft_comm_shm *epoch = NULL;
    WEFT_TRY(weft_comm__shm_read_head(kept, &h));
    if (slot < 0 || slot >= (int)h.world)
        return WEFT_FAIL(WEFT_ERR_ARG, "slot %d of a job of %u ranks", slot, h.world);
    WEFT_TRY(create_epoch(&h, slot, &epoch));
    weft_status st =
        weft_comm_shm_join_kept(weft_comm_shm_fd(epoch), kept, 0, ALONE_S, out);
    weft_comm_shm_destroy(epoch);
    return st;
}
