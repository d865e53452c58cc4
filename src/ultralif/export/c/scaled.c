
/* x * 2^n, rounded to nearest where n is negative. */
static int32_t scaled(int64_t x, int8_t n)
{
    return n < 0 ? lowered(x, (uint8_t)-n) : up((int32_t)x, (uint8_t)n);
}
