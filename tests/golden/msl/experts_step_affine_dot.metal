// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size1;
    uint size2;
    uint size3;
    uint size6;
    uint size7;
};

typedef uint type_2[1];
typedef metal::uint2 type_4[1];
typedef metal::uint4 type_6[1];
struct type_7 {
    uint inner[8];
};
struct Chunk {
    type_7 words;
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
struct type_17 {
    metal::uint4 inner[448];
};
struct type_18 {
    metal::uint4 inner[3];
};
struct type_22 {
    int inner[16];
};
struct type_23 {
    metal::uint4 inner[4];
};
struct type_24 {
    metal::uint4 inner[8];
};
struct type_25 {
    Chunks inner[4];
};
struct Params {
    metal::packed_uint3 planes;
    uint pairs_at;
    metal::packed_uint3 planes_up;
    uint cols;
    uint rows;
    uint n_turn;
    char _pad6[8];
};
constant uint CHUNK = 32u;
constant bool BIASED = true;
constant uint ONES = 16843009u;
constant uint VECTORS = 7u;
constant uint FACTS = 6u;
constant uint NONE = 4294967295u;
constant uint BITS = 4u;
constant uint GROUP = 64u;
constant uint ROWS = 2u;
constant uint TOKENS = 1u;
constant uint LANES = 32u;
constant uint THREADS = 128u;
constant uint TILE = 2048u;
constant uint TILE_VECTORS = 448u;
constant uint DEPTH = 1u;
constant uint STEP = 0u;

metal::uint3 row_at(
    metal::uint3 planes,
    uint row,
    uint cols
) {
    uint groups = row * (cols / GROUP);
    return metal::uint3(planes.x + (row * ((cols / 32u) * BITS)), (2u * planes.y) + groups, (2u * planes.z) + groups);
}

float bf16_of(
    uint word,
    uint index
) {
    return as_type<float>(((index % 2u) == 1u) ? (word & 4294901760u) : (word << 16u));
}

Chunk load_chunk(
    metal::uint3 row_1,
    uint chunk,
    uint n,
    device type_2 const& w,
    device type_4 const& w2_,
    device type_6 const& w4_,
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

metal::float2 chunk_scale_bias(
    Chunk c_1,
    metal::uint3 row_2,
    uint chunk_1
) {
    metal::uint2 group_2 = row_2.yz + metal::uint2((chunk_1 * CHUNK) / GROUP);
    float _e12 = bf16_of(c_1.scale, group_2.x);
    float _e15 = bf16_of(c_1.bias, group_2.y);
    return metal::float2(_e12, _e15);
}

Chunks load_rows(
    thread Rows& rows_1,
    uint chunk_2,
    uint cols_1,
    device type_2 const& w,
    device type_4 const& w2_,
    device type_6 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunks chunks = {};
    uint r_2 = 0u;
    uint col = chunk_2 * CHUNK;
    if (col < cols_1) {
        bool loop_init_3 = true;
        while(true) {
            if (!loop_init_3) {
                uint _e20 = r_2;
                r_2 = _e20 + 1u;
            }
            loop_init_3 = false;
            uint _e9 = r_2;
            if (_e9 < ROWS) {
            } else {
                break;
            }
            {
                uint _e12 = r_2;
                uint _e14 = r_2;
                metal::uint3 _e16 = rows_1.inner[_e14];
                Chunk _e18 = load_chunk(_e16, chunk_2, cols_1 - col, w, w2_, w4_, _buffer_sizes);
                chunks.inner[_e12] = _e18;
            }
        }
    }
    Chunks _e22 = chunks;
    return _e22;
}

uint unit_exponent(
    float largest
) {
    uint power = (as_type<uint>(largest) + 65793u) & 2139095040u;
    return metal::max(power, 192937984u) - 184549376u;
}

metal::float4x4 in_order(
    metal::float4x4 v
) {
    if (false) {
        return metal::transpose(v);
    }
    if (true) {
        return metal::float4x4(metal::float4(v[0].xz, v[1].xz), metal::float4(v[0].yw, v[1].yw), metal::float4(v[2].xz, v[3].xz), metal::float4(v[2].yw, v[3].yw));
    }
    return v;
}

metal::int4 naga_f2i32(metal::float4 value) {
    return static_cast<metal::int4>(metal::clamp(value, -2147483600.0, 2147483500.0));
}

metal::uint3 planes_of(
    metal::float4 x
) {
    metal::uint4 b = as_type<metal::uint4>(naga_f2i32(metal::rint(x))) + metal::uint4(32896u);
    metal::uint2 even = (b.xz & metal::uint2(16711935u)) | ((b.yw & metal::uint2(16711935u)) << metal::uint2(8u));
    metal::uint2 odd = ((b.xz >> metal::uint2(8u)) & metal::uint2(16711935u)) | (b.yw & metal::uint2(4278255360u));
    return metal::uint3(((even.x & 65535u) | (even.y << 16u)) ^ 2155905152u, ((odd.x & 65535u) | (odd.y << 16u)) ^ 2155905152u, (even.x >> 16u) | (even.y & 4294901760u));
}

int sum_of(
    metal::uint4 plane
) {
    uint _e1 = plane.x;
    packed_char4 reinterpreted_packed_char4_e1 = as_type<packed_char4>(_e1);
    packed_char4 reinterpreted_packed_char4_e2 = as_type<packed_char4>(ONES);
    uint _e4 = plane.y;
    packed_char4 reinterpreted_packed_char4_e4 = as_type<packed_char4>(_e4);
    packed_char4 reinterpreted_packed_char4_e5 = as_type<packed_char4>(ONES);
    uint _e8 = plane.z;
    packed_char4 reinterpreted_packed_char4_e8 = as_type<packed_char4>(_e8);
    packed_char4 reinterpreted_packed_char4_e9 = as_type<packed_char4>(ONES);
    uint _e11 = plane.w;
    packed_char4 reinterpreted_packed_char4_e11 = as_type<packed_char4>(_e11);
    packed_char4 reinterpreted_packed_char4_e12 = as_type<packed_char4>(ONES);
    return as_type<int>(as_type<uint>(as_type<int>(as_type<uint>(( + reinterpreted_packed_char4_e1[0] * reinterpreted_packed_char4_e2[0] + reinterpreted_packed_char4_e1[1] * reinterpreted_packed_char4_e2[1] + reinterpreted_packed_char4_e1[2] * reinterpreted_packed_char4_e2[2] + reinterpreted_packed_char4_e1[3] * reinterpreted_packed_char4_e2[3])) + as_type<uint>(( + reinterpreted_packed_char4_e4[0] * reinterpreted_packed_char4_e5[0] + reinterpreted_packed_char4_e4[1] * reinterpreted_packed_char4_e5[1] + reinterpreted_packed_char4_e4[2] * reinterpreted_packed_char4_e5[2] + reinterpreted_packed_char4_e4[3] * reinterpreted_packed_char4_e5[3])))) + as_type<uint>(as_type<int>(as_type<uint>(( + reinterpreted_packed_char4_e8[0] * reinterpreted_packed_char4_e9[0] + reinterpreted_packed_char4_e8[1] * reinterpreted_packed_char4_e9[1] + reinterpreted_packed_char4_e8[2] * reinterpreted_packed_char4_e9[2] + reinterpreted_packed_char4_e8[3] * reinterpreted_packed_char4_e9[3])) + as_type<uint>(( + reinterpreted_packed_char4_e11[0] * reinterpreted_packed_char4_e12[0] + reinterpreted_packed_char4_e11[1] * reinterpreted_packed_char4_e12[1] + reinterpreted_packed_char4_e11[2] * reinterpreted_packed_char4_e12[2] + reinterpreted_packed_char4_e11[3] * reinterpreted_packed_char4_e12[3])))));
}

uint place(
    uint token,
    uint k,
    uint chunk_3
) {
    return (((token * VECTORS) + k) * 64u) + chunk_3;
}

int start_code(
) {
    return 8;
}

int naga_neg(int val) {
    return as_type<int>(-as_type<uint>(val));
}

void load_tile(
    Tokens tokens,
    uint start,
    uint thread_1,
    device type_13 const& x4_,
    threadgroup type_17& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint first = 0u;
    metal::float4x4 v_1 = {};
    float largest_1 = {};
    float sum = {};
    type_18 planes_1 = {};
    uint k_1 = {};
    int low = {};
    int high = {};
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint n_half = metal::min(TILE, tokens.cols - start) / 16u;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e202 = first;
            first = _e202 + THREADS;
        }
        loop_init_4 = false;
        uint _e11 = first;
        if (_e11 < (TOKENS * n_half)) {
        } else {
            break;
        }
        {
            uint _e15 = first;
            uint item = _e15 + thread_1;
            uint t_3 = item / n_half;
            uint half_1 = item % n_half;
            v_1 = metal::float4x4 {};
            if (t_3 < tokens.n) {
                uint at_3 = ((tokens.at[t_3] + start) / 4u) + (4u * half_1);
                metal::float4 _e33 = x4_[at_3];
                metal::float4 _e38 = x4_[at_3 + 1u];
                metal::float4 _e43 = x4_[at_3 + 2u];
                metal::float4 _e48 = x4_[at_3 + 3u];
                v_1 = metal::float4x4(_e33, _e38, _e43, _e48);
            }
            metal::float4 _e51 = v_1[0];
            metal::float4 _e54 = v_1[1];
            metal::float4 _e58 = v_1[2];
            metal::float4 _e61 = v_1[3];
            metal::float4 largest4_ = metal::max(metal::max(metal::abs(_e51), metal::abs(_e54)), metal::max(metal::abs(_e58), metal::abs(_e61)));
            largest_1 = metal::max(metal::max(largest4_.x, largest4_.y), metal::max(largest4_.z, largest4_.w));
            metal::float4 _e74 = v_1[0];
            metal::float4 _e76 = v_1[1];
            metal::float4 _e79 = v_1[2];
            metal::float4 _e81 = v_1[3];
            metal::float4 sum4_ = (_e74 + _e76) + (_e79 + _e81);
            sum = (sum4_.x + sum4_.y) + (sum4_.z + sum4_.w);
            float _e92 = largest_1;
            float _e93 = largest_1;
            float unnamed = metal::simd_shuffle_xor(_e93, 1u);
            largest_1 = metal::max(_e92, unnamed);
            float _e97 = sum;
            float _e98 = sum;
            float unnamed_1 = metal::simd_shuffle_xor(_e98, 1u);
            sum = _e97 + unnamed_1;
            float _e102 = largest_1;
            uint _e103 = unit_exponent(_e102);
            float inverse = as_type<float>(2130706432u - _e103);
            metal::float4x4 _e107 = v_1;
            metal::float4x4 _e108 = in_order(_e107);
            planes_1 = type_18 {};
            k_1 = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e133 = k_1;
                    k_1 = _e133 + 1u;
                }
                loop_init_5 = false;
                uint _e113 = k_1;
                if (_e113 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e116 = k_1;
                    metal::uint3 _e119 = planes_of(_e108[_e116] * inverse);
                    uint _e121 = k_1;
                    planes_1.inner[0][_e121] = _e119.x;
                    uint _e125 = k_1;
                    planes_1.inner[1][_e125] = _e119.y;
                    uint _e129 = k_1;
                    planes_1.inner[2][_e129] = _e119.z;
                }
            }
            metal::uint4 _e136 = planes_1.inner[1];
            int _e137 = sum_of(_e136);
            metal::uint4 _e141 = planes_1.inner[0];
            int _e142 = sum_of(_e141);
            low = as_type<int>(as_type<uint>(_e137 << 8u) + as_type<uint>(_e142));
            metal::uint4 _e146 = planes_1.inner[2];
            int _e147 = sum_of(_e146);
            high = _e147;
            int _e149 = low;
            int _e150 = low;
            int unnamed_2 = metal::simd_shuffle_xor(_e150, 1u);
            low = as_type<int>(as_type<uint>(_e149) + as_type<uint>(unnamed_2));
            int _e154 = high;
            int _e155 = high;
            int unnamed_3 = metal::simd_shuffle_xor(_e155, 1u);
            high = as_type<int>(as_type<uint>(_e154) + as_type<uint>(unnamed_3));
            if (t_3 < TOKENS) {
                uint chunk_5 = half_1 / 2u;
                uint k_5 = (half_1 % 2u) * 3u;
                uint _e168 = place(t_3, k_5, chunk_5);
                metal::uint4 _e171 = planes_1.inner[0];
                x_tile.inner[_e168] = _e171;
                uint _e175 = place(t_3, k_5 + 1u, chunk_5);
                metal::uint4 _e178 = planes_1.inner[1];
                x_tile.inner[_e175] = _e178;
                uint _e182 = place(t_3, k_5 + 2u, chunk_5);
                metal::uint4 _e185 = planes_1.inner[2];
                x_tile.inner[_e182] = _e185;
                if (k_5 == 0u) {
                    int _e188 = low;
                    int _e189 = high;
                    int _e191 = start_code();
                    metal::uint2 starts = as_type<metal::uint2>(as_type<metal::int2>(as_type<metal::uint2>(metal::int2(_e188, _e189)) * as_type<uint>(naga_neg(_e191))));
                    uint _e197 = place(t_3, FACTS, chunk_5);
                    float _e199 = sum;
                    x_tile.inner[_e197] = metal::uint4(_e103, as_type<uint>(_e199), starts);
                }
            }
        }
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    return;
}

uint chunk_bytes(
    Chunk c_2,
    uint k_2
) {
    uint word_1 = {};
    if (false) {
        return c_2.words.inner[k_2] ^ 2155905152u;
    }
    if (true) {
        return (c_2.words.inner[k_2 / 2u] >> (BITS * (k_2 % 2u))) & 252645135u;
    }
    uint bit = 16u * k_2;
    uint shift = bit % 32u;
    word_1 = c_2.words.inner[bit / 32u] >> shift;
    if (32u < (shift + 16u)) {
        uint _e57 = word_1;
        word_1 = _e57 | (c_2.words.inner[(bit / 32u) + 1u] << (32u - shift));
    }
    uint _e68 = word_1;
    uint _e71 = word_1;
    uint halves = (_e68 & 65535u) | ((_e71 << 8u) & 4294901760u);
    return ((halves & 16711935u) | ((halves << 4u) & 4278255360u)) & 252645135u;
}

void add_chunk(
    thread Sums& sums,
    thread Chunks& chunks_1,
    thread Rows& rows_2,
    uint chunk_4,
    uint at,
    threadgroup type_17& x_tile
) {
    type_22 low_1 = {};
    type_22 middle = {};
    type_22 high_1 = {};
    type_23 facts = {};
    uint t = 0u;
    uint r_3 = {};
    uint half_ = 0u;
    type_24 codes = {};
    uint r_4 = {};
    uint k_3 = {};
    uint t_1 = {};
    uint r_5 = {};
    uint k_4 = {};
    uint r_6 = 0u;
    uint t_2 = {};
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e53 = t;
            t = _e53 + 1u;
        }
        loop_init_6 = false;
        uint _e11 = t;
        if (_e11 < TOKENS) {
        } else {
            break;
        }
        {
            uint _e14 = t;
            uint _e17 = t;
            uint _e19 = place(_e17, FACTS, at);
            metal::uint4 _e21 = x_tile.inner[_e19];
            facts.inner[_e14] = _e21;
            r_3 = 0u;
            bool loop_init_7 = true;
            while(true) {
                if (!loop_init_7) {
                    uint _e50 = r_3;
                    r_3 = _e50 + 1u;
                }
                loop_init_7 = false;
                uint _e24 = r_3;
                if (_e24 < ROWS) {
                } else {
                    break;
                }
                {
                    uint _e27 = r_3;
                    uint _e30 = t;
                    uint _e33 = t;
                    uint _e36 = facts.inner[_e33].z;
                    low_1.inner[(_e27 * TOKENS) + _e30] = as_type<int>(_e36);
                    uint _e38 = r_3;
                    uint _e41 = t;
                    uint _e44 = t;
                    uint _e47 = facts.inner[_e44].w;
                    high_1.inner[(_e38 * TOKENS) + _e41] = as_type<int>(_e47);
                }
            }
        }
    }
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e182 = half_;
            half_ = _e182 + 1u;
        }
        loop_init_8 = false;
        uint _e57 = half_;
        if (_e57 < 2u) {
        } else {
            break;
        }
        {
            codes = type_24 {};
            r_4 = 0u;
            bool loop_init_9 = true;
            while(true) {
                if (!loop_init_9) {
                    uint _e89 = r_4;
                    r_4 = _e89 + 1u;
                }
                loop_init_9 = false;
                uint _e64 = r_4;
                if (_e64 < ROWS) {
                } else {
                    break;
                }
                {
                    k_3 = 0u;
                    bool loop_init_10 = true;
                    while(true) {
                        if (!loop_init_10) {
                            uint _e86 = k_3;
                            k_3 = _e86 + 1u;
                        }
                        loop_init_10 = false;
                        uint _e69 = k_3;
                        if (_e69 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e72 = r_4;
                            uint _e74 = k_3;
                            uint _e76 = r_4;
                            Chunk _e78 = chunks_1.inner[_e76];
                            uint _e80 = half_;
                            uint _e82 = k_3;
                            uint _e84 = chunk_bytes(_e78, (4u * _e80) + _e82);
                            codes.inner[_e72][_e74] = _e84;
                        }
                    }
                }
            }
            t_1 = 0u;
            bool loop_init_11 = true;
            while(true) {
                if (!loop_init_11) {
                    uint _e179 = t_1;
                    t_1 = _e179 + 1u;
                }
                loop_init_11 = false;
                uint _e93 = t_1;
                if (_e93 < TOKENS) {
                } else {
                    break;
                }
                {
                    uint _e97 = t_1;
                    uint _e99 = half_;
                    uint _e101 = place(_e97, 3u * _e99, at);
                    metal::uint4 p0_ = x_tile.inner[_e101];
                    uint _e105 = t_1;
                    uint _e107 = half_;
                    uint _e111 = place(_e105, (3u * _e107) + 1u, at);
                    metal::uint4 p1_ = x_tile.inner[_e111];
                    uint _e115 = t_1;
                    uint _e117 = half_;
                    uint _e121 = place(_e115, (3u * _e117) + 2u, at);
                    metal::uint4 p2_ = x_tile.inner[_e121];
                    r_5 = 0u;
                    bool loop_init_12 = true;
                    while(true) {
                        if (!loop_init_12) {
                            uint _e176 = r_5;
                            r_5 = _e176 + 1u;
                        }
                        loop_init_12 = false;
                        uint _e126 = r_5;
                        if (_e126 < ROWS) {
                        } else {
                            break;
                        }
                        {
                            uint _e129 = r_5;
                            uint _e132 = t_1;
                            uint i_4 = (_e129 * TOKENS) + _e132;
                            k_4 = 0u;
                            bool loop_init_13 = true;
                            while(true) {
                                if (!loop_init_13) {
                                    uint _e173 = k_4;
                                    k_4 = _e173 + 1u;
                                }
                                loop_init_13 = false;
                                uint _e136 = k_4;
                                if (_e136 < 4u) {
                                } else {
                                    break;
                                }
                                {
                                    int _e140 = low_1.inner[i_4];
                                    uint _e141 = r_5;
                                    uint _e143 = k_4;
                                    uint _e145 = codes.inner[_e141][_e143];
                                    uint _e146 = k_4;
                                    uint _e147 = p0_[_e146];
                                    packed_char4 reinterpreted_packed_char4_e145 = as_type<packed_char4>(_e145);
                                    packed_char4 reinterpreted_packed_char4_e147 = as_type<packed_char4>(_e147);
                                    low_1.inner[i_4] = as_type<int>(as_type<uint>(_e140) + as_type<uint>(( + reinterpreted_packed_char4_e145[0] * reinterpreted_packed_char4_e147[0] + reinterpreted_packed_char4_e145[1] * reinterpreted_packed_char4_e147[1] + reinterpreted_packed_char4_e145[2] * reinterpreted_packed_char4_e147[2] + reinterpreted_packed_char4_e145[3] * reinterpreted_packed_char4_e147[3])));
                                    int _e151 = middle.inner[i_4];
                                    uint _e152 = r_5;
                                    uint _e154 = k_4;
                                    uint _e156 = codes.inner[_e152][_e154];
                                    uint _e157 = k_4;
                                    uint _e158 = p1_[_e157];
                                    packed_char4 reinterpreted_packed_char4_e156 = as_type<packed_char4>(_e156);
                                    packed_char4 reinterpreted_packed_char4_e158 = as_type<packed_char4>(_e158);
                                    middle.inner[i_4] = as_type<int>(as_type<uint>(_e151) + as_type<uint>(( + reinterpreted_packed_char4_e156[0] * reinterpreted_packed_char4_e158[0] + reinterpreted_packed_char4_e156[1] * reinterpreted_packed_char4_e158[1] + reinterpreted_packed_char4_e156[2] * reinterpreted_packed_char4_e158[2] + reinterpreted_packed_char4_e156[3] * reinterpreted_packed_char4_e158[3])));
                                    int _e162 = high_1.inner[i_4];
                                    uint _e163 = r_5;
                                    uint _e165 = k_4;
                                    uint _e167 = codes.inner[_e163][_e165];
                                    uint _e168 = k_4;
                                    uint _e169 = p2_[_e168];
                                    packed_char4 reinterpreted_packed_char4_e167 = as_type<packed_char4>(_e167);
                                    packed_char4 reinterpreted_packed_char4_e169 = as_type<packed_char4>(_e169);
                                    high_1.inner[i_4] = as_type<int>(as_type<uint>(_e162) + as_type<uint>(( + reinterpreted_packed_char4_e167[0] * reinterpreted_packed_char4_e169[0] + reinterpreted_packed_char4_e167[1] * reinterpreted_packed_char4_e169[1] + reinterpreted_packed_char4_e167[2] * reinterpreted_packed_char4_e169[2] + reinterpreted_packed_char4_e167[3] * reinterpreted_packed_char4_e169[3])));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    bool loop_init_14 = true;
    while(true) {
        if (!loop_init_14) {
            uint _e250 = r_6;
            r_6 = _e250 + 1u;
        }
        loop_init_14 = false;
        uint _e186 = r_6;
        if (_e186 < ROWS) {
        } else {
            break;
        }
        {
            uint _e189 = r_6;
            Chunk _e191 = chunks_1.inner[_e189];
            uint _e192 = r_6;
            metal::uint3 _e194 = rows_2.inner[_e192];
            metal::float2 _e195 = chunk_scale_bias(_e191, _e194, chunk_4);
            float bias = metal::fma(8.0, _e195.x, _e195.y);
            t_2 = 0u;
            bool loop_init_15 = true;
            while(true) {
                if (!loop_init_15) {
                    uint _e247 = t_2;
                    t_2 = _e247 + 1u;
                }
                loop_init_15 = false;
                uint _e208 = t_2;
                if (_e208 < TOKENS) {
                } else {
                    break;
                }
                {
                    uint _e211 = r_6;
                    uint _e214 = t_2;
                    uint i_5 = (_e211 * TOKENS) + _e214;
                    int _e217 = high_1.inner[i_5];
                    int _e220 = middle.inner[i_5];
                    int _e224 = low_1.inner[i_5];
                    float whole = metal::fma(static_cast<float>(_e217), 65536.0, static_cast<float>(as_type<int>(as_type<uint>(_e220 << 8u) + as_type<uint>(_e224))));
                    uint _e229 = t_2;
                    uint _e232 = facts.inner[_e229].x;
                    float _e237 = sums.inner[i_5];
                    float sum_3 = metal::fma(whole * as_type<float>(_e232), _e195.x, _e237);
                    uint _e240 = t_2;
                    uint _e243 = facts.inner[_e240].y;
                    sums.inner[i_5] = metal::fma(bias, as_type<float>(_e243), sum_3);
                }
            }
        }
    }
    return;
}

void show(
    uint thread_2,
    float value,
    threadgroup type_17& x_tile
) {
    x_tile.inner[thread_2].x = as_type<uint>(value);
    return;
}

float shown(
    uint thread_3,
    threadgroup type_17& x_tile
) {
    uint _e4 = x_tile.inner[thread_3].x;
    return as_type<float>(_e4);
}

float team_sum(
    float value_1,
    uint thread_4,
    uint n_lane_1,
    threadgroup type_17& x_tile
) {
    float sum_1 = {};
    uint step = 16u;
    uint step_1 = 16u;
    sum_1 = value_1;
    if (LANES <= n_lane_1) {
        bool loop_init_16 = true;
        while(true) {
            if (!loop_init_16) {
                uint _e19 = step;
                step = _e19 / 2u;
            }
            loop_init_16 = false;
            uint _e12 = step;
            if (0u < _e12) {
            } else {
                break;
            }
            {
                float _e14 = sum_1;
                float _e15 = sum_1;
                uint _e16 = step;
                float unnamed_4 = metal::simd_shuffle_xor(_e15, _e16);
                sum_1 = _e14 + unnamed_4;
            }
        }
        float _e22 = sum_1;
        return _e22;
    }
    bool loop_init_17 = true;
    while(true) {
        if (!loop_init_17) {
            uint _e37 = step_1;
            step_1 = _e37 / 2u;
        }
        loop_init_17 = false;
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
    device type_2 const& w,
    device type_4 const& w2_,
    device type_6 const& w4_,
    device type_13 const& x4_,
    threadgroup type_17& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_25 ahead = {};
    uint d = 0u;
    Sums sums_1 = {};
    uint first_1 = 0u;
    bool local_1 = {};
    bool local_2 = {};
    uint start_1 = {};
    uint d_1 = {};
    Chunks chunks_2 = {};
    uint i_3 = 0u;
    uint n_chunk = ((tokens_1.cols + CHUNK) - 1u) / CHUNK;
    uint lane = thread_5 % LANES;
    bool loop_init_18 = true;
    while(true) {
        if (!loop_init_18) {
            uint _e29 = d;
            d = _e29 + 1u;
        }
        loop_init_18 = false;
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
    bool loop_init_19 = true;
    while(true) {
        if (!loop_init_19) {
            uint _e104 = first_1;
            first_1 = _e104 + 64u;
        }
        loop_init_19 = false;
        uint _e34 = first_1;
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
                uint _e51 = first_1;
                load_tile(tokens_1, _e51 * CHUNK, thread_5, x4_, x_tile, _buffer_sizes);
            }
            uint _e54 = first_1;
            uint end = metal::min(_e54 + 64u, n_chunk);
            uint _e62 = first_1;
            start_1 = _e62 + lane;
            bool loop_init_20 = true;
            while(true) {
                if (!loop_init_20) {
                    uint _e97 = start_1;
                    start_1 = _e97 + 32u;
                }
                loop_init_20 = false;
                uint _e65 = start_1;
                if (_e65 < end) {
                } else {
                    break;
                }
                {
                    d_1 = 0u;
                    bool loop_init_21 = true;
                    while(true) {
                        if (!loop_init_21) {
                            uint _e95 = d_1;
                            d_1 = _e95 + 1u;
                        }
                        loop_init_21 = false;
                        uint _e69 = d_1;
                        if (_e69 < DEPTH) {
                        } else {
                            break;
                        }
                        {
                            uint _e72 = start_1;
                            uint _e73 = d_1;
                            uint chunk_6 = _e72 + (_e73 * LANES);
                            uint _e77 = d_1;
                            Chunks _e79 = ahead.inner[_e77];
                            chunks_2 = _e79;
                            uint _e81 = d_1;
                            Chunks _e90 = load_rows(rows_3, chunk_6 + 32u, tokens_1.cols, w, w2_, w4_, _buffer_sizes);
                            ahead.inner[_e81] = _e90;
                            if (chunk_6 < end) {
                                uint _e92 = first_1;
                                add_chunk(sums_1, chunks_2, rows_3, chunk_6, chunk_6 - _e92, x_tile);
                            }
                        }
                    }
                }
            }
        }
    }
    bool loop_init_22 = true;
    while(true) {
        if (!loop_init_22) {
            uint _e127 = i_3;
            i_3 = _e127 + 1u;
        }
        loop_init_22 = false;
        uint _e113 = i_3;
        if (_e113 < 2u) {
        } else {
            break;
        }
        {
            uint _e120 = i_3;
            uint _e122 = i_3;
            float _e124 = sums_1.inner[_e122];
            float _e125 = team_sum(_e124, thread_5, n_lane_2, x_tile);
            sums_1.inner[_e120] = _e125;
        }
    }
    Sums _e129 = sums_1;
    return _e129;
}

float silu(
    float x_1
) {
    return x_1 / (1.0 + metal::exp(metal::min(-(x_1), 80.0)));
}

void finish(
    uint at_1,
    float sum_2,
    float sum_up,
    device type_12& out,
    constant _mslBufferSizes& _buffer_sizes
) {
    switch(STEP) {
        case 0u: {
            float _e6 = silu(sum_2);
            out[at_1] = _e6 * sum_up;
            return;
        }
        case 1u: {
            float _e10 = silu(sum_2);
            out[at_1] = _e10;
            return;
        }
        case 2u: {
            float _e13 = out[at_1];
            out[at_1] = _e13 * sum_2;
            return;
        }
        default: {
            out[at_1] = sum_2;
            return;
        }
    }
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(128)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint n_lane [[threads_per_simdgroup]]
, device type_2 const& w [[buffer(1)]]
, device type_4 const& w2_ [[buffer(2)]]
, device type_6 const& w4_ [[buffer(3)]]
, device type_13 const& x4_ [[buffer(5)]]
, threadgroup type_17& x_tile
, constant Params& p [[buffer(0)]]
, device type_2 const& pairs [[buffer(6)]]
, device type_12& out [[buffer(7)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(8)]]
) {
    uint turn = 0u;
    Rows rows = {};
    uint r = {};
    uint r_1 = {};
    bool local = {};
    uint _e5 = p.pairs_at;
    uint pair = _e5 + (4u * group.y);
    uint record = pairs[pair];
    if (record == NONE) {
        return;
    }
    uint _e19 = pairs[pair + 1u];
    uint row_in = false ? group.y : _e19;
    uint _e31 = pairs[pair + 2u];
    uint row_out = false ? _e31 : group.y;
    uint _e39 = p.cols;
    uint _e45 = p.cols;
    Tokens tokens_2 = Tokens {metal::uint4(row_in * _e39), 1u, _e45};
    bool loop_init_23 = true;
    while(true) {
        if (!loop_init_23) {
            uint _e170 = turn;
            turn = _e170 + 1u;
        }
        loop_init_23 = false;
        uint _e65 = turn;
        uint _e68 = p.n_turn;
        if (_e65 < _e68) {
        } else {
            break;
        }
        {
            uint _e73 = p.n_turn;
            uint _e75 = turn;
            uint first_2 = ((group.x * _e73) + _e75) * 4u;
            uint _e80 = p.rows;
            if (_e80 <= first_2) {
                break;
            }
            uint row0_ = first_2 + ((thread_ / LANES) * 1u);
            rows = Rows {};
            r = 0u;
            bool loop_init_24 = true;
            while(true) {
                if (!loop_init_24) {
                    uint _e128 = r;
                    r = _e128 + 1u;
                }
                loop_init_24 = false;
                uint _e90 = r;
                if (_e90 < 1u) {
                } else {
                    break;
                }
                {
                    uint _e92 = r;
                    uint _e96 = p.rows;
                    uint row_3 = metal::min(row0_ + _e92, _e96 - 1u);
                    uint _e100 = r;
                    metal::uint3 _e104 = p.planes;
                    uint _e109 = p.cols;
                    metal::uint3 _e110 = row_at(_e104 + metal::uint3(record), row_3, _e109);
                    rows.inner[_e100] = _e110;
                    if (true) {
                        uint _e115 = r;
                        metal::uint3 _e120 = p.planes_up;
                        uint _e125 = p.cols;
                        metal::uint3 _e126 = row_at(_e120 + metal::uint3(record), row_3, _e125);
                        rows.inner[1u + _e115] = _e126;
                    }
                }
            }
            uint _e130 = turn;
            Sums _e133 = dots(rows, tokens_2, _e130 == 0u, thread_, n_lane, w, w2_, w4_, x4_, x_tile, _buffer_sizes);
            r_1 = 0u;
            bool loop_init_25 = true;
            while(true) {
                if (!loop_init_25) {
                    uint _e167 = r_1;
                    r_1 = _e167 + 1u;
                }
                loop_init_25 = false;
                uint _e136 = r_1;
                if (_e136 < 1u) {
                } else {
                    break;
                }
                {
                    uint _e140 = r_1;
                    if ((thread_ % LANES) == (_e140 % LANES)) {
                        uint _e146 = r_1;
                        uint _e150 = p.rows;
                        local = (row0_ + _e146) < _e150;
                    } else {
                        local = false;
                    }
                    bool _e153 = local;
                    if (_e153) {
                        uint _e156 = p.rows;
                        uint _e159 = r_1;
                        uint _e161 = r_1;
                        uint _e163 = r_1;
                        finish(((row_out * _e156) + row0_) + _e159, _e133.inner[_e161], _e133.inner[1u + _e163], out, _buffer_sizes);
                    }
                }
            }
        }
    }
    return;
}
