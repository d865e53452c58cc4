
/* Compute rows of layer $l until this many are done. */
static void rows_$l(model_state *s, uint32_t until)
{
    while (s->rows_$l < until)
        row_$l(s, s->rows_$l++);
}
