/* What ranks agree on at the commit point of a step, before anything writes state (vote.h): is the
 * outcome finite, is the norm the same on all of them, was each sample of the step read, does one
 * of them want to stop or know of another membership; and how long ranks were busy.
 *
 * A step that is not as it should be is held back: state stays that of the step before, on every
 * rank. */
#include <math.h>
#include <signal.h>

#include "base/clock.h"
#include "base/failpoint.h"
#include "comm/membership.h"
#include "session/session_priv.h"
#include "session/snapshots_priv.h"

static int count_ranks(const weft_session *s)
{
    return s->now->comm ? s->now->comm->world : 1;
}

static int own_rank(const weft_session *s)
{
    return s->now->comm ? s->now->comm->rank : 0;
}

static weft_status sum_words(weft_session *s, uint64_t *word, int n)
{
    if (count_ranks(s) == 1) return WEFT_OK;
    return weft_comm_collective(s->now->comm, s->now->group, WEFT_ALL_REDUCE,
                                WEFT_DTYPE_U64, word, word, n);
}

/* ---- samples ---- */

/* Do the ranks' programs together read each micro-batch of a step equally often?  Micro-batches
 * stand for samples.  Once a generation. */
static weft_status check_programs(weft_session *s)
{
    const weft_program *p       = s->now->made.program;
    uint64_t            word[3] = {0};
    for (int k = 0; k < p->n_stream; k++)
        for (int f = 0; f < p->stream[k].n_firing; f++) {
            const weft_firing *fire = &p->stream[k].firing[f];
            const weft_actor  *a    = &p->actor[fire->actor];
            for (int n = 0; n < a->n_instr; n++) {
                if (a->instr[n].kind != WEFT_INSTR_READ) continue;
                word[0]++;
                word[1] += weft_vote_hash(0, fire->micro, 0);
            }
        }
    for (int m = own_rank(s); m < p->n_micro; m += count_ranks(s))
        word[2] += weft_vote_hash(0, m, 0);
    WEFT_TRY(sum_words(s, word, 3));
    weft_vote_sum sum = {.n_read = word[0], .read = word[1], .due = word[2]};
    s->now->reads     = weft_vote_is_read(&sum, (uint64_t)p->n_micro)
                            ? WEFT_SESSION__READS_ALIKE
                            : WEFT_SESSION__READS_DIFFER;
    return WEFT_OK;
}

/* This rank's part of what all have to read: every world-th sample of the step. */
static uint64_t sum_due(const weft_session *s, int64_t step)
{
    uint64_t sum = 0;
    for (int64_t k = own_rank(s); k < s->job.batch; k += count_ranks(s)) {
        int64_t epoch, index;
        weft_data_locate(s->data, step * s->job.batch + k, &epoch, &index);
        sum += weft_vote_hash(epoch, index, step);
    }
    return sum;
}

/* ---- the vote ---- */

static void note_busy(weft_session *s, const weft_vote_sum *v)
{
    weft_slow_add(&s->times.slow, v->first_busy, v->n_busy, v->busy_s);
}

static void note_outcome(weft_session *s, const weft_vote_sum *v, int own)
{
    if (v->n_stop)
        s->r.stopped = count_ranks(s) == 1 ? own : v->n_interrupt ? SIGINT : SIGTERM;
    s->ending = s->r.stopped ? WEFT_ENDING_STOP
                : v->n_newer ? WEFT_ENDING_MEMBERSHIP
                             : WEFT_ENDING_DONE;
    note_busy(s, v);
    weft_session__note_link(s, v);
}

/* mine: what the step has come to here. */
static weft_status hold_vote(weft_session *s, weft_vote *mine, weft_vote_sum *all)
{
    const weft_membership_source *source = s->o->member;
    uint64_t                      word[WEFT_VOTE_WORDS];
    int                           world = count_ranks(s);
    int                           own   = s->o->stop ? s->o->stop(s->o->arg) : 0;
    mine->rank                          = own_rank(s);
    mine->stop                          = own != 0;
    mine->interrupt                     = own == SIGINT;
    mine->newer = source && source->changed && source->changed(source->arg);
    if (weft_session__leaves_for_replay(s, mine->step + 2)) mine->newer = true;
    weft_session__look_at_links(s, mine);
    weft_vote_pack(mine, world, word);
    WEFT_TRY(sum_words(s, word, WEFT_VOTE_WORDS));
    weft_vote_unpack(word, world, mine->step, all);
    note_outcome(s, all, own);
    return WEFT_OK;
}

static void count_samples(const weft_session *s, weft_vote *mine)
{
    weft_runner_reads reads = weft_runner_get_reads(s->now->runner);
    double            busy  = weft_runner_busy(s->now->runner);
    mine->n_read            = reads.n;
    mine->read              = reads.sum;
    mine->due               = sum_due(s, mine->step);
    mine->busy_s            = busy - s->now->busy_s;
    s->now->busy_s          = busy;
}

/* The shortest counts, and is forgotten slowly. */
static void note_commit_time(weft_session *s)
{
    double now = weft_clock_s() - s->running_s, before = 1.05 * s->out.commit_s;
    s->out.commit_s = before > 0 && before < now ? before : now;
}

weft_status weft_session__commit(void *session, int64_t step, int n, const double *value,
                                 bool *hold)
{
    weft_session *s = session;
    weft_vote_sum all;
    if (n != 2)
        return WEFT_FAIL(WEFT_ERR_INTERNAL,
                         "a commit point of %d values, not loss and norm", n);
    weft_vote mine  = {.step   = step,
                       .finite = isfinite(value[0]) && isfinite(value[1]),
                       .norm   = (float)value[1]};
    bool      reads = s->now->runner && s->data;
    weft_session__free_spent(s);
    if (weft_failpoint_flips("vote.norm")) mine.norm = nextafterf(mine.norm, INFINITY);
    if (reads && !s->now->reads) WEFT_TRY(check_programs(s));
    if (reads) count_samples(s, &mine);
    weft_failpoint("vote.begin");
    WEFT_TRY(weft_session__await_snapshot(s, step + 1));
    if (mine.finite) weft_session__note_arrival(s, value[0], value[1]);
    weft_failpoint("vote.arrived");
    WEFT_TRY(hold_vote(s, &mine, &all));
    weft_failpoint("vote.summed");
    bool read = !reads || s->now->reads == WEFT_SESSION__READS_DIFFER ||
                weft_vote_is_read(&all, (uint64_t)s->job.batch);
    s->trial = (weft_session__trial){.fault = all.n_not_finite ? WEFT_SESSION__NOT_FINITE
                                              : !all.same_norm ? WEFT_SESSION__DIFFERS
                                              : !read          ? WEFT_SESSION__MISREAD
                                                               : WEFT_SESSION__NO_FAULT,
                                     .loss  = value[0],
                                     .norm  = mine.norm};
    *hold    = s->trial.fault != WEFT_SESSION__NO_FAULT;
    if (*hold) {
        weft_session__note_held(s, step + 1);
        return WEFT_OK;
    }
    weft_session__note_passed(s, step + 1);
    weft_failpoint("vote.passed");
    note_commit_time(s);
    weft_session__wait_copied(s);
    weft_session__wait_snapshot_copied(s);
    weft_session__teach_inputs(s, step + 1);
    weft_session__mark_state(s, -1); /* until its update is done */
    weft_failpoint("update.begin");
    if (s->ending == WEFT_ENDING_MEMBERSHIP) weft_failpoint("resize.update");
    return WEFT_OK;
}

weft_status weft_session__agree_skipped(weft_session *s, int64_t step)
{
    weft_vote     mine = {.step = step, .finite = true};
    weft_vote_sum all;
    s->trial = (weft_session__trial){.fault = WEFT_SESSION__NO_FAULT};
    WEFT_TRY(weft_session__await_snapshot(s, step + 1));
    weft_session__note_arrival(s, 0, 0);
    WEFT_TRY(hold_vote(s, &mine, &all));
    weft_session__note_passed(s, step + 1);
    weft_session__teach_skipped(s, step + 1);
    return WEFT_OK;
}
