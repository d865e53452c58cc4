
/* x / 2^n, rounded to nearest. */
static int32_t lowered(int64_t x, uint8_t n)
{
    x += (int64_t)(UINT32_C(1) << (n - 1));
    return (int32_t)RIGHT(x, n);
}
