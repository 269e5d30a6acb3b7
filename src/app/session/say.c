#include "session/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"

/* WEFT_LOG=json, which weft run --log json sets. */
static bool logs_json(void)
{
    const char *how = getenv("WEFT_LOG");
    return how && !strcmp(how, "json");
}

static void print_json(const char *level, const char *text)
{
    weft_text t = {0};
    weft_text_add(&t,
                  "{\"time\": %.3f, \"level\": \"%s\", \"text\": ", weft_clock_wall_s(),
                  !strcmp(level, "WARN") ? "warn" : "info");
    weft_text_put_quoted(&t, text);
    weft_text_add(&t, "}\n");
    fwrite(t.s, 1, t.n, stderr);
    weft_text_fini(&t);
}

static void log_line(weft_say *s, const char *level, const char *fmt, va_list ap)
{
    char      text[2048], when[32];
    time_t    now = time(NULL);
    struct tm tm;
    if (s->mute) return;
    weft_say_end(s);
    if (logs_json()) {
        vsnprintf(text, sizeof text, fmt, ap);
        print_json(level, text);
        return;
    }
    localtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    vsnprintf(text, sizeof text, fmt, ap);
    fprintf(stderr, "%s %s %s\n", when, level, text);
}

void weft_say_info(weft_say *s, const char *fmt, ...)
{
    va_list ap;
    if (s->quiet) return;
    va_start(ap, fmt);
    log_line(s, "INFO", fmt, ap);
    va_end(ap);
}

void weft_say_warn(weft_say *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_line(s, "WARN", fmt, ap);
    va_end(ap);
}

/* 754 -> "12:34", 3754 -> "1:02:34" */
static void eta_text(double seconds, char *buf, size_t n)
{
    long long t = (long long)(seconds + 0.5);
    if (t >= 3600)
        snprintf(buf, n, "%lld:%02lld:%02lld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(buf, n, "%lld:%02lld", t / 60, t % 60);
}

void weft_say_step(weft_say *s, const weft_say_progress *p)
{
    double now = weft_clock_s();
    char   eta[32], share[32] = "";
    if (!s->progress || (s->line_open && now - s->last_s < 0.1 && p->step < p->steps))
        return;
    s->last_s    = now;
    s->line_open = true;
    eta_text((double)(p->steps - p->step) * p->step_s, eta, sizeof eta);
    if (p->share > 0) snprintf(share, sizeof share, "  %.0f %% of peak", 100 * p->share);
    fprintf(stderr, "\rstep %lld/%lld  loss %.4f  %.0f tokens/s%s  ETA %s   ",
            (long long)p->step, (long long)p->steps, p->loss, p->tokens_per_s, share,
            eta);
    fflush(stderr);
}

void weft_say_end(weft_say *s)
{
    if (!s->line_open) return;
    fputc('\n', stderr);
    s->line_open = false;
}
