/* Time. */
#ifndef WEFT_BASE_CLOCK_H
#define WEFT_BASE_CLOCK_H

double weft_clock_s(void);      /* monotonic seconds */
double weft_clock_wall_s(void); /* seconds since 1970 */
/* Seconds that the calling thread has had of a core: time in which it waits for one says nothing
 * about its work. */
double weft_clock_thread_s(void);

#endif
