
/* The log-sum-exp of two numbers: the larger, plus the table's entry for their distance. */
static int32_t soft_max(int32_t a, int32_t b, const uint16_t *table, uint16_t size, uint8_t shift)
{
    uint32_t distance = (uint32_t)a - (uint32_t)b, step;
    if (a < b) {
        distance = 0 - distance;
        a = b;
    }
    step = distance >> shift;
    return step < size ? a + table[step] : a;
}
