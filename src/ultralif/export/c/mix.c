static uint32_t mix(uint32_t hash, const model_membrane *v, uint32_t n)
{
    for (; n > 0; n--, v++) {
        int32_t word = *v;
        hash = (hash ^ (uint32_t)word) * UINT32_C(16777619);
    }
    return hash;
}

