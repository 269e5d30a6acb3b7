/* Memberships for tests: ranks of one host over memory that the test has made.
 *
 *     test_member m;
 *     options.member = test_member_init(&m, weft_comm_shm_fd(w), rank, world);
 */
#ifndef TEST_SUPPORT_MEMBER_H
#define TEST_SUPPORT_MEMBER_H

#include "comm/membership.h"

typedef struct test_member {
    int            n_fd, rank, world;
    const int     *fd;      /* memory of the first membership, the second, ... */
    const int64_t *step;    /* after which the next one is there, for each but the last */
    int            n_given; /* memberships so far */
    int64_t        n_step;  /* steps so far: changed() is asked once after each */
    int            first_fd;
    weft_membership_source source;
} test_member;

/* One membership; fd may be -1 for one rank. */
const weft_membership_source *test_member_init(test_member *m, int fd, int rank,
                                               int world);
/* n_fd memberships of the same ranks, each with memory of its own (-1 for one rank); the next comes
 * after step[i] steps. */
const weft_membership_source *test_member_series(test_member *m, int n_fd, const int *fd,
                                                 const int64_t *step, int rank,
                                                 int world);

#endif
