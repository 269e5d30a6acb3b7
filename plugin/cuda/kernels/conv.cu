/* Convolution as a product of tiles; columns are found where they are read.
 *
 *     y  (o, spots)  = w (o, taps)  x[taps, spots]       taps: c kh kw, spots: n oh ow
 *     dx (c, places) = w (c, o kh kw)  dy[..]            places: n h w
 *     dw (o, taps)   = dy (o, spots)  x[spots, taps]     in pieces of spots, added in order */
#include "cuda_tile.h"

enum {
    TILE = CU_TILE
};

/* Where a tile of 64 rows by 64 columns begins: blocks x are columns, y rows. */
CU_FN int first_row(void)
{
    return (int)blockIdx.y * TILE;
}
CU_FN int first_col(void)
{
    return (int)blockIdx.x * TILE;
}

/* acc += sum over k of [k0, k1) of p.a(row, k) p.b(k, p's own column) */
template <typename P>
CU_FN void multiply(float acc[4][4], const P &p, int k0, int k1, float *room)
{
    int t = (int)threadIdx.x;
    for (int k = k0; k < k1; k += CU_TILE_K) {
        for (int r = t / CU_TILE_K, c = t % CU_TILE_K; r < TILE;
             r += CU_TILE_THREADS / CU_TILE_K)
            room[c * CU_TILE_LD + r] = k + c < k1 ? p.a(first_row() + r, k + c) : 0;
        for (int r = t / TILE; r < CU_TILE_K; r += CU_TILE_THREADS / TILE)
            room[CU_TILE_ROOM + r * CU_TILE_LD + t % TILE] = k + r < k1 ? p.b(k + r) : 0;
        __syncthreads();
        cu_tile_step(acc, room, room + CU_TILE_ROOM);
        __syncthreads();
    }
}

/* Column t % 64 of the tile is the one that thread t reads. */
CU_FN int own_col(void)
{
    return first_col() + (int)threadIdx.x % TILE;
}

/* ---- forward ---- */

struct forward {
    const weft_cuda_conv_args &v;
    int  taps, image, y, x; /* of the own spot, y and x in the image */
    bool is_in;

    CU_FN_MEMBER explicit forward(const weft_cuda_conv_args &args) : v(args)
    {
        int spots = v.win.oh * v.win.ow, col = own_col(), at = col % spots;
        taps  = v.c * v.win.kh * v.win.kw;
        image = col / spots;
        y     = at / v.win.ow * v.win.sh - v.win.ph;
        x     = at % v.win.ow * v.win.sw - v.win.pw;
        is_in = image < v.n;
    }
    CU_FN_MEMBER float a(int row, int k) const
    {
        return row < v.o ? cu_get(v.w, v.w_dtype, (int64_t)row * taps + k) : 0;
    }
    CU_FN_MEMBER float b(int k) const
    {
        int kx = k % v.win.kw, ky = k / v.win.kw % v.win.kh, c = k / v.win.kw / v.win.kh;
        int yy = y + ky, xx = x + kx;
        if (!is_in || yy < 0 || yy >= v.win.h || xx < 0 || xx >= v.win.w) return 0;
        return cu_get(v.x, v.x_dtype,
                      (((int64_t)image * v.c + c) * v.win.h + yy) * v.win.w + xx);
    }
};

/* A tile of an image's channels: (n, channels, spots). */
CU_FN void put_images(void *p, int dtype, int n, int channels, int spots,
                      const float acc[4][4])
{
    CU_UNROLL
    for (int k = 0; k < 16; k++) {
        int row   = first_row() + cu_tile_row() + k / 4,
            col   = first_col() + cu_tile_col() + k % 4;
        int image = col / spots;
        if (row < channels && image < n)
            cu_put(p, dtype, ((int64_t)image * channels + row) * spots + col % spots,
                   acc[k / 4][k % 4]);
    }
}

CU_KERNEL(conv2d, weft_cuda_conv_args, CU_TILE_THREADS)
{
    __shared__ cu_tile_shared sh;
    forward                   p(a);
    float                     acc[4][4];
    cu_tile_zero(acc);
    multiply(acc, p, 0, p.taps, sh.room);
    put_images(a.y, a.y_dtype, a.n, a.o, a.win.oh * a.win.ow, acc);
}

/* ---- the image's gradient ---- */

struct image_gradient {
    const weft_cuda_conv_args &v;
    int                        image, y, x; /* of the own place, with the padding */
    bool                       is_in;

    CU_FN_MEMBER explicit image_gradient(const weft_cuda_conv_args &args) : v(args)
    {
        int places = v.win.h * v.win.w, col = own_col(), at = col % places;
        image = col / places;
        y     = at / v.win.w + v.win.ph;
        x     = at % v.win.w + v.win.pw;
        is_in = image < v.n;
    }
    CU_FN_MEMBER float a(int row, int k) const
    {
        int taps = v.win.kh * v.win.kw, o = k / taps;
        return row < v.c
                   ? cu_get(v.w, v.w_dtype, ((int64_t)o * v.c + row) * taps + k % taps)
                   : 0;
    }
    CU_FN_MEMBER float b(int k) const
    {
        int kx = k % v.win.kw, ky = k / v.win.kw % v.win.kh, o = k / v.win.kw / v.win.kh;
        int yy = y - ky, xx = x - kx;
        if (!is_in || yy < 0 || xx < 0 || yy % v.win.sh || xx % v.win.sw) return 0;
        yy /= v.win.sh;
        xx /= v.win.sw;
        if (yy >= v.win.oh || xx >= v.win.ow) return 0;
        return cu_get(v.y, v.y_dtype,
                      (((int64_t)image * v.o + o) * v.win.oh + yy) * v.win.ow + xx);
    }
};

CU_KERNEL(conv2d_grad_x, weft_cuda_conv_args, CU_TILE_THREADS)
{
    __shared__ cu_tile_shared sh;
    image_gradient            p(a);
    float                     acc[4][4];
    cu_tile_zero(acc);
    multiply(acc, p, 0, a.o * a.win.kh * a.win.kw, sh.room);
    put_images(a.x, a.x_dtype, a.n, a.c, a.win.h * a.win.w, acc);
}

/* ---- the weights' gradient ---- */

struct weight_gradient {
    const weft_cuda_conv_args &v;
    int                        taps, spots, c, ky, kx; /* of the own tap */
    bool                       is_in;

    CU_FN_MEMBER explicit weight_gradient(const weft_cuda_conv_args &args) : v(args)
    {
        int col = own_col();
        taps    = v.c * v.win.kh * v.win.kw;
        spots   = v.win.oh * v.win.ow;
        kx      = col % v.win.kw;
        ky      = col / v.win.kw % v.win.kh;
        c       = col / v.win.kw / v.win.kh;
        is_in   = col < taps;
    }
    CU_FN_MEMBER float a(int row, int k) const
    {
        int64_t image = k / spots;
        return row < v.o ? cu_get(v.y, v.y_dtype, (image * v.o + row) * spots + k % spots)
                         : 0;
    }
    CU_FN_MEMBER float b(int k) const
    {
        int64_t image = k / spots;
        int     at = k % spots, yy = at / v.win.ow * v.win.sh - v.win.ph + ky;
        int     xx = at % v.win.ow * v.win.sw - v.win.pw + kx;
        if (!is_in || yy < 0 || yy >= v.win.h || xx < 0 || xx >= v.win.w) return 0;
        return cu_get(v.x, v.x_dtype, ((image * v.c + c) * v.win.h + yy) * v.win.w + xx);
    }
};

/* Blocks z: pieces of spots. */
CU_KERNEL(conv2d_grad_w, weft_cuda_conv_args, CU_TILE_THREADS)
{
    __shared__ cu_tile_shared sh;
    weight_gradient           p(a);
    float                     acc[4][4];
    int k0 = (int)blockIdx.z * WEFT_CUDA_CONV_SPOTS, k1 = k0 + WEFT_CUDA_CONV_SPOTS;
    int all = a.n * p.spots;
    cu_tile_zero(acc);
    multiply(acc, p, k0, k1 < all ? k1 : all, sh.room);
    CU_UNROLL
    for (int k = 0; k < 16; k++) {
        int row = first_row() + cu_tile_row() + k / 4,
            col = first_col() + cu_tile_col() + k % 4;
        if (row < a.o && col < p.taps)
            a.part[((int64_t)blockIdx.z * a.o + row) * p.taps + col] = acc[k / 4][k % 4];
    }
}

CU_KERNEL(conv2d_grad_w_sum, weft_cuda_conv_args, 256)
{
    int64_t i = cu_index(), n = (int64_t)a.o * a.c * a.win.kh * a.win.kw;
    if (i >= n) return;
    float sum = 0;
    for (int p = 0; p < a.n_piece; p++) sum += a.part[p * n + i];
    cu_put(a.w, a.w_dtype, i, a.add ? cu_get(a.w, a.w_dtype, i) + sum : sum);
}
