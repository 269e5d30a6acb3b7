/* Pooling: a thread a window, or a place of the image. */
#include "cuda_vec.h"

/* A window's or a place's number in its plane. */
struct spot {
    int64_t plane;
    int     y, x;
};

CU_FN spot find_spot(int64_t i, int h, int w)
{
    int64_t plane = i / (h * w);
    int     at    = (int)(i - plane * (h * w));
    spot    s     = {plane, at / w, at % w};
    return s;
}

/* The part of a window that is in the image. */
struct box {
    int y0, y1, x0, x1;
};

CU_FN box find_box(const weft_cuda_window &v, int oy, int ox)
{
    box b = {oy * v.sh - v.ph, 0, ox * v.sw - v.pw, 0};
    b.y1  = b.y0 + v.kh < v.h ? b.y0 + v.kh : v.h;
    b.x1  = b.x0 + v.kw < v.w ? b.x0 + v.kw : v.w;
    if (b.y0 < 0) b.y0 = 0;
    if (b.x0 < 0) b.x0 = 0;
    return b;
}

CU_KERNEL(max_pool, weft_cuda_pool_args, 256)
{
    int64_t i = cu_index();
    if (i >= a.planes * a.win.oh * a.win.ow) return;
    spot  s    = find_spot(i, a.win.oh, a.win.ow);
    box   b    = find_box(a.win, s.y, s.x);
    float best = -INFINITY;
    int   from = -1;
    for (int y = b.y0; y < b.y1; y++)
        for (int x = b.x0; x < b.x1; x++) {
            int   at = y * a.win.w + x;
            float v  = cu_get(a.x, a.x_dtype, s.plane * a.win.h * a.win.w + at);
            if (v > best) best = v, from = at;
        }
    if (a.y) cu_put(a.y, a.y_dtype, i, best);
    if (a.idx) a.idx[i] = from;
}

/* Windows that chose the same place form a list, in an order that timing decides; the sum does
 * not show it. */
CU_KERNEL(max_pool_link, weft_cuda_pool_args, 256)
{
    int64_t i = cu_index(), places = (int64_t)a.win.h * a.win.w,
            windows = a.win.oh * a.win.ow;
    if (i >= a.planes * windows) return;
    int64_t from = cu_id(a.winners, i);
    if (from < 0 || from >= places) return;
    a.next[i] = atomicExch(&a.head[i / windows * places + from], (int32_t)i);
}

CU_KERNEL(max_pool_grad, weft_cuda_pool_args, 256)
{
    int64_t i = cu_index();
    if (i >= a.planes * a.win.h * a.win.w) return;
    float sum = 0;
    for (int32_t last = -1;;) { /* the lowest window after the last one */
        int32_t low = INT32_MAX;
        for (int32_t k = a.head[i]; k >= 0; k = a.next[k])
            if (k > last && k < low) low = k;
        if (low == INT32_MAX) break;
        sum += cu_get(a.y, a.y_dtype, low);
        last = low;
    }
    cu_put(a.x, a.x_dtype, i, sum);
}

CU_KERNEL(avg_pool, weft_cuda_pool_args, 256)
{
    int64_t i = cu_index();
    if (i >= a.planes * a.win.oh * a.win.ow) return;
    spot  s   = find_spot(i, a.win.oh, a.win.ow);
    box   b   = find_box(a.win, s.y, s.x);
    float sum = 0;
    for (int y = b.y0; y < b.y1; y++)
        for (int x = b.x0; x < b.x1; x++)
            sum += cu_get(a.x, a.x_dtype, (s.plane * a.win.h + y) * a.win.w + x);
    cu_put(a.y, a.y_dtype, i, sum / (float)(a.win.kh * a.win.kw));
}

/* Windows along a line that cover place x: [lo, hi). */
CU_FN void find_windows(int x, int pad, int size, int stride, int n, int &lo, int &hi)
{
    lo = x + pad < size ? 0 : (x + pad - size) / stride + 1;
    hi = (x + pad) / stride + 1;
    if (hi > n) hi = n;
}

CU_KERNEL(avg_pool_grad, weft_cuda_pool_args, 256)
{
    int64_t i = cu_index();
    if (i >= a.planes * a.win.h * a.win.w) return;
    spot  s = find_spot(i, a.win.h, a.win.w);
    int   y0, y1, x0, x1;
    float sum = 0;
    find_windows(s.y, a.win.ph, a.win.kh, a.win.sh, a.win.oh, y0, y1);
    find_windows(s.x, a.win.pw, a.win.kw, a.win.sw, a.win.ow, x0, x1);
    for (int y = y0; y < y1; y++)
        for (int x = x0; x < x1; x++)
            sum += cu_get(a.y, a.y_dtype, (s.plane * a.win.oh + y) * a.win.ow + x);
    cu_put(a.x, a.x_dtype, i, sum / (float)(a.win.kh * a.win.kw));
}
