/* Programs run in real time on devices that only last, a thread a rank.
 *     test_emu e;
 *     test_emu_open(&e, program, n, 0);
 *     double s = test_emu_run(e.rank, n, n_step, &late_s);
 *     test_emu_close(&e); */
#ifndef TEST_SUPPORT_EMU_H
#define TEST_SUPPORT_EMU_H

#include <pthread.h>

#include "exec/exec.h"
#include "support/carry.h"

enum {
    TEST_EMU_RANKS = 64
};

typedef struct test_emu_rank {
    weft_exec    *e;
    weft_comm    *comm;
    test_carrier *carrier;
    pthread_t     thread;
    int           n_step;
    weft_status   st;
    char          text[256];
    double        begin_s, end_s;
} test_emu_rank;

/* Ranks that meet in memory. */
typedef struct test_emu {
    int              n;
    weft_device     *device;
    weft_comm_local *world;
    test_emu_rank    rank[TEST_EMU_RANKS];
} test_emu;

/* trace: instructions that are kept; 0 none. */
void test_emu_open(test_emu *e, weft_program **p, int n, int trace);
void test_emu_close(test_emu *e);

/* Seconds from the first begin to the last end; *late_s: how late the machine woke a sleeper up
 * meanwhile, or how long a rank waited for a core on average, if that is more. */
double test_emu_run(test_emu_rank *r, int n, int n_step, double *late_s);

/* A rank's executor on device d, its messages over comm; price NULL: what instructions state. */
void test_emu_rank_open(test_emu_rank *r, const weft_program *p, weft_device *d,
                        weft_comm *comm, bool wires, weft_exec_options o);
void test_emu_rank_close(test_emu_rank *r); /* but for its comm */

/* A weft_exec_price_fn: what cost says of i on arg, a weft_cluster. */
weft_status test_emu_price(const weft_program *p, const weft_instr *i, const void *arg,
                           double *seconds);

#endif
