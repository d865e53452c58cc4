
static void sums_$l(const model_state *s, int32_t y, int32_t x, int32_t *sum)
{
    static const uint32_t zero[8] = {$zeros};
    tap t[TAPS($taps, $channels)];
    uint32_t g, i, half[8];
    const uint32_t n = taps_$l(s, y, x, t);
    for (g = 0; g < $groups; g++) {
        GATHER(zero, t, n, weight_$synapses[g][0], $next, half);
        for (i = 0; i < 8; i++) {
            const int32_t both = (int32_t)(half[i] ^ UINT32_C(0x80008000));
            sum[g * 16 + i] = RIGHT(both, 16);
            sum[g * 16 + 8 + i] = (int16_t)both;
        }
    }
}
