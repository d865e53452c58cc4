
/* The log-sum-exp of two numbers: the larger, and what the table says of their distance. */
static int32_t soft_max(int32_t a, int32_t b, const uint16_t *table, uint16_t size, uint8_t shift)
{
    int32_t high = a > b ? a : b, low = a > b ? b : a;
    uint32_t step = ((uint32_t)high - (uint32_t)low) >> shift;
    return step < size ? high + table[step] : high;
}
