#include "support/member.h"

#include "base/status.h"

static weft_status await_next(void *arg, weft_membership *out, weft_comm **listener)
{
    test_member *m = arg;
    if (m->n_given == m->n_fd) return WEFT_FAIL(WEFT_ERR_PEER, "no other membership");
    *listener = NULL;
    *out      = (weft_membership){.epoch       = (uint32_t)m->n_given,
                                  .rank        = m->rank,
                                  .world       = m->world,
                                  .local_rank  = m->rank,
                                  .slot        = m->rank,
                                  .local_world = m->world,
                                  .shm_fd      = m->fd[m->n_given]};
    m->n_given++;
    return WEFT_OK;
}

static bool has_changed(void *arg)
{
    test_member *m = arg;
    m->n_step++;
    return m->n_given < m->n_fd && m->n_step >= m->step[m->n_given - 1];
}

const weft_membership_source *test_member_series(test_member *m, int n_fd, const int *fd,
                                                 const int64_t *step, int rank, int world)
{
    *m = (test_member){.n_fd   = n_fd,
                       .fd     = fd,
                       .step   = step,
                       .rank   = rank,
                       .world  = world,
                       .source = {.await = await_next, .changed = has_changed, .arg = m}};
    return &m->source;
}

const weft_membership_source *test_member_init(test_member *m, int fd, int rank,
                                               int world)
{
    (void)test_member_series(m, 1, &m->first_fd, NULL, rank, world);
    m->first_fd = fd;
    return &m->source;
}
