
static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}
