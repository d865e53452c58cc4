
/* Set the bits in found of those of 16 channels that reach their thresholds. Bit 31 is the first channel. */
static ALONE uint32_t reach_$l(const int16_t *v, uint32_t c, uint32_t found)
{
    const uint32_t end = $channels_out < c + 16 ? $channels_out : c + 16;
    uint32_t bit = UINT32_C(0x80000000);
$load    for (; c < end; c++, bit >>= 1)
        if (!(found & bit) && dot_$l($given, weight_$synapses[c]) >= level_$l[c])
            found |= bit;
    return found;
}
