
/* x * 2^n for n from -30 to -1, rounded to nearest; x is at most 2^30. */
static int32_t rounded(int32_t x, int8_t n)
{
    x += INT32_C(1) << (-n - 1);
    return x < 0 ? ~(~x >> -n) : x >> -n;
}
