
static void add_row_$bits(int${bits}_t *sum, const model_weight *row, uint32_t n)
{
    uint32_t i;
    for (i = 0; i < n; i++)
        sum[i] = (int${bits}_t)(sum[i] + WEIGHT(row, i));
}
