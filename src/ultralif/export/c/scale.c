
/* v * factor / 2^15, rounded to nearest. */
static int32_t scale(int32_t v, uint16_t factor)
{
    const $wide product = ($wide)v * factor + 16384;
    return (int32_t)RIGHT(product, 15);
}
