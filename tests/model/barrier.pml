/* The barrier of src/runtime/comm/shm_group.c and the verdicts of shm_wait.c, for N ranks that meet ROUNDS times.
 *
 *     make model                 tools/model.sh: this file, with -DNO_DEADLINE, -DWORK, and with each -DBROKEN_x, which must fail
 *
 * door = poison | turn | arrived, one word: each atomic { } is one instruction on it.  A rank may die between any two
 * of its instructions; some watcher then passes the verdict and rings the alarm.  A waiter may come to its deadline at
 * any moment.  Sleeping is on door and alarm together: it ends when either is no longer what was seen (futex_waitv
 * compares and sleeps in one step).
 *
 * -DWORK: each barrier has PIECES of work between the last arrival and the passing.  The last to arrive says so; whoever is
 * awake and sees that all are there takes pieces, and who finishes the last one opens the door.
 *
 * Checked: (1) nobody hangs: every rank ends or dies (no invalid end state);
 *          (2) a barrier is passed by all that came through it alive or by none: no rank fails in a turn that
 *              another has passed;
 *          (3) nobody passes before all have arrived, and before all pieces are done, each once. */
#ifndef N
#define N 3
#endif
#define ROUNDS 2
#define TURNS  4
#define PIECES 2
#define NONE   255

byte turn;      /* modulo TURNS: it wraps, as the real one does */
byte arrived;
bool poison;
bool verdict;
byte alarm;

byte claim_turn = NONE; /* claim = turn | pieces taken, one word */
byte claim;
byte done;

byte finished[ROUNDS]; /* pieces, counted apart from done */
byte came[ROUNDS];   /* how many arrived in a round, counted apart from the door */
bool passed[ROUNDS];
bool failed[ROUNDS];
bool dead[N];
byte n_dead;

inline fail(r) { failed[r] = true; assert(!passed[r]); goto done_ }
#ifdef WORK
inline pass(r) { passed[r] = true; assert(!failed[r]); assert(came[r] == N); assert(finished[r] == PIECES) }
#else
inline pass(r) { passed[r] = true; assert(!failed[r]); assert(came[r] == N) }
#endif
inline may_die()
{
    if
    :: n_dead == 0 -> atomic { dead[me] = true; n_dead++ }; goto died
    :: true
    fi
}
/* compare and swap: only poison can have come between */
inline open_door(r)
{
    atomic {
        seen_poison = poison;
        if
#ifdef BROKEN_SWAP /* a store instead */
        :: true -> seen_poison = false; turn = (turn + 1) % TURNS; arrived = 0; passed[r] = true
#else
        :: !poison -> turn = (turn + 1) % TURNS; arrived = 0; passed[r] = true
        :: else
#endif
        fi
    };
    if
    :: seen_poison -> fail(r)
    :: else -> pass(r)
    fi
}

proctype rank(byte me)
{
    byte round, my_turn, seen_turn, seen_arrived, seen_alarm, piece;
    bool seen_poison, last, helped;

    round = 0;
    do
    :: round == ROUNDS -> break
    :: else ->
        /* an operation starts: verdict, then the door */
        if
        :: verdict -> failed[round] = true; assert(!passed[round]); goto done_
        :: else
        fi;
        d_step {
            my_turn = round % TURNS; /* nobody passes without us: it need not be read */
            helped = false; seen_turn = 0; seen_arrived = 0; seen_alarm = 0; seen_poison = false; piece = 0; last = false
        };
        may_die();
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
        may_die();
        if
        :: last ->
#ifdef WORK
#ifdef BROKEN_ORDER /* says that there is work before it is set up */
            atomic { claim_turn = my_turn; claim = 0 };
            done = 0;
#else
            done = 0;
            atomic { claim_turn = my_turn; claim = 0 };
#endif
            goto work
#else
            open_door(round)
#endif
        :: else ->
            /* wait_turn */
wait:
            do
            :: true ->
                seen_alarm = alarm;
                atomic {
                    seen_turn = turn; seen_arrived = arrived; seen_poison = poison;
                    if
                    :: seen_turn != my_turn -> pass(round); break
                    :: seen_turn == my_turn && seen_poison -> fail(round)
                    :: else
                    fi;
#ifdef WORK
                    if
                    :: seen_arrived == N && !helped -> goto work
                    :: else
                    fi
#endif
                };
                if
                :: verdict -> goto give_up
                :: else
                fi;
                if
                :: true ->
                    if /* asleep until something moved, or the deadline; an arrival wakes nobody */
#ifdef BROKEN_SLEEP /* asleep on the door alone */
                    :: atomic { (turn != seen_turn || poison != seen_poison) -> skip }
#else
                    :: atomic { (turn != seen_turn || poison != seen_poison || alarm != seen_alarm) -> skip }
#endif
#ifndef NO_DEADLINE /* a death must end the sleep without one */
                    :: true -> goto give_up
#endif
                    fi
                :: atomic { arrived != seen_arrived -> skip } /* still awake */
                fi;
                if
                :: false ->
give_up:
                    poison = true
                :: true
                fi
            od
        fi;
        if
        :: false ->
work:
            helped = true;
            do
            :: claim_turn == my_turn && claim < PIECES -> /* seen, then fetch_add */
                atomic {
                    piece = claim; claim++;
                    if
                    :: piece >= PIECES -> piece = 0; goto wait
                    :: else
                    fi
                };
                may_die();
                if /* a look at the verdict, or not */
                :: verdict -> poison = true; fail(round)
                :: true
                fi;
                atomic { done++; finished[round]++; last = (done == PIECES) };
                may_die();
#ifdef BROKEN_LAST /* who takes the last piece opens, not who finishes last */
                last = (piece == PIECES - 1);
#endif
                if
                :: last -> open_door(round); break
                :: else
                fi
            :: else -> goto wait
            od
        :: true
        fi;
        round++
    od;
done_:
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
