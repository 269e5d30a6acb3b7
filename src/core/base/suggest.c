/* Edit distance with swaps of neighbours; case and '-' against '_' cost nothing. */
#include "base/suggest.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>

enum {
    MAX_WORD = 64
};

static int fold(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

/* d[i][j]: distance of a's first i characters to b's first j. */
static int distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b);
    if (na > MAX_WORD || nb > MAX_WORD) return INT_MAX;

    unsigned char d[MAX_WORD + 1][MAX_WORD + 1];
    for (int i = 0; i <= na; i++) d[i][0] = (unsigned char)i;
    for (int j = 0; j <= nb; j++) d[0][j] = (unsigned char)j;
    for (int i = 1; i <= na; i++)
        for (int j = 1; j <= nb; j++) {
            int same = fold(a[i - 1]) == fold(b[j - 1]);
            int best = d[i - 1][j - 1] + !same;
            if (d[i - 1][j] + 1 < best) best = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < best) best = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]) && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = (unsigned char)best;
        }
    return d[na][nb];
}

/* Is the word the first part of a longer one: nproc of nproc-per-node? */
static bool begins(const char *word, const char *longer)
{
    for (; *word; word++, longer++)
        if (fold(*word) != fold(*longer)) return false;
    return fold(*longer) == '_';
}

/* Near: at most a third of the letters are wrong; one wrong letter is always near, except in
 * words of one or two letters.  A first part is nearest. */
const char *weft_suggest(const char *word, const char *const *list, int n)
{
    int         len  = (int)strlen(word);
    int         best = len < 3 ? 1 : len / 3 + 1;
    const char *near = NULL;
    for (int i = 0; i < n; i++) {
        int dist = len > 2 && begins(word, list[i]) ? 0 : distance(word, list[i]);
        if (dist < best) {
            best = dist;
            near = list[i];
        }
    }
    return near;
}
