#include "base/failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    MAX_ENTRY  = 8,
    MAX_NAME   = 48,
    MAX_PATH   = 160,
    MAX_NUMBER = 2000000000,
    LOOK_MS    = 5, /* between two looks whether a file is still there */
    EVERY_TIME = 0,
    ANY_RANK   = -2,
    NO_RANK    = -1,
    EXIT_CODE  = 3
};

typedef struct entry {
    char       name[MAX_NAME];
    int        signal;         /* 0: none */
    bool       exits;          /* without a word */
    bool       grows;          /* it takes memory until it is killed */
    bool       of_host;        /* its parent is killed, too */
    bool       flips;          /* a number is another one */
    int        delay_ms;       /* 0: none */
    int        work_ms;        /* of a core that it uses */
    int        rank;           /* or ANY_RANK, NO_RANK */
    int        nth;            /* or EVERY_TIME */
    bool       goes_on;        /* each later time, too */
    char       file[MAX_PATH]; /* it acts while that is there; "": always */
    int        place;          /* among those that act once */
    atomic_int n;              /* times that this process was there */
} entry;

atomic_int weft_failpoint_state = WEFT_FAILPOINT_UNREAD;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry           list[MAX_ENTRY];
static int             n_entry;
static char            once[512]; /* "": entries act in every process */

/* ---- text ---- */

static bool parse_number(const char *s, int least, int *out)
{
    char *end;
    long  x = strtol(s, &end, 10);
    if (end == s || *end || x < least || x > MAX_NUMBER) return false;
    *out = (int)x;
    return true;
}

static bool parse_action(const char *word, entry *e)
{
    static const struct {
        const char *name;
        int         signal;
    } known[]  = {{"kill", SIGKILL},
                  {"stop", SIGSTOP},
                  {"segv", SIGSEGV},
                  {"bus", SIGBUS},
                  {"abort", SIGABRT}};
    e->exits   = !strcmp(word, "exit");
    e->grows   = !strcmp(word, "oom");
    e->flips   = !strcmp(word, "flip");
    e->of_host = !strcmp(word, "host");
    if (e->of_host) e->signal = SIGKILL;
    if (!strncmp(word, "delay=", 6)) return parse_number(word + 6, 1, &e->delay_ms);
    if (!strncmp(word, "work=", 5)) return parse_number(word + 5, 1, &e->work_ms);
    for (size_t k = 0; k < WEFT_COUNT(known); k++)
        if (!strcmp(word, known[k].name)) e->signal = known[k].signal;
    return e->exits || e->grows || e->flips || e->signal;
}

static bool copy_word(const char *word, char *out, size_t size)
{
    size_t n = strlen(word);
    if (n == 0 || n >= size) return false;
    memcpy(out, word, n + 1);
    return true;
}

/* N, or N+: the N-th time and each later one. */
static bool parse_nth(char *word, entry *e)
{
    size_t n   = strlen(word);
    e->goes_on = n > 0 && word[n - 1] == '+';
    if (e->goes_on) word[n - 1] = 0;
    return parse_number(word, 1, &e->nth);
}

static bool parse_limit(char *word, entry *e)
{
    if (!strcmp(word, "rank=none")) {
        e->rank = NO_RANK;
        return true;
    }
    if (!strncmp(word, "rank=", 5)) return parse_number(word + 5, 0, &e->rank);
    if (!strcmp(word, "nth=every")) {
        e->nth = EVERY_TIME;
        return true;
    }
    if (!strncmp(word, "while=", 6)) return copy_word(word + 6, e->file, sizeof e->file);
    return !strncmp(word, "nth=", 4) && parse_nth(word + 4, e);
}

static bool parse_entry(char *text, entry *e)
{
    char *save = NULL, *name = strtok_r(text, ":", &save);
    char *word = name ? strtok_r(NULL, ":", &save) : NULL;
    if (!word || strlen(name) >= MAX_NAME) return false;
    *e = (entry){.rank = ANY_RANK, .nth = 1};
    memcpy(e->name, name, strlen(name) + 1);
    if (!parse_action(word, e)) return false;
    while ((word = strtok_r(NULL, ":", &save)))
        if (!parse_limit(word, e)) return false;
    return true;
}

static bool acts_once(const entry *e)
{
    return e->nth != EVERY_TIME && !e->goes_on;
}

/* Under lock. */
static weft_status read_text(const char *text, const char *prefix)
{
    char  copy[1024], *save = NULL;
    char *word;
    int   n_once = 0;
    n_entry      = 0;
    once[0]      = 0;
    if (!text || !*text) return WEFT_OK;
    if (strlen(text) >= sizeof copy || (prefix && strlen(prefix) >= sizeof once))
        return WEFT_FAIL(WEFT_ERR_ARG, "WEFT_FAILPOINT is too long");
    memcpy(copy, text, strlen(text) + 1);
    if (prefix) memcpy(once, prefix, strlen(prefix) + 1);
    for (word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        char name[MAX_NAME];
        snprintf(name, sizeof name, "%s", word);
        if (n_entry == MAX_ENTRY || !parse_entry(word, &list[n_entry])) {
            n_entry = 0;
            return WEFT_FAIL(WEFT_ERR_ARG, "WEFT_FAILPOINT: %s: not understood", name);
        }
        list[n_entry].place = n_once;
        n_once += acts_once(&list[n_entry]);
        n_entry++;
    }
    return WEFT_OK;
}

static weft_status arm(const char *text, const char *prefix)
{
    weft_status st = read_text(text, prefix);
    atomic_store_explicit(&weft_failpoint_state,
                          n_entry ? WEFT_FAILPOINT_ARMED : WEFT_FAILPOINT_OFF,
                          memory_order_release);
    return st;
}

weft_status weft_failpoint_arm(const char *text, const char *prefix)
{
    pthread_mutex_lock(&lock);
    weft_status st = arm(text, prefix);
    pthread_mutex_unlock(&lock);
    return st;
}

static void read_environment(void)
{
    pthread_mutex_lock(&lock);
    if (atomic_load(&weft_failpoint_state) == WEFT_FAILPOINT_UNREAD &&
        arm(getenv("WEFT_FAILPOINT"), getenv("WEFT_FAILPOINT_ONCE")) != WEFT_OK)
        fprintf(stderr, "weft: warning: %s\n", weft_error_text());
    pthread_mutex_unlock(&lock);
}

/* ---- acting ---- */

static void name_file(int k, char *out, size_t size)
{
    snprintf(out, size, "%s.%d", once, k);
}

static bool is_own_rank(const entry *e)
{
    const char *rank = getenv("WEFT_RANK");
    if (e->rank == ANY_RANK) return true;
    return e->rank == NO_RANK ? !rank : rank && atoi(rank) == e->rank;
}

/* Have all entries before it acted? */
static bool is_due(const entry *e)
{
    char path[600];
    if (!once[0] || e->place == 0 || !acts_once(e)) return true;
    name_file(e->place - 1, path, sizeof path);
    return access(path, F_OK) == 0;
}

/* false: another process was first. */
static bool claim_entry(const entry *e)
{
    char path[600];
    if (!once[0]) return true;
    name_file(e->place, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static void sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) continue;
}

static bool is_there(const entry *e)
{
    return !e->file[0] || access(e->file, F_OK) == 0;
}

static void wait_for(const entry *e)
{
    int piece = e->file[0] ? LOOK_MS : e->delay_ms;
    for (int ms = 0; ms < e->delay_ms && is_there(e); ms += piece) sleep_ms(piece);
}

static void use_core(const entry *e)
{
    double end_s = weft_clock_thread_s() + 1e-3 * e->work_ms;
    for (double look_s = 0, now_s; (now_s = weft_clock_thread_s()) < end_s;) {
        if (now_s < look_s) continue;
        look_s = now_s + 1e-3 * LOOK_MS;
        if (!is_there(e)) return;
    }
}

/* In a control group with less memory than that the kernel kills it. */
static void take_memory(void)
{
    size_t piece = (size_t)16 << 20;
    for (int k = 0; k < 256; k++) {
        char *p = malloc(piece);
        if (!p) return;
        for (size_t at = 0; at < piece; at += 4096) ((volatile char *)p)[at] = 1;
    }
}

static void act(const entry *e)
{
    if (e->grows) take_memory();
    if (e->delay_ms) wait_for(e);
    if (e->work_ms) use_core(e);
    if (e->exits) _exit(EXIT_CODE);
    if (!e->signal) return;
    if (e->of_host) kill(getppid(), SIGKILL);
    if (e->signal != SIGSTOP) signal(e->signal, SIG_DFL); /* SIGKILL has no other */
    kill(getpid(), e->signal);
    while (e->signal != SIGSTOP) sleep_ms(1000); /* it may be sent to another thread */
}

/* Is it this entry's turn, at a place for numbers or at another one? */
static bool is_hit(entry *e, const char *name, bool flips)
{
    if (e->flips != flips || strcmp(e->name, name) != 0 || !is_own_rank(e) ||
        !is_due(e) || !is_there(e))
        return false;
    int n = atomic_fetch_add(&e->n, 1) + 1;
    if (!acts_once(e)) return n >= e->nth;
    return n == e->nth && claim_entry(e);
}

void weft_failpoint_hit(const char *name)
{
    read_environment();
    for (int k = 0; k < n_entry; k++)
        if (is_hit(&list[k], name, false)) act(&list[k]);
}

bool weft_failpoint_flips_hit(const char *name)
{
    bool flips = false;
    read_environment();
    for (int k = 0; k < n_entry; k++) flips = is_hit(&list[k], name, true) || flips;
    return flips;
}
