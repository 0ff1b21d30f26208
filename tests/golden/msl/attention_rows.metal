// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
    uint size3;
    uint size8;
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
struct type_9 {
    float inner[1024];
};
struct type_10 {
    metal::float4 inner[272];
};
struct type_11 {
    metal::float4 inner[1088];
};
struct type_12 {
    metal::float4 inner[256];
};
struct Place {
    uint thread_;
    uint head_kv;
    uint first_row;
    uint quad_;
    uint column;
    char _pad5[12];
    metal::uint4 last;
};
struct Stats {
    metal::float4 largest;
    metal::float4 sum;
};
struct type_13 {
    metal::float4 inner[4];
};
struct type_14 {
    metal::float4 inner[2];
};
struct type_16 {
    metal::float4 inner[16];
};
constant uint BLOCK = 64u;
constant uint SPLIT_BLOCKS = 16u;
constant uint DOT_DIMS = 32u;
constant float UNSEEN = -1000000000000000000000000000000.0;
constant float UNSEEN_BELOW = -900000000000000000000000000000.0;
constant uint F16_ = 0u;
constant uint BF16_ = 1u;
constant uint F32_ = 2u;
constant uint ROWS = 64u;
constant uint N_THREAD = 256u;
constant uint SLAB = 16u;
constant uint Q_STRIDE = 17u;
constant uint N_QUAD = 16u;
constant uint N_SUM = 16u;
constant uint IS_FIRST = 1u;
constant uint IS_LAST = 2u;
constant uint FORMAT = 0u;

float sigmoid(
    float x
) {
    return 1.0 / (1.0 + metal::exp(-(metal::clamp(x, -87.0, 87.0))));
}

metal::float4 fold_weight(
    metal::float4 m,
    metal::float4 largest
) {
    metal::float4 weight_1 = metal::select(metal::exp(m - largest), metal::float4(1.0), m == largest);
    return metal::select(weight_1, metal::float4(0.0), m < metal::float4(-900000000000000000000000000000.0));
}

metal::float4 fold(
    metal::float4 old,
    metal::float4 old_weight,
    metal::float4 more,
    metal::float4 more_weight
) {
    return metal::fma(more, more_weight, old * old_weight);
}

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
    metal::float4 dots,
    uint position,
    metal::uint4 last,
    constant Params& p
) {
    float _e7 = p.scale;
    return metal::select(metal::float4(-1000000000000000000000000000000.0), dots * _e7, metal::uint4(position) <= last);
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
    uint dim,
    constant Params& p,
    device type_3 const& q,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e6 = p.first_head;
    uint _e7 = token_head(head_kv_1, row_1, p);
    uint _e11 = p.q_stride;
    uint _e15 = p.head_dim;
    float value_1 = q[((_e6 + _e7) * _e11) + metal::min(dim, _e15 - 1u)];
    uint _e24 = p.head_dim;
    return (dim < _e24) ? value_1 : 0.0;
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
    device type_5 const& keys,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_1 = {};
    uint _e5 = p.n_head_kv;
    uint _e10 = p.n_word;
    uint at = ((position_1 * _e5) + head_kv_2) * _e10;
    if (false) {
        uint _e23 = p.n_word;
        uint b = metal::min((2u * unit_1) + 1u, _e23 - 1u);
        metal::uint4 _e32 = keys[at + (2u * unit_1)];
        metal::uint4 _e37 = keys[at + b];
        return Eight {as_type<metal::float4>(_e32), as_type<metal::float4>(_e37)};
    }
    if (false) {
        local_1 = false;
    } else {
        local_1 = true;
    }
    bool _e54 = local_1;
    if (_e54) {
        metal::uint4 _e58 = keys[at + unit_1];
        Eight _e59 = eight_halves(_e58);
        return _e59;
    }
    metal::uint4 _e65 = keys[at + (unit_1 / 2u)];
    uint _e69 = p.n_code;
    metal::uint4 _e75 = keys[(at + _e69) + (unit_1 / 32u)];
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

Place place_of(
    uint thread_1,
    uint head_kv_3,
    uint tile,
    constant Params& p
) {
    Place place_1 = {};
    place_1.thread_ = thread_1;
    place_1.head_kv = head_kv_3;
    place_1.first_row = tile * ROWS;
    place_1.quad_ = thread_1 / N_QUAD;
    place_1.column = thread_1 % N_QUAD;
    uint _e16 = place_1.quad_;
    uint r_2 = _e16 * 4u;
    Place _e19 = place_1;
    uint _e20 = row_of(_e19, r_2, p);
    Place _e21 = place_1;
    uint _e24 = row_of(_e21, r_2 + 1u, p);
    Place _e25 = place_1;
    uint _e28 = row_of(_e25, r_2 + 2u, p);
    Place _e29 = place_1;
    uint _e32 = row_of(_e29, r_2 + 3u, p);
    metal::uint4 rows = metal::uint4(_e20, _e24, _e28, _e32);
    uint _e37 = p.pos;
    uint _e41 = p.n_rep;
    place_1.last = metal::uint4(_e37) + (rows / metal::uint4(_e41));
    Place _e45 = place_1;
    return _e45;
}

Eight value_dims(
    uint position_2,
    uint head_kv_4,
    uint unit_2,
    constant Params& p,
    device type_5 const& values,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_2 = {};
    uint _e5 = p.n_head_kv;
    uint _e10 = p.n_word;
    uint at_1 = ((position_2 * _e5) + head_kv_4) * _e10;
    if (false) {
        uint _e23 = p.n_word;
        uint b_1 = metal::min((2u * unit_2) + 1u, _e23 - 1u);
        metal::uint4 _e32 = values[at_1 + (2u * unit_2)];
        metal::uint4 _e37 = values[at_1 + b_1];
        return Eight {as_type<metal::float4>(_e32), as_type<metal::float4>(_e37)};
    }
    if (false) {
        local_2 = false;
    } else {
        local_2 = true;
    }
    bool _e54 = local_2;
    if (_e54) {
        metal::uint4 _e58 = values[at_1 + unit_2];
        Eight _e59 = eight_halves(_e58);
        return _e59;
    }
    metal::uint4 _e65 = values[at_1 + (unit_2 / 2u)];
    uint _e69 = p.n_code;
    metal::uint4 _e75 = values[(at_1 + _e69) + (unit_2 / 32u)];
    Eight _e76 = eight_bytes(_e65, unit_2, _e75);
    return _e76;
}

void load_keys(
    Place place_2,
    uint block_1,
    uint first_dim,
    constant Params& p,
    device type_5 const& keys,
    threadgroup type_9& kv_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint i_2 = {};
    Eight dims = {};
    bool local_3 = {};
    i_2 = place_2.thread_;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e102 = i_2;
            i_2 = _e102 + N_THREAD;
        }
        loop_init = false;
        uint _e5 = i_2;
        if (_e5 < 128u) {
        } else {
            break;
        }
        {
            uint _e8 = i_2;
            uint column_1 = _e8 % 64u;
            uint position_4 = (block_1 * BLOCK) + column_1;
            uint _e16 = i_2;
            uint unit_3 = (first_dim / 8u) + (_e16 / 64u);
            dims = Eight {metal::float4(0.0), metal::float4(0.0)};
            uint _e28 = p.n_pos;
            if (position_4 < _e28) {
                uint _e36 = p.head_dim;
                local_3 = (unit_3 * 8u) < _e36;
            } else {
                local_3 = false;
            }
            bool _e39 = local_3;
            if (_e39) {
                Eight _e41 = key_dims(position_4, place_2.head_kv, unit_3, p, keys, _buffer_sizes);
                dims = _e41;
            }
            uint _e42 = i_2;
            uint at_2 = ((_e42 / 64u) * 512u) + column_1;
            float _e52 = dims.a.x;
            kv_tile.inner[at_2] = _e52;
            float _e59 = dims.a.y;
            kv_tile.inner[at_2 + 64u] = _e59;
            float _e66 = dims.a.z;
            kv_tile.inner[at_2 + 128u] = _e66;
            float _e73 = dims.a.w;
            kv_tile.inner[at_2 + 192u] = _e73;
            float _e80 = dims.b.x;
            kv_tile.inner[at_2 + 256u] = _e80;
            float _e87 = dims.b.y;
            kv_tile.inner[at_2 + 320u] = _e87;
            float _e94 = dims.b.z;
            kv_tile.inner[at_2 + 384u] = _e94;
            float _e101 = dims.b.w;
            kv_tile.inner[at_2 + 448u] = _e101;
        }
    }
    return;
}

void load_values(
    Place place_3,
    uint first_position,
    uint first_dim_1,
    constant Params& p,
    device type_5 const& values,
    threadgroup type_9& kv_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint i_3 = {};
    Eight dims_1 = {};
    bool local_4 = {};
    i_3 = place_3.thread_;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e97 = i_3;
            i_3 = _e97 + N_THREAD;
        }
        loop_init_1 = false;
        uint _e5 = i_3;
        if (_e5 < 128u) {
        } else {
            break;
        }
        {
            uint _e8 = i_3;
            uint position_5 = first_position + (_e8 / 8u);
            uint _e14 = i_3;
            uint unit_4 = (first_dim_1 / 8u) + (_e14 % 8u);
            dims_1 = Eight {metal::float4(0.0), metal::float4(0.0)};
            uint _e26 = p.n_pos;
            if (position_5 < _e26) {
                uint _e34 = p.head_dim;
                local_4 = (unit_4 * 8u) < _e34;
            } else {
                local_4 = false;
            }
            bool _e37 = local_4;
            if (_e37) {
                Eight _e39 = value_dims(position_5, place_3.head_kv, unit_4, p, values, _buffer_sizes);
                dims_1 = _e39;
            }
            uint _e40 = i_3;
            uint at_3 = _e40 * 8u;
            float _e47 = dims_1.a.x;
            kv_tile.inner[at_3] = _e47;
            float _e54 = dims_1.a.y;
            kv_tile.inner[at_3 + 1u] = _e54;
            float _e61 = dims_1.a.z;
            kv_tile.inner[at_3 + 2u] = _e61;
            float _e68 = dims_1.a.w;
            kv_tile.inner[at_3 + 3u] = _e68;
            float _e75 = dims_1.b.x;
            kv_tile.inner[at_3 + 4u] = _e75;
            float _e82 = dims_1.b.y;
            kv_tile.inner[at_3 + 5u] = _e82;
            float _e89 = dims_1.b.z;
            kv_tile.inner[at_3 + 6u] = _e89;
            float _e96 = dims_1.b.w;
            kv_tile.inner[at_3 + 7u] = _e96;
        }
    }
    return;
}

void load_queries(
    Place place_4,
    uint first_dim_2,
    constant Params& p,
    device type_3 const& q,
    threadgroup type_10& q_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint dim_3 = first_dim_2 + (place_4.thread_ % SLAB);
    uint r_3 = (place_4.thread_ / SLAB) * 4u;
    uint _e23 = row_of(place_4, r_3, p);
    float _e24 = query(place_4.head_kv, _e23, dim_3, p, q, _buffer_sizes);
    uint _e28 = row_of(place_4, r_3 + 1u, p);
    float _e29 = query(place_4.head_kv, _e28, dim_3, p, q, _buffer_sizes);
    uint _e33 = row_of(place_4, r_3 + 2u, p);
    float _e34 = query(place_4.head_kv, _e33, dim_3, p, q, _buffer_sizes);
    uint _e38 = row_of(place_4, r_3 + 3u, p);
    float _e39 = query(place_4.head_kv, _e38, dim_3, p, q, _buffer_sizes);
    q_tile.inner[((place_4.thread_ % SLAB) * Q_STRIDE) + (place_4.thread_ / SLAB)] = metal::float4(_e24, _e29, _e34, _e39);
    return;
}

void store_scores(
    Place place_5,
    uint block_2,
    uint column,
    metal::float4 dots_1,
    constant Params& p,
    threadgroup type_11& weights_tile
) {
    metal::float4 _e14 = score_of(dots_1, (block_2 * BLOCK) + column, place_5.last, p);
    weights_tile.inner[(column * Q_STRIDE) + place_5.quad_] = _e14;
    return;
}

void score_1(
    Place place_6,
    uint block_3,
    constant Params& p,
    device type_3 const& q,
    device type_5 const& keys,
    threadgroup type_9& kv_tile,
    threadgroup type_10& q_tile,
    threadgroup type_11& weights_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_13 sums_1 = type_13 {{metal::float4(0.0), metal::float4(0.0), metal::float4(0.0), metal::float4(0.0)}};
    type_13 chains = type_13 {{metal::float4(0.0), metal::float4(0.0), metal::float4(0.0), metal::float4(0.0)}};
    uint dim_1 = 0u;
    uint d = {};
    uint j_2 = {};
    bool local_5 = {};
    uint j_3 = {};
    uint j_4 = 0u;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e112 = dim_1;
            dim_1 = _e112 + SLAB;
        }
        loop_init_2 = false;
        uint _e24 = dim_1;
        uint _e27 = p.head_dim;
        if (_e24 < _e27) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e29 = dim_1;
            load_keys(place_6, block_3, _e29, p, keys, kv_tile, _buffer_sizes);
            uint _e30 = dim_1;
            load_queries(place_6, _e30, p, q, q_tile, _buffer_sizes);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            d = 0u;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e72 = d;
                    d = _e72 + 1u;
                }
                loop_init_3 = false;
                uint _e33 = d;
                if (_e33 < SLAB) {
                } else {
                    break;
                }
                {
                    uint _e37 = d;
                    metal::float4 rows_1 = q_tile.inner[(_e37 * Q_STRIDE) + place_6.quad_];
                    uint _e44 = d;
                    uint at_4 = (_e44 * 64u) + place_6.column;
                    j_2 = 0u;
                    bool loop_init_4 = true;
                    while(true) {
                        if (!loop_init_4) {
                            uint _e69 = j_2;
                            j_2 = _e69 + 1u;
                        }
                        loop_init_4 = false;
                        uint _e51 = j_2;
                        if (_e51 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e54 = j_2;
                            uint _e58 = j_2;
                            float _e62 = kv_tile.inner[at_4 + (16u * _e58)];
                            uint _e64 = j_2;
                            metal::float4 _e66 = chains.inner[_e64];
                            chains.inner[_e54] = metal::fma(metal::float4(_e62), rows_1, _e66);
                        }
                    }
                }
            }
            uint _e74 = dim_1;
            if (!((((_e74 % DOT_DIMS) + SLAB) == DOT_DIMS))) {
                uint _e84 = dim_1;
                uint _e89 = p.head_dim;
                local_5 = (_e84 + SLAB) >= _e89;
            } else {
                local_5 = true;
            }
            bool _e92 = local_5;
            if (_e92) {
                j_3 = 0u;
                bool loop_init_5 = true;
                while(true) {
                    if (!loop_init_5) {
                        uint _e110 = j_3;
                        j_3 = _e110 + 1u;
                    }
                    loop_init_5 = false;
                    uint _e95 = j_3;
                    if (_e95 < 4u) {
                    } else {
                        break;
                    }
                    {
                        uint _e98 = j_3;
                        metal::float4 _e100 = sums_1.inner[_e98];
                        uint _e101 = j_3;
                        metal::float4 _e103 = chains.inner[_e101];
                        sums_1.inner[_e98] = _e100 + _e103;
                        uint _e105 = j_3;
                        chains.inner[_e105] = metal::float4(0.0);
                    }
                }
            }
        }
    }
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e129 = j_4;
            j_4 = _e129 + 1u;
        }
        loop_init_6 = false;
        uint _e117 = j_4;
        if (_e117 < 4u) {
        } else {
            break;
        }
        {
            uint _e122 = j_4;
            uint _e125 = j_4;
            metal::float4 _e127 = sums_1.inner[_e125];
            store_scores(place_6, block_3, place_6.column + (16u * _e122), _e127, p, weights_tile);
        }
    }
    return;
}

metal::float4 largest_of(
    uint quad_,
    threadgroup type_12& parts
) {
    metal::float4 largest_2 = {};
    uint part = 1u;
    metal::float4 _e3 = parts.inner[quad_];
    largest_2 = _e3;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e20 = part;
            part = _e20 + 1u;
        }
        loop_init_7 = false;
        uint _e7 = part;
        if (_e7 < 16u) {
        } else {
            break;
        }
        {
            metal::float4 _e10 = largest_2;
            uint _e12 = part;
            metal::float4 _e17 = parts.inner[(_e12 * N_QUAD) + quad_];
            largest_2 = metal::max(_e10, _e17);
        }
    }
    metal::float4 _e22 = largest_2;
    return _e22;
}

Stats softmax(
    Place place_7,
    threadgroup type_11& weights_tile,
    threadgroup type_12& parts
) {
    Stats stats = {};
    uint j_5 = 0u;
    metal::float4 sum = {};
    uint j_6 = 1u;
    uint part_1 = 0u;
    uint quad_1 = place_7.thread_ % N_QUAD;
    uint at_5 = (((place_7.thread_ / N_QUAD) * 4u) * Q_STRIDE) + quad_1;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    metal::float4 _e14 = weights_tile.inner[at_5];
    metal::float4 _e19 = weights_tile.inner[at_5 + Q_STRIDE];
    metal::float4 a = metal::max(_e14, _e19);
    metal::float4 _e25 = weights_tile.inner[at_5 + 34u];
    metal::float4 _e30 = weights_tile.inner[at_5 + 51u];
    metal::float4 b_2 = metal::max(_e25, _e30);
    parts.inner[place_7.thread_] = metal::max(a, b_2);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    metal::float4 _e37 = largest_of(place_7.quad_, parts);
    stats = Stats {_e37, metal::float4(0.0)};
    metal::float4 _e42 = largest_of(quad_1, parts);
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e63 = j_5;
            j_5 = _e63 + 1u;
        }
        loop_init_8 = false;
        uint _e45 = j_5;
        if (_e45 < 4u) {
        } else {
            break;
        }
        {
            uint _e49 = j_5;
            metal::float4 score_2 = weights_tile.inner[at_5 + (_e49 * Q_STRIDE)];
            uint _e56 = j_5;
            metal::float4 _e61 = exponential(score_2, _e42);
            weights_tile.inner[at_5 + (_e56 * Q_STRIDE)] = _e61;
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    metal::float4 _e67 = weights_tile.inner[at_5];
    sum = _e67;
    bool loop_init_9 = true;
    while(true) {
        if (!loop_init_9) {
            uint _e84 = j_6;
            j_6 = _e84 + 1u;
        }
        loop_init_9 = false;
        uint _e71 = j_6;
        if (_e71 < 4u) {
        } else {
            break;
        }
        {
            metal::float4 _e74 = sum;
            uint _e76 = j_6;
            metal::float4 _e81 = weights_tile.inner[at_5 + (_e76 * Q_STRIDE)];
            sum = _e74 + _e81;
        }
    }
    metal::float4 _e89 = sum;
    parts.inner[place_7.thread_] = _e89;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init_10 = true;
    while(true) {
        if (!loop_init_10) {
            uint _e107 = part_1;
            part_1 = _e107 + 1u;
        }
        loop_init_10 = false;
        uint _e92 = part_1;
        if (_e92 < 16u) {
        } else {
            break;
        }
        {
            metal::float4 _e96 = stats.sum;
            uint _e98 = part_1;
            metal::float4 _e104 = parts.inner[(_e98 * N_QUAD) + place_7.quad_];
            stats.sum = _e96 + _e104;
        }
    }
    Stats _e109 = stats;
    return _e109;
}

type_13 weigh(
    Place place_8,
    uint block_4,
    uint first_dim_3,
    constant Params& p,
    device type_5 const& values,
    threadgroup type_9& kv_tile,
    threadgroup type_11& weights_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_13 sums_2 = type_13 {{metal::float4(0.0), metal::float4(0.0), metal::float4(0.0), metal::float4(0.0)}};
    uint position_3 = 0u;
    type_13 chains_1 = {};
    uint i_4 = {};
    uint j_7 = {};
    uint j_8 = {};
    bool loop_init_11 = true;
    while(true) {
        if (!loop_init_11) {
            uint _e92 = position_3;
            position_3 = _e92 + SLAB;
        }
        loop_init_11 = false;
        uint _e15 = position_3;
        if (_e15 < BLOCK) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e20 = position_3;
            load_values(place_8, (block_4 * BLOCK) + _e20, first_dim_3, p, values, kv_tile, _buffer_sizes);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            chains_1 = type_13 {{metal::float4(0.0), metal::float4(0.0), metal::float4(0.0), metal::float4(0.0)}};
            i_4 = 0u;
            bool loop_init_12 = true;
            while(true) {
                if (!loop_init_12) {
                    uint _e75 = i_4;
                    i_4 = _e75 + 1u;
                }
                loop_init_12 = false;
                uint _e34 = i_4;
                if (_e34 < SLAB) {
                } else {
                    break;
                }
                {
                    uint _e38 = position_3;
                    uint _e39 = i_4;
                    metal::float4 rows_2 = weights_tile.inner[((_e38 + _e39) * Q_STRIDE) + place_8.quad_];
                    uint _e47 = i_4;
                    uint at_6 = (_e47 * 64u) + place_8.column;
                    j_7 = 0u;
                    bool loop_init_13 = true;
                    while(true) {
                        if (!loop_init_13) {
                            uint _e72 = j_7;
                            j_7 = _e72 + 1u;
                        }
                        loop_init_13 = false;
                        uint _e54 = j_7;
                        if (_e54 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e57 = j_7;
                            uint _e61 = j_7;
                            float _e65 = kv_tile.inner[at_6 + (16u * _e61)];
                            uint _e67 = j_7;
                            metal::float4 _e69 = chains_1.inner[_e67];
                            chains_1.inner[_e57] = metal::fma(metal::float4(_e65), rows_2, _e69);
                        }
                    }
                }
            }
            j_8 = 0u;
            bool loop_init_14 = true;
            while(true) {
                if (!loop_init_14) {
                    uint _e90 = j_8;
                    j_8 = _e90 + 1u;
                }
                loop_init_14 = false;
                uint _e79 = j_8;
                if (_e79 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e82 = j_8;
                    metal::float4 _e84 = sums_2.inner[_e82];
                    uint _e85 = j_8;
                    metal::float4 _e87 = chains_1.inner[_e85];
                    sums_2.inner[_e82] = _e84 + _e87;
                }
            }
        }
    }
    type_13 _e95 = sums_2;
    return _e95;
}

void put(
    Place place_9,
    uint dim_2,
    metal::float4 split_1,
    type_14 weight,
    metal::float4 total_1,
    uint step,
    constant Params& p,
    device type_3 const& q,
    device type_3& out,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint r_1 = 0u;
    bool local_6 = {};
    float old_1 = {};
    float value = {};
    bool loop_init_15 = true;
    while(true) {
        if (!loop_init_15) {
            uint _e90 = r_1;
            r_1 = _e90 + 1u;
        }
        loop_init_15 = false;
        uint _e8 = r_1;
        if (_e8 < 4u) {
        } else {
            break;
        }
        {
            uint _e16 = r_1;
            uint row_2 = (place_9.first_row + (place_9.quad_ * 4u)) + _e16;
            uint _e20 = p.n_row;
            if (row_2 < _e20) {
                uint _e26 = p.head_dim;
                local_6 = dim_2 < _e26;
            } else {
                local_6 = false;
            }
            bool _e29 = local_6;
            if (_e29) {
                uint _e32 = p.first_head;
                uint _e34 = token_head(place_9.head_kv, row_2, p);
                uint head = _e32 + _e34;
                uint _e38 = p.head_dim;
                uint at_7 = (head * _e38) + dim_2;
                old_1 = 0.0;
                if ((step & IS_FIRST) == 0u) {
                    float _e49 = out[at_7];
                    old_1 = _e49;
                }
                float _e50 = old_1;
                metal::float4 _e54 = fold(metal::float4(_e50), weight.inner[0], split_1, weight.inner[1]);
                uint _e55 = r_1;
                value = _e54[_e55];
                if ((step & IS_LAST) != 0u) {
                    float _e62 = value;
                    uint _e63 = r_1;
                    value = _e62 / total_1[_e63];
                    uint _e68 = p.is_gated;
                    if (_e68 != 0u) {
                        float _e71 = value;
                        uint _e75 = p.q_stride;
                        uint _e79 = p.head_dim;
                        float _e83 = q[((head * _e75) + _e79) + dim_2];
                        float _e84 = sigmoid(_e83);
                        value = _e71 * _e84;
                    }
                }
                float _e88 = value;
                out[at_7] = _e88;
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
, device type_5 const& keys [[buffer(2)]]
, device type_5 const& values [[buffer(3)]]
, threadgroup type_9& kv_tile
, threadgroup type_10& q_tile
, threadgroup type_11& weights_tile
, threadgroup type_12& parts
, device type_3& out [[buffer(4)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(5)]]
) {
    Stats split = Stats {metal::float4(-1000000000000000000000000000000.0), metal::float4(0.0)};
    Stats total = Stats {metal::float4(-1000000000000000000000000000000.0), metal::float4(0.0)};
    type_16 sums = {};
    uint block = 0u;
    uint i = {};
    uint j = {};
    bool local = {};
    uint i_1 = {};
    uint j_1 = {};
    Place _e4 = place_of(thread_, group.y, group.x, p);
    uint _e10 = p.n_row;
    uint last_row = metal::min(_e4.first_row + ROWS, _e10) - 1u;
    uint _e16 = p.pos;
    uint _e19 = p.n_rep;
    uint n_block = ((_e16 + (last_row / _e19)) / BLOCK) + 1u;
    bool loop_init_16 = true;
    while(true) {
        if (!loop_init_16) {
            uint _e200 = block;
            block = _e200 + 1u;
        }
        loop_init_16 = false;
        uint _e41 = block;
        if (_e41 < n_block) {
        } else {
            break;
        }
        {
            uint _e43 = block;
            score_1(_e4, _e43, p, q, keys, kv_tile, q_tile, weights_tile, _buffer_sizes);
            Stats _e44 = softmax(_e4, weights_tile, parts);
            uint _e45 = block;
            bool is_start = (_e45 % SPLIT_BLOCKS) == 0u;
            if (is_start) {
                split = Stats {metal::float4(-1000000000000000000000000000000.0), metal::float4(0.0)};
            }
            metal::float4 _e56 = split.largest;
            metal::float4 largest_3 = metal::max(_e56, _e44.largest);
            metal::float4 _e60 = split.largest;
            metal::float4 _e61 = fold_weight(_e60, largest_3);
            metal::float4 _e63 = fold_weight(_e44.largest, largest_3);
            metal::float4 _e65 = split.sum;
            metal::float4 _e67 = fold(_e65, _e61, _e44.sum, _e63);
            split = Stats {largest_3, _e67};
            i = 0u;
            bool loop_init_17 = true;
            while(true) {
                if (!loop_init_17) {
                    uint _e113 = i;
                    i = _e113 + 1u;
                }
                loop_init_17 = false;
                uint _e71 = i;
                uint _e74 = p.head_dim;
                if (_e71 < ((_e74 + 63u) / 64u)) {
                } else {
                    break;
                }
                {
                    uint _e80 = block;
                    uint _e81 = i;
                    type_13 _e84 = weigh(_e4, _e80, _e81 * 64u, p, values, kv_tile, weights_tile, _buffer_sizes);
                    j = 0u;
                    bool loop_init_18 = true;
                    while(true) {
                        if (!loop_init_18) {
                            uint _e110 = j;
                            j = _e110 + 1u;
                        }
                        loop_init_18 = false;
                        uint _e87 = j;
                        if (_e87 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e90 = i;
                            uint _e93 = j;
                            metal::float4 _e96 = sums.inner[(_e90 * 4u) + _e93];
                            metal::float4 old_2 = is_start ? metal::float4(0.0) : _e96;
                            uint _e100 = i;
                            uint _e103 = j;
                            uint _e106 = j;
                            metal::float4 _e108 = fold(old_2, _e61, _e84.inner[_e106], _e63);
                            sums.inner[(_e100 * 4u) + _e103] = _e108;
                        }
                    }
                }
            }
            uint _e115 = block;
            bool is_last = (_e115 + 1u) == n_block;
            if (!(is_last)) {
                uint _e122 = block;
                local = (_e122 % SPLIT_BLOCKS) == 15u;
            } else {
                local = true;
            }
            bool _e128 = local;
            if (_e128) {
                metal::float4 _e130 = total.largest;
                metal::float4 _e132 = split.largest;
                metal::float4 all = metal::max(_e130, _e132);
                metal::float4 _e135 = total.largest;
                metal::float4 _e136 = fold_weight(_e135, all);
                metal::float4 _e138 = split.largest;
                metal::float4 _e139 = fold_weight(_e138, all);
                type_14 weights = type_14 {{_e136, _e139}};
                metal::float4 _e142 = total.sum;
                metal::float4 _e145 = split.sum;
                metal::float4 _e147 = fold(_e142, weights.inner[0], _e145, weights.inner[1]);
                total = Stats {all, _e147};
                uint _e151 = block;
                uint step_1 = ((_e151 < SPLIT_BLOCKS) ? IS_FIRST : 0u) | (is_last ? IS_LAST : 0u);
                i_1 = 0u;
                bool loop_init_19 = true;
                while(true) {
                    if (!loop_init_19) {
                        uint _e197 = i_1;
                        i_1 = _e197 + 1u;
                    }
                    loop_init_19 = false;
                    uint _e161 = i_1;
                    uint _e164 = p.head_dim;
                    if (_e161 < ((_e164 + 63u) / 64u)) {
                    } else {
                        break;
                    }
                    {
                        j_1 = 0u;
                        bool loop_init_20 = true;
                        while(true) {
                            if (!loop_init_20) {
                                uint _e194 = j_1;
                                j_1 = _e194 + 1u;
                            }
                            loop_init_20 = false;
                            uint _e172 = j_1;
                            if (_e172 < 4u) {
                            } else {
                                break;
                            }
                            {
                                uint _e175 = i_1;
                                uint _e180 = j_1;
                                uint dim_4 = ((_e175 * 64u) + _e4.column) + (_e180 * 16u);
                                uint _e184 = i_1;
                                uint _e187 = j_1;
                                metal::float4 _e190 = sums.inner[(_e184 * 4u) + _e187];
                                metal::float4 _e192 = total.sum;
                                put(_e4, dim_4, _e190, weights, _e192, step_1, p, q, out, _buffer_sizes);
                            }
                        }
                    }
                }
            }
        }
    }
    return;
}
