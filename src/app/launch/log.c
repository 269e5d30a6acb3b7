/* Lines of the launcher and of its ranks on standard error: text or, with --log json, objects:
 *
 *     {"time": 1700000000.123, "level": "info", "rank": 3, "text": "..."}
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "launch/launch_priv.h"

static void put_head(weft_text *t, const char *level, int rank)
{
    weft_text_add(t, "{\"time\": %.3f, \"level\": \"%s\", ", weft_clock_wall_s(), level);
    if (rank >= 0) weft_text_add(t, "\"rank\": %d, ", rank);
    weft_text_add(t, "\"text\": ");
}

void weft_launch__say(const weft_launch__run *l, int rank, const char *level,
                      const char *fmt, ...)
{
    char      text[2048];
    weft_text t = {0};
    va_list   ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (l->o->log_json) {
        put_head(&t, level, rank);
        weft_text_put_quoted(&t, text);
        weft_text_add(&t, "}\n");
        fwrite(t.s, 1, t.n, stderr);
    } else if (rank >= 0) {
        fprintf(stderr, "[rank %d] %s\n", rank, text);
    } else {
        fprintf(stderr, "weft run: %s%s\n",
                !strcmp(level, "error")  ? "error: "
                : !strcmp(level, "warn") ? "warning: "
                                         : "",
                text);
    }
    weft_text_fini(&t);
}

/* A rank that logs JSON itself gets its number into the object. */
void weft_launch__say_line(const weft_launch__run *l, int rank, const char *s, size_t n)
{
    weft_text t = {0};
    if (!l->o->log_json) {
        fprintf(stderr, "[rank %d] %.*s\n", rank, (int)n, s);
        return;
    }
    if (n > 2 && s[0] == '{' && s[n - 1] == '}') {
        weft_text_add(&t, "{\"rank\": %d, ", rank);
        weft_text_put(&t, s + 1, n - 1);
        weft_text_add(&t, "\n");
    } else {
        weft_text line = {0};
        weft_text_put(&line, s, n);
        put_head(&t, n && memmem(s, n, "error: ", 7) ? "error" : "info", rank);
        weft_text_put_quoted(&t, line.s ? line.s : "");
        weft_text_add(&t, "}\n");
        weft_text_fini(&line);
    }
    fwrite(t.s, 1, t.n, stderr);
    weft_text_fini(&t);
}
