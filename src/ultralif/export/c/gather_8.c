
/* Add 8-bit weights to 16-bit sums, two sums to a word. A word of weights holds four bytes w + 128. Bytes 0 and 2
   are added as they are. Bytes 1 and 3 are added after a shift, which also adds 256 times byte 2; this is subtracted
   at the end. An Arm processor with DSP instructions selects two bytes and adds them at once, with the same result. */
#if defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP && !defined(MODEL_PORTABLE)
#include <arm_acle.h>
#define ADD_EVEN(sum, word) ((sum) = __uxtab16(sum, word))
#else
#define ADD_EVEN(sum, word) ((sum) += (word) & UINT32_C(0x00FF00FF))
#endif

/* Add the weights of n spikes for 16 channels. Then each tap points to the next 16, `next` words further. Word i
   of sum holds channel i in its upper half and channel 8 + i in its lower one. Halves start at 2^15 less a
   threshold, so their highest bits show which channels reach it. No half overflows: the generator has
   proved that for every input. */
#ifdef PC /* one wide register for each 16 channels; at the end, sums in byte order are rearranged into those words */
#include <immintrin.h>
typedef uint16_t halves __attribute__((vector_size(32)));
typedef uint32_t words __attribute__((vector_size(32)));
#define PICK(x, i, j, k, l) ((words)_mm256_permutevar8x32_epi32((__m256i)(x), _mm256_setr_epi32(i, j, k, l, i, j, k, l)))

static INLINE void gather(const uint32_t *start, const tap *t, uint32_t n, uint32_t groups, const uint32_t *weight,
                          uint32_t next, uint32_t *sum)
{
    const words odd = {0, 0, 0, 0, 0xFFFF, 0xFFFF, 0xFFFF, 0xFFFF}, half = odd & 16;
    halves total[$most];
    uint32_t i, g;
    for (g = 0; g < groups; g++)
        total[g] = (halves){0} - (uint16_t)(n << 7);
    for (i = 0; i < n; i++)
        for (g = 0; g < groups; g++) {
            const uint32_t *w = weight + g * next + t[i] * 4u;
            total[g] += (halves)_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)w));
        }
    for (g = 0; g < groups; g++) {
        const words a = PICK(total[g], 0, 2, 4, 6), b = PICK(total[g], 1, 3, 5, 7);
        words all;
        __builtin_memcpy(&all, start + g * 8, sizeof all);
        all -= (PICK(all, 0, 1, 2, 3) >> 16 & odd) << 8;
        all = (words)((halves)all + (halves)(a << (16 - half) >> 16 | b >> half << 16));
        __builtin_memcpy(sum + g * 8, &all, sizeof all);
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
#else /* eight registers, as on a Cortex-M0: one half of the sums, then the other */
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
