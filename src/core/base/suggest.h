/* "did you mean": the nearest of a list of words, or NULL when none is near. */
#ifndef WEFT_BASE_SUGGEST_H
#define WEFT_BASE_SUGGEST_H

const char *weft_suggest(const char *word, const char *const *list, int n);

#endif
