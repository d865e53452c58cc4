
/* x * 2^n, rounded to nearest where n is negative. */
static int32_t scaled(int64_t x, int8_t n)
{
    if (n >= 0)
        return up((int32_t)x, (uint8_t)n);
    x += (int64_t)1 << (-n - 1);
    return (int32_t)(x < 0 ? ~(~x >> -n) : x >> -n);
}
