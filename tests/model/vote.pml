/* The commit point of a step, with ranks that are lost: src/runtime/exec/alone.c, session/commit.c.
 *
 * N ranks train STEPS steps.  A rank arrives at the commit point of a step (a), passes it when all
 * ranks have arrived (p), and makes its updates (s: the step its state is of).  One rank may be
 * lost at any moment; from then on the others stop at any call, or pass a vote whose result they
 * already have.  Then they report a and p and decide:
 *
 *     C = the greatest p of those that are left
 *     all that are left have arrived at C + 1: the lost rank may have passed it, so it is committed
 *     who has not passed C makes its updates alone
 *
 * Always true, or an assertion fails:
 * (1) whoever passes step k, all ranks have arrived at k, lost ones too
 * (2) ranks are at most one step apart, and states too
 * (3) after the decision all that are left have the state of one step, and it is at least that of
 *     every rank that passed, the lost one included: no committed step is run again
 * (4) no state goes back, and none is ahead of what was passed or decided
 *
 * -DBROKEN_EARLY   a rank updates before its vote
 * -DBROKEN_COUNT   a rank passes when all but one have arrived
 * -DBROKEN_RULE    the decision looks at p alone
 * -DBROKEN_TAIL    a rank that lost a peer after its vote leaves its updates out */
#define N     3
#define STEPS 2

byte a[N], p[N], s[N]; /* arrived, passed, state */
bool lost[N], stopped[N], done[N];
bool any_lost;

#define AT(k) ((a[0] >= k) + (a[1] >= k) + (a[2] >= k)) /* ranks that have arrived there */
#ifdef BROKEN_COUNT
#define ENOUGH (N - 1)
#else
#define ENOUGH N
#endif

/* Steps apart, looked at whenever one moves on. */
inline check_apart(me)
{
    r = 0;
    do
    :: r < N ->
        assert(p[me] <= p[r] + 1 && s[me] <= s[r] + 1);
        assert(a[r] >= p[me]);
        r++
    :: else -> break
    od
}

inline update(me, k)
{
    assert(s[me] == k - 1);
    s[me] = k
}

proctype Rank(byte me)
{
    byte k = 1, r;
    do
    :: k > STEPS -> atomic { done[me] = true; break }
    :: else ->
        if /* backward pass and sums: calls in which a peer may be missed */
        :: any_lost -> goto stop
        :: true
        fi;
        if
        :: atomic { !any_lost -> any_lost = true; lost[me] = true; goto end }
        :: true
        fi;
#ifdef BROKEN_EARLY
        atomic { update(me, k) };
#endif
        a[me] = k;
        if
        :: atomic { !any_lost -> any_lost = true; lost[me] = true; goto end }
        :: true
        fi;
        /* the vote: its result, or a lost peer */
        do
        :: any_lost -> goto stop
        :: atomic {
            AT(k) >= ENOUGH ->
            p[me] = k;
            check_apart(me);
            break
        }
        od;
        if
        :: atomic { !any_lost -> any_lost = true; lost[me] = true; goto end }
        :: true
        fi;
#ifdef BROKEN_TAIL
        if
        :: any_lost -> goto stop
        :: true
        fi;
#endif
#ifndef BROKEN_EARLY
        atomic { update(me, k); check_apart(me) };
#endif
        k++
    od;
    goto end;
stop:
    stopped[me] = true;
end:
    skip
}

/* When all that are left have stopped or are done. */
proctype Decide()
{
    byte r, c = 0, most = 0, n_left = 0, n_at = 0;
end_wait:
    any_lost;
    (lost[0] || stopped[0] || done[0]) && (lost[1] || stopped[1] || done[1]) &&
        (lost[2] || stopped[2] || done[2]);
    d_step {
        r = 0;
        do
        :: r < N ->
            if
            :: !lost[r] && p[r] > c -> c = p[r]
            :: else
            fi;
            if
            :: p[r] > most -> most = p[r]
            :: else
            fi;
            r++
        :: else -> break
        od;
        r = 0;
        do
        :: r < N -> n_left = n_left + !lost[r]; n_at = n_at + (!lost[r] && a[r] == c + 1); r++
        :: else -> break
        od;
#ifndef BROKEN_RULE
        if
        :: n_at == n_left -> c = c + 1
        :: else
        fi;
#endif
        r = 0;
        do
        :: r < N ->
            if
            :: !lost[r] ->
                assert(a[r] >= c && s[r] + 1 >= c); /* it has the gradients of step c */
                if
                :: s[r] < c && p[r] < c -> s[r] = c
                :: else
                fi;
                assert(s[r] == c)
            :: else
            fi;
            r++
        :: else -> break
        od;
        assert(c >= most)
    }
}

init
{
    atomic {
        run Rank(0);
        run Rank(1);
        run Rank(2);
        run Decide()
    }
}
