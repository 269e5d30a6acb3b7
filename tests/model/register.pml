/* The register of a majority (src/app/register/majority.c), model-checked with spin: single-decree
 * Paxos of N voters for one epoch.  Two agents propose a value each, one with ROUNDS ballots and one
 * with one less.  A message, its answer, or both may be lost, and voters are reached in any order;
 * an agent that stops for good is one whose messages are all lost from there on.
 *
 * A quorum is more than half of the voters, or half of them with the first.  Holds: all that is
 * ever decided is one value.
 * Broken on purpose: BROKEN_QUORUM (half without the first is enough), BROKEN_PROMISE (a voter
 * accepts a ballot older than its promise), BROKEN_VALUE (a proposer ignores what was accepted). */
#ifndef N
#define N 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define PROPOSERS 2

#ifdef BROKEN_QUORUM
#define QUORUM (2 * n >= N)
#else
#define QUORUM (2 * n > N || (2 * n == N && has_first))
#endif

#ifdef BROKEN_PROMISE
#define MAY_ACCEPT true
#else
#define MAY_ACCEPT (promised[k] <= b)
#endif

byte promised[N], accepted[N], value[N]; /* ballots from 1; 0: none */
byte decided;

/* A voter of those that were not tried in this phase. */
inline choose_voter()
{
    if
    :: !(tried & 1) -> k = 0
    :: !(tried & 2) -> k = 1
#if N > 2
    :: !(tried & 4) -> k = 2
#endif
#if N > 3
    :: !(tried & 8) -> k = 3
#endif
    fi;
    tried = tried | (1 << k)
}

inline begin_phase()
{
    tried = 0;
    n = 0;
    has_first = false
}

inline count_answer()
{
    n++;
    if
    :: k == 0 -> has_first = true
    :: else
    fi
}

proctype Propose(byte me)
{
    byte round = 0, b, k, n, tried, best, v;
    bool has_first;
    do
    :: round == ROUNDS - me -> break
    :: round < ROUNDS - me ->
        atomic {
            b = round * PROPOSERS + me + 1;
            round++;
            best = 0;
            v = me + 1;
            begin_phase()
        };
        do /* prepare */
        :: QUORUM -> break
        :: !(QUORUM) && tried < (1 << N) - 1 ->
            atomic {
                choose_voter();
                if
                :: promised[k] <= b ->
                    promised[k] = b;
                    if
                    :: count_answer();
                        if
                        :: accepted[k] > best ->
                            best = accepted[k];
#ifndef BROKEN_VALUE
                            v = value[k]
#endif
                        :: else
                        fi
                    :: true /* the answer is lost */
                    fi
                :: true /* the message is lost, or refused */
                fi
            }
        :: !(QUORUM) && tried == (1 << N) - 1 -> goto again
        od;
        atomic { begin_phase() };
        do /* accept */
        :: QUORUM ->
            atomic {
                assert(decided == 0 || decided == v);
                decided = v
            };
            goto end
        :: !(QUORUM) && tried < (1 << N) - 1 ->
            atomic {
                choose_voter();
                if
                :: MAY_ACCEPT ->
                    if
                    :: promised[k] < b -> promised[k] = b
                    :: else
                    fi;
                    accepted[k] = b;
                    value[k] = v;
                    if
                    :: count_answer()
                    :: true
                    fi
                :: true
                fi
            }
        :: !(QUORUM) && tried == (1 << N) - 1 -> goto again
        od;
again:
        k = 0;
        v = 0
    od;
end:
    skip
}

init
{
    atomic {
        run Propose(0);
        run Propose(1)
    }
}
