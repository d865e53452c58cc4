
/* Add to the channels found among 16, of which bit 31 is the first, those that reach their thresholds. */
static ALONE uint32_t reach_$l(const int16_t *v, uint32_t c, uint32_t found)
{
    const uint32_t end = $channels_out < c + 16 ? $channels_out : c + 16;
    uint32_t bit = UINT32_C(0x80000000);
$load    for (; c < end; c++, bit >>= 1)
        if (!(found & bit) && dot_$l($given, weight_$synapses[c]) >= level_$l[c])
            found |= bit;
    return found;
}
