
/* The position of the highest set bit of x, counted from the left; x must not be 0. */
static uint32_t first_bit(uint32_t x)
{
#if defined(__GNUC__) && __SIZEOF_INT__ == 4 && (!defined(__thumb__) || defined(__thumb2__))
    return (uint32_t)__builtin_clz(x);
#else
    uint32_t n;
    for (n = 0; !(x & UINT32_C(0x80000000)); n++)
        x <<= 1;
    return n;
#endif
}
