/* The recurrence of recurrence.py and its derivative, for the CPU, in float and double.
 *
 * The backward pass integrates a few steps once more with a trace of what the derivative needs, walks them back, and so
 * on from the last steps to the first; the states from which it starts over are noted in a run before. Its memory does
 * not grow with the layer.
 *
 * lane.h holds what depends on the type and is included once for each.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SIMD _Pragma("omp simd")
#define INLINE static inline __attribute__((always_inline))
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(f, REAL)

enum { LSE, MAX, ADD };          /* membrane */
enum { NO_LEAK, FACTOR, SHIFT }; /* leak_form */
enum { EPS, LEAK, THRESHOLD, AMPLITUDE, CONSTANTS };
enum { LANES = 128 }; /* neurons without neighbours that are integrated together */

/* GOMP_parallel of the OpenMP library that PyTorch has loaded, so that both share their threads; NULL: one thread. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned threads, unsigned flags);

typedef struct {
    Parallel parallel;
    int64_t time, batch, features, ring;
    int64_t current_step, grad_step; /* from one time step to the next, in the current and in the gradient of the spikes */
    int64_t lengths[CONSTANTS];
    double numbers[CONSTANTS]; /* the value of a constant that is not a tensor */
    double v_reset, adapt_strength, adapt_decay;
    int32_t membrane, leak_form, soft, through_reset, rate, centered, adapt, adapt_late, learn, threads;
} Rule;

/* Memory in whole lines of the cache, so that no vector lies across two of them. */
static void *aligned(size_t size) { return aligned_alloc(64, (size + 63) / 64 * 64); }

/* exp2(x) within 1e-7, for |x| <= 126: a polynomial on [-1/2, 1/2], then n is added to the exponent. */
INLINE float exp2_float(float x)
{
    union { float f; int32_t i; } n = { x + 12582912.0f }, y; /* adding 1.5 * 2^23 rounds, and puts n into the last bits */
    float r = x - (n.f - 12582912.0f);
    float q = 1.32764812e-3f;
    q = q * r + 9.67554264e-3f;
    q = q * r + 5.55071322e-2f;
    q = q * r + 0.240221200f;
    q = q * r + 0.693146969f;
    y.f = q * r + 1.00000007f;
    y.i += (int32_t)((uint32_t)n.i << 23);
    return y.f;
}

/* log2(x) within 1e-7, for normal x: the exponent, and a polynomial for what is left in [3/4, 3/2]. */
INLINE float log2_float(float x)
{
    union { float f; int32_t i; } y = { x };
    int32_t n = (y.i - 0x3f400000) >> 23;
    y.i -= n * (1 << 23);
    float r = y.f - 1.0f;
    float q = -9.08790076e-2f;
    q = q * r + 0.201280590f;
    q = q * r - 0.251942050f;
    q = q * r + 0.290806220f;
    q = q * r - 0.360261040f;
    q = q * r + 0.480801930f;
    q = q * r - 0.721352120f;
    q = q * r + 1.44269590f;
    return (float)n + r * q;
}

/* log2(1 + x) within 1e-7, for 0 <= x <= 1. */
INLINE float log2_1p_float(float x)
{
    float q = -9.30916e-3f;
    q = q * x + 5.205899e-2f;
    q = q * x - 0.13752133f;
    q = q * x + 0.24186477f;
    q = q * x - 0.34730108f;
    q = q * x + 0.47868370f;
    q = q * x - 0.72116581f;
    q = q * x + 1.44268988f;
    return q * x;
}

INLINE double exp2_double(double x) { return exp2(x); }
INLINE double log2_double(double x) { return log2(x); }
INLINE double log2_1p_double(double x) { return log2(1 + x); }

/* Where exponents are cut: beyond, exp2 is 0 to every purpose. Were it a constant, gcc would not see a maximum. */
static volatile const float EDGE_float = 100.0f;
static volatile const double EDGE_double = 900.0;

#define REAL float
#include "lane.h"
#undef REAL
#define REAL double
#include "lane.h"
