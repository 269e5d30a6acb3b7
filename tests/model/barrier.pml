/* The barrier of src/comm/shm_group.c and the verdicts of shm_wait.c, for N ranks that meet ROUNDS times.
 *
 *     make model                 tools/model.sh: this file, with -DNO_DEADLINE, and with each -DBROKEN_x, which must fail
 *
 * door = poison | turn | arrived, one word: each atomic { } is one instruction on it.  A rank may die between any two
 * of its instructions; some watcher then passes the verdict and rings the alarm.  A waiter may come to its deadline at
 * any moment.  Sleeping is on door and alarm together: it ends when either is no longer what was seen (futex_waitv
 * compares and sleeps in one step).
 *
 * Checked: (1) nobody hangs: every rank ends or dies (no invalid end state);
 *          (2) a barrier is passed by all that came through it alive or by none: no rank fails in a turn that
 *              another has passed;
 *          (3) nobody passes before all have arrived. */
#ifndef N
#define N 3
#endif
#define ROUNDS 2
#define TURNS  4

byte turn;      /* modulo TURNS: it wraps, as the real one does */
byte arrived;
bool poison;
bool verdict;
byte alarm;

byte came[ROUNDS];   /* how many arrived in a round, counted apart from the door */
bool passed[ROUNDS];
bool failed[ROUNDS];
bool dead[N];
byte n_dead;

inline fail(r) { failed[r] = true; assert(!passed[r]); goto done }
inline pass(r) { passed[r] = true; assert(!failed[r]); assert(came[r] == N) }

proctype rank(byte me)
{
    byte round, my_turn, seen_turn, seen_arrived, seen_alarm;
    bool seen_poison, last;

    round = 0;
    do
    :: round == ROUNDS -> break
    :: else ->
        /* an operation starts: verdict, then the door */
        if
        :: verdict -> failed[round] = true; assert(!passed[round]); goto done
        :: else
        fi;
        my_turn = round % TURNS; /* nobody passes without us: it need not be read */
        if
        :: n_dead == 0 -> atomic { dead[me] = true; n_dead++ }; goto died
        :: true
        fi;
        atomic { /* fetch_add */
            seen_poison = poison;
            arrived++;
            last = (arrived == N);
            if
            :: !seen_poison -> came[round]++
            :: else
            fi
        };
        if
        :: seen_poison -> fail(round)
        :: else
        fi;
        if
        :: n_dead == 0 -> atomic { dead[me] = true; n_dead++ }; goto died
        :: true
        fi;
        if
        :: last ->
            atomic { /* compare and swap: only poison can have come between */
                seen_poison = poison;
                if
#ifdef BROKEN_SWAP /* the last one to arrive stores instead of swapping */
                :: true -> seen_poison = false; turn = (turn + 1) % TURNS; arrived = 0; passed[round] = true
#else
                :: !poison -> turn = (turn + 1) % TURNS; arrived = 0; passed[round] = true
                :: else
#endif
                fi
            };
            if
            :: seen_poison -> fail(round)
            :: else -> pass(round)
            fi
        :: else ->
            /* wait_turn */
            do
            :: true ->
                seen_alarm = alarm;
                atomic { seen_turn = turn; seen_arrived = arrived; seen_poison = poison };
                if
                :: seen_turn != my_turn -> pass(round); break
                :: seen_turn == my_turn && seen_poison -> fail(round)
                :: else
                fi;
                if
                :: verdict -> goto give_up
                :: else
                fi;
                if /* asleep until something moved, or the deadline */
#ifdef BROKEN_SLEEP /* asleep on the door alone */
                :: atomic { (turn != seen_turn || arrived != seen_arrived || poison != seen_poison) -> skip }
#else
                :: atomic { (turn != seen_turn || arrived != seen_arrived || poison != seen_poison ||
                             alarm != seen_alarm) -> skip }
#endif
#ifndef NO_DEADLINE /* a death must end the sleep without one */
                :: true -> goto give_up
#endif
                fi;
                if
                :: false ->
give_up:
                    poison = true
                :: true
                fi
            od
        fi;
        round++
    od;
done:
    skip;
died:
    skip
}

/* Some rank's watcher: the kernel wakes one sleeper of a dead rank's mutex. */
proctype watcher()
{
    if
    :: n_dead > 0 ->
        verdict = true;
        alarm++
    :: timeout /* nobody died, and all is over */
    fi
}

init
{
    atomic {
        byte i = 0;
        do
        :: i < N -> run rank(i); i++
        :: else -> break
        od;
        run watcher()
    }
}
