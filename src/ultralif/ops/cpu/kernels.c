/* The recurrence of rule.py and its derivative, for the CPU, in float and double.
 *
 * The backward pass first runs over all steps and stores some states. Then, from the last steps to the first, it
 * integrates a few steps again from such a state, keeps a trace of the numbers that the derivative needs, and goes back
 * over these steps. Its memory use does not grow with the layer.
 *
 * lane.h has the parts that depend on the type; it is included once for each type.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

#define SIMD _Pragma("omp simd")
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline)) void
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(f) JOIN(f, REAL)

#include "rule.h"

enum { PLAIN, ADAPTS, SATURATES, DELAYS }; /* form of a neuron without neighbours */
enum { EPS, LEAK, THRESHOLD, AMPLITUDE, CONSTANTS };
enum { SAME, BFLOAT16, FLOAT16 }; /* the type of current, spikes and gradients: the membrane's, or a 16-bit one */
enum { LANES = 128, PIECE = 64 }; /* sizes of a block of neurons without neighbours, and of its parts */

/* Allocate whole cache lines, so that no vector straddles two of them. */
static void *aligned(size_t size) { return aligned_alloc(64, (size + 63) / 64 * 64); }

/* exp2(x) within 2e-7, for |x| <= 126, and exact for integer x: a polynomial on [-1/2, 1/2], then n is added to the
 * exponent. */
INLINE float exp2_float(float x)
{
    union { float f; int32_t i; } n = { x + 12582912.0f }, y; /* adding 1.5 * 2^23 rounds, and puts n into the last bits */
    float r = x - (n.f - 12582912.0f);
    float q = 1.32546024e-3f;
    q = q * r + 9.67199918e-3f;
    q = q * r + 5.55077932e-2f;
    q = q * r + 0.240222319f;
    q = q * r + 0.69314693f;
    y.f = q * r + 1.0f;
    y.i += (int32_t)((uint32_t)n.i << 23);
    return y.f;
}

/* log2(x) within 1e-7, for normal x: the exponent, and a polynomial for the remaining factor in [3/4, 3/2]. */
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

/* log2(a / b) within 3e-7, for normal a and b: the exponent n, rounded, and with w = (y - 1) / (y + 1) an odd polynomial
 * for the remaining log2(y), where 2/3 <= y <= 3/2. */
INLINE float log2_ratio_float(float a, float b)
{
    union { float f; int32_t i; } x = { a }, y = { b };
    int32_t n = (x.i - y.i + 0x400000) & ~0x7fffff;
    x.i -= n;
    float w = (x.f - b) / (x.f + b), s = w * w;
    return (float)n * 0x1p-23f + w * (2.88539005f + s * (0.961807981f + s * (0.576098597f + s * 0.443429463f)));
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

/* The same within 1e-15, without a math library, so that the compiler can vectorize. */
INLINE double exp2_double(double x)
{
    union { double f; int64_t i; } n = { x + 6755399441055744.0 }, y;
    double r = x - (n.f - 6755399441055744.0);
    double q = 4.4455382718708116e-10;
    q = q * r + 7.0549116208011234e-09;
    q = q * r + 1.0178086009239699e-07;
    q = q * r + 1.3215486790144307e-06;
    q = q * r + 1.5252733804059841e-05;
    q = q * r + 1.5403530393381609e-04;
    q = q * r + 1.3333558146428443e-03;
    q = q * r + 9.6181291076284772e-03;
    q = q * r + 5.5504108664821580e-02;
    q = q * r + 0.24022650695910071;
    q = q * r + 0.69314718055994531;
    y.f = q * r + 1.0;
    y.i += (int64_t)((uint64_t)n.i << 52);
    return y.f;
}

/* With w = (y - 1) / (y + 1), log(y) = 2 (w + w^3 / 3 + w^5 / 5 + ...), for y between sqrt(1/2) and sqrt(2). */
INLINE double log2_reduced(double w)
{
    double s = w * w, q = 1.0 / 21;
    q = q * s + 1.0 / 19;
    q = q * s + 1.0 / 17;
    q = q * s + 1.0 / 15;
    q = q * s + 1.0 / 13;
    q = q * s + 1.0 / 11;
    q = q * s + 1.0 / 9;
    q = q * s + 1.0 / 7;
    q = q * s + 1.0 / 5;
    q = q * s + 1.0 / 3;
    q = q * s + 1.0;
    return 2.8853900817779268 * w * q;
}

INLINE double log2_ratio_double(double a, double b)
{
    union { double f; int64_t i; } x = { a }, y = { b };
    int64_t n = (x.i - y.i + 0x8000000000000ll) & ~0xfffffffffffffll;
    x.i -= n;
    return (double)n * 0x1p-52 + log2_reduced((x.f - b) / (x.f + b));
}

INLINE double log2_double(double x)
{
    union { double f; int64_t i; } y = { x };
    int64_t n = (y.i - 0x3fe6a09e667f3bcdll) >> 52;
    y.i -= n * (1ll << 52);
    return (double)n + log2_reduced((y.f - 1) / (y.f + 1));
}

INLINE double log2_1p_double(double x)
{
    const int big = x > 0.41421356237309503; /* then half of 1 + x is closer to 1 */
    double top = big ? 0.5 * x - 0.5 : x, down = big ? 1.5 + 0.5 * x : 2 + x;
    return (double)big + log2_reduced(top / down);
}

#include "constants.h"

/* GOMP_parallel of the OpenMP library that PyTorch has loaded, so that both share its threads; NULL: one thread. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned threads, unsigned flags);

/* The distance between neighbours in a tensor [time, batch, features] along each axis; 0 where it is repeated. */
typedef struct {
    int64_t time, batch, feature;
} Strides;

typedef struct {
    Parallel parallel;
    int64_t time, batch, features;
    Strides current, grad; /* of the current, and of the gradient of the spikes */
    Constant constants[CONSTANTS];
    int32_t type, threads;
    RULE_FIELDS
} Rule;

/* bfloat16 is the upper half of a float. Rounding is to nearest, with ties to even. */
INLINE float from_bfloat16(uint16_t h)
{
    union { uint32_t i; float f; } y = { (uint32_t)h << 16 };
    return y.f;
}

INLINE uint16_t to_bfloat16(float x)
{
    union { float f; uint32_t i; } y = { x };
    uint32_t rounded = (y.i + 0x7fff + ((y.i >> 16) & 1)) >> 16;
    return (uint16_t)(x == x ? rounded : 0x7fc0);
}

INLINE float from_float16(uint16_t h)
{
    union { uint32_t i; float f; } y = { (uint32_t)(h & 0x7fff) << 13 }, large = { 0x77800000 }; /* 2^112 */
    y.f *= large.f;
    y.i |= (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    y.i |= (uint32_t)(h & 0x8000) << 16;
    return y.f;
}

INLINE uint16_t to_float16(float x)
{
    union { float f; uint32_t i; } y = { x }, tiny;
    uint32_t sign = (y.i >> 16) & 0x8000;
    y.i &= 0x7fffffff;
    tiny.f = y.f + 0.5f; /* below 2^-14 a half's last bit is 2^-24, like that of a float at 1/2 */
    uint32_t small = tiny.i - 0x3f000000, normal = (y.i - 0x38000000 + 0xfff + ((y.i >> 13) & 1)) >> 13;
    uint32_t finite = y.i < 0x38800000 ? small : normal > 0x7c00 ? 0x7c00 : normal;
    return (uint16_t)(sign | (y.i > 0x7f800000 ? 0x7e00 : finite));
}

/* The same for arrays. 16-bit types occur only with a float membrane. */
static void widen_float16(float *restrict to, const uint16_t *restrict from, int64_t n)
{
    int64_t j = 0;
#ifdef __AVX512F__
    for (; j + 16 <= n; j += 16)
        _mm512_storeu_ps(to + j, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(from + j))));
#endif
#ifdef __F16C__
    for (; j + 8 <= n; j += 8)
        _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + j))));
#endif
    for (; j < n; j++)
        to[j] = from_float16(from[j]);
}

static void narrow_float16(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    int64_t j = 0;
#ifdef __AVX512F__
    for (; j + 16 <= n; j += 16)
        _mm256_storeu_si256((__m256i *)(to + j), _mm512_cvtps_ph(_mm512_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT));
#endif
#ifdef __F16C__
    for (; j + 8 <= n; j += 8)
        _mm_storeu_si128((__m128i *)(to + j), _mm256_cvtps_ph(_mm256_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; j < n; j++)
        to[j] = to_float16(from[j]);
}

/* Where the processor has an instruction for rounding, subnormal numbers become 0. */
static void narrow_bfloat16(uint16_t *restrict to, const float *restrict from, int64_t n)
{
    int64_t j = 0;
#ifdef __AVX512BF16__
    for (; j + 16 <= n; j += 16)
        _mm256_storeu_si256((__m256i *)(to + j), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from + j)));
#endif
    for (; j < n; j++)
        to[j] = to_bfloat16(from[j]);
}

INLINE float root_float(float x) { return __builtin_sqrtf(x); }
INLINE double root_double(double x) { return __builtin_sqrt(x); }

/* The limit for exponents, beyond which exp2 is negligible. With a constant, gcc would not recognize a maximum. */
static volatile const float EDGE_float = 120.0f;
static volatile const double EDGE_double = 1000.0;
static volatile const float TINY_float = 0x1p-126f, LAST_float = 0x1p-25f; /* least normal; half of the last bit of 1 */
static volatile const double TINY_double = 0x1p-1022, LAST_double = 0x1p-54;

#define REAL float
#include "lane.h"
#undef REAL
#define REAL double
#include "lane.h"
