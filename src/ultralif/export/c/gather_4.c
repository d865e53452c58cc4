
/* Add 4-bit weights to 16-bit sums, two sums to a word. A word of weights holds eight 4-bit weights, each plus 8.
   Their sums are collected in bytes: one word for the lower halves of all bytes, one for the upper ones. A byte has
   room for 17 of them, and is then added to the 16-bit sums. */
#define LOWER UINT32_C(0x0F0F0F0F)
#define EVEN UINT32_C(0x00FF00FF)
#define COLLECTED 17
#define EMPTY(byte, sum) ((sum)[0] += (byte) & EVEN, (sum)[1] += (byte) >> 8 & EVEN, (byte) = 0)

/* Add the weights of n spikes for 16 channels. Then each tap points to the next 16, `next` words further. Word i
   of sum holds channel i in its upper half and channel 8 + i in its lower one. Halves start at 2^15 less a
   threshold, so their highest bits show which channels reach it. No half overflows: the generator has
   proved that for every input. */
#if !defined(__thumb__) || defined(__thumb2__)
static ALONE void gather(const uint32_t *start, tap *t, uint32_t n, uint32_t next, uint32_t *sum)
{
    uint32_t a = 0, b = 0, c = 0, d = 0, room = COLLECTED, i;
    for (i = 0; i < 8; i++)
        sum[i] = start[i] - (n << 3) - (n << 19);
    for (; t->first != 0; t++) {
        const $index *spike = t->first, *last = t->last;
        const uint32_t *weight = t->weight;
        t->weight = weight + next;
        do {
            const uint32_t some = (uint32_t)(last - spike) < room ? (uint32_t)(last - spike) : room;
            const $index *stop = spike + some;
            room -= some;
            do {
                const uint32_t *w = weight + *spike++ * 2u;
                uint32_t x, y;
                ONCE(w);
                x = w[0];
                y = w[1];
                a += x & LOWER;
                b += x >> 4 & LOWER;
                c += y & LOWER;
                d += y >> 4 & LOWER;
            } while (spike != stop);
            if (room == 0) {
                EMPTY(a, sum);
                EMPTY(b, sum + 2);
                EMPTY(c, sum + 4);
                EMPTY(d, sum + 6);
                room = COLLECTED;
            }
        } while (spike != last);
    }
    EMPTY(a, sum);
    EMPTY(b, sum + 2);
    EMPTY(c, sum + 4);
    EMPTY(d, sum + 6);
}
#else /* eight registers, as on a Cortex-M0: one half of the sums, then the other */
static ALONE void gather_half(const uint32_t *start, tap *t, uint32_t n, uint32_t next, uint32_t *sum)
{
    uint32_t a = 0, b = 0, room = COLLECTED, i;
    for (i = 0; i < 4; i++)
        sum[i] = start[i] - (n << 3) - (n << 19);
    for (; t->first != 0; t++) {
        const $index *spike = t->first, *last = t->last;
        const uint32_t *weight = t->weight;
        t->weight = weight + next;
        do {
            const uint32_t some = (uint32_t)(last - spike) < room ? (uint32_t)(last - spike) : room;
            const $index *stop = spike + some;
            room -= some;
            do {
                const uint32_t x = weight[*spike++ * 2u];
                a += x & LOWER;
                b += x >> 4 & LOWER;
            } while (spike != stop);
            if (room == 0) {
                EMPTY(a, sum);
                EMPTY(b, sum + 2);
                room = COLLECTED;
            }
        } while (spike != last);
    }
    EMPTY(a, sum);
    EMPTY(b, sum + 2);
}

static void gather(const uint32_t *start, tap *t, uint32_t n, uint32_t next, uint32_t *sum)
{
    gather_half(start, t, n, 1, sum);
    gather_half(start + 4, t, n, next - 1, sum + 4);
}
#endif
