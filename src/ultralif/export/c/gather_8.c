
/* Two sums of 16 bits share a word. A word of weights holds four bytes w + 128. Its bytes 0 and 2 are added as
   they are; bytes 1 and 3 by a shift, which also adds byte 2 times 256, and that is subtracted at the end.
   An Arm processor with DSP instructions selects two bytes and adds them at once, with the same result. */
#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP && !defined(MODEL_PORTABLE)
#include <arm_acle.h>
#define ADD_EVEN(sum, word) ((sum) = __uxtab16(sum, word))
#else
#define ADD_EVEN(sum, word) ((sum) += (word) & UINT32_C(0x00FF00FF))
#endif

/* Add the weights of n spikes for 16 channels. Lists of taps move on to the next 16, so many words further. Word i
   of sum holds channel i in its upper half and channel 8 + i in its lower one. Halves start at 2^15 less a
   threshold, so that their highest bits tell which channels reach it. No half overflows: the generator has
   proved that for every input. */
#ifdef PC /* the sums of 16 channels in one or two wide registers */
typedef uint8_t bytes __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(32)));
#ifdef __AVX2__
#include <immintrin.h>
#define WIDEN(w) ((halves)_mm256_cvtepu8_epi16((__m128i)(w)))
#else
#define WIDEN(w) __builtin_convertvector(w, halves)
#endif

static void gather(const uint32_t *start, const tap *t, uint32_t n, const uint32_t *weight, uint32_t *sum)
{
    halves total = {0};
    uint32_t i;
    for (i = 0; i < n; i++) {
        bytes w;
        __builtin_memcpy(&w, weight + t[i] * 4u, sizeof w);
        total += WIDEN(w);
    }
    total -= (uint16_t)(n << 7);
    for (i = 0; i < 4; i++) {
        const uint32_t odd = start[4 + i] - (start[i] >> 16 << 8);
        sum[i] = (start[i] + total[4 * i]) & 0xFFFF;
        sum[i] |= ((start[i] >> 16) + total[4 * i + 2]) << 16;
        sum[4 + i] = (odd + total[4 * i + 1]) & 0xFFFF;
        sum[4 + i] |= ((odd >> 16) + total[4 * i + 3]) << 16;
    }
}
#elif !defined(__thumb__) || defined(__thumb2__)
static ALONE void gather(const uint32_t *start, tap *t, uint32_t n, uint32_t next, uint32_t *sum)
{
    const uint32_t even = (n << 7) + (n << 23), odd = even + (n << 15);
    uint32_t e0 = start[0] - even, e1 = start[1] - even, e2 = start[2] - even, e3 = start[3] - even;
    uint32_t o0 = start[4] - odd, o1 = start[5] - odd, o2 = start[6] - odd, o3 = start[7] - odd;
    for (; t->first != 0; t++) {
        const $index *spike = t->first, *last = t->last;
        const uint32_t *weight = t->weight;
        t->weight = weight + next;
        do {
            const uint32_t *w = weight + *spike++ * 4u;
            uint32_t a, b, c, d;
            ONCE(w);
            a = w[0];
            b = w[1];
            BOTH(a, b);
            ADD_EVEN(e0, a);
            o0 += a >> 8;
            ADD_EVEN(e1, b);
            o1 += b >> 8;
            c = w[2];
            d = w[3];
            BOTH(c, d);
            ADD_EVEN(e2, c);
            o2 += c >> 8;
            ADD_EVEN(e3, d);
            o3 += d >> 8;
        } while (spike != last);
    }
    sum[0] = e0;
    sum[1] = e1;
    sum[2] = e2;
    sum[3] = e3;
    sum[4] = o0 - (e0 >> 16 << 8);
    sum[5] = o1 - (e1 >> 16 << 8);
    sum[6] = o2 - (e2 >> 16 << 8);
    sum[7] = o3 - (e3 >> 16 << 8);
}
#else /* eight registers, as on a Cortex-M0: half of the sums, then the others */
#ifdef __GNUC__
#define HIGH(sum) __asm__("" : "+h"(sum)) /* in one of the registers that can only be added to */
#else
#define HIGH(sum) ((void)0)
#endif
static ALONE void gather_half(const uint32_t *start, tap *t, uint32_t n, uint32_t next, uint32_t *sum)
{
    const uint32_t even = (n << 7) + (n << 23), odd = even + (n << 15);
    uint32_t e0 = start[0] - even, e1 = start[1] - even, o0 = start[4] - odd, o1 = start[5] - odd;
    for (; t->first != 0; t++) {
        const $index *spike = t->first, *last = t->last;
        const uint32_t *weight = t->weight;
        t->weight = weight + next;
        do {
            const uint32_t *w = weight + *spike++ * 4u;
            uint32_t a = w[0], b = w[1];
            o0 += a >> 8;
            ADD_EVEN(e0, a);
            o1 += b >> 8;
            b &= UINT32_C(0x00FF00FF);
            HIGH(e1);
            e1 += b;
            HIGH(e1);
        } while (spike != last);
    }
    sum[0] = e0;
    sum[1] = e1;
    sum[4] = o0 - (e0 >> 16 << 8);
    sum[5] = o1 - (e1 >> 16 << 8);
}

static void gather(const uint32_t *start, tap *t, uint32_t n, uint32_t next, uint32_t *sum)
{
    gather_half(start, t, n, 2, sum);
    gather_half(start + 2, t, n, next - 2, sum + 2);
}
#endif
