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
    uint size8;
    uint size9;
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
struct type_18 {
    metal::uint4 inner[448];
};
struct type_21 {
    int inner[16];
};
struct type_22 {
    metal::uint2 inner[4];
};
struct type_23 {
    metal::uint2 inner[8];
};
struct type_24 {
    Chunks inner[4];
};
struct type_25 {
    metal::uint4 inner[4];
};
struct type_26 {
    metal::uint4 inner[2];
};
struct Params {
    uint cols;
    uint x_at;
    uint n_token;
    uint n_product;
    type_25 matrices;
    type_26 outputs;
};
constant uint CHUNK = 32u;
constant uint RUNS = 1u;
constant bool SCALED = true;
constant bool BIASED = true;
constant uint VECTORS = 9u;
constant uint BITS = 4u;
constant uint GROUP = 64u;
constant uint HALF = 0u;
constant uint ROWS = 2u;
constant uint TOKENS = 1u;
constant uint LANES = 32u;
constant uint THREADS = 128u;
constant uint TILE = 2048u;
constant uint TILE_VECTORS = 448u;
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

float number_of(
    uint word,
    uint index
) {
    if (false) {
        float _e15 = half_of(((index % 2u) == 1u) ? (word >> 16u) : (word & 65535u));
        return _e15;
    }
    return as_type<float>(((index % 2u) == 1u) ? (word & 4294901760u) : (word << 16u));
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
    uint at_3 = row_1.x + (chunk * BITS);
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
                metal::uint4 words = w4_[(at_3 / 4u) + _e25];
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
                    metal::uint2 words_1 = w2_[(at_3 / 2u) + _e79];
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
                    uint _e112 = w[at_3 + _e109];
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
    uint chunk_1,
    uint run
) {
    metal::uint2 group_2 = row_2.yz + metal::uint2((chunk_1 * CHUNK) / GROUP);
    float _e13 = number_of(c_1.scale, group_2.x);
    float _e16 = number_of(c_1.bias, group_2.y);
    return metal::float2(_e13, _e16);
}

Chunks load_rows(
    thread Rows& rows_1,
    uint chunk_2,
    uint cols_1,
    device type_3 const& w,
    device type_5 const& w2_,
    device type_7 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunks chunks = {};
    uint r_1 = 0u;
    uint col = chunk_2 * CHUNK;
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
                Chunk _e18 = load_chunk(_e16, chunk_2, cols_1 - col, w, w2_, w4_, _buffer_sizes);
                chunks.inner[_e12] = _e18;
            }
        }
    }
    Chunks _e22 = chunks;
    return _e22;
}

metal::float2x4 columns(
    uint at,
    uint quarter,
    device type_13 const& x4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    if (false) {
        uint half_ = (at / 4u) + ((quarter / 2u) * 4u);
        metal::float4 _e15 = x4_[half_];
        metal::float4 _e20 = x4_[half_ + 1u];
        metal::float4 _e25 = x4_[half_ + 2u];
        metal::float4 _e30 = x4_[half_ + 3u];
        metal::float4x4 v_1 = metal::transpose(metal::float4x4(_e15, _e20, _e25, _e30));
        if ((quarter % 2u) == 0u) {
            return metal::float2x4(v_1[0], v_1[1]);
        }
        return metal::float2x4(v_1[2], v_1[3]);
    }
    metal::float4 a = x4_[(at / 4u) + (2u * quarter)];
    metal::float4 b = x4_[((at / 4u) + (2u * quarter)) + 1u];
    if (true) {
        return metal::float2x4(metal::float4(a.xz, b.xz), metal::float4(a.yw, b.yw));
    }
    return metal::float2x4(a, b);
}

uint unit_exponent(
    float largest
) {
    uint power = (as_type<uint>(largest) + 65793u) & 2139095040u;
    return metal::max(power, 192937984u) - 184549376u;
}

metal::int4 naga_f2i32(metal::float4 value) {
    return static_cast<metal::int4>(metal::clamp(value, -2147483600.0, 2147483500.0));
}

metal::uint3 planes_of(
    metal::float4 x
) {
    metal::uint4 b_1 = as_type<metal::uint4>(naga_f2i32(metal::rint(x))) + metal::uint4(32896u);
    metal::uint2 even = (b_1.xz & metal::uint2(16711935u)) | ((b_1.yw & metal::uint2(16711935u)) << metal::uint2(8u));
    metal::uint2 odd = ((b_1.xz >> metal::uint2(8u)) & metal::uint2(16711935u)) | (b_1.yw & metal::uint2(4278255360u));
    return metal::uint3(((even.x & 65535u) | (even.y << 16u)) ^ 2155905152u, ((odd.x & 65535u) | (odd.y << 16u)) ^ 2155905152u, (even.x >> 16u) | (even.y & 4294901760u));
}

uint place(
    uint token,
    uint chunk_3
) {
    return ((token * 64u) + chunk_3) * VECTORS;
}

void load_tile(
    Tokens tokens,
    uint start,
    uint thread_1,
    device type_13 const& x4_,
    threadgroup type_18& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint t = 0u;
    uint first = {};
    metal::float2x4 v = {};
    bool local = {};
    float largest_1 = {};
    float sum = {};
    uint step = {};
    uint n_quarter = metal::min(TILE, tokens.cols - start) / 8u;
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e128 = t;
            t = _e128 + 1u;
        }
        loop_init_4 = false;
        uint _e11 = t;
        if (_e11 < TOKENS) {
        } else {
            break;
        }
        {
            first = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e124 = first;
                    first = _e124 + THREADS;
                }
                loop_init_5 = false;
                uint _e16 = first;
                if (_e16 < n_quarter) {
                } else {
                    break;
                }
                {
                    uint _e18 = first;
                    uint quarter_1 = _e18 + thread_1;
                    bool is_there = quarter_1 < n_quarter;
                    v = metal::float2x4 {};
                    if (is_there) {
                        uint _e25 = t;
                        local = _e25 < tokens.n;
                    } else {
                        local = false;
                    }
                    bool _e29 = local;
                    if (_e29) {
                        uint _e31 = t;
                        metal::float2x4 _e34 = columns(tokens.at[_e31] + start, quarter_1, x4_, _buffer_sizes);
                        v = _e34;
                    }
                    metal::float4 _e36 = v[0];
                    metal::float4 _e39 = v[1];
                    metal::float4 largest4_ = metal::max(metal::abs(_e36), metal::abs(_e39));
                    largest_1 = metal::max(metal::max(largest4_.x, largest4_.y), metal::max(largest4_.z, largest4_.w));
                    metal::float4 _e51 = v[0];
                    metal::float4 _e53 = v[1];
                    metal::float4 sum4_ = _e51 + _e53;
                    sum = (sum4_.x + sum4_.y) + (sum4_.z + sum4_.w);
                    step = 1u;
                    bool loop_init_6 = true;
                    while(true) {
                        if (!loop_init_6) {
                            uint _e83 = step;
                            step = _e83 * 2u;
                        }
                        loop_init_6 = false;
                        uint _e65 = step;
                        if (_e65 < 4u) {
                        } else {
                            break;
                        }
                        {
                            float _e68 = largest_1;
                            float _e69 = largest_1;
                            uint _e70 = step;
                            float unnamed = metal::simd_shuffle_xor(_e69, _e70);
                            largest_1 = metal::max(_e68, unnamed);
                            uint _e73 = step;
                            if ((_e73 * RUNS) < 4u) {
                                float _e78 = sum;
                                float _e79 = sum;
                                uint _e80 = step;
                                float unnamed_1 = metal::simd_shuffle_xor(_e79, _e80);
                                sum = _e78 + unnamed_1;
                            }
                        }
                    }
                    float _e86 = largest_1;
                    uint _e87 = unit_exponent(_e86);
                    float inverse = as_type<float>(2130706432u - _e87);
                    metal::float4 _e92 = v[0];
                    metal::uint3 _e94 = planes_of(_e92 * inverse);
                    metal::float4 _e96 = v[1];
                    metal::uint3 _e98 = planes_of(_e96 * inverse);
                    if (is_there) {
                        uint _e99 = t;
                        uint _e102 = place(_e99, quarter_1 / 4u);
                        uint at_4 = _e102 + ((quarter_1 % 4u) * 2u);
                        x_tile.inner[at_4] = metal::uint4(_e94.x, _e98.x, _e94.y, _e98.y);
                        float _e121 = sum;
                        x_tile.inner[at_4 + 1u] = metal::uint4(_e94.z, _e98.z, _e87, as_type<uint>(_e121));
                    }
                }
            }
        }
    }
    return;
}

uint chunk_bytes(
    Chunk c_2,
    uint k
) {
    uint word_1 = {};
    if (false) {
        return c_2.words.inner[k] ^ 2155905152u;
    }
    if (true) {
        return (c_2.words.inner[k / 2u] >> (BITS * (k % 2u))) & 252645135u;
    }
    uint bit = 16u * k;
    uint shift = bit % 32u;
    word_1 = c_2.words.inner[bit / 32u] >> shift;
    if (32u < (shift + 16u)) {
        uint _e56 = word_1;
        word_1 = _e56 | (c_2.words.inner[(bit / 32u) + 1u] << (32u - shift));
    }
    uint _e67 = word_1;
    uint _e70 = word_1;
    uint halves = (_e67 & 65535u) | ((_e70 << 8u) & 4294901760u);
    return ((halves & 16711935u) | ((halves << 4u) & 4278255360u)) & 252645135u;
}

float bias_of(
    metal::float2 factors
) {
    if (false) {
        return metal::fma(128.0, factors.x, factors.y);
    }
    return factors.y;
}

void add_chunk(
    thread Sums& sums,
    thread Chunks& chunks_1,
    thread Rows& rows_2,
    uint chunk_4,
    uint at_1,
    threadgroup type_18& x_tile
) {
    uint run_1 = 0u;
    type_21 low = {};
    type_21 middle = {};
    type_21 high = {};
    type_22 facts = {};
    uint q = {};
    type_23 codes = {};
    uint r_2 = {};
    uint t_1 = {};
    uint r_3 = {};
    uint r_4 = {};
    uint t_2 = {};
    float sum_1 = {};
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e222 = run_1;
            run_1 = _e222 + 1u;
        }
        loop_init_7 = false;
        uint _e7 = run_1;
        if (_e7 < RUNS) {
        } else {
            break;
        }
        {
            low = type_21 {};
            middle = type_21 {};
            high = type_21 {};
            facts = type_22 {};
            uint _e18 = run_1;
            q = (_e18 * 4u) / RUNS;
            bool loop_init_8 = true;
            while(true) {
                if (!loop_init_8) {
                    uint _e155 = q;
                    q = _e155 + 1u;
                }
                loop_init_8 = false;
                uint _e24 = q;
                uint _e25 = run_1;
                if (_e24 < (((_e25 + 1u) * 4u) / RUNS)) {
                } else {
                    break;
                }
                {
                    codes = type_23 {};
                    r_2 = 0u;
                    bool loop_init_9 = true;
                    while(true) {
                        if (!loop_init_9) {
                            uint _e60 = r_2;
                            r_2 = _e60 + 1u;
                        }
                        loop_init_9 = false;
                        uint _e37 = r_2;
                        if (_e37 < ROWS) {
                        } else {
                            break;
                        }
                        {
                            uint _e40 = r_2;
                            uint _e42 = r_2;
                            Chunk _e44 = chunks_1.inner[_e42];
                            uint _e46 = q;
                            uint _e48 = chunk_bytes(_e44, 2u * _e46);
                            uint _e49 = r_2;
                            Chunk _e51 = chunks_1.inner[_e49];
                            uint _e53 = q;
                            uint _e57 = chunk_bytes(_e51, (2u * _e53) + 1u);
                            codes.inner[_e40] = metal::uint2(_e48, _e57);
                        }
                    }
                    t_1 = 0u;
                    bool loop_init_10 = true;
                    while(true) {
                        if (!loop_init_10) {
                            uint _e152 = t_1;
                            t_1 = _e152 + 1u;
                        }
                        loop_init_10 = false;
                        uint _e64 = t_1;
                        if (_e64 < TOKENS) {
                        } else {
                            break;
                        }
                        {
                            uint _e67 = t_1;
                            uint _e68 = place(_e67, at_1);
                            uint _e70 = q;
                            uint place_1 = _e68 + (2u * _e70);
                            metal::uint4 v_2 = x_tile.inner[place_1];
                            metal::uint4 rest_1 = x_tile.inner[place_1 + 1u];
                            uint _e81 = t_1;
                            facts.inner[_e81] = rest_1.zw;
                            r_3 = 0u;
                            bool loop_init_11 = true;
                            while(true) {
                                if (!loop_init_11) {
                                    uint _e149 = r_3;
                                    r_3 = _e149 + 1u;
                                }
                                loop_init_11 = false;
                                uint _e86 = r_3;
                                if (_e86 < ROWS) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e89 = r_3;
                                    uint _e92 = t_1;
                                    uint i_4 = (_e89 * TOKENS) + _e92;
                                    int _e95 = low.inner[i_4];
                                    uint _e96 = r_3;
                                    uint _e99 = codes.inner[_e96].x;
                                    uint _e100 = v_2.x;
                                    packed_char4 reinterpreted_packed_char4_e99 = as_type<packed_char4>(_e99);
                                    packed_char4 reinterpreted_packed_char4_e100 = as_type<packed_char4>(_e100);
                                    low.inner[i_4] = as_type<int>(as_type<uint>(_e95) + as_type<uint>(( + reinterpreted_packed_char4_e99[0] * reinterpreted_packed_char4_e100[0] + reinterpreted_packed_char4_e99[1] * reinterpreted_packed_char4_e100[1] + reinterpreted_packed_char4_e99[2] * reinterpreted_packed_char4_e100[2] + reinterpreted_packed_char4_e99[3] * reinterpreted_packed_char4_e100[3])));
                                    int _e104 = low.inner[i_4];
                                    uint _e105 = r_3;
                                    uint _e108 = codes.inner[_e105].y;
                                    uint _e109 = v_2.y;
                                    packed_char4 reinterpreted_packed_char4_e108 = as_type<packed_char4>(_e108);
                                    packed_char4 reinterpreted_packed_char4_e109 = as_type<packed_char4>(_e109);
                                    low.inner[i_4] = as_type<int>(as_type<uint>(_e104) + as_type<uint>(( + reinterpreted_packed_char4_e108[0] * reinterpreted_packed_char4_e109[0] + reinterpreted_packed_char4_e108[1] * reinterpreted_packed_char4_e109[1] + reinterpreted_packed_char4_e108[2] * reinterpreted_packed_char4_e109[2] + reinterpreted_packed_char4_e108[3] * reinterpreted_packed_char4_e109[3])));
                                    int _e113 = middle.inner[i_4];
                                    uint _e114 = r_3;
                                    uint _e117 = codes.inner[_e114].x;
                                    uint _e118 = v_2.z;
                                    packed_char4 reinterpreted_packed_char4_e117 = as_type<packed_char4>(_e117);
                                    packed_char4 reinterpreted_packed_char4_e118 = as_type<packed_char4>(_e118);
                                    middle.inner[i_4] = as_type<int>(as_type<uint>(_e113) + as_type<uint>(( + reinterpreted_packed_char4_e117[0] * reinterpreted_packed_char4_e118[0] + reinterpreted_packed_char4_e117[1] * reinterpreted_packed_char4_e118[1] + reinterpreted_packed_char4_e117[2] * reinterpreted_packed_char4_e118[2] + reinterpreted_packed_char4_e117[3] * reinterpreted_packed_char4_e118[3])));
                                    int _e122 = middle.inner[i_4];
                                    uint _e123 = r_3;
                                    uint _e126 = codes.inner[_e123].y;
                                    uint _e127 = v_2.w;
                                    packed_char4 reinterpreted_packed_char4_e126 = as_type<packed_char4>(_e126);
                                    packed_char4 reinterpreted_packed_char4_e127 = as_type<packed_char4>(_e127);
                                    middle.inner[i_4] = as_type<int>(as_type<uint>(_e122) + as_type<uint>(( + reinterpreted_packed_char4_e126[0] * reinterpreted_packed_char4_e127[0] + reinterpreted_packed_char4_e126[1] * reinterpreted_packed_char4_e127[1] + reinterpreted_packed_char4_e126[2] * reinterpreted_packed_char4_e127[2] + reinterpreted_packed_char4_e126[3] * reinterpreted_packed_char4_e127[3])));
                                    int _e131 = high.inner[i_4];
                                    uint _e132 = r_3;
                                    uint _e135 = codes.inner[_e132].x;
                                    uint _e136 = rest_1.x;
                                    packed_char4 reinterpreted_packed_char4_e135 = as_type<packed_char4>(_e135);
                                    packed_char4 reinterpreted_packed_char4_e136 = as_type<packed_char4>(_e136);
                                    high.inner[i_4] = as_type<int>(as_type<uint>(_e131) + as_type<uint>(( + reinterpreted_packed_char4_e135[0] * reinterpreted_packed_char4_e136[0] + reinterpreted_packed_char4_e135[1] * reinterpreted_packed_char4_e136[1] + reinterpreted_packed_char4_e135[2] * reinterpreted_packed_char4_e136[2] + reinterpreted_packed_char4_e135[3] * reinterpreted_packed_char4_e136[3])));
                                    int _e140 = high.inner[i_4];
                                    uint _e141 = r_3;
                                    uint _e144 = codes.inner[_e141].y;
                                    uint _e145 = rest_1.y;
                                    packed_char4 reinterpreted_packed_char4_e144 = as_type<packed_char4>(_e144);
                                    packed_char4 reinterpreted_packed_char4_e145 = as_type<packed_char4>(_e145);
                                    high.inner[i_4] = as_type<int>(as_type<uint>(_e140) + as_type<uint>(( + reinterpreted_packed_char4_e144[0] * reinterpreted_packed_char4_e145[0] + reinterpreted_packed_char4_e144[1] * reinterpreted_packed_char4_e145[1] + reinterpreted_packed_char4_e144[2] * reinterpreted_packed_char4_e145[2] + reinterpreted_packed_char4_e144[3] * reinterpreted_packed_char4_e145[3])));
                                }
                            }
                        }
                    }
                }
            }
            r_4 = 0u;
            bool loop_init_12 = true;
            while(true) {
                if (!loop_init_12) {
                    uint _e219 = r_4;
                    r_4 = _e219 + 1u;
                }
                loop_init_12 = false;
                uint _e159 = r_4;
                if (_e159 < ROWS) {
                } else {
                    break;
                }
                {
                    uint _e162 = r_4;
                    Chunk _e164 = chunks_1.inner[_e162];
                    uint _e165 = r_4;
                    metal::uint3 _e167 = rows_2.inner[_e165];
                    uint _e168 = run_1;
                    metal::float2 _e169 = chunk_scale_bias(_e164, _e167, chunk_4, _e168);
                    t_2 = 0u;
                    bool loop_init_13 = true;
                    while(true) {
                        if (!loop_init_13) {
                            uint _e216 = t_2;
                            t_2 = _e216 + 1u;
                        }
                        loop_init_13 = false;
                        uint _e172 = t_2;
                        if (_e172 < TOKENS) {
                        } else {
                            break;
                        }
                        {
                            uint _e175 = r_4;
                            uint _e178 = t_2;
                            uint i_5 = (_e175 * TOKENS) + _e178;
                            int _e181 = high.inner[i_5];
                            int _e184 = middle.inner[i_5];
                            int _e188 = low.inner[i_5];
                            float whole = metal::fma(static_cast<float>(_e181), 65536.0, static_cast<float>(as_type<int>(as_type<uint>(_e184 << 8u) + as_type<uint>(_e188))));
                            uint _e193 = t_2;
                            uint _e196 = facts.inner[_e193].x;
                            float _e201 = sums.inner[i_5];
                            sum_1 = metal::fma(whole * as_type<float>(_e196), _e169.x, _e201);
                            if (BIASED) {
                                float _e205 = bias_of(_e169);
                                uint _e206 = t_2;
                                uint _e209 = facts.inner[_e206].y;
                                float _e211 = sum_1;
                                sum_1 = metal::fma(_e205, as_type<float>(_e209), _e211);
                            }
                            float _e214 = sum_1;
                            sums.inner[i_5] = _e214;
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
    float value,
    threadgroup type_18& x_tile
) {
    x_tile.inner[thread_2].x = as_type<uint>(value);
    return;
}

float shown(
    uint thread_3,
    threadgroup type_18& x_tile
) {
    uint _e4 = x_tile.inner[thread_3].x;
    return as_type<float>(_e4);
}

float team_sum(
    float value_1,
    uint thread_4,
    uint n_lane_1,
    threadgroup type_18& x_tile
) {
    float sum_2 = {};
    uint step_1 = 16u;
    uint step_2 = 16u;
    sum_2 = value_1;
    if (LANES <= n_lane_1) {
        bool loop_init_14 = true;
        while(true) {
            if (!loop_init_14) {
                uint _e19 = step_1;
                step_1 = _e19 / 2u;
            }
            loop_init_14 = false;
            uint _e12 = step_1;
            if (0u < _e12) {
            } else {
                break;
            }
            {
                float _e14 = sum_2;
                float _e15 = sum_2;
                uint _e16 = step_1;
                float unnamed_2 = metal::simd_shuffle_xor(_e15, _e16);
                sum_2 = _e14 + unnamed_2;
            }
        }
        float _e22 = sum_2;
        return _e22;
    }
    bool loop_init_15 = true;
    while(true) {
        if (!loop_init_15) {
            uint _e37 = step_2;
            step_2 = _e37 / 2u;
        }
        loop_init_15 = false;
        uint _e29 = step_2;
        if (0u < _e29) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            float _e31 = sum_2;
            show(thread_4, _e31, x_tile);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            float _e32 = sum_2;
            uint _e33 = step_2;
            float _e35 = shown(thread_4 ^ _e33, x_tile);
            sum_2 = _e32 + _e35;
        }
    }
    float _e40 = sum_2;
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
    device type_13 const& x4_,
    threadgroup type_18& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_24 ahead = {};
    uint d = 0u;
    Sums sums_1 = {};
    uint first_1 = 0u;
    bool local_1 = {};
    bool local_2 = {};
    bool local_3 = {};
    uint chunk_5 = {};
    Chunks chunks_2 = {};
    uint d_1 = {};
    uint i_3 = 0u;
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
            uint _e115 = first_1;
            first_1 = _e115 + 64u;
        }
        loop_init_17 = false;
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
                if (!(!(is_first))) {
                    uint _e56 = first_1;
                    local_3 = 0u < _e56;
                } else {
                    local_3 = true;
                }
                bool _e59 = local_3;
                if (_e59) {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                }
                uint _e60 = first_1;
                load_tile(tokens_1, _e60 * CHUNK, thread_5, x4_, x_tile, _buffer_sizes);
                metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            }
            uint _e63 = first_1;
            uint end = metal::min(_e63 + 64u, n_chunk);
            uint _e71 = first_1;
            chunk_5 = _e71 + lane;
            bool loop_init_18 = true;
            while(true) {
                if (!loop_init_18) {
                    uint _e112 = chunk_5;
                    chunk_5 = _e112 + LANES;
                }
                loop_init_18 = false;
                uint _e74 = chunk_5;
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
                    uint _e99 = chunk_5;
                    Chunks _e107 = load_rows(rows_3, _e99 + 32u, tokens_1.cols, w, w2_, w4_, _buffer_sizes);
                    ahead.inner[0u] = _e107;
                    uint _e108 = chunk_5;
                    uint _e109 = chunk_5;
                    uint _e110 = first_1;
                    add_chunk(sums_1, chunks_2, rows_3, _e108, _e109 - _e110, x_tile);
                }
            }
        }
    }
    bool loop_init_20 = true;
    while(true) {
        if (!loop_init_20) {
            uint _e138 = i_3;
            i_3 = _e138 + 1u;
        }
        loop_init_20 = false;
        uint _e124 = i_3;
        if (_e124 < 2u) {
        } else {
            break;
        }
        {
            uint _e131 = i_3;
            uint _e133 = i_3;
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
    uint at_2,
    float value_2,
    device type_12& out0_,
    device type_12& out1_,
    device type_12& out2_,
    device type_12& out3_,
    constant _mslBufferSizes& _buffer_sizes
) {
    switch(product_1) {
        case 0u: {
            out0_[at_2] = value_2;
            return;
        }
        case 1u: {
            out1_[at_2] = value_2;
            return;
        }
        case 2u: {
            out2_[at_2] = value_2;
            return;
        }
        default: {
            out3_[at_2] = value_2;
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
    uint r_5 = 0u;
    uint t_3 = {};
    bool local_4 = {};
    bool local_5 = {};
    metal::uint4 pair = p.outputs.inner[product_2 / 2u];
    metal::uint2 output = ((product_2 % 2u) == 1u) ? pair.zw : pair.xy;
    bool loop_init_21 = true;
    while(true) {
        if (!loop_init_21) {
            uint _e71 = r_5;
            r_5 = _e71 + 1u;
        }
        loop_init_21 = false;
        uint _e22 = r_5;
        if (_e22 < ROWS) {
        } else {
            break;
        }
        {
            t_3 = 0u;
            bool loop_init_22 = true;
            while(true) {
                if (!loop_init_22) {
                    uint _e68 = t_3;
                    t_3 = _e68 + 1u;
                }
                loop_init_22 = false;
                uint _e27 = t_3;
                if (_e27 < TOKENS) {
                } else {
                    break;
                }
                {
                    uint _e32 = r_5;
                    uint _e35 = t_3;
                    bool is_mine = (thread_6 % LANES) == (((_e32 * TOKENS) + _e35) % LANES);
                    if (is_mine) {
                        uint _e42 = r_5;
                        local_4 = _e42 < n_row;
                    } else {
                        local_4 = false;
                    }
                    bool _e45 = local_4;
                    if (_e45) {
                        uint _e48 = t_3;
                        local_5 = _e48 < n_token;
                    } else {
                        local_5 = false;
                    }
                    bool _e51 = local_5;
                    if (_e51) {
                        uint _e53 = t_3;
                        uint _e59 = r_5;
                        uint _e61 = r_5;
                        uint _e64 = t_3;
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
, device type_13 const& x4_ [[buffer(5)]]
, threadgroup type_18& x_tile
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
            uint first_2 = ((_e93 * TURNS) + _e96) * 8u;
            if (matrix_.w <= first_2) {
                break;
            }
            uint row0_1 = first_2 + ((thread_ / LANES) * ROWS);
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
            Sums _e132 = dots(rows, tokens_2, _e129 == 0u, thread_, n_lane, w, w2_, w4_, x4_, x_tile, _buffer_sizes);
            uint n_row_1 = metal::min(ROWS, matrix_.w - metal::min(row0_1, matrix_.w));
            uint _e139 = product;
            finish(_e139, row0_1, n_row_1, token0_1, tokens_2.n, _e132, thread_, p, out0_, out1_, out2_, out3_, _buffer_sizes);
        }
    }
    return;
}
