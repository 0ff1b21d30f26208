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
struct type_6 {
    float inner[4096];
};
struct type_7 {
    metal::float4 inner[320];
};
struct type_8 {
    metal::float4 inner[320];
};
struct type_9 {
    metal::float4 inner[64];
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
struct Eight {
    metal::float4 a;
    metal::float4 b;
};
struct type_13 {
    metal::float4 inner[4];
};
constant uint BLOCK = 64u;
constant uint SPLIT_BLOCKS = 16u;
constant float UNSEEN = -1000000000000000000000000000000.0;
constant float UNSEEN_BELOW = -900000000000000000000000000000.0;
constant uint F16_ = 0u;
constant uint BF16_ = 1u;
constant uint F32_ = 2u;
constant uint ROWS = 16u;
constant uint COLUMNS = 1u;
constant uint SLAB = 64u;
constant uint N_THREAD = 256u;
constant uint FORMAT = 0u;
constant uint Q_STRIDE = 5u;
constant uint THREAD_COLUMNS = 64u;

uint row_of(
    Place place,
    uint r_2,
    constant Params& p
) {
    uint _e6 = p.n_row;
    return metal::min(place.first_row + r_2, _e6 - 1u);
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

Place place_of(
    uint thread_1,
    uint head_kv_1,
    uint tile,
    constant Params& p
) {
    Place place_1 = {};
    place_1.thread_ = thread_1;
    place_1.head_kv = head_kv_1;
    place_1.first_row = tile * ROWS;
    place_1.quad_ = thread_1 / THREAD_COLUMNS;
    place_1.column = thread_1 % THREAD_COLUMNS;
    uint _e16 = place_1.quad_;
    uint r_4 = _e16 * 4u;
    Place _e19 = place_1;
    uint _e20 = row_of(_e19, r_4, p);
    Place _e21 = place_1;
    uint _e24 = row_of(_e21, r_4 + 1u, p);
    Place _e25 = place_1;
    uint _e28 = row_of(_e25, r_4 + 2u, p);
    Place _e29 = place_1;
    uint _e32 = row_of(_e29, r_4 + 3u, p);
    metal::uint4 rows = metal::uint4(_e20, _e24, _e28, _e32);
    uint _e37 = p.pos;
    uint _e41 = p.n_rep;
    place_1.last = metal::uint4(_e37) + (rows / metal::uint4(_e41));
    Place _e45 = place_1;
    return _e45;
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
    uint position,
    uint head_kv_2,
    uint unit_1,
    constant Params& p,
    device type_5 const& keys,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local = {};
    uint _e5 = p.n_head_kv;
    uint _e10 = p.n_word;
    uint at = ((position * _e5) + head_kv_2) * _e10;
    if (false) {
        uint _e23 = p.n_word;
        uint b = metal::min((2u * unit_1) + 1u, _e23 - 1u);
        metal::uint4 _e32 = keys[at + (2u * unit_1)];
        metal::uint4 _e37 = keys[at + b];
        return Eight {as_type<metal::float4>(_e32), as_type<metal::float4>(_e37)};
    }
    if (false) {
        local = false;
    } else {
        local = true;
    }
    bool _e54 = local;
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

Eight value_dims(
    uint position_1,
    uint head_kv_3,
    uint unit_2,
    constant Params& p,
    device type_5 const& values,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_1 = {};
    uint _e5 = p.n_head_kv;
    uint _e10 = p.n_word;
    uint at_1 = ((position_1 * _e5) + head_kv_3) * _e10;
    if (false) {
        uint _e23 = p.n_word;
        uint b_1 = metal::min((2u * unit_2) + 1u, _e23 - 1u);
        metal::uint4 _e32 = values[at_1 + (2u * unit_2)];
        metal::uint4 _e37 = values[at_1 + b_1];
        return Eight {as_type<metal::float4>(_e32), as_type<metal::float4>(_e37)};
    }
    if (false) {
        local_1 = false;
    } else {
        local_1 = true;
    }
    bool _e54 = local_1;
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
    uint block,
    uint first_dim,
    constant Params& p,
    device type_5 const& keys,
    threadgroup type_6& kv_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint i = {};
    Eight dims = {};
    bool local_2 = {};
    i = place_2.thread_;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e105 = i;
            i = _e105 + N_THREAD;
        }
        loop_init = false;
        uint _e5 = i;
        if (_e5 < 512u) {
        } else {
            break;
        }
        {
            uint _e11 = i;
            uint column_1 = _e11 % 64u;
            uint position_3 = (block * BLOCK) + column_1;
            uint _e19 = i;
            uint unit_3 = (first_dim / 8u) + (_e19 / 64u);
            dims = Eight {metal::float4(0.0), metal::float4(0.0)};
            uint _e31 = p.n_pos;
            if (position_3 < _e31) {
                uint _e39 = p.head_dim;
                local_2 = (unit_3 * 8u) < _e39;
            } else {
                local_2 = false;
            }
            bool _e42 = local_2;
            if (_e42) {
                Eight _e44 = key_dims(position_3, place_2.head_kv, unit_3, p, keys, _buffer_sizes);
                dims = _e44;
            }
            uint _e45 = i;
            uint at_2 = ((_e45 / 64u) * 512u) + column_1;
            float _e55 = dims.a.x;
            kv_tile.inner[at_2] = _e55;
            float _e62 = dims.a.y;
            kv_tile.inner[at_2 + 64u] = _e62;
            float _e69 = dims.a.z;
            kv_tile.inner[at_2 + 128u] = _e69;
            float _e76 = dims.a.w;
            kv_tile.inner[at_2 + 192u] = _e76;
            float _e83 = dims.b.x;
            kv_tile.inner[at_2 + 256u] = _e83;
            float _e90 = dims.b.y;
            kv_tile.inner[at_2 + 320u] = _e90;
            float _e97 = dims.b.z;
            kv_tile.inner[at_2 + 384u] = _e97;
            float _e104 = dims.b.w;
            kv_tile.inner[at_2 + 448u] = _e104;
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
    threadgroup type_6& kv_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint i_1 = {};
    Eight dims_1 = {};
    bool local_3 = {};
    i_1 = place_3.thread_;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e100 = i_1;
            i_1 = _e100 + N_THREAD;
        }
        loop_init_1 = false;
        uint _e5 = i_1;
        if (_e5 < 512u) {
        } else {
            break;
        }
        {
            uint _e11 = i_1;
            uint position_4 = first_position + (_e11 / 8u);
            uint _e17 = i_1;
            uint unit_4 = (first_dim_1 / 8u) + (_e17 % 8u);
            dims_1 = Eight {metal::float4(0.0), metal::float4(0.0)};
            uint _e29 = p.n_pos;
            if (position_4 < _e29) {
                uint _e37 = p.head_dim;
                local_3 = (unit_4 * 8u) < _e37;
            } else {
                local_3 = false;
            }
            bool _e40 = local_3;
            if (_e40) {
                Eight _e42 = value_dims(position_4, place_3.head_kv, unit_4, p, values, _buffer_sizes);
                dims_1 = _e42;
            }
            uint _e43 = i_1;
            uint at_3 = _e43 * 8u;
            float _e50 = dims_1.a.x;
            kv_tile.inner[at_3] = _e50;
            float _e57 = dims_1.a.y;
            kv_tile.inner[at_3 + 1u] = _e57;
            float _e64 = dims_1.a.z;
            kv_tile.inner[at_3 + 2u] = _e64;
            float _e71 = dims_1.a.w;
            kv_tile.inner[at_3 + 3u] = _e71;
            float _e78 = dims_1.b.x;
            kv_tile.inner[at_3 + 4u] = _e78;
            float _e85 = dims_1.b.y;
            kv_tile.inner[at_3 + 5u] = _e85;
            float _e92 = dims_1.b.z;
            kv_tile.inner[at_3 + 6u] = _e92;
            float _e99 = dims_1.b.w;
            kv_tile.inner[at_3 + 7u] = _e99;
        }
    }
    return;
}

float query(
    Place place_4,
    uint r_3,
    uint dim_1,
    constant Params& p,
    device type_3 const& q,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e5 = p.head_dim;
    if (dim_1 >= _e5) {
        return 0.0;
    }
    uint _e11 = p.first_head;
    uint _e13 = row_of(place_4, r_3, p);
    uint _e14 = token_head(place_4.head_kv, _e13, p);
    uint _e18 = p.q_stride;
    float _e22 = q[((_e11 + _e14) * _e18) + dim_1];
    return _e22;
}

void load_queries(
    Place place_5,
    uint first_dim_2,
    constant Params& p,
    device type_3 const& q,
    threadgroup type_7& q_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint i_2 = {};
    i_2 = place_5.thread_;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e44 = i_2;
            i_2 = _e44 + N_THREAD;
        }
        loop_init_2 = false;
        uint _e4 = i_2;
        if (_e4 < 256u) {
        } else {
            break;
        }
        {
            uint _e13 = i_2;
            uint dim_3 = first_dim_2 + (_e13 % SLAB);
            uint _e17 = i_2;
            uint r_5 = (_e17 / SLAB) * 4u;
            uint _e23 = i_2;
            uint _e28 = i_2;
            float _e33 = query(place_5, r_5, dim_3, p, q, _buffer_sizes);
            float _e36 = query(place_5, r_5 + 1u, dim_3, p, q, _buffer_sizes);
            float _e39 = query(place_5, r_5 + 2u, dim_3, p, q, _buffer_sizes);
            float _e42 = query(place_5, r_5 + 3u, dim_3, p, q, _buffer_sizes);
            q_tile.inner[((_e23 % SLAB) * Q_STRIDE) + (_e28 / SLAB)] = metal::float4(_e33, _e36, _e39, _e42);
        }
    }
    return;
}

void store_scores(
    Place place_6,
    uint block_1,
    uint column,
    metal::float4 dots,
    constant Params& p,
    threadgroup type_8& weights_tile
) {
    metal::bool4 is_seen = metal::uint4((block_1 * BLOCK) + column) <= place_6.last;
    float _e20 = p.scale;
    weights_tile.inner[(column * Q_STRIDE) + place_6.quad_] = metal::select(metal::float4(-1000000000000000000000000000000.0), dots * _e20, is_seen);
    return;
}

void score(
    Place place_7,
    uint block_2,
    constant Params& p,
    device type_3 const& q,
    device type_5 const& keys,
    threadgroup type_6& kv_tile,
    threadgroup type_7& q_tile,
    threadgroup type_8& weights_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::float4 s0_ = metal::float4(0.0);
    metal::float4 s1_ = metal::float4(0.0);
    metal::float4 s2_ = metal::float4(0.0);
    metal::float4 s3_ = metal::float4(0.0);
    uint dim_2 = 0u;
    uint d = {};
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e78 = dim_2;
            dim_2 = _e78 + SLAB;
        }
        loop_init_3 = false;
        uint _e16 = dim_2;
        uint _e19 = p.head_dim;
        if (_e16 < _e19) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e21 = dim_2;
            load_keys(place_7, block_2, _e21, p, keys, kv_tile, _buffer_sizes);
            uint _e22 = dim_2;
            load_queries(place_7, _e22, p, q, q_tile, _buffer_sizes);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            d = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e76 = d;
                    d = _e76 + 1u;
                }
                loop_init_4 = false;
                uint _e25 = d;
                if (_e25 < SLAB) {
                } else {
                    break;
                }
                {
                    uint _e29 = d;
                    metal::float4 rows_1 = q_tile.inner[(_e29 * Q_STRIDE) + place_7.quad_];
                    uint _e36 = d;
                    uint at_4 = (_e36 * 64u) + place_7.column;
                    float _e43 = kv_tile.inner[at_4];
                    metal::float4 _e45 = s0_;
                    s0_ = metal::fma(metal::float4(_e43), rows_1, _e45);
                    if (false) {
                        float _e55 = kv_tile.inner[at_4 + 16u];
                        metal::float4 _e57 = s1_;
                        s1_ = metal::fma(metal::float4(_e55), rows_1, _e57);
                        float _e63 = kv_tile.inner[at_4 + 32u];
                        metal::float4 _e65 = s2_;
                        s2_ = metal::fma(metal::float4(_e63), rows_1, _e65);
                        float _e71 = kv_tile.inner[at_4 + 48u];
                        metal::float4 _e73 = s3_;
                        s3_ = metal::fma(metal::float4(_e71), rows_1, _e73);
                    }
                }
            }
        }
    }
    metal::float4 _e82 = s0_;
    store_scores(place_7, block_2, place_7.column, _e82, p, weights_tile);
    if (false) {
        metal::float4 _e90 = s1_;
        store_scores(place_7, block_2, place_7.column + 16u, _e90, p, weights_tile);
        metal::float4 _e94 = s2_;
        store_scores(place_7, block_2, place_7.column + 32u, _e94, p, weights_tile);
        metal::float4 _e98 = s3_;
        store_scores(place_7, block_2, place_7.column + 48u, _e98, p, weights_tile);
        return;
    } else {
        return;
    }
}

metal::float4 largest_of(
    uint quad_,
    threadgroup type_9& parts
) {
    metal::float4 largest = {};
    uint part = 1u;
    metal::float4 _e3 = parts.inner[quad_];
    largest = _e3;
    bool loop_init_5 = true;
    while(true) {
        if (!loop_init_5) {
            uint _e23 = part;
            part = _e23 + 1u;
        }
        loop_init_5 = false;
        uint _e7 = part;
        if (_e7 < 16u) {
        } else {
            break;
        }
        {
            metal::float4 _e10 = largest;
            uint _e12 = part;
            metal::float4 _e20 = parts.inner[(_e12 * 4u) + quad_];
            largest = metal::max(_e10, _e20);
        }
    }
    metal::float4 _e25 = largest;
    return _e25;
}

Stats softmax(
    Place place_8,
    threadgroup type_8& weights_tile,
    threadgroup type_9& parts
) {
    uint i_3 = {};
    Stats stats = {};
    uint i_4 = {};
    uint j_1 = {};
    uint i_5 = {};
    metal::float4 sum = {};
    uint j_2 = {};
    uint part_1 = 0u;
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    i_3 = place_8.thread_;
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e50 = i_3;
            i_3 = _e50 + N_THREAD;
        }
        loop_init_6 = false;
        uint _e7 = i_3;
        if (_e7 < 64u) {
        } else {
            break;
        }
        {
            uint _e11 = i_3;
            uint _e17 = i_3;
            uint at_5 = (((_e11 / 4u) * 4u) * Q_STRIDE) + (_e17 % 4u);
            metal::float4 _e22 = weights_tile.inner[at_5];
            metal::float4 _e27 = weights_tile.inner[at_5 + Q_STRIDE];
            metal::float4 a = metal::max(_e22, _e27);
            metal::float4 _e36 = weights_tile.inner[at_5 + 10u];
            metal::float4 _e44 = weights_tile.inner[at_5 + 15u];
            metal::float4 b_2 = metal::max(_e36, _e44);
            uint _e47 = i_3;
            parts.inner[_e47] = metal::max(a, b_2);
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    metal::float4 _e54 = largest_of(place_8.quad_, parts);
    stats = Stats {_e54, metal::float4(0.0)};
    i_4 = place_8.thread_;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e100 = i_4;
            i_4 = _e100 + N_THREAD;
        }
        loop_init_7 = false;
        uint _e61 = i_4;
        if (_e61 < 64u) {
        } else {
            break;
        }
        {
            uint _e65 = i_4;
            metal::float4 _e67 = largest_of(_e65 % 4u, parts);
            j_1 = 0u;
            bool loop_init_8 = true;
            while(true) {
                if (!loop_init_8) {
                    uint _e98 = j_1;
                    j_1 = _e98 + 1u;
                }
                loop_init_8 = false;
                uint _e70 = j_1;
                if (_e70 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e73 = i_4;
                    uint _e77 = j_1;
                    uint _e81 = i_4;
                    uint at_6 = ((((_e73 / 4u) * 4u) + _e77) * Q_STRIDE) + (_e81 % 4u);
                    metal::float4 score_1 = weights_tile.inner[at_6];
                    weights_tile.inner[at_6] = metal::select(metal::exp(score_1 - _e67), metal::float4(0.0), score_1 < metal::float4(-900000000000000000000000000000.0));
                }
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    i_5 = place_8.thread_;
    bool loop_init_9 = true;
    while(true) {
        if (!loop_init_9) {
            uint _e143 = i_5;
            i_5 = _e143 + N_THREAD;
        }
        loop_init_9 = false;
        uint _e105 = i_5;
        if (_e105 < 64u) {
        } else {
            break;
        }
        {
            uint _e109 = i_5;
            uint _e115 = i_5;
            uint at_7 = (((_e109 / 4u) * 4u) * Q_STRIDE) + (_e115 % 4u);
            metal::float4 _e120 = weights_tile.inner[at_7];
            sum = _e120;
            j_2 = 1u;
            bool loop_init_10 = true;
            while(true) {
                if (!loop_init_10) {
                    uint _e137 = j_2;
                    j_2 = _e137 + 1u;
                }
                loop_init_10 = false;
                uint _e124 = j_2;
                if (_e124 < 4u) {
                } else {
                    break;
                }
                {
                    metal::float4 _e127 = sum;
                    uint _e129 = j_2;
                    metal::float4 _e134 = weights_tile.inner[at_7 + (_e129 * Q_STRIDE)];
                    sum = _e127 + _e134;
                }
            }
            uint _e140 = i_5;
            metal::float4 _e142 = sum;
            parts.inner[_e140] = _e142;
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    bool loop_init_11 = true;
    while(true) {
        if (!loop_init_11) {
            uint _e162 = part_1;
            part_1 = _e162 + 1u;
        }
        loop_init_11 = false;
        uint _e148 = part_1;
        if (_e148 < 16u) {
        } else {
            break;
        }
        {
            metal::float4 _e152 = stats.sum;
            uint _e154 = part_1;
            metal::float4 _e159 = parts.inner[(_e154 * 4u) + place_8.quad_];
            stats.sum = _e152 + _e159;
        }
    }
    Stats _e164 = stats;
    return _e164;
}

type_13 weigh(
    Place place_9,
    uint block_3,
    uint first_dim_3,
    constant Params& p,
    device type_5 const& values,
    threadgroup type_6& kv_tile,
    threadgroup type_8& weights_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::float4 o0_ = metal::float4(0.0);
    metal::float4 o1_ = metal::float4(0.0);
    metal::float4 o2_ = metal::float4(0.0);
    metal::float4 o3_ = metal::float4(0.0);
    uint position_2 = 0u;
    uint i_6 = {};
    bool loop_init_12 = true;
    while(true) {
        if (!loop_init_12) {
            uint _e81 = position_2;
            position_2 = _e81 + SLAB;
        }
        loop_init_12 = false;
        uint _e17 = position_2;
        if (_e17 < BLOCK) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e22 = position_2;
            load_values(place_9, (block_3 * BLOCK) + _e22, first_dim_3, p, values, kv_tile, _buffer_sizes);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            i_6 = 0u;
            bool loop_init_13 = true;
            while(true) {
                if (!loop_init_13) {
                    uint _e79 = i_6;
                    i_6 = _e79 + 1u;
                }
                loop_init_13 = false;
                uint _e26 = i_6;
                if (_e26 < SLAB) {
                } else {
                    break;
                }
                {
                    uint _e30 = position_2;
                    uint _e31 = i_6;
                    metal::float4 rows_2 = weights_tile.inner[((_e30 + _e31) * Q_STRIDE) + place_9.quad_];
                    uint _e39 = i_6;
                    uint at_8 = (_e39 * 64u) + place_9.column;
                    float _e46 = kv_tile.inner[at_8];
                    metal::float4 _e48 = o0_;
                    o0_ = metal::fma(metal::float4(_e46), rows_2, _e48);
                    if (false) {
                        float _e58 = kv_tile.inner[at_8 + 16u];
                        metal::float4 _e60 = o1_;
                        o1_ = metal::fma(metal::float4(_e58), rows_2, _e60);
                        float _e66 = kv_tile.inner[at_8 + 32u];
                        metal::float4 _e68 = o2_;
                        o2_ = metal::fma(metal::float4(_e66), rows_2, _e68);
                        float _e74 = kv_tile.inner[at_8 + 48u];
                        metal::float4 _e76 = o3_;
                        o3_ = metal::fma(metal::float4(_e74), rows_2, _e76);
                    }
                }
            }
        }
    }
    metal::float4 _e84 = o0_;
    metal::float4 _e85 = o1_;
    metal::float4 _e86 = o2_;
    metal::float4 _e87 = o3_;
    return type_13 {{_e84, _e85, _e86, _e87}};
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
, threadgroup type_6& kv_tile
, threadgroup type_7& q_tile
, threadgroup type_8& weights_tile
, threadgroup type_9& parts
, device type_3& partials [[buffer(4)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(5)]]
) {
    uint dim = 0u;
    uint r = {};
    uint j = {};
    uint r_1 = 0u;
    uint _e4 = p.n_row;
    uint n_tile = ((_e4 + ROWS) - 1u) / ROWS;
    Place _e15 = place_of(thread_, group.y / n_tile, group.y % n_tile, p);
    uint _e18 = p.first_block;
    uint block_4 = _e18 + group.x;
    score(_e15, block_4, p, q, keys, kv_tile, q_tile, weights_tile, _buffer_sizes);
    Stats _e21 = softmax(_e15, weights_tile, parts);
    uint _e25 = p.n_head_kv;
    uint _e29 = p.n_row;
    uint first = (group.x * _e25) * _e29;
    bool loop_init_14 = true;
    while(true) {
        if (!loop_init_14) {
            uint _e92 = dim;
            dim = _e92 + 64u;
        }
        loop_init_14 = false;
        uint _e33 = dim;
        uint _e36 = p.head_dim;
        if (_e33 < _e36) {
        } else {
            break;
        }
        {
            uint _e38 = dim;
            type_13 _e39 = weigh(_e15, block_4, _e38, p, values, kv_tile, weights_tile, _buffer_sizes);
            r = 0u;
            bool loop_init_15 = true;
            while(true) {
                if (!loop_init_15) {
                    uint _e90 = r;
                    r = _e90 + 1u;
                }
                loop_init_15 = false;
                uint _e42 = r;
                if (_e42 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e50 = r;
                    uint row_1 = (_e15.first_row + (_e15.quad_ * 4u)) + _e50;
                    uint _e54 = p.n_row;
                    if (row_1 < _e54) {
                        uint _e57 = token_head(_e15.head_kv, row_1, p);
                        uint _e61 = p.head_dim;
                        uint at_9 = (first + _e57) * _e61;
                        j = 0u;
                        bool loop_init_16 = true;
                        while(true) {
                            if (!loop_init_16) {
                                uint _e87 = j;
                                j = _e87 + 1u;
                            }
                            loop_init_16 = false;
                            uint _e65 = j;
                            if (_e65 < COLUMNS) {
                            } else {
                                break;
                            }
                            {
                                uint _e68 = dim;
                                uint _e71 = j;
                                uint to = (_e68 + _e15.column) + (_e71 * 16u);
                                uint _e77 = p.head_dim;
                                if (to < _e77) {
                                    uint _e82 = j;
                                    uint _e84 = r;
                                    partials[at_9 + to] = _e39.inner[_e82][_e84];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    if (_e15.column == 0u) {
        bool loop_init_17 = true;
        while(true) {
            if (!loop_init_17) {
                uint _e136 = r_1;
                r_1 = _e136 + 1u;
            }
            loop_init_17 = false;
            uint _e100 = r_1;
            if (_e100 < 4u) {
            } else {
                break;
            }
            {
                uint _e108 = r_1;
                uint row_2 = (_e15.first_row + (_e15.quad_ * 4u)) + _e108;
                uint _e112 = p.n_row;
                if (row_2 < _e112) {
                    uint _e116 = p.stats_at;
                    uint _e119 = token_head(_e15.head_kv, row_2, p);
                    uint at_10 = _e116 + (2u * (first + _e119));
                    uint _e126 = r_1;
                    partials[at_10] = _e21.largest[_e126];
                    uint _e133 = r_1;
                    partials[at_10 + 1u] = _e21.sum[_e133];
                }
            }
        }
        return;
    } else {
        return;
    }
}
