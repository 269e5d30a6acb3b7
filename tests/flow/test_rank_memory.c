/* Memory of every rank of a plan: what was planned is what it grows by, shared memory counted at its owner; ZeRO and
 * recomputation save what they should. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm.h"
#include "support/files.h"
#include "weft/session.h"

typedef struct outcome {
    weft_status st;
    int64_t     planned, shared, grown; /* grown: private memory */
    int64_t     held;                   /* what all ranks' shared memory held then */
    char        words[256];
} outcome;

static int64_t resident(void)
{
    FILE   *f = fopen("/proc/self/status", "r");
    char    line[256];
    int64_t kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "RssAnon:", 8)) kb = strtoll(line + 8, NULL, 10);
    if (f) fclose(f);
    return kb * 1024;
}

static int64_t before, most, held;
static int     shared_fd;

static int look(void *arg)
{
    (void)arg;
    int64_t     now = resident();
    struct stat s;
    if (now > most) most = now;
    if (!fstat(shared_fd, &s) && s.st_blocks * 512 > held) held = s.st_blocks * 512;
    return 0;
}

static outcome train(const char *words, weft_comm *comm)
{
    char                 output[512];
    const char          *assign[24] = {output,    "model=tiny", "data=src",
                                       "seq=128", "batch=8",    "micro_batch=2",
                                       "lanes=4", "threads=1",  "steps=1"};
    int                  n          = 9;
    char                 copy[256], *save = NULL;
    weft_job            *job = NULL;
    weft_session_options o   = {.quiet = true, .comm = comm, .stop = look};
    weft_session_result  r   = {0};
    outcome              out = {0};
    snprintf(copy, sizeof copy, "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
        assign[n++] = w;
    snprintf(output, sizeof output, "output=%s", test_files_path("out"));
    before = most = resident();
    out.st        = weft_job_load(NULL, n, assign, &job);
    if (out.st == WEFT_OK) out.st = weft_session_run(job, &o, &r);
    snprintf(out.words, sizeof out.words, "%s",
             out.st == WEFT_OK ? "" : weft_error_text());
    weft_job_destroy(job);
    out.planned = r.mem_peak_bytes;
    out.shared  = r.mem_shared_bytes;
    out.grown   = most - before;
    out.held    = held;
    return out;
}

static void rank_main(int fd, int rank, const char *words, int pipe)
{
    weft_comm *c   = NULL;
    outcome    out = {.st = weft_comm_shm_join(fd, rank, 120, &c)};
    shared_fd      = fd;
    if (out.st == WEFT_OK) out = train(words, c);
    weft_comm_destroy(c);
    _exit(write(pipe, &out, sizeof out) == (ssize_t)sizeof out ? 0 : 1);
}

static void run(int world, const char *words, outcome *out)
{
    weft_comm_shm *w;
    int            p[8][2];
    test_files_begin();
    assert_ok(weft_comm_shm_create(world, &w));
    fflush(NULL);
    for (int r = 0; r < world; r++) {
        assert_int_equal(pipe(p[r]), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) rank_main(weft_comm_shm_fd(w), r, words, p[r][1]);
        close(p[r][1]);
    }
    for (int r = 0; r < world; r++) {
        assert_int_equal(read(p[r][0], &out[r], sizeof *out), sizeof *out);
        if (out[r].st != WEFT_OK) fail_msg("%s: rank %d: %s", words, r, out[r].words);
        close(p[r][0]);
    }
    while (wait(NULL) > 0) continue;
    weft_comm_shm_destroy(w);
    test_files_end();
}

static void planned_is_resident(void **state)
{
    static const struct {
        int         n;
        const char *words;
    } row[] = {{2, "mesh=dp=2"},
               {2, "pp=2"},
               {4, "mesh=dp=2 pp=2 zero=1"},
               {2, "mesh=tp=2"},
               {2, "mesh=dp=2 zero=3"},
               {2, "mesh=dp=2 recompute=full"}};
    int64_t private[WEFT_COUNT(row)], work[WEFT_COUNT(row)]; /* of rank 1 */
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("skipped: a sanitizer's memory is not ours\n");
    return;
#endif
    for (size_t i = 0; i < WEFT_COUNT(row); i++) {
        outcome out[8];
        int64_t all = 0, shared = 0, planned = 0;
        run(row[i].n, row[i].words, out);
        for (int r = 0; r < row[i].n; r++) {
            double off =
                (double)(out[r].grown + out[r].shared) / (double)out[r].planned - 1;
            print_message(
                "%-24s rank %d: planned %lld, %lld of it shared, grown %lld: %+.2f %%\n",
                row[i].words, r, (long long)out[r].planned, (long long)out[r].shared,
                (long long)out[r].grown, 100 * off);
            if (!(fabs(off) < 0.02))
                fail_msg("%s rank %d: off by %g", row[i].words, r, off);
            shared += out[r].shared;
            planned += out[r].planned;
            all = out[r].held > all ? out[r].held : all;
        }
        double off = (double)(all - shared) / (double)planned; /* of all there is */
        print_message("%-24s shared memory holds %lld, planned %lld: %+.2f %%\n",
                      row[i].words, (long long)all, (long long)shared, 100 * off);
        if (!(fabs(off) < 0.02))
            fail_msg("%s: shared memory off by %g", row[i].words, off);
        private[i] = out[1].planned - out[1].shared;
        work[i]    = out[1].shared;
    }
    /* parameters and both states of Adam: half of them on each rank */
    assert_true(private[4] < private[0] * 55 / 100);
    /* what a layer keeps for its backward pass */
    assert_true(work[5] < work[0] * 97 / 100);
}

int main(void)
{
    const struct CMUnitTest test[] = {
        cmocka_unit_test(planned_is_resident),
    };
    return cmocka_run_group_tests(test, NULL, NULL);
}
