// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size1;
    uint size2;
    uint size3;
    uint size4;
    uint size7;
    uint size8;
    uint size9;
    uint size10;
};

typedef uint type_3[1];
typedef metal::uint2 type_5[1];
typedef metal::uint4 type_7[1];
struct type_8 {
    uint inner[8];
};
struct Chunk {
    type_8 words;
    uint scale;
    uint bias;
};
typedef float type_12[1];
typedef metal::float4 type_13[1];
struct Rows {
    metal::uint3 inner[8];
};
struct Sums {
    float inner[16];
};
struct Chunks {
    Chunk inner[8];
};
struct Tokens {
    metal::uint4 at;
    uint n;
    uint cols;
    char _pad3[8];
};
struct type_15 {
    metal::float4 inner[512];
};
struct type_18 {
    float inner[4];
};
struct type_19 {
    metal::float4 inner[4];
};
struct type_20 {
    Chunks inner[4];
};
struct type_21 {
    metal::uint4 inner[4];
};
struct type_22 {
    metal::uint4 inner[2];
};
struct Params {
    uint cols;
    uint x_at;
    uint n_token;
    uint n_product;
    type_21 matrices;
    type_22 outputs;
};
constant uint CHUNK = 32u;
constant uint RUNS = 1u;
constant bool SCALED = true;
constant bool BIASED = true;
constant uint VECTORS = 8u;
constant uint BITS = 4u;
constant uint GROUP = 64u;
constant uint HALF = 0u;
constant uint ROWS = 2u;
constant uint TOKENS = 1u;
constant uint LANES = 32u;
constant uint THREADS = 128u;
constant uint TILE = 2048u;
constant uint TILE_VECTORS = 512u;
constant uint DEPTH = 1u;
constant uint TURNS = 1u;

float half_of(
    uint bits
) {
    uint sign = (bits & 32768u) << 16u;
    uint rest = (bits & 32767u) << 13u;
    if (rest < 8388608u) {
        float small = as_type<float>(rest | 947912704u) - as_type<float>(947912704u);
        return as_type<float>(as_type<uint>(small) | sign);
    }
    return as_type<float>((rest + 939524096u) | sign);
}

metal::uint3 row_at(
    metal::uint3 planes,
    uint row,
    uint cols
) {
    uint groups = row * (cols / GROUP);
    return metal::uint3(planes.x + (row * ((cols / 32u) * BITS)), (2u * planes.y) + groups, (2u * planes.z) + groups);
}

metal::float4 in_place(
    metal::uint4 codes,
    metal::uint4 place
) {
    metal::uint4 exponent = (metal::uint4(150u) - place) << metal::uint4(23u);
    return as_type<metal::float4>(codes | exponent) - as_type<metal::float4>(exponent);
}

metal::float4 four(
    uint word
) {
    if (true) {
        metal::uint4 place_2 = metal::uint4(0u, 4u, 8u, 12u);
        metal::float4 _e35 = in_place(metal::uint4(word) & metal::uint4(15u, 240u, 3840u, 61440u), place_2);
        return _e35;
    }
    uint high = word >> 8u;
    metal::uint4 place_3 = metal::uint4(0u, 4u, 0u, 4u);
    metal::float4 _e58 = in_place(metal::uint4(word, word, high, high) & metal::uint4(15u, 240u, 15u, 240u), place_3);
    return _e58;
}

float number_of(
    uint word_1,
    uint index
) {
    if (false) {
        float _e15 = half_of(((index % 2u) == 1u) ? (word_1 >> 16u) : (word_1 & 65535u));
        return _e15;
    }
    return as_type<float>(((index % 2u) == 1u) ? (word_1 & 4294901760u) : (word_1 << 16u));
}

Chunk load_chunk(
    metal::uint3 row_1,
    uint chunk,
    uint n,
    device type_3 const& w,
    device type_5 const& w2_,
    device type_7 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunk c = {};
    uint i = 0u;
    uint i_1 = 0u;
    uint i_2 = 0u;
    uint at_2 = row_1.x + (chunk * BITS);
    if (true) {
        bool loop_init = true;
        while(true) {
            if (!loop_init) {
                uint _e60 = i;
                i = _e60 + 1u;
            }
            loop_init = false;
            uint _e16 = i;
            if (_e16 < 1u) {
            } else {
                break;
            }
            {
                uint _e25 = i;
                metal::uint4 words = w4_[(at_2 / 4u) + _e25];
                uint _e31 = i;
                c.words.inner[4u * _e31] = words.x;
                uint _e37 = i;
                c.words.inner[(4u * _e37) + 1u] = words.y;
                uint _e45 = i;
                c.words.inner[(4u * _e45) + 2u] = words.z;
                uint _e53 = i;
                c.words.inner[(4u * _e53) + 3u] = words.w;
            }
        }
    } else {
        if (true) {
            bool loop_init_1 = true;
            while(true) {
                if (!loop_init_1) {
                    uint _e98 = i_1;
                    i_1 = _e98 + 1u;
                }
                loop_init_1 = false;
                uint _e70 = i_1;
                if (_e70 < 2u) {
                } else {
                    break;
                }
                {
                    uint _e79 = i_1;
                    metal::uint2 words_1 = w2_[(at_2 / 2u) + _e79];
                    uint _e85 = i_1;
                    c.words.inner[2u * _e85] = words_1.x;
                    uint _e91 = i_1;
                    c.words.inner[(2u * _e91) + 1u] = words_1.y;
                }
            }
        } else {
            bool loop_init_2 = true;
            while(true) {
                if (!loop_init_2) {
                    uint _e114 = i_2;
                    i_2 = _e114 + 1u;
                }
                loop_init_2 = false;
                uint _e102 = i_2;
                if (_e102 < BITS) {
                } else {
                    break;
                }
                {
                    uint _e106 = i_2;
                    uint _e109 = i_2;
                    uint _e112 = w[at_2 + _e109];
                    c.words.inner[_e106] = _e112;
                }
            }
        }
    }
    metal::uint2 group_1 = row_1.yz + metal::uint2((chunk * CHUNK) / GROUP);
    uint _e129 = w[group_1.x / 2u];
    c.scale = _e129;
    uint _e136 = w[group_1.y / 2u];
    c.bias = _e136;
    Chunk _e137 = c;
    return _e137;
}

uint vector_of(
    uint chunk_1,
    uint k
) {
    return (chunk_1 * 8u) + k;
}

metal::float4 chunk4_(
    Chunk c_1,
    uint k_1
) {
    uint word_2 = {};
    uint bit = 16u * k_1;
    uint shift = bit % 32u;
    word_2 = c_1.words.inner[bit / 32u] >> shift;
    if (32u < (shift + 16u)) {
        uint _e22 = word_2;
        word_2 = _e22 | (c_1.words.inner[(bit / 32u) + 1u] << (32u - shift));
    }
    uint _e33 = word_2;
    metal::float4 _e34 = four(_e33);
    return _e34;
}

metal::float2 chunk_scale_bias(
    Chunk c_2,
    metal::uint3 row_2,
    uint chunk_2,
    uint run
) {
    metal::uint2 group_2 = row_2.yz + metal::uint2((chunk_2 * CHUNK) / GROUP);
    float _e13 = number_of(c_2.scale, group_2.x);
    float _e16 = number_of(c_2.bias, group_2.y);
    return metal::float2(_e13, _e16);
}

Chunks load_rows(
    thread Rows& rows_1,
    uint chunk_3,
    uint cols_1,
    device type_3 const& w,
    device type_5 const& w2_,
    device type_7 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunks chunks = {};
    uint r_1 = 0u;
    uint col = chunk_3 * CHUNK;
    if (col < cols_1) {
        bool loop_init_3 = true;
        while(true) {
            if (!loop_init_3) {
                uint _e20 = r_1;
                r_1 = _e20 + 1u;
            }
            loop_init_3 = false;
            uint _e9 = r_1;
            if (_e9 < ROWS) {
            } else {
                break;
            }
            {
                uint _e12 = r_1;
                uint _e14 = r_1;
                metal::uint3 _e16 = rows_1.inner[_e14];
                Chunk _e18 = load_chunk(_e16, chunk_3, cols_1 - col, w, w2_, w4_, _buffer_sizes);
                chunks.inner[_e12] = _e18;
            }
        }
    }
    Chunks _e22 = chunks;
    return _e22;
}

uint place_1(
    uint token,
    uint k_2,
    uint chunk_4
) {
    return (((token * VECTORS) + k_2) * 64u) + (chunk_4 ^ k_2);
}

void load_tile(
    Tokens tokens,
    uint start,
    uint thread_1,
    device type_12 const& x,
    device type_13 const& x4_,
    threadgroup type_15& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint t = 0u;
    uint i_3 = {};
    metal::float4 value = {};
    bool local = {};
    uint j = {};
    uint n_col = metal::min(TILE, tokens.cols - start);
    uint n_vector = (((n_col + CHUNK) - 1u) / CHUNK) * VECTORS;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e96 = t;
            t = _e96 + 1u;
        }
        loop_init_4 = false;
        uint _e17 = t;
        if (_e17 < TOKENS) {
        } else {
            break;
        }
        {
            uint _e21 = t;
            uint token_1 = tokens.at[_e21] + start;
            bool is_aligned = ((token_1 | tokens.cols) % 4u) == 0u;
            i_3 = thread_1;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e92 = i_3;
                    i_3 = _e92 + THREADS;
                }
                loop_init_5 = false;
                uint _e31 = i_3;
                if (_e31 < n_vector) {
                } else {
                    break;
                }
                {
                    uint _e33 = i_3;
                    uint _e36 = i_3;
                    uint _e39 = vector_of(_e33 / VECTORS, _e36 % VECTORS);
                    value = metal::float4(0.0);
                    uint _e43 = t;
                    if (_e43 < tokens.n) {
                        local = (4u * _e39) < n_col;
                    } else {
                        local = false;
                    }
                    bool _e52 = local;
                    if (_e52) {
                        if (is_aligned) {
                            metal::float4 _e58 = x4_[(token_1 / 4u) + _e39];
                            value = _e58;
                        } else {
                            j = 0u;
                            bool loop_init_6 = true;
                            while(true) {
                                if (!loop_init_6) {
                                    uint _e79 = j;
                                    j = _e79 + 1u;
                                }
                                loop_init_6 = false;
                                uint _e61 = j;
                                if (_e61 < metal::min(4u, n_col - (4u * _e39))) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e68 = j;
                                    uint _e74 = j;
                                    float _e77 = x[(token_1 + (4u * _e39)) + _e74];
                                    value[_e68] = _e77;
                                }
                            }
                        }
                    }
                    uint _e82 = t;
                    uint _e83 = i_3;
                    uint _e86 = i_3;
                    uint _e89 = place_1(_e82, _e83 % VECTORS, _e86 / VECTORS);
                    metal::float4 _e91 = value;
                    x_tile.inner[_e89] = _e91;
                }
            }
        }
    }
    return;
}

void add_chunk(
    thread Sums& sums,
    thread Chunks& chunks_1,
    thread Rows& rows_2,
    uint chunk_5,
    uint at,
    threadgroup type_15& x_tile
) {
    uint run_1 = 0u;
    Sums parts = {};
    type_18 x_sums = {};
    uint k_3 = {};
    type_19 values = {};
    uint t_1 = {};
    uint r_2 = {};
    uint t_2 = {};
    uint r_3 = {};
    uint t_3 = {};
    float sum = {};
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e156 = run_1;
            run_1 = _e156 + 1u;
        }
        loop_init_7 = false;
        uint _e7 = run_1;
        if (_e7 < RUNS) {
        } else {
            break;
        }
        {
            parts = Sums {};
            x_sums = type_18 {};
            uint _e14 = run_1;
            k_3 = (_e14 * VECTORS) / RUNS;
            bool loop_init_8 = true;
            while(true) {
                if (!loop_init_8) {
                    uint _e108 = k_3;
                    k_3 = _e108 + 1u;
                }
                loop_init_8 = false;
                uint _e20 = k_3;
                uint _e21 = run_1;
                if (_e20 < (((_e21 + 1u) * VECTORS) / RUNS)) {
                } else {
                    break;
                }
                {
                    values = type_19 {};
                    t_1 = 0u;
                    bool loop_init_9 = true;
                    while(true) {
                        if (!loop_init_9) {
                            uint _e56 = t_1;
                            t_1 = _e56 + 1u;
                        }
                        loop_init_9 = false;
                        uint _e33 = t_1;
                        if (_e33 < TOKENS) {
                        } else {
                            break;
                        }
                        {
                            uint _e37 = t_1;
                            uint _e38 = k_3;
                            uint _e39 = place_1(_e37, _e38, at);
                            metal::float4 v = x_tile.inner[_e39];
                            uint _e42 = t_1;
                            values.inner[_e42] = v;
                            uint _e44 = t_1;
                            float _e46 = x_sums.inner[_e44];
                            x_sums.inner[_e44] = _e46 + ((v.x + v.y) + (v.z + v.w));
                        }
                    }
                    r_2 = 0u;
                    bool loop_init_10 = true;
                    while(true) {
                        if (!loop_init_10) {
                            uint _e105 = r_2;
                            r_2 = _e105 + 1u;
                        }
                        loop_init_10 = false;
                        uint _e60 = r_2;
                        if (_e60 < ROWS) {
                        } else {
                            break;
                        }
                        {
                            uint _e63 = r_2;
                            Chunk _e65 = chunks_1.inner[_e63];
                            uint _e66 = k_3;
                            metal::float4 _e67 = chunk4_(_e65, _e66);
                            t_2 = 0u;
                            bool loop_init_11 = true;
                            while(true) {
                                if (!loop_init_11) {
                                    uint _e102 = t_2;
                                    t_2 = _e102 + 1u;
                                }
                                loop_init_11 = false;
                                uint _e70 = t_2;
                                if (_e70 < TOKENS) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e73 = t_2;
                                    metal::float4 v_1 = values.inner[_e73];
                                    uint _e80 = r_2;
                                    uint _e83 = t_2;
                                    float _e86 = parts.inner[(_e80 * TOKENS) + _e83];
                                    float part = metal::fma(_e67.y, v_1.y, metal::fma(_e67.x, v_1.x, _e86));
                                    uint _e89 = r_2;
                                    uint _e92 = t_2;
                                    parts.inner[(_e89 * TOKENS) + _e92] = metal::fma(_e67.w, v_1.w, metal::fma(_e67.z, v_1.z, part));
                                }
                            }
                        }
                    }
                }
            }
            r_3 = 0u;
            bool loop_init_12 = true;
            while(true) {
                if (!loop_init_12) {
                    uint _e153 = r_3;
                    r_3 = _e153 + 1u;
                }
                loop_init_12 = false;
                uint _e112 = r_3;
                if (_e112 < ROWS) {
                } else {
                    break;
                }
                {
                    uint _e115 = r_3;
                    Chunk _e117 = chunks_1.inner[_e115];
                    uint _e118 = r_3;
                    metal::uint3 _e120 = rows_2.inner[_e118];
                    uint _e121 = run_1;
                    metal::float2 _e122 = chunk_scale_bias(_e117, _e120, chunk_5, _e121);
                    t_3 = 0u;
                    bool loop_init_13 = true;
                    while(true) {
                        if (!loop_init_13) {
                            uint _e150 = t_3;
                            t_3 = _e150 + 1u;
                        }
                        loop_init_13 = false;
                        uint _e125 = t_3;
                        if (_e125 < TOKENS) {
                        } else {
                            break;
                        }
                        {
                            uint _e128 = r_3;
                            uint _e131 = t_3;
                            uint i_5 = (_e128 * TOKENS) + _e131;
                            float _e135 = parts.inner[i_5];
                            float _e137 = sums.inner[i_5];
                            sum = metal::fma(_e122.x, _e135, _e137);
                            if (BIASED) {
                                uint _e142 = t_3;
                                float _e144 = x_sums.inner[_e142];
                                float _e145 = sum;
                                sum = metal::fma(_e122.y, _e144, _e145);
                            }
                            float _e148 = sum;
                            sums.inner[i_5] = _e148;
                        }
                    }
                }
            }
        }
    }
    return;
}

void show(
    uint thread_2,
    float value_1,
    threadgroup type_15& x_tile
) {
    x_tile.inner[thread_2].x = value_1;
    return;
}

float shown(
    uint thread_3,
    threadgroup type_15& x_tile
) {
    float _e4 = x_tile.inner[thread_3].x;
    return _e4;
}

float team_sum(
    float value_2,
    uint thread_4,
    uint n_lane_1,
    threadgroup type_15& x_tile
) {
    float sum_1 = {};
    uint step = 16u;
    uint step_1 = 16u;
    sum_1 = value_2;
    if (LANES <= n_lane_1) {
        bool loop_init_14 = true;
        while(true) {
            if (!loop_init_14) {
                uint _e19 = step;
                step = _e19 / 2u;
            }
            loop_init_14 = false;
            uint _e12 = step;
            if (0u < _e12) {
            } else {
                break;
            }
            {
                float _e14 = sum_1;
                float _e15 = sum_1;
                uint _e16 = step;
                float unnamed = metal::simd_shuffle_xor(_e15, _e16);
                sum_1 = _e14 + unnamed;
            }
        }
        float _e22 = sum_1;
        return _e22;
    }
    bool loop_init_15 = true;
    while(true) {
        if (!loop_init_15) {
            uint _e37 = step_1;
            step_1 = _e37 / 2u;
        }
        loop_init_15 = false;
        uint _e29 = step_1;
        if (0u < _e29) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            float _e31 = sum_1;
            show(thread_4, _e31, x_tile);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            float _e32 = sum_1;
            uint _e33 = step_1;
            float _e35 = shown(thread_4 ^ _e33, x_tile);
            sum_1 = _e32 + _e35;
        }
    }
    float _e40 = sum_1;
    return _e40;
}

Sums dots(
    thread Rows& rows_3,
    Tokens tokens_1,
    bool is_first,
    uint thread_5,
    uint n_lane_2,
    device type_3 const& w,
    device type_5 const& w2_,
    device type_7 const& w4_,
    device type_12 const& x,
    device type_13 const& x4_,
    threadgroup type_15& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_20 ahead = {};
    uint d = 0u;
    Sums sums_1 = {};
    uint first = 0u;
    bool local_1 = {};
    bool local_2 = {};
    bool local_3 = {};
    uint chunk_6 = {};
    Chunks chunks_2 = {};
    uint d_1 = {};
    uint i_4 = 0u;
    uint n_chunk = ((tokens_1.cols + CHUNK) - 1u) / CHUNK;
    uint lane = thread_5 % LANES;
    bool loop_init_16 = true;
    while(true) {
        if (!loop_init_16) {
            uint _e29 = d;
            d = _e29 + 1u;
        }
        loop_init_16 = false;
        uint _e17 = d;
        if (_e17 < DEPTH) {
        } else {
            break;
        }
        {
            uint _e20 = d;
            uint _e22 = d;
            Chunks _e27 = load_rows(rows_3, (_e22 * LANES) + lane, tokens_1.cols, w, w2_, w4_, _buffer_sizes);
            ahead.inner[_e20] = _e27;
        }
    }
    bool loop_init_17 = true;
    while(true) {
        if (!loop_init_17) {
            uint _e115 = first;
            first = _e115 + 64u;
        }
        loop_init_17 = false;
        uint _e34 = first;
        if (_e34 < n_chunk) {
        } else {
            break;
        }
        {
            if (!(is_first)) {
                local_1 = TILE < tokens_1.cols;
            } else {
                local_1 = true;
            }
            bool _e43 = local_1;
            if (!(_e43)) {
                local_2 = n_lane_2 < LANES;
            } else {
                local_2 = true;
            }
            bool _e50 = local_2;
            if (_e50) {
                if (!(!(is_first))) {
                    uint _e56 = first;
                    local_3 = 0u < _e56;
                } else {
                    local_3 = true;
                }
                bool _e59 = local_3;
                if (_e59) {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                }
                uint _e60 = first;
                load_tile(tokens_1, _e60 * CHUNK, thread_5, x, x4_, x_tile, _buffer_sizes);
                metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            }
            uint _e63 = first;
            uint end = metal::min(_e63 + 64u, n_chunk);
            uint _e71 = first;
            chunk_6 = _e71 + lane;
            bool loop_init_18 = true;
            while(true) {
                if (!loop_init_18) {
                    uint _e112 = chunk_6;
                    chunk_6 = _e112 + LANES;
                }
                loop_init_18 = false;
                uint _e74 = chunk_6;
                if (_e74 < end) {
                } else {
                    break;
                }
                {
                    Chunks _e77 = ahead.inner[0];
                    chunks_2 = _e77;
                    d_1 = 1u;
                    bool loop_init_19 = true;
                    while(true) {
                        if (!loop_init_19) {
                            uint _e92 = d_1;
                            d_1 = _e92 + 1u;
                        }
                        loop_init_19 = false;
                        uint _e81 = d_1;
                        if (_e81 < DEPTH) {
                        } else {
                            break;
                        }
                        {
                            uint _e84 = d_1;
                            uint _e88 = d_1;
                            Chunks _e90 = ahead.inner[_e88];
                            ahead.inner[_e84 - 1u] = _e90;
                        }
                    }
                    uint _e99 = chunk_6;
                    Chunks _e107 = load_rows(rows_3, _e99 + 32u, tokens_1.cols, w, w2_, w4_, _buffer_sizes);
                    ahead.inner[0u] = _e107;
                    uint _e108 = chunk_6;
                    uint _e109 = chunk_6;
                    uint _e110 = first;
                    add_chunk(sums_1, chunks_2, rows_3, _e108, _e109 - _e110, x_tile);
                }
            }
        }
    }
    bool loop_init_20 = true;
    while(true) {
        if (!loop_init_20) {
            uint _e138 = i_4;
            i_4 = _e138 + 1u;
        }
        loop_init_20 = false;
        uint _e124 = i_4;
        if (_e124 < 2u) {
        } else {
            break;
        }
        {
            uint _e131 = i_4;
            uint _e133 = i_4;
            float _e135 = sums_1.inner[_e133];
            float _e136 = team_sum(_e135, thread_5, n_lane_2, x_tile);
            sums_1.inner[_e131] = _e136;
        }
    }
    Sums _e140 = sums_1;
    return _e140;
}

void store(
    uint product_1,
    uint at_1,
    float value_3,
    device type_12& out0_,
    device type_12& out1_,
    device type_12& out2_,
    device type_12& out3_,
    constant _mslBufferSizes& _buffer_sizes
) {
    switch(product_1) {
        case 0u: {
            out0_[at_1] = value_3;
            return;
        }
        case 1u: {
            out1_[at_1] = value_3;
            return;
        }
        case 2u: {
            out2_[at_1] = value_3;
            return;
        }
        default: {
            out3_[at_1] = value_3;
            return;
        }
    }
}

void finish(
    uint product_2,
    uint row0_,
    uint n_row,
    uint token0_,
    uint n_token,
    Sums sums_2,
    uint thread_6,
    constant Params& p,
    device type_12& out0_,
    device type_12& out1_,
    device type_12& out2_,
    device type_12& out3_,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint r_4 = 0u;
    uint t_4 = {};
    bool local_4 = {};
    bool local_5 = {};
    metal::uint4 pair = p.outputs.inner[product_2 / 2u];
    metal::uint2 output = ((product_2 % 2u) == 1u) ? pair.zw : pair.xy;
    bool loop_init_21 = true;
    while(true) {
        if (!loop_init_21) {
            uint _e71 = r_4;
            r_4 = _e71 + 1u;
        }
        loop_init_21 = false;
        uint _e22 = r_4;
        if (_e22 < ROWS) {
        } else {
            break;
        }
        {
            t_4 = 0u;
            bool loop_init_22 = true;
            while(true) {
                if (!loop_init_22) {
                    uint _e68 = t_4;
                    t_4 = _e68 + 1u;
                }
                loop_init_22 = false;
                uint _e27 = t_4;
                if (_e27 < TOKENS) {
                } else {
                    break;
                }
                {
                    uint _e32 = r_4;
                    uint _e35 = t_4;
                    bool is_mine = (thread_6 % LANES) == (((_e32 * TOKENS) + _e35) % LANES);
                    if (is_mine) {
                        uint _e42 = r_4;
                        local_4 = _e42 < n_row;
                    } else {
                        local_4 = false;
                    }
                    bool _e45 = local_4;
                    if (_e45) {
                        uint _e48 = t_4;
                        local_5 = _e48 < n_token;
                    } else {
                        local_5 = false;
                    }
                    bool _e51 = local_5;
                    if (_e51) {
                        uint _e53 = t_4;
                        uint _e59 = r_4;
                        uint _e61 = r_4;
                        uint _e64 = t_4;
                        store(product_2, ((output.y + ((token0_ + _e53) * output.x)) + row0_) + _e59, sums_2.inner[(_e61 * TOKENS) + _e64], out0_, out1_, out2_, out3_, _buffer_sizes);
                    }
                }
            }
        }
    }
    return;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(128)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint n_lane [[threads_per_simdgroup]]
, device type_3 const& w [[buffer(1)]]
, device type_5 const& w2_ [[buffer(2)]]
, device type_7 const& w4_ [[buffer(3)]]
, device type_12 const& x [[buffer(4)]]
, device type_13 const& x4_ [[buffer(5)]]
, threadgroup type_15& x_tile
, constant Params& p [[buffer(0)]]
, device type_12& out0_ [[buffer(6)]]
, device type_12& out1_ [[buffer(7)]]
, device type_12& out2_ [[buffer(8)]]
, device type_12& out3_ [[buffer(9)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(10)]]
) {
    uint number = {};
    uint product = 0u;
    uint turn = 0u;
    Rows rows = {};
    uint r = {};
    number = (group.y * n_group.x) + group.x;
    bool loop_init_23 = true;
    while(true) {
        if (!loop_init_23) {
            uint _e46 = product;
            product = _e46 + 1u;
        }
        loop_init_23 = false;
        uint _e20 = product;
        uint _e23 = p.n_product;
        if (_e20 < _e23) {
        } else {
            break;
        }
        {
            uint _e27 = product;
            uint _e30 = p.matrices.inner[_e27].w;
            uint n_1 = ((_e30 + 8u) - 1u) / 8u;
            uint _e41 = number;
            if (_e41 < n_1) {
                break;
            }
            uint _e43 = number;
            number = _e43 - n_1;
        }
    }
    uint _e48 = product;
    uint _e51 = p.n_product;
    if (_e48 == _e51) {
        return;
    }
    uint _e55 = product;
    metal::uint4 matrix_ = p.matrices.inner[_e55];
    uint token0_1 = group.z * TOKENS;
    uint _e63 = p.x_at;
    uint _e66 = p.cols;
    uint x_at = _e63 + (token0_1 * _e66);
    uint _e76 = p.cols;
    uint _e82 = p.n_token;
    uint _e86 = p.cols;
    Tokens tokens_2 = Tokens {metal::uint4(x_at) + (metal::uint4(0u, 1u, 2u, 3u) * _e76), _e82 - token0_1, _e86};
    bool loop_init_24 = true;
    while(true) {
        if (!loop_init_24) {
            uint _e142 = turn;
            turn = _e142 + 1u;
        }
        loop_init_24 = false;
        uint _e90 = turn;
        if (_e90 < TURNS) {
        } else {
            break;
        }
        {
            uint _e93 = number;
            uint _e96 = turn;
            uint first_1 = ((_e93 * TURNS) + _e96) * 8u;
            if (matrix_.w <= first_1) {
                break;
            }
            uint row0_1 = first_1 + ((thread_ / LANES) * ROWS);
            rows = Rows {};
            r = 0u;
            bool loop_init_25 = true;
            while(true) {
                if (!loop_init_25) {
                    uint _e127 = r;
                    r = _e127 + 1u;
                }
                loop_init_25 = false;
                uint _e110 = r;
                if (_e110 < ROWS) {
                } else {
                    break;
                }
                {
                    uint _e113 = r;
                    uint _e116 = r;
                    uint _e124 = p.cols;
                    metal::uint3 _e125 = row_at(matrix_.xyz, metal::min(row0_1 + _e116, matrix_.w - 1u), _e124);
                    rows.inner[_e113] = _e125;
                }
            }
            uint _e129 = turn;
            Sums _e132 = dots(rows, tokens_2, _e129 == 0u, thread_, n_lane, w, w2_, w4_, x, x4_, x_tile, _buffer_sizes);
            uint n_row_1 = metal::min(ROWS, matrix_.w - metal::min(row0_1, matrix_.w));
            uint _e139 = product;
            finish(_e139, row0_1, n_row_1, token0_1, tokens_2.n, _e132, thread_, p, out0_, out1_, out2_, out3_, _buffer_sizes);
        }
    }
    return;
}
