// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
    uint size3;
    uint size4;
};

struct Params {
    uint n_row;
    uint n_rep;
    uint n_head;
    uint n_head_kv;
    uint head_dim;
    uint q_stride;
    uint pos;
    uint n_pos;
    uint n_code;
    uint n_word;
    float scale;
    uint is_gated;
    uint first_block;
    uint stats_at;
    uint first_head;
};
typedef float type_3[1];
typedef metal::uint4 type_5[1];
struct Eight {
    metal::float4 a;
    metal::float4 b;
};
typedef metal::uint2 type_9[1];
struct type_10 {
    metal::float4 inner[520];
};
struct type_11 {
    metal::float4 inner[1152];
};
struct type_12 {
    metal::float4 inner[128];
};
struct type_13 {
    metal::float4 inner[32];
};
struct Place {
    uint thread_;
    uint head_kv;
    uint first_row;
    uint block;
};
struct type_14 {
    Eight inner[8];
};
struct type_15 {
    metal::float4 inner[4];
};
struct type_16 {
    metal::uint4 inner[16];
};
struct type_17 {
    metal::float4 inner[8];
};
constant uint BLOCK = 64u;
constant uint SPLIT_BLOCKS = 16u;
constant uint DOT_DIMS = 32u;
constant float UNSEEN = -1000000000000000000000000000000.0;
constant float UNSEEN_BELOW = -900000000000000000000000000000.0;
constant uint F16_ = 0u;
constant uint BF16_ = 1u;
constant uint F32_ = 2u;
constant uint N_THREAD = 256u;
constant uint PASS = 256u;
constant uint N_CHAIN = 8u;
constant uint CHAIN_STRIDE = 9u;
constant uint QUARTER = 264u;
constant uint QUARTER_DIM = 66u;
constant uint FORMAT = 0u;
constant uint N_QUAD = 1u;

uint token_head(
    uint head_kv,
    uint row,
    constant Params& p
) {
    uint _e4 = p.n_rep;
    uint _e8 = p.n_head;
    uint _e12 = p.n_rep;
    uint _e17 = p.n_rep;
    return (((row / _e4) * _e8) + (head_kv * _e12)) + (row % _e17);
}

metal::float4 score_of(
    metal::float4 dots_1,
    uint position,
    metal::uint4 last,
    constant Params& p
) {
    float _e7 = p.scale;
    return metal::select(metal::float4(-1000000000000000000000000000000.0), dots_1 * _e7, metal::uint4(position) <= last);
}

metal::float4 exponential(
    metal::float4 score,
    metal::float4 largest_1
) {
    return metal::select(metal::exp(score - largest_1), metal::float4(0.0), score < metal::float4(-900000000000000000000000000000.0));
}

float query(
    uint head_kv_1,
    uint row_1,
    uint dim_2,
    constant Params& p,
    device type_3 const& q,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e6 = p.first_head;
    uint _e7 = token_head(head_kv_1, row_1, p);
    uint _e11 = p.q_stride;
    uint _e15 = p.head_dim;
    float value = q[((_e6 + _e7) * _e11) + metal::min(dim_2, _e15 - 1u)];
    uint _e24 = p.head_dim;
    return (dim_2 < _e24) ? value : 0.0;
}

metal::float2 halves(
    uint word
) {
    if (true) {
        return float2(as_type<half2>(word));
    }
    return as_type<metal::float2>(metal::uint2(word << 16u, word & 4294901760u));
}

metal::float4 bytes(
    uint word_1
) {
    metal::int4 codes = as_type<metal::int4>(metal::uint4(word_1 << 24u, word_1 << 16u, word_1 << 8u, word_1));
    return static_cast<metal::float4>(codes >> metal::uint4(24u));
}

Eight eight_halves(
    metal::uint4 words
) {
    metal::float2 _e2 = halves(words.x);
    metal::float2 _e4 = halves(words.y);
    metal::float2 _e7 = halves(words.z);
    metal::float2 _e9 = halves(words.w);
    return Eight {metal::float4(_e2, _e4), metal::float4(_e7, _e9)};
}

Eight eight_bytes(
    metal::uint4 words_1,
    uint unit,
    metal::uint4 scales
) {
    metal::uint2 pair = ((unit & 1u) == 1u) ? words_1.zw : words_1.xy;
    uint group_1 = unit / 4u;
    uint word_2 = scales[(group_1 / 2u) % 4u];
    float scale = as_type<float>(((group_1 & 1u) == 1u) ? (word_2 & 4294901760u) : (word_2 << 16u));
    metal::float4 _e28 = bytes(pair.x);
    metal::float4 _e31 = bytes(pair.y);
    return Eight {_e28 * scale, _e31 * scale};
}

Eight key_dims(
    uint position_1,
    uint head_kv_2,
    uint unit_1,
    constant Params& p,
    device type_5 const& keys_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_1 = {};
    uint _e5 = p.n_head_kv;
    uint _e10 = p.n_word;
    uint at = ((position_1 * _e5) + head_kv_2) * _e10;
    if (false) {
        uint _e23 = p.n_word;
        uint b_1 = metal::min((2u * unit_1) + 1u, _e23 - 1u);
        metal::uint4 _e32 = keys_1[at + (2u * unit_1)];
        metal::uint4 _e37 = keys_1[at + b_1];
        return Eight {as_type<metal::float4>(_e32), as_type<metal::float4>(_e37)};
    }
    if (false) {
        local_1 = false;
    } else {
        local_1 = true;
    }
    bool _e54 = local_1;
    if (_e54) {
        metal::uint4 _e58 = keys_1[at + unit_1];
        Eight _e59 = eight_halves(_e58);
        return _e59;
    }
    metal::uint4 _e65 = keys_1[at + (unit_1 / 2u)];
    uint _e69 = p.n_code;
    metal::uint4 _e75 = keys_1[(at + _e69) + (unit_1 / 32u)];
    Eight _e76 = eight_bytes(_e65, unit_1, _e75);
    return _e76;
}

uint row_of(
    Place place,
    uint r,
    constant Params& p
) {
    uint _e6 = p.n_row;
    return metal::min(place.first_row + r, _e6 - 1u);
}

uint position_of(
    Place place_1,
    uint i_2,
    constant Params& p
) {
    uint _e8 = p.n_pos;
    return metal::min((place_1.block * BLOCK) + i_2, _e8 - 1u);
}

uint q_at(
    uint dim_3
) {
    return (dim_3 * N_QUAD) + (dim_3 / DOT_DIMS);
}

void load_queries(
    Place place_2,
    uint first_dim,
    constant Params& p,
    device type_3 const& q,
    threadgroup type_10& q_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint quad_ = 0u;
    metal::float4 four = {};
    uint r_1 = {};
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e37 = quad_;
            quad_ = _e37 + 1u;
        }
        loop_init = false;
        uint _e4 = quad_;
        if (_e4 < N_QUAD) {
        } else {
            break;
        }
        {
            four = metal::float4 {};
            r_1 = 0u;
            bool loop_init_1 = true;
            while(true) {
                if (!loop_init_1) {
                    uint _e27 = r_1;
                    r_1 = _e27 + 1u;
                }
                loop_init_1 = false;
                uint _e11 = r_1;
                if (_e11 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e14 = r_1;
                    uint _e17 = quad_;
                    uint _e20 = r_1;
                    uint _e22 = row_of(place_2, (_e17 * 4u) + _e20, p);
                    float _e25 = query(place_2.head_kv, _e22, first_dim + place_2.thread_, p, q, _buffer_sizes);
                    four[_e14] = _e25;
                }
            }
            uint _e31 = q_at(place_2.thread_);
            uint _e32 = quad_;
            metal::float4 _e35 = four;
            q_tile.inner[_e31 + _e32] = _e35;
        }
    }
    return;
}

type_14 load_keys(
    Place place_3,
    uint first_dim_1,
    constant Params& p,
    device type_5 const& keys_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_14 dims = {};
    uint i_3 = 0u;
    uint first_unit = (first_dim_1 + ((place_3.thread_ % N_CHAIN) * DOT_DIMS)) / 8u;
    uint _e12 = p.head_dim;
    uint last_unit = (_e12 - 1u) / 8u;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e43 = i_3;
            i_3 = _e43 + 1u;
        }
        loop_init_2 = false;
        uint _e20 = i_3;
        if (_e20 < 8u) {
        } else {
            break;
        }
        {
            uint _e26 = i_3;
            uint _e32 = position_of(place_3, (place_3.thread_ / N_CHAIN) + ((_e26 / 4u) * 32u), p);
            uint _e33 = i_3;
            uint _e36 = i_3;
            Eight _e41 = key_dims(_e32, place_3.head_kv, metal::min(first_unit + (_e36 % 4u), last_unit), p, keys_1, _buffer_sizes);
            dims.inner[_e33] = _e41;
        }
    }
    type_14 _e45 = dims;
    return _e45;
}

type_15 multiplied(
    type_15 old,
    uint dim_4,
    float a,
    float b,
    threadgroup type_10& q_tile
) {
    type_15 chains = {};
    uint quad_1 = 0u;
    chains = old;
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e35 = quad_1;
            quad_1 = _e35 + 1u;
        }
        loop_init_3 = false;
        uint _e7 = quad_1;
        if (_e7 < N_QUAD) {
        } else {
            break;
        }
        {
            uint _e11 = q_at(dim_4);
            uint _e12 = quad_1;
            metal::float4 rows = q_tile.inner[_e11 + _e12];
            uint _e16 = quad_1;
            uint _e19 = quad_1;
            metal::float4 _e21 = chains.inner[_e19];
            chains.inner[_e16] = metal::fma(metal::float4(a), rows, _e21);
            uint _e24 = quad_1;
            uint _e29 = quad_1;
            metal::float4 _e32 = chains.inner[2u + _e29];
            chains.inner[2u + _e24] = metal::fma(metal::float4(b), rows, _e32);
        }
    }
    type_15 _e37 = chains;
    return _e37;
}

void multiply_keys(
    Place place_4,
    type_14 keys,
    threadgroup type_10& q_tile,
    threadgroup type_11& sums
) {
    type_14 dims_1 = {};
    type_15 chains_1 = {};
    uint unit_2 = 0u;
    uint i_4 = 0u;
    uint quad_2 = {};
    dims_1 = keys;
    uint chain_1 = place_4.thread_ % N_CHAIN;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e89 = unit_2;
            unit_2 = _e89 + 1u;
        }
        loop_init_4 = false;
        uint _e9 = unit_2;
        if (_e9 < 4u) {
        } else {
            break;
        }
        {
            uint _e14 = unit_2;
            uint dim_5 = (chain_1 * DOT_DIMS) + (_e14 * 8u);
            uint _e18 = unit_2;
            Eight a_1 = dims_1.inner[_e18];
            uint _e21 = unit_2;
            Eight b_2 = dims_1.inner[_e21 + 4u];
            type_15 _e26 = chains_1;
            type_15 _e31 = multiplied(_e26, dim_5, a_1.a.x, b_2.a.x, q_tile);
            chains_1 = _e31;
            type_15 _e32 = chains_1;
            type_15 _e39 = multiplied(_e32, dim_5 + 1u, a_1.a.y, b_2.a.y, q_tile);
            chains_1 = _e39;
            type_15 _e40 = chains_1;
            type_15 _e47 = multiplied(_e40, dim_5 + 2u, a_1.a.z, b_2.a.z, q_tile);
            chains_1 = _e47;
            type_15 _e48 = chains_1;
            type_15 _e55 = multiplied(_e48, dim_5 + 3u, a_1.a.w, b_2.a.w, q_tile);
            chains_1 = _e55;
            type_15 _e56 = chains_1;
            type_15 _e63 = multiplied(_e56, dim_5 + 4u, a_1.b.x, b_2.b.x, q_tile);
            chains_1 = _e63;
            type_15 _e64 = chains_1;
            type_15 _e71 = multiplied(_e64, dim_5 + 5u, a_1.b.y, b_2.b.y, q_tile);
            chains_1 = _e71;
            type_15 _e72 = chains_1;
            type_15 _e79 = multiplied(_e72, dim_5 + 6u, a_1.b.z, b_2.b.z, q_tile);
            chains_1 = _e79;
            type_15 _e80 = chains_1;
            type_15 _e87 = multiplied(_e80, dim_5 + 7u, a_1.b.w, b_2.b.w, q_tile);
            chains_1 = _e87;
        }
    }
    bool loop_init_5 = true;
    while(true) {
        if (!loop_init_5) {
            uint _e128 = i_4;
            i_4 = _e128 + 1u;
        }
        loop_init_5 = false;
        uint _e93 = i_4;
        if (_e93 < 2u) {
        } else {
            break;
        }
        {
            uint _e99 = i_4;
            uint at_1 = (((place_4.thread_ / N_CHAIN) + (_e99 * 32u)) * CHAIN_STRIDE) + chain_1;
            quad_2 = 0u;
            bool loop_init_6 = true;
            while(true) {
                if (!loop_init_6) {
                    uint _e125 = quad_2;
                    quad_2 = _e125 + 1u;
                }
                loop_init_6 = false;
                uint _e108 = quad_2;
                if (_e108 < N_QUAD) {
                } else {
                    break;
                }
                {
                    uint _e114 = quad_2;
                    uint _e117 = i_4;
                    uint _e120 = quad_2;
                    metal::float4 _e123 = chains_1.inner[(_e117 * 2u) + _e120];
                    sums.inner[(at_1 * N_QUAD) + _e114] = _e123;
                }
            }
        }
    }
    return;
}

metal::uint4 load_value(
    uint position_2,
    uint head_kv_3,
    uint four_1,
    constant Params& p,
    device type_9 const& values,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_2 = {};
    uint _e5 = p.n_head_kv;
    uint _e10 = p.n_word;
    uint at_2 = (((position_2 * _e5) + head_kv_3) * _e10) * 2u;
    if (false) {
        metal::uint2 _e24 = values[at_2 + (2u * four_1)];
        metal::uint2 _e32 = values[(at_2 + (2u * four_1)) + 1u];
        return metal::uint4(_e24, _e32);
    }
    if (false) {
        local_2 = false;
    } else {
        local_2 = true;
    }
    bool _e48 = local_2;
    if (_e48) {
        metal::uint2 _e52 = values[at_2 + four_1];
        return metal::uint4(_e52, 0u, 0u);
    }
    uint _e64 = values[at_2 + (four_1 / 2u)][four_1 & 1u];
    uint _e69 = p.n_code;
    uint _e81 = values[(at_2 + (2u * _e69)) + (four_1 / 32u)][(four_1 / 16u) & 1u];
    return metal::uint4(_e64, _e81, 0u, 0u);
}

metal::float4 decode_value(
    metal::uint4 words_2,
    uint four_2
) {
    bool local_3 = {};
    if (false) {
        return as_type<metal::float4>(words_2);
    }
    if (false) {
        local_3 = false;
    } else {
        local_3 = true;
    }
    bool _e22 = local_3;
    if (_e22) {
        metal::float2 _e24 = halves(words_2.x);
        metal::float2 _e26 = halves(words_2.y);
        return metal::float4(_e24, _e26);
    }
    uint scale_1 = (((four_2 / 8u) & 1u) == 1u) ? (words_2.y & 4294901760u) : (words_2.y << 16u);
    metal::float4 _e42 = bytes(words_2.x);
    return _e42 * as_type<float>(scale_1);
}

uint four_of(
    Place place_5,
    uint first_dim_2,
    constant Params& p
) {
    uint _e10 = p.head_dim;
    return metal::min((first_dim_2 / 4u) + (place_5.thread_ % 64u), (_e10 - 1u) / 4u);
}

type_16 load_values(
    Place place_6,
    uint first_dim_3,
    constant Params& p,
    device type_9 const& values,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_16 words_3 = {};
    uint i_5 = 0u;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e22 = i_5;
            i_5 = _e22 + 1u;
        }
        loop_init_7 = false;
        uint _e5 = i_5;
        if (_e5 < 16u) {
        } else {
            break;
        }
        {
            uint _e13 = i_5;
            uint _e15 = position_of(place_6, ((place_6.thread_ / 64u) * 16u) + _e13, p);
            uint _e16 = i_5;
            uint _e19 = four_of(place_6, first_dim_3, p);
            metal::uint4 _e20 = load_value(_e15, place_6.head_kv, _e19, p, values, _buffer_sizes);
            words_3.inner[_e16] = _e20;
        }
    }
    type_16 _e24 = words_3;
    return _e24;
}

uint row_at(
    Place place_7,
    uint row_2,
    constant Params& p
) {
    uint _e5 = p.first_block;
    uint _e9 = p.n_head_kv;
    uint _e13 = p.n_row;
    uint _e16 = token_head(place_7.head_kv, row_2, p);
    return (((place_7.block - _e5) * _e9) * _e13) + _e16;
}

void weigh(
    Place place_8,
    uint first_dim_4,
    type_16 stored_1,
    constant Params& p,
    device type_3& partials,
    threadgroup type_11& sums,
    threadgroup type_12& weights,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_16 words_4 = {};
    type_17 chains_2 = {};
    uint i_6 = 0u;
    uint quad_3 = {};
    uint d = {};
    uint quad_4 = 0u;
    bool local_4 = {};
    uint d_1 = {};
    metal::float4 total = {};
    uint i_7 = {};
    uint r_2 = {};
    bool local_5 = {};
    words_4 = stored_1;
    uint part_1 = place_8.thread_ / 64u;
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e63 = i_6;
            i_6 = _e63 + 1u;
        }
        loop_init_8 = false;
        uint _e10 = i_6;
        if (_e10 < 16u) {
        } else {
            break;
        }
        {
            uint _e13 = i_6;
            metal::uint4 _e15 = words_4.inner[_e13];
            uint _e16 = four_of(place_8, first_dim_4, p);
            metal::float4 _e17 = decode_value(_e15, _e16);
            quad_3 = 0u;
            bool loop_init_9 = true;
            while(true) {
                if (!loop_init_9) {
                    uint _e60 = quad_3;
                    quad_3 = _e60 + 1u;
                }
                loop_init_9 = false;
                uint _e20 = quad_3;
                if (_e20 < N_QUAD) {
                } else {
                    break;
                }
                {
                    uint _e26 = i_6;
                    uint _e30 = quad_3;
                    metal::float4 rows_1 = weights.inner[(((part_1 * 16u) + _e26) * N_QUAD) + _e30];
                    d = 0u;
                    bool loop_init_10 = true;
                    while(true) {
                        if (!loop_init_10) {
                            uint _e57 = d;
                            d = _e57 + 1u;
                        }
                        loop_init_10 = false;
                        uint _e36 = d;
                        if (_e36 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e39 = quad_3;
                            uint _e42 = d;
                            uint _e45 = d;
                            uint _e48 = quad_3;
                            uint _e51 = d;
                            metal::float4 _e54 = chains_2.inner[(_e48 * 4u) + _e51];
                            chains_2.inner[(_e39 * 4u) + _e42] = metal::fma(metal::float4(_e17[_e45]), rows_1, _e54);
                        }
                    }
                }
            }
        }
    }
    uint dim_6 = first_dim_4 + place_8.thread_;
    bool loop_init_11 = true;
    while(true) {
        if (!loop_init_11) {
            uint _e177 = quad_4;
            quad_4 = _e177 + 1u;
        }
        loop_init_11 = false;
        uint _e69 = quad_4;
        if (_e69 < N_QUAD) {
        } else {
            break;
        }
        {
            uint _e72 = quad_4;
            if (!((_e72 > 0u))) {
                local_4 = first_dim_4 > 0u;
            } else {
                local_4 = true;
            }
            bool _e81 = local_4;
            if (_e81) {
                metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            }
            d_1 = 0u;
            bool loop_init_12 = true;
            while(true) {
                if (!loop_init_12) {
                    uint _e107 = d_1;
                    d_1 = _e107 + 1u;
                }
                loop_init_12 = false;
                uint _e84 = d_1;
                if (_e84 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e90 = d_1;
                    uint _e99 = quad_4;
                    uint _e102 = d_1;
                    metal::float4 _e105 = chains_2.inner[(_e99 * 4u) + _e102];
                    sums.inner[((part_1 * QUARTER) + (_e90 * QUARTER_DIM)) + (place_8.thread_ % 64u)] = _e105;
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            total = metal::float4(0.0);
            i_7 = 0u;
            bool loop_init_13 = true;
            while(true) {
                if (!loop_init_13) {
                    uint _e136 = i_7;
                    i_7 = _e136 + 1u;
                }
                loop_init_13 = false;
                uint _e114 = i_7;
                if (_e114 < 4u) {
                } else {
                    break;
                }
                {
                    metal::float4 _e117 = total;
                    uint _e119 = i_7;
                    metal::float4 _e133 = sums.inner[((_e119 * QUARTER) + ((place_8.thread_ % 4u) * QUARTER_DIM)) + (place_8.thread_ / 4u)];
                    total = _e117 + _e133;
                }
            }
            r_2 = 0u;
            bool loop_init_14 = true;
            while(true) {
                if (!loop_init_14) {
                    uint _e174 = r_2;
                    r_2 = _e174 + 1u;
                }
                loop_init_14 = false;
                uint _e140 = r_2;
                if (_e140 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e144 = quad_4;
                    uint _e148 = r_2;
                    uint row_3 = (place_8.first_row + (_e144 * 4u)) + _e148;
                    uint _e152 = p.n_row;
                    if (row_3 < _e152) {
                        uint _e158 = p.head_dim;
                        local_5 = dim_6 < _e158;
                    } else {
                        local_5 = false;
                    }
                    bool _e161 = local_5;
                    if (_e161) {
                        uint _e163 = row_at(place_8, row_3, p);
                        uint _e166 = p.head_dim;
                        uint _e170 = r_2;
                        float _e172 = total[_e170];
                        partials[(_e163 * _e166) + dim_6] = _e172;
                    }
                }
            }
        }
    }
    return;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_3 const& q [[buffer(1)]]
, device type_5 const& keys_1 [[buffer(2)]]
, device type_9 const& values [[buffer(3)]]
, device type_3& partials [[buffer(4)]]
, threadgroup type_10& q_tile
, threadgroup type_11& sums
, threadgroup type_12& scores
, threadgroup type_12& weights
, threadgroup type_13& parts
, constant _mslBufferSizes& _buffer_sizes [[buffer(5)]]
) {
    type_16 stored = {};
    metal::float4 dots = metal::float4(0.0);
    uint dim = 0u;
    uint chain = {};
    metal::float4 largest = metal::float4(-1000000000000000000000000000000.0);
    uint i = 0u;
    metal::float4 sum = {};
    uint j = 1u;
    uint dim_1 = 0u;
    bool local = {};
    metal::float4 sum_1 = metal::float4(0.0);
    uint part = 0u;
    uint i_1 = 0u;
    uint _e4 = p.n_row;
    uint n_tile = ((_e4 + 4u) - 1u) / 4u;
    uint _e27 = p.first_block;
    Place place_9 = Place {thread_, group.y / n_tile, ((group.y % n_tile) * 4u) * N_QUAD, _e27 + group.x};
    type_16 _e32 = load_values(place_9, 0u, p, values, _buffer_sizes);
    stored = _e32;
    uint position_3 = thread_ % BLOCK;
    uint quad_5 = thread_ / BLOCK;
    bool loop_init_15 = true;
    while(true) {
        if (!loop_init_15) {
            uint _e73 = dim;
            dim = _e73 + PASS;
        }
        loop_init_15 = false;
        uint _e43 = dim;
        uint _e46 = p.head_dim;
        if (_e43 < _e46) {
        } else {
            break;
        }
        {
            uint _e48 = dim;
            load_queries(place_9, _e48, p, q, q_tile, _buffer_sizes);
            uint _e49 = dim;
            type_14 _e50 = load_keys(place_9, _e49, p, keys_1, _buffer_sizes);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            multiply_keys(place_9, _e50, q_tile, sums);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            if (quad_5 < N_QUAD) {
                chain = 0u;
                bool loop_init_16 = true;
                while(true) {
                    if (!loop_init_16) {
                        uint _e71 = chain;
                        chain = _e71 + 1u;
                    }
                    loop_init_16 = false;
                    uint _e55 = chain;
                    if (_e55 < N_CHAIN) {
                    } else {
                        break;
                    }
                    {
                        metal::float4 _e58 = dots;
                        uint _e62 = chain;
                        metal::float4 _e68 = sums.inner[(((position_3 * CHAIN_STRIDE) + _e62) * N_QUAD) + quad_5];
                        dots = _e58 + _e68;
                    }
                }
            }
        }
    }
    uint r_3 = quad_5 * 4u;
    uint _e78 = row_of(place_9, r_3, p);
    uint _e81 = row_of(place_9, r_3 + 1u, p);
    uint _e84 = row_of(place_9, r_3 + 2u, p);
    uint _e87 = row_of(place_9, r_3 + 3u, p);
    metal::uint4 rows_2 = metal::uint4(_e78, _e81, _e84, _e87);
    metal::float4 _e89 = dots;
    uint _e96 = p.pos;
    uint _e100 = p.n_rep;
    metal::float4 _e104 = score_of(_e89, (place_9.block * BLOCK) + position_3, metal::uint4(_e96) + (rows_2 / metal::uint4(_e100)), p);
    if (quad_5 < N_QUAD) {
        scores.inner[(quad_5 * BLOCK) + position_3] = _e104;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (quad_5 < N_QUAD) {
        bool loop_init_17 = true;
        while(true) {
            if (!loop_init_17) {
                uint _e132 = i;
                i = _e132 + 1u;
            }
            loop_init_17 = false;
            uint _e119 = i;
            if (_e119 < BLOCK) {
            } else {
                break;
            }
            {
                metal::float4 _e122 = largest;
                uint _e126 = i;
                metal::float4 _e129 = scores.inner[(quad_5 * BLOCK) + _e126];
                largest = metal::max(_e122, _e129);
            }
        }
        metal::float4 _e139 = largest;
        metal::float4 _e140 = exponential(_e104, _e139);
        weights.inner[(position_3 * N_QUAD) + quad_5] = _e140;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (thread_ < 16u) {
        uint at_3 = (((thread_ / N_QUAD) * 4u) * N_QUAD) + (thread_ % N_QUAD);
        metal::float4 _e157 = weights.inner[at_3];
        sum = _e157;
        bool loop_init_18 = true;
        while(true) {
            if (!loop_init_18) {
                uint _e174 = j;
                j = _e174 + 1u;
            }
            loop_init_18 = false;
            uint _e161 = j;
            if (_e161 < 4u) {
            } else {
                break;
            }
            {
                metal::float4 _e164 = sum;
                uint _e166 = j;
                metal::float4 _e171 = weights.inner[at_3 + (_e166 * N_QUAD)];
                sum = _e164 + _e171;
            }
        }
        metal::float4 _e178 = sum;
        parts.inner[thread_] = _e178;
    }
    bool loop_init_19 = true;
    while(true) {
        if (!loop_init_19) {
            uint _e193 = dim_1;
            dim_1 = _e193 + PASS;
        }
        loop_init_19 = false;
        uint _e181 = dim_1;
        uint _e184 = p.head_dim;
        if (_e181 < _e184) {
        } else {
            break;
        }
        {
            uint _e186 = dim_1;
            if (_e186 > 0u) {
                uint _e189 = dim_1;
                type_16 _e190 = load_values(place_9, _e189, p, values, _buffer_sizes);
                stored = _e190;
            }
            uint _e191 = dim_1;
            type_16 _e192 = stored;
            weigh(place_9, _e191, _e192, p, partials, sums, weights, _buffer_sizes);
        }
    }
    if (quad_5 < N_QUAD) {
        local = position_3 == 0u;
    } else {
        local = false;
    }
    bool _e203 = local;
    if (_e203) {
        bool loop_init_20 = true;
        while(true) {
            if (!loop_init_20) {
                uint _e222 = part;
                part = _e222 + 1u;
            }
            loop_init_20 = false;
            uint _e209 = part;
            if (_e209 < 16u) {
            } else {
                break;
            }
            {
                metal::float4 _e212 = sum_1;
                uint _e214 = part;
                metal::float4 _e219 = parts.inner[(_e214 * N_QUAD) + quad_5];
                sum_1 = _e212 + _e219;
            }
        }
        bool loop_init_21 = true;
        while(true) {
            if (!loop_init_21) {
                uint _e257 = i_1;
                i_1 = _e257 + 1u;
            }
            loop_init_21 = false;
            uint _e226 = i_1;
            if (_e226 < 4u) {
            } else {
                break;
            }
            {
                uint _e231 = i_1;
                uint row_4 = (place_9.first_row + r_3) + _e231;
                uint _e235 = p.n_row;
                if (row_4 < _e235) {
                    uint _e239 = p.stats_at;
                    uint _e241 = row_at(place_9, row_4, p);
                    uint at_4 = _e239 + (2u * _e241);
                    uint _e246 = i_1;
                    float _e248 = largest[_e246];
                    partials[at_4] = _e248;
                    uint _e253 = i_1;
                    float _e255 = sum_1[_e253];
                    partials[at_4 + 1u] = _e255;
                }
            }
        }
        return;
    } else {
        return;
    }
}
