
/* x / 2^n, rounded down, also for negative x. */
static $wide down($wide x, uint8_t n)
{
    return x < 0 ? ~(~x >> n) : x >> n;
}
