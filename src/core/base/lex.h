/* A tokenizer for our own text forms (graph, program).
 * Tokens: words [A-Za-z_.%/][A-Za-z0-9_.%/'-]*, numbers (also 0x1f, -inf), "strings" with JSON's
 * escapes, punctuation one character at a time except "->" (which also ends a word).  '#' starts
 * a comment up to the end of the line.  Keeps line numbers. */
#ifndef WEFT_BASE_LEX_H
#define WEFT_BASE_LEX_H

#include <stdbool.h>

#include "base/arena.h"

typedef enum weft_tok {
    WEFT_TOK_END,
    WEFT_TOK_WORD,
    WEFT_TOK_NUMBER,
    WEFT_TOK_STRING,
    WEFT_TOK_PUNCT, /* text is the character, or "->" */
    WEFT_TOK_BAD,
} weft_tok;

typedef struct weft_lex {
    const char *at, *end;
    const char *file; /* for messages */
    int         line;
    weft_arena *arena; /* where token texts are kept */
    weft_tok    tok;   /* the current token */
    const char *text;  /* its text, NUL-terminated; strings unescaped */
} weft_lex;

/* Borrows text for the life of l.  The first token is current afterwards. */
void weft_lex_init(weft_lex *l, weft_arena *a, const char *file, const char *text,
                   size_t n);
void weft_lex_next(weft_lex *l);

/* Is it a punct or word with that text?  accept also steps over it; expect complains if not. */
bool        weft_lex_is(const weft_lex *l, const char *text);
bool        weft_lex_accept(weft_lex *l, const char *text);
weft_status weft_lex_expect(weft_lex *l, const char *text);
weft_status weft_lex_word(weft_lex *l, const char **out);
weft_status weft_lex_int(weft_lex *l, int64_t *out);
weft_status weft_lex_double(weft_lex *l, double *out);
/* "file:line: " + words, for the parser's own complaints. */
weft_status weft_lex_fail(const weft_lex *l, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
