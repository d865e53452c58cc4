/* The dense int8 network with the shapes of vgg5 on SIDE x SIDE images of C0 channels, then C1 to C4 channels: ReLU
   for neurons, weights drawn at random.

   Two ways to compute it, for comparison with the exported spiking network: a plain loop, and im2col (copy
   every window once, then multiply it by all filters). -DIM2COL chooses the second. Maps are channels-last. */
#include "model.h"

#include "dense_weights.h"

static int8_t requantize(int32_t sum)
{
    sum = (int32_t)(((int64_t)sum * 1518500250) >> 40); /* as CMSIS-NN: a factor and a shift */
    return sum < 0 ? 0 : sum > 127 ? 127 : (int8_t)sum;
}

#ifdef IM2COL
static int8_t window[9 * C3];

static void convolve(const int8_t *in, int size, int channels, int outputs, const int8_t *weight, int8_t *out)
{
    int y, x, ky, kx, c, o, i, n = 9 * channels;
    for (y = 0; y < size; y++)
        for (x = 0; x < size; x++) {
            int8_t *to = window;
            for (ky = y - 1; ky <= y + 1; ky++)
                for (kx = x - 1; kx <= x + 1; kx++)
                    for (c = 0; c < channels; c++)
                        *to++ = ky < 0 || kx < 0 || ky >= size || kx >= size ? 0 : in[(ky * size + kx) * channels + c];
            for (o = 0; o + 1 < outputs; o += 2) { /* two filters share what is loaded */
                const int8_t *a = weight + o * n, *b = a + n;
                int32_t s = 0, t = 0;
                for (i = 0; i < n; i++) {
                    s += window[i] * a[i];
                    t += window[i] * b[i];
                }
                *out++ = requantize(s);
                *out++ = requantize(t);
            }
            if (o < outputs) {
                int32_t s = 0;
                for (i = 0; i < n; i++)
                    s += window[i] * weight[o * n + i];
                *out++ = requantize(s);
            }
        }
}
#else
static void convolve(const int8_t *in, int size, int channels, int outputs, const int8_t *weight, int8_t *out)
{
    int y, x, ky, kx, c, o;
    for (y = 0; y < size; y++)
        for (x = 0; x < size; x++)
            for (o = 0; o < outputs; o++) {
                int32_t sum = 0;
                for (ky = 0; ky < 3; ky++)
                    for (kx = 0; kx < 3; kx++) {
                        const int row = y + ky - 1, column = x + kx - 1;
                        if (row < 0 || column < 0 || row >= size || column >= size)
                            continue;
                        for (c = 0; c < channels; c++)
                            sum += in[(row * size + column) * channels + c]
                                * weight[((o * 3 + ky) * 3 + kx) * channels + c];
                    }
                *out++ = requantize(sum);
            }
}
#endif

/* The maximum of 2x2 windows; in place, as nothing is read after it was written over. */
static void pool(int8_t *map, int size, int channels)
{
    int y, x, c, half = size / 2;
    int8_t *out = map;
    for (y = 0; y < half; y++)
        for (x = 0; x < half; x++)
            for (c = 0; c < channels; c++) {
                const int8_t *at = map + (2 * y * size + 2 * x) * channels + c;
                const int8_t a = at[0] > at[channels] ? at[0] : at[channels];
                const int8_t *below = at + size * channels;
                const int8_t b = below[0] > below[channels] ? below[0] : below[channels];
                *out++ = a > b ? a : b;
            }
}

void model_reset(model_state *s)
{
    int i;
    for (i = 0; i < MODEL_CLASSES; i++)
        s->score[i] = 0;
}

int model_frame(model_state *s, const model_value *levels)
{
    int i, c, o;
    for (i = 0; i < MODEL_INPUTS; i++)
        s->b[i] = (int8_t)(levels[i] >> 1);
    convolve(s->b, SIDE, C0, C1, weight_1, s->a);
    pool(s->a, SIDE, C1);
    convolve(s->a, SIDE / 2, C1, C2, weight_2, s->b);
    convolve(s->b, SIDE / 2, C2, C3, weight_3, s->a);
    pool(s->a, SIDE / 2, C3);
    convolve(s->a, SIDE / 4, C3, C4, weight_4, s->b);
    pool(s->b, SIDE / 4, C4);
    for (o = 0; o < MODEL_CLASSES; o++)
        for (c = 0; c < C4; c++) {
            int32_t sum = 0;
            for (i = 0; i < (SIDE / 8) * (SIDE / 8); i++)
                sum += s->b[i * C4 + c];
            s->score[o] += sum * weight_5[o * C4 + c];
        }
    return 0;
}

int model_class(const model_state *s)
{
    int i, best = 0;
    for (i = 1; i < MODEL_CLASSES; i++)
        if (s->score[i] > s->score[best])
            best = i;
    return best;
}

int model_selftest(model_state *s)
{
    (void)s;
    return 0;
}
