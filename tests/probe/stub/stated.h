/* The GPU that the stub libraries say they have: what measuring it must find. */
#ifndef TEST_PROBE_STATED_H
#define TEST_PROBE_STATED_H

#define STATED_SM       132
#define STATED_MEMORY   ((size_t)150 << 30)
#define STATED_FREE     ((size_t)140 << 30)
#define STATED_LAUNCH_S 2e-6
#define STATED_STREAM   4.08e12 /* bytes a second: 0.85 of an H200's 4.8e12 */
#define STATED_COPY_S   8e-6
#define STATED_UP       5e10
#define STATED_DOWN     4.5e10
#define STATED_PEER_S   6e-6
#define STATED_PEER     3.6e11 /* 0.8 of NVLink 4 */
#define STATED_SUM_S    2e-5
#define STATED_SUM      3.4e11

/* Products reach a share of the data sheet's peak, less where sums are short or results few. */
#define STATED_PEAK    9.89e14
#define STATED_PEAK_8  1.979e15
#define STATED_PEAK_32 6.7e13
#define STATED_BF16    0.72
#define STATED_F16     0.70
#define STATED_F8      0.76
#define STATED_TF32    0.80 /* of half of the 16-bit peak */
#define STATED_F32     0.78
#define STATED_HALF    160.0

void stub_advance(double s);
int  stub_fails(const char *symbol);

#endif
