#include "launch/incident.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "launch/environment.h"
#include "launch/level.h"

const char *weft_incident_find_cause(int signal, bool oom)
{
    switch (signal) {
    case 0: return "exit";
    case SIGBUS: return "bus";
    case SIGSEGV:
    case SIGILL:
    case SIGFPE:
    case SIGABRT: return "crash";
    case SIGKILL: return oom ? "oom" : "kill";
    default: return "kill";
    }
}

bool weft_incident_is_crash(int how)
{
    static const int list[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    for (size_t k = 0; WIFSIGNALED(how) && k < WEFT_COUNT(list); k++)
        if (WTERMSIG(how) == list[k]) return true;
    return false;
}

void weft_incident_note_left(weft_incident_left *l, uint32_t epoch, const char *why)
{
    if (epoch == l->epoch || !*why) return;
    l->epoch = epoch;
    snprintf(l->why, sizeof l->why, "%s", why);
}

void weft_incident_add_left(const weft_incident_left *l, char *what, size_t bytes)
{
    size_t n = strlen(what);
    if (*l->why && n < bytes) snprintf(what + n, bytes - n, "; %s", l->why);
}

void weft_incident_begin(weft_incident *i, const char *cause, const char *what,
                         const char *noticed)
{
    i->noticed   = noticed;
    i->wall_s    = weft_clock_wall_s();
    i->noticed_s = weft_clock_s();
    snprintf(i->cause, sizeof i->cause, "%s", cause);
    snprintf(i->what, sizeof i->what, "%s", what);
    weft_launch_host_name(i->host, sizeof i->host);
}

void weft_incident_append(const char *folder, const char *file, const weft_text *lines)
{
    char path[4352];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || weft_io_write(fd, path, lines->s, lines->n) != WEFT_OK)
        fprintf(stderr, "weft run: warning: %s: %s\n", path, strerror(errno));
    if (fd >= 0) close(fd);
}

/* In a child of a child, which nobody waits for. */
static void be_command(const char *command, int input)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(input, STDIN_FILENO);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

void weft_incident_notify(const char *command, const weft_text *line)
{
    int input = memfd_create("incident", MFD_CLOEXEC);
    if (input < 0 || weft_io_write(input, "incident", line->s, line->n) != WEFT_OK ||
        lseek(input, 0, SEEK_SET) != 0) {
        fprintf(stderr, "weft run: warning: --on-incident: %s\n", strerror(errno));
    } else {
        pid_t child = fork();
        if (!child) {
            if (!fork()) be_command(command, input);
            _exit(0);
        }
        if (child > 0) waitpid(child, NULL, 0);
    }
    if (input >= 0) close(input);
}

/* From one moment to another, where both are known. */
static void add_phase(weft_incident_phase *list, int *n, const char *name, double from_s,
                      double to_s)
{
    if (from_s <= 0 || to_s < from_s) return;
    list[(*n)++] = (weft_incident_phase){name, to_s - from_s};
}

static double later_of(double a, double b)
{
    return a > b ? a : b;
}

/* Phases follow each other: each begins where the one before ended. */
int weft_incident_find_phases(const weft_incident *i, const weft_incident_outcome *o,
                              weft_incident_phase out[WEFT_INCIDENT_MAX_PHASE])
{
    static const struct {
        weft_line_phase phase;
        const char     *name;
    } list[]    = {{WEFT_LINE_AT_LEFT, "leave"},
                   {WEFT_LINE_AT_VIEW, "start"},
                   {WEFT_LINE_AT_CONNECTED, "connect"},
                   {WEFT_LINE_AT_BUILT, "build"},
                   {WEFT_LINE_AT_READY, "move"}};
    double from = i->noticed_s;
    int    n    = 0;
    add_phase(out, &n, "notice", i->seen_s, i->noticed_s);
    add_phase(out, &n, "decide", from, o->decided_s);
    from = later_of(from, o->decided_s);
    for (size_t k = 0; o->committed_s > 0 && k < WEFT_COUNT(list); k++) {
        double at = later_of(from, o->at_s[list[k].phase]);
        add_phase(out, &n, list[k].name, from, at);
        from = at;
    }
    if (o->committed_s > 0) {
        add_phase(out, &n, "step", from, later_of(from, o->committed_s));
        add_phase(out, &n, "total", i->noticed_s, o->committed_s);
    }
    return n;
}

static void put_phases(const weft_incident *i, const weft_incident_outcome *o,
                       weft_text *t)
{
    weft_incident_phase phase[WEFT_INCIDENT_MAX_PHASE];
    int                 n = weft_incident_find_phases(i, o, phase);
    weft_text_add(t, "\"ms\": {");
    for (int k = 0; k < n; k++)
        weft_text_add(t, "%s\"%s\": %.3f", k ? ", " : "", phase[k].name,
                      1e3 * phase[k].seconds);
    weft_text_add(t, "}");
}

/* For a replay (session/replay.h): the view that ended, as the next one records it. */
static void put_view(const weft_incident_view *v, weft_text *t)
{
    if (!v->epoch) return;
    weft_text_add(t, ", \"view\": {\"epoch\": %u, \"first_step\": %lld, \"ranks\": %d",
                  v->epoch, (long long)v->step, v->n_rank);
    if (*v->plan) {
        weft_text_put_string_member(t, "plan", v->plan);
    }
    weft_text_add(t, "}");
}

static void put_next(const weft_incident_outcome *o, weft_text *t)
{
    weft_text_add(t, ", \"next_epoch\": %u", o->epoch);
    if (o->step >= 0) weft_text_add(t, ", \"next_step\": %lld", (long long)o->step);
    if (o->n_rank) weft_text_add(t, ", \"ranks\": %d", o->n_rank);
    if (*o->plan) {
        weft_text_put_string_member(t, "plan", o->plan);
    }
    put_view(&o->was, t);
}

void weft_incident_print(const weft_incident *i, const weft_incident_outcome *o,
                         weft_text *t)
{
    weft_text_add(t, "{\"time\": %.3f, ", i->wall_s);
    if (i->rank >= 0) weft_text_add(t, "\"rank\": %d, \"pid\": %d, ", i->rank, i->pid);
    weft_text_add(t, "\"epoch\": %u, ", i->epoch);
    if (i->step >= 0) weft_text_add(t, "\"step\": %lld, ", (long long)i->step);
    weft_text_add(t, "\"host\": ");
    weft_text_put_quoted(t, i->host);
    weft_text_put_string_member(t, "cause", i->cause);
    weft_text_put_string_member(t, "what", i->what);
    weft_text_put_string_member(t, "noticed", i->noticed);
    weft_text_put_string_member(t, "decided", o->decided);
    if (*o->why) {
        weft_text_put_string_member(t, "why", o->why);
    } else if (o->epoch) {
        put_next(o, t);
    }
    if (o->move.back) weft_text_add(t, ", \"back\": true");
    if (i->choice.n_rejected) weft_launch_levels_print(&i->choice, t);
    if (o->move.bytes > 0 || o->move.learned > 0)
        weft_text_add(t,
                      ", \"move\": {\"bytes\": %lld, \"sent\": %lld, \"predicted_s\": "
                      "%.4g, \"seconds\": %.4g, \"batches\": %d, \"peak_bytes\": %lld}",
                      (long long)o->move.bytes, (long long)o->move.sent,
                      o->move.predicted_s, o->move.seconds, o->move.n_batch,
                      (long long)o->move.peak_bytes);
    if (o->move.learned > 0)
        weft_text_add(t, ", \"learned\": %lld", (long long)o->move.learned);
    if (o->move.made_bytes > 0)
        weft_text_add(t, ", \"made_bytes\": %lld", (long long)o->move.made_bytes);
    weft_text_add(t, ", ");
    put_phases(i, o, t);
    weft_text_add(t, "}\n");
}
