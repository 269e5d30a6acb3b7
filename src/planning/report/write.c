/* Words, numbers and colours of a page. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"
#include "report/report_priv.h"

static const char *escaped(char c)
{
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void weft_report__put(weft_text *t, const char *s)
{
    const char *end = s + strlen(s);
    while (s < end) {
        int         n = weft_escape_utf8_length(s, end);
        const char *e = escaped(*s);
        bool        control =
            n == 1 && ((unsigned char)*s < 32 || *s == 127) && *s != '\n' && *s != '\t';
        if (!n || control)
            weft_text_put(t, "\xef\xbf\xbd", 3);
        else if (e)
            weft_text_put(t, e, strlen(e));
        else
            weft_text_put(t, s, (size_t)n);
        s += n ? n : 1;
    }
}

void weft_report__count(weft_text *t, int64_t n)
{
    char digit[32];
    int  len = snprintf(digit, sizeof digit, "%lld", (long long)n);
    for (int i = 0; i < len; i++) {
        weft_text_put(t, &digit[i], 1);
        if (digit[i] != '-' && i + 1 < len && (len - 1 - i) % 3 == 0)
            weft_text_put(t, ",", 1);
    }
}

void weft_report__seconds(weft_text *t, double s)
{
    if (s >= 1 || !(s > 0))
        weft_text_add(t, s >= 1000 ? "%.0f s" : "%.4g s", s > 0 ? s : 0);
    else if (s >= 1e-3)
        weft_text_add(t, "%.3g ms", s * 1e3);
    else
        weft_text_add(t, "%.3g µs", s * 1e6);
}

void weft_report__bytes(weft_text *t, double n)
{
    if (n >= 1e12)
        weft_text_add(t, "%.3g TB", n / 1e12);
    else if (n >= 1e8)
        weft_text_add(t, n >= 1e10 ? "%.1f GB" : "%.2f GB", n / 1e9);
    else
        weft_text_add(t, "%.3g MB", n / 1e6);
}

/* ---- colours ---- */

static int channel(double x)
{
    double s = x <= 0.0031308 ? 12.92 * x : 1.055 * pow(x, 1 / 2.4) - 0.055;
    return (int)lround(255 * fmin(1, fmax(0, s)));
}

/* OKLCH to sRGB, its published matrices: equal lightness looks equally light. */
static void put_color(double l, double c, double hue, char *out)
{
    double a = c * cos(hue), b = c * sin(hue);
    double x = l + 0.3963377774 * a + 0.2158037573 * b;
    double y = l - 0.1055613458 * a - 0.0638541728 * b;
    double z = l - 0.0894841775 * a - 1.2914855480 * b;
    x        = x * x * x;
    y        = y * y * y;
    z        = z * z * z;
    snprintf(out, 8, "#%02x%02x%02x",
             channel(4.0767416621 * x - 3.3077115913 * y + 0.2309699292 * z) & 255,
             channel(-1.2684380046 * x + 2.6097574011 * y - 0.3413193965 * z) & 255,
             channel(-0.0041960863 * x - 0.7034186147 * y + 1.7076147010 * z) & 255);
}

void weft_report__stage_color(int stage, int n_stage, char *out)
{
    double step = n_stage > 1 ? fmin(70, 290.0 / (n_stage - 1)) : 0;
    double hue  = (255 - step * stage) * 3.14159265358979 / 180;
    put_color(n_stage > 8 && stage % 2 ? 0.70 : 0.77, 0.115, hue, out);
}

int weft_report__pick(int n, int most, int i)
{
    if (n <= most) return i;
    return (int)((int64_t)i * (n - 1) / (most - 1));
}

void weft_report__stacked(weft_text *t, const char *color, const char *name, double x,
                          double all)
{
    if (!(x > 0)) return;
    weft_text_add(t, "<i class=\"b-%s\" style=\"width:%.3f%%\" title=\"%s: ", color,
                  100 * x / all, name);
    weft_report__seconds(t, x);
    weft_text_add(t, "\"></i>");
}
