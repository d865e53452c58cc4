
/* The highest bits of eight words of sums: bit 31 is channel 0, bit 16 is channel 15. */
static uint32_t reached(const uint32_t *sum)
{
    const uint32_t top = UINT32_C(0x80008000);
    uint32_t found = sum[0] & top;
    found |= (sum[1] & top) >> 1;
    found |= (sum[2] & top) >> 2;
    found |= (sum[3] & top) >> 3;
    found |= (sum[4] & top) >> 4;
    found |= (sum[5] & top) >> 5;
    found |= (sum[6] & top) >> 6;
    found |= (sum[7] & top) >> 7;
    return (found & UINT32_C(0xFFFF0000)) | (found & 0xFFFF) << 8;
}

/* Set the bits in found of the channels that reach their thresholds at one position, in groups of 16 channels. */
static INLINE void add_reached(uint32_t *found, const uint32_t *start, tap *t, uint32_t n, uint32_t groups,
                               const uint32_t *weight, uint32_t next)
{
    uint32_t g;
#ifdef PC
    uint32_t sum[8 * $most];
    gather(start, t, n, groups, weight, next, sum);
    for (g = 0; g < groups; g++)
        found[g] |= reached(sum + g * 8);
#else
    (void)weight;
    for (g = 0; g < groups; g++) {
        uint32_t sum[8];
        gather(start + g * 8, t, n, next, sum);
        found[g] |= reached(sum);
    }
#endif
}
