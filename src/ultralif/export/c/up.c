
/* x * 2^n, also for negative x. */
static int32_t up(int32_t x, uint8_t n)
{
    return x < 0 ? -(int32_t)((uint32_t)-x << n) : (int32_t)((uint32_t)x << n);
}
