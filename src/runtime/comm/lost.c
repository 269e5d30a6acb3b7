/* Watchers, which get the loss of a rank at once.  One lock for all ends of a process: there are
 * few, and they seldom change. */
#include <pthread.h>

#include "comm/hosts.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Of an end for several hosts the part in this host's memory notices. */
void weft_comm_watch(weft_comm *c, weft_comm_watcher *w)
{
    weft_comm *end = weft_comm_shared_end(c);
    pthread_mutex_lock(&lock);
    w->c          = end ? end : c;
    w->next       = w->c->watcher;
    w->c->watcher = w;
    pthread_mutex_unlock(&lock);
    if (weft_comm_check(w->c) != WEFT_OK) w->lost(w->arg, weft_error_text());
}

void weft_comm_unwatch(weft_comm_watcher *w)
{
    pthread_mutex_lock(&lock);
    weft_comm_watcher **at = &w->c->watcher;
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
    pthread_mutex_unlock(&lock);
}

void weft_comm_report_lost(weft_comm *c, const char *why)
{
    pthread_mutex_lock(&lock);
    for (weft_comm_watcher *w = c->watcher; w; w = w->next) w->lost(w->arg, why);
    pthread_mutex_unlock(&lock);
}
