// Affine codes as signed bytes, for `rows_dot.wgsl`.

// The columns of the two words of a quarter, of the token that starts at number `at`.
fn columns(at: u32, quarter: u32) -> mat2x4<f32> {
    if BITS == 2u {
        // A word is every fourth column of half a chunk.
        let half = at / 4u + quarter / 2u * 4u;
        let v = transpose(mat4x4(x4[half], x4[half + 1u], x4[half + 2u], x4[half + 3u]));
        if quarter % 2u == 0u {
            return mat2x4(v[0], v[1]);
        }
        return mat2x4(v[2], v[3]);
    }
    let a = x4[at / 4u + 2u * quarter];
    let b = x4[at / 4u + 2u * quarter + 1u];
    if BITS == 4u {
        // Every second column of the quarter.
        return mat2x4(vec4(a.xz, b.xz), vec4(a.yw, b.yw));
    }
    return mat2x4(a, b);
}

// Four codes of a chunk: number `k` of eight such words, with the columns that `columns` gives it.
fn chunk_bytes(c: Chunk, k: u32) -> u32 {
    let mask = ((1u << BITS) - 1u) * 0x01010101u;
    if BITS == 8u {
        return c.words[k] ^ 0x80808080u; // code - 128
    }
    if 8u % BITS == 0u {
        // Such bits of each byte of a word as lie at the same place.
        let n = 8u / BITS;
        return (c.words[k / n] >> (BITS * (k % n))) & mask;
    }
    let bit = 4u * BITS * k;
    let shift = bit % 32u;
    var word = c.words[bit / 32u] >> shift;
    if 32u < shift + 4u * BITS {
        word |= c.words[bit / 32u + 1u] << (32u - shift);
    }
    // Two codes to each half of the word, then one to each byte. (A shift is refused also where it is never reached.)
    let halves = (word & 0xffffu) | ((word << ((16u - 2u * BITS) % 32u)) & 0xffff0000u);
    return ((halves & 0x00ff00ffu) | ((halves << ((8u - BITS) % 32u)) & 0xff00ff00u)) & mask;
}

// The bias of what is left of codes.
fn bias_of(factors: vec2<f32>) -> f32 {
    if BITS == 8u {
        return fma(128.0, factors.x, factors.y);
    }
    return factors.y;
}
