
static int32_t value_$l(const model_state *s, uint32_t i)
{
    return $value;
}
