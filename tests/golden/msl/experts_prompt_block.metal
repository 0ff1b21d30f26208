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
    metal::uint4 head;
};
struct type_12 {
    metal::float4 inner[2];
};
typedef float type_14[1];
typedef metal::float4 type_15[1];
struct type_16 {
    metal::float4 inner[512];
};
struct type_17 {
    metal::float4 inner[512];
};
struct Place {
    uint row;
    uint quad_;
};
struct Load {
    type_12 w;
    metal::float4x4 x;
};
struct type_19 {
    metal::float4 inner[16];
};
struct Tile {
    uint row;
    uint token;
    uint n_token;
    uint record_at;
    uint pairs_at;
    uint first_pair;
};
struct Params {
    uint jobs_at;
    uint rows;
    uint cols;
    uint codes;
    uint scales;
    uint biases;
    uint up_codes;
    uint up_scales;
    uint up_biases;
};
constant uint Q8_0_ = 0u;
constant uint Q4_K = 1u;
constant uint Q5_K = 2u;
constant uint Q6_K = 3u;
constant uint IQ4_XS = 4u;
constant uint MXFP4_ = 5u;
constant uint MXFP4_PLANES = 6u;
constant uint CHUNK = 32u;
constant bool SCALED = true;
constant uint TILE_ROWS = 128u;
constant uint TILE_COLS = 16u;
constant uint KIND = 2u;
constant uint GROUP = 64u;
constant uint N_ROW = 8u;
constant uint N_QUAD = 2u;
constant uint TILE_TOKENS = 128u;
constant uint BLOCK = 16u;
constant uint N_TOKEN_THREAD = 16u;
constant uint TILE_QUADS = 32u;
constant uint X_FOURS = 512u;
constant uint STEP = 0u;

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

uint block_cols(
) {
    bool local = {};
    bool local_1 = {};
    if (true) {
        local = false;
    } else {
        local = true;
    }
    bool _e16 = local;
    if (!(_e16)) {
        local_1 = false;
    } else {
        local_1 = true;
    }
    bool _e26 = local_1;
    return _e26 ? 32u : 256u;
}

uint block_bytes(
) {
    switch(KIND) {
        case 0u: {
            return 34u;
        }
        case 1u: {
            return 144u;
        }
        case 2u: {
            return 176u;
        }
        case 3u: {
            return 210u;
        }
        case 4u: {
            return 136u;
        }
        case 5u: {
            return 17u;
        }
        default: {
            return 16u;
        }
    }
}

metal::uint3 row_at(
    metal::uint3 planes,
    uint row,
    uint cols
) {
    uint _e3 = block_cols();
    uint _e5 = block_bytes();
    uint byte_3 = row * ((cols / _e3) * _e5);
    if (false) {
        return metal::uint3(planes.x + (byte_3 / 4u), planes.y, row * (cols / 32u));
    }
    return metal::uint3(planes.x + (byte_3 / 4u), byte_3 % 4u, 0u);
}

void load_words(
    thread Chunk& c,
    uint to,
    metal::uint3 row_1,
    uint byte,
    uint n,
    device type_3 const& w_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint word = {};
    uint i = 0u;
    uint next = {};
    bool local_2 = {};
    uint at_3 = row_1.y + byte;
    uint first = row_1.x + (at_3 / 4u);
    uint shift = 8u * (at_3 % 4u);
    uint _e17 = w_1[first];
    word = _e17;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e58 = i;
            i = _e58 + 1u;
        }
        loop_init = false;
        uint _e21 = i;
        if (_e21 < n) {
        } else {
            break;
        }
        {
            next = 0u;
            uint _e25 = i;
            if (!(((_e25 + 1u) < n))) {
                local_2 = shift != 0u;
            } else {
                local_2 = true;
            }
            bool _e35 = local_2;
            if (_e35) {
                uint _e37 = i;
                uint _e42 = w_1[(first + _e37) + 1u];
                next = _e42;
            }
            uint _e44 = i;
            uint _e47 = word;
            uint _e49 = next;
            c.words.inner[to + _e44] = (_e47 >> shift) | ((_e49 << 1u) << (31u - shift));
            uint _e56 = next;
            word = _e56;
        }
    }
    return;
}

metal::uint2 two_words(
    metal::uint3 row_2,
    uint byte_1,
    device type_3 const& w_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunk c_1 = {};
    load_words(c_1, 0u, row_2, byte_1, 2u, w_1, _buffer_sizes);
    uint _e7 = c_1.words.inner[0];
    uint _e10 = c_1.words.inner[1];
    return metal::uint2(_e7, _e10);
}

uint spread(
    uint word_1
) {
    uint halves = (word_1 & 255u) | ((word_1 << 8u) & 16711680u);
    return (halves & 983055u) | ((halves << 4u) & 251662080u);
}

metal::float4 floats(
    uint bytes
) {
    uint codes = bytes ^ 2155905152u;
    uint high = codes >> 16u;
    metal::uint4 place_1 = metal::uint4(0u, 8u, 0u, 8u);
    metal::uint4 exponent = metal::uint4(1258291200u, 1191182336u, 1258291200u, 1191182336u);
    metal::uint4 placed = metal::uint4(codes, codes, high, high) & metal::uint4(255u, 65280u, 255u, 65280u);
    return as_type<metal::float4>(placed | exponent) - (as_type<metal::float4>(exponent) + metal::float4(128.0));
}

uint bytes_of(
    uint bits_1
) {
    return (bits_1 & 16843009u) * 255u;
}

uint choose(
    uint no,
    uint yes,
    uint mask
) {
    return no ^ (mask & (no ^ yes));
}

uint iq4_(
    uint code
) {
    uint _e1 = bytes_of(code);
    uint _e4 = bytes_of(code >> 1u);
    uint _e7 = bytes_of(code >> 2u);
    uint _e10 = choose(2172748161u, 2560137368u, _e1);
    uint _e13 = choose(2913840557u, 3217014719u, _e1);
    uint _e14 = choose(_e10, _e13, _e4);
    uint _e17 = choose(3486502863u, 3722304989u, _e1);
    uint _e20 = choose(3941264106u, 4143380214u, _e1);
    uint _e21 = choose(_e17, _e20, _e4);
    uint _e24 = choose(16843009u, 218959117u, _e1);
    uint _e27 = choose(421075225u, 640034342u, _e1);
    uint _e28 = choose(_e24, _e27, _e4);
    uint _e31 = choose(892679477u, 1162167621u, _e1);
    uint _e34 = choose(1499027801u, 1903260017u, _e1);
    uint _e35 = choose(_e31, _e34, _e4);
    uint _e36 = choose(_e14, _e21, _e7);
    uint _e37 = choose(_e28, _e35, _e7);
    uint _e40 = bytes_of(code >> 3u);
    uint _e41 = choose(_e36, _e37, _e40);
    return _e41;
}

uint e2m1_(
    uint code_1
) {
    uint is_large = ((code_1 >> 2u) & 16843009u) * 7u;
    uint last = (code_1 & (code_1 >> 1u)) & 16843009u;
    uint size = (code_1 & 117901063u) + (((code_1 & 50529027u) + (2u * last)) & is_large);
    uint _e26 = bytes_of(code_1 >> 3u);
    return ((2155905152u + size) - (2u * (size & _e26))) ^ 2155905152u;
}

uint signed4_(
    uint low,
    uint top
) {
    uint code_2 = low & 252645135u;
    switch(KIND) {
        case 0u: {
            return low;
        }
        case 1u: {
            return code_2;
        }
        case 2u: {
            return code_2 | ((top & 16843009u) << 4u);
        }
        case 3u: {
            return ((code_2 | ((top & 50529027u) << 4u)) + 1616928864u) ^ 2155905152u;
        }
        case 4u: {
            uint _e19 = iq4_(code_2);
            return _e19;
        }
        default: {
            uint _e20 = e2m1_(code_2);
            return _e20;
        }
    }
}

type_12 codes8_(
    metal::uint3 row_3,
    uint col,
    uint n_1,
    device type_3 const& w_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::uint2 low_1 = {};
    metal::uint2 top_1 = {};
    uint _e3 = block_cols();
    uint _e5 = block_bytes();
    uint start = (col / _e3) * _e5;
    uint group_3 = (col % 256u) / 32u;
    uint at_4 = col % 32u;
    switch(KIND) {
        case 0u: {
            metal::uint2 _e19 = two_words(row_3, (start + 2u) + at_4, w_1, _buffer_sizes);
            low_1 = _e19;
            break;
        }
        case 1u: {
            metal::uint2 _e28 = two_words(row_3, ((start + 16u) + ((group_3 / 2u) * 32u)) + at_4, w_1, _buffer_sizes);
            low_1 = _e28 >> metal::uint2(4u * (group_3 % 2u));
            break;
        }
        case 2u: {
            metal::uint2 _e43 = two_words(row_3, ((start + 48u) + ((group_3 / 2u) * 32u)) + at_4, w_1, _buffer_sizes);
            low_1 = _e43 >> metal::uint2(4u * (group_3 % 2u));
            metal::uint2 _e53 = two_words(row_3, (start + 16u) + at_4, w_1, _buffer_sizes);
            top_1 = _e53 >> metal::uint2(group_3);
            break;
        }
        case 3u: {
            uint half_1 = group_3 / 4u;
            uint quarter = group_3 % 4u;
            metal::uint2 _e69 = two_words(row_3, ((start + (64u * half_1)) + (32u * (quarter % 2u))) + at_4, w_1, _buffer_sizes);
            low_1 = _e69 >> metal::uint2((quarter / 2u) * 4u);
            metal::uint2 _e82 = two_words(row_3, ((start + 128u) + (32u * half_1)) + at_4, w_1, _buffer_sizes);
            top_1 = _e82 >> metal::uint2(2u * quarter);
            break;
        }
        case 4u: {
            metal::uint2 _e95 = two_words(row_3, ((start + 8u) + (16u * group_3)) + (at_4 % 16u), w_1, _buffer_sizes);
            low_1 = _e95 >> metal::uint2((at_4 / 16u) * 4u);
            break;
        }
        case 5u: {
            metal::uint2 _e107 = two_words(row_3, (start + 1u) + (at_4 % 16u), w_1, _buffer_sizes);
            low_1 = _e107 >> metal::uint2((at_4 / 16u) * 4u);
            break;
        }
        default: {
            uint word_2 = w_1[row_3.x + (col / 8u)];
            uint _e121 = spread(word_2);
            uint _e124 = spread(word_2 >> 16u);
            low_1 = metal::uint2(_e121, _e124);
            break;
        }
    }
    uint _e127 = low_1.x;
    uint _e129 = top_1.x;
    uint _e130 = signed4_(_e127, _e129);
    metal::float4 _e131 = floats(_e130);
    uint _e133 = low_1.y;
    uint _e135 = top_1.y;
    uint _e136 = signed4_(_e133, _e135);
    metal::float4 _e137 = floats(_e136);
    return type_12 {{_e131, _e137}};
}

metal::float2 factors(
    metal::uint4 head,
    uint group_1
) {
    switch(KIND) {
        case 0u: {
            float _e4 = half_of(head.x);
            return metal::float2(_e4, 0.0);
        }
        case 1u:
        case 2u: {
            uint shift_1 = 8u * (group_1 % 4u);
            metal::uint2 early = (head.yz >> metal::uint2(shift_1)) & metal::uint2(63u);
            metal::uint2 low_2 = (head.ww >> metal::uint2(shift_1, shift_1 + 4u)) & metal::uint2(15u);
            metal::uint2 late = low_2 | (((head.yz >> metal::uint2(shift_1 + 6u)) & metal::uint2(3u)) << metal::uint2(4u));
            metal::float2 numbers = static_cast<metal::float2>((group_1 < 4u) ? early : late);
            float _e44 = half_of(head.x & 65535u);
            float _e48 = half_of(head.x >> 16u);
            return numbers * metal::float2(_e44, -(_e48));
        }
        case 3u: {
            uint scales = (4u <= group_1) ? head.y : head.x;
            int scale = as_type<int>(scales << (24u - (8u * (group_1 % 4u)))) >> 24u;
            float _e68 = half_of(head.z);
            return metal::float2(_e68 * static_cast<float>(scale), 0.0);
        }
        case 4u: {
            uint low_3 = (head.y >> (4u * group_1)) & 15u;
            uint scale_1 = low_3 | (((head.x >> (16u + (2u * group_1))) & 3u) << 4u);
            float _e93 = half_of(head.x & 65535u);
            return metal::float2(_e93 * static_cast<float>(as_type<int>(as_type<uint>(static_cast<int>(scale_1)) - as_type<uint>(32))), 0.0);
        }
        default: {
            return metal::float2(as_type<float>((head.x < 2u) ? (2097152u << head.x) : ((head.x - 1u) << 23u)), 0.0);
        }
    }
}

uint pair_of_bytes(
    metal::uint3 row_4,
    uint byte_2,
    device type_3 const& w_1,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint at_5 = row_4.y + byte_2;
    uint _e10 = w_1[row_4.x + (at_5 / 4u)];
    return (_e10 >> (8u * (at_5 % 4u))) & 65535u;
}

metal::uint4 head_at(
    metal::uint3 row_5,
    uint block,
    uint half_,
    device type_3 const& w_1,
    device type_5 const& w2_,
    device type_7 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e3 = block_bytes();
    uint start_1 = block * _e3;
    switch(KIND) {
        case 0u: {
            uint _e6 = pair_of_bytes(row_5, start_1, w_1, _buffer_sizes);
            return metal::uint4(_e6, 0u, 0u, 0u);
        }
        case 1u:
        case 2u: {
            metal::uint4 _e19 = w4_[(row_5.x / 4u) + (start_1 / 16u)];
            return _e19;
        }
        case 3u: {
            metal::uint2 _e25 = two_words(row_5, (start_1 + 192u) + (8u * half_), w_1, _buffer_sizes);
            uint _e28 = pair_of_bytes(row_5, start_1 + 208u, w_1, _buffer_sizes);
            return metal::uint4(_e25, _e28, 0u);
        }
        case 4u: {
            metal::uint2 _e39 = w2_[(row_5.x / 2u) + (start_1 / 8u)];
            return metal::uint4(_e39, 0u, 0u);
        }
        case 5u: {
            uint at_6 = row_5.y + start_1;
            uint _e51 = w_1[row_5.x + (at_6 / 4u)];
            return metal::uint4((_e51 >> (8u * (at_6 % 4u))) & 255u, 0u, 0u, 0u);
        }
        default: {
            uint at_7 = row_5.z + block;
            uint _e71 = w_1[row_5.y + (at_7 / 4u)];
            return metal::uint4((_e71 >> (8u * (at_7 % 4u))) & 255u, 0u, 0u, 0u);
        }
    }
}

metal::float2 scale_bias(
    metal::uint3 row_6,
    uint col_1,
    device type_3 const& w_1,
    device type_5 const& w2_,
    device type_7 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint group_4 = false ? ((col_1 % 128u) / GROUP) : ((col_1 % 256u) / GROUP);
    uint _e16 = block_cols();
    metal::uint4 _e22 = head_at(row_6, col_1 / _e16, (col_1 % 256u) / 128u, w_1, w2_, w4_, _buffer_sizes);
    metal::float2 _e23 = factors(_e22, group_4);
    return _e23;
}

Place place(
    uint thread_1
) {
    uint block_1 = thread_1 / 32u;
    return Place {(thread_1 % 8u) + (8u * (block_1 % 2u)), ((thread_1 / 8u) % 4u) + (4u * (block_1 / 2u))};
}

uint loaded_row(
    uint thread_2
) {
    return thread_2 / 2u;
}

uint loaded_quad(
    uint thread_3
) {
    return thread_3 / 4u;
}

metal::float4 x_ragged(
    uint at,
    uint n_2,
    device type_14 const& x_2,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::float4 four = {};
    float _e4 = x_2[at];
    four = metal::float4(_e4, 0.0, 0.0, 0.0);
    if (1u < n_2) {
        float _e17 = x_2[at + 1u];
        four.y = _e17;
    }
    if (2u < n_2) {
        float _e25 = x_2[at + 2u];
        four.z = _e25;
    }
    if (3u < n_2) {
        float _e33 = x_2[at + 3u];
        four.w = _e33;
    }
    metal::float4 _e34 = four;
    return _e34;
}

Load load(
    metal::uint3 row_7,
    metal::uint4 tokens,
    uint col_2,
    uint cols_1,
    uint thread_4,
    device type_3 const& w_1,
    device type_5 const& w2_,
    device type_7 const& w4_,
    device type_14 const& x_2,
    device type_15 const& x4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Load part = {};
    bool local_3 = {};
    uint w_col = col_2 + ((thread_4 % 2u) * 8u);
    if (w_col < cols_1) {
        type_12 _e14 = codes8_(row_7, w_col, cols_1 - w_col, w_1, _buffer_sizes);
        part.w = _e14;
        if (SCALED) {
            metal::float2 _e16 = scale_bias(row_7, w_col, w_1, w2_, w4_, _buffer_sizes);
            metal::float4 _e23 = part.w.inner[0];
            part.w.inner[0] = metal::fma(metal::float4(_e16.x), _e23, metal::float4(_e16.y));
            metal::float4 _e33 = part.w.inner[1];
            part.w.inner[1] = metal::fma(metal::float4(_e16.x), _e33, metal::float4(_e16.y));
        }
    }
    uint x_col = col_2 + ((thread_4 % 4u) * 4u);
    uint _e42 = loaded_quad(thread_4);
    if (_e42 < TILE_QUADS) {
        local_3 = x_col < cols_1;
    } else {
        local_3 = false;
    }
    bool _e49 = local_3;
    if (_e49) {
        metal::uint4 at_8 = (tokens * cols_1) + metal::uint4(x_col);
        if ((cols_1 % 4u) == 0u) {
            metal::float4 _e63 = x4_[at_8.x / 4u];
            metal::float4 _e69 = x4_[at_8.y / 4u];
            metal::float4 _e75 = x4_[at_8.z / 4u];
            metal::float4 _e81 = x4_[at_8.w / 4u];
            part.x = metal::transpose(metal::float4x4(_e63, _e69, _e75, _e81));
        } else {
            uint n_3 = cols_1 - x_col;
            metal::float4 _e87 = x_ragged(at_8.x, n_3, x_2, _buffer_sizes);
            metal::float4 _e89 = x_ragged(at_8.y, n_3, x_2, _buffer_sizes);
            metal::float4 _e91 = x_ragged(at_8.z, n_3, x_2, _buffer_sizes);
            metal::float4 _e93 = x_ragged(at_8.w, n_3, x_2, _buffer_sizes);
            part.x = metal::transpose(metal::float4x4(_e87, _e89, _e91, _e93));
        }
    }
    Load _e96 = part;
    return _e96;
}

uint token_turn(
    uint four_1
) {
    return (2u * four_1) % 8u;
}

void store(
    Load part_1,
    uint thread_5,
    threadgroup type_16& w_tile,
    threadgroup type_17& x_tile
) {
    uint _e2 = loaded_row(thread_5);
    uint first_1 = (thread_5 % 2u) * 2u;
    uint turn = (_e2 / 2u) % 4u;
    w_tile.inner[(_e2 * 4u) + (first_1 ^ turn)] = part_1.w.inner[0];
    w_tile.inner[(_e2 * 4u) + ((first_1 + 1u) ^ turn)] = part_1.w.inner[1];
    uint _e29 = loaded_quad(thread_5);
    if (_e29 < TILE_QUADS) {
        uint four_3 = thread_5 % 4u;
        uint _e38 = token_turn(four_3);
        uint at_9 = ((four_3 * 4u) * TILE_QUADS) + (_e29 ^ _e38);
        x_tile.inner[at_9] = part_1.x[0];
        x_tile.inner[at_9 + TILE_QUADS] = part_1.x[1];
        x_tile.inner[at_9 + 64u] = part_1.x[2];
        x_tile.inner[at_9 + 96u] = part_1.x[3];
        return;
    } else {
        return;
    }
}

metal::float4 add4_(
    metal::float4 sum,
    metal::float4 w,
    metal::float4x4 x
) {
    metal::float4 a_2 = metal::fma(metal::float4(w.x), x[0], sum);
    metal::float4 b_2 = metal::fma(metal::float4(w.y), x[1], a_2);
    metal::float4 c_2 = metal::fma(metal::float4(w.z), x[2], b_2);
    return metal::fma(metal::float4(w.w), x[3], c_2);
}

metal::float4x4 x_columns(
    uint at_1,
    threadgroup type_17& x_tile
) {
    metal::float4 _e3 = x_tile.inner[at_1];
    metal::float4 _e8 = x_tile.inner[at_1 + TILE_QUADS];
    metal::float4 _e16 = x_tile.inner[at_1 + 64u];
    metal::float4 _e24 = x_tile.inner[at_1 + 96u];
    return metal::float4x4(_e3, _e8, _e16, _e24);
}

type_19 tile_sums(
    metal::uint3 row_8,
    metal::uint4 tokens_1,
    uint cols_2,
    uint thread_6,
    device type_3 const& w_1,
    device type_5 const& w2_,
    device type_7 const& w4_,
    device type_14 const& x_2,
    device type_15 const& x4_,
    threadgroup type_16& w_tile,
    threadgroup type_17& x_tile,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_19 sums = {};
    Load part_2 = {};
    uint col_3 = 0u;
    uint four_2 = {};
    metal::float4x4 y = {};
    Place _e5 = place(thread_6);
    uint turn_1 = (_e5.row / 2u) % 4u;
    Load _e16 = load(row_8, tokens_1, 0u, cols_2, thread_6, w_1, w2_, w4_, x_2, x4_, _buffer_sizes);
    part_2 = _e16;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e199 = col_3;
            col_3 = _e199 + TILE_COLS;
        }
        loop_init_1 = false;
        uint _e20 = col_3;
        if (_e20 < cols_2) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            Load _e22 = part_2;
            store(_e22, thread_6, w_tile, x_tile);
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e23 = col_3;
            if ((_e23 + TILE_COLS) < cols_2) {
                uint _e27 = col_3;
                Load _e30 = load(row_8, tokens_1, _e27 + TILE_COLS, cols_2, thread_6, w_1, w2_, w4_, x_2, x4_, _buffer_sizes);
                part_2 = _e30;
            }
            four_2 = 0u;
            bool loop_init_2 = true;
            while(true) {
                if (!loop_init_2) {
                    uint _e197 = four_2;
                    four_2 = _e197 + 1u;
                }
                loop_init_2 = false;
                uint _e33 = four_2;
                if (_e33 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e39 = four_2;
                    uint w_at = (_e5.row * 4u) + (_e39 ^ turn_1);
                    uint _e42 = four_2;
                    uint _e48 = four_2;
                    uint _e49 = token_turn(_e48);
                    uint x_at = ((_e42 * 4u) * TILE_QUADS) + (_e5.quad_ ^ _e49);
                    metal::float4x4 _e52 = x_columns(x_at, x_tile);
                    y = _e52;
                    if (true) {
                        metal::float4x4 _e60 = x_columns(x_at + N_TOKEN_THREAD, x_tile);
                        y = _e60;
                    }
                    metal::float4 w0_ = w_tile.inner[w_at];
                    metal::float4 w1_ = w_tile.inner[w_at + 64u];
                    metal::float4 _e70 = sums.inner[0];
                    metal::float4 _e71 = add4_(_e70, w0_, _e52);
                    sums.inner[0] = _e71;
                    metal::float4 _e74 = sums.inner[2];
                    metal::float4 _e75 = add4_(_e74, w1_, _e52);
                    sums.inner[2] = _e75;
                    if (true) {
                        metal::float4 _e82 = sums.inner[1];
                        metal::float4x4 _e83 = y;
                        metal::float4 _e84 = add4_(_e82, w0_, _e83);
                        sums.inner[1] = _e84;
                        metal::float4 _e87 = sums.inner[3];
                        metal::float4x4 _e88 = y;
                        metal::float4 _e89 = add4_(_e87, w1_, _e88);
                        sums.inner[3] = _e89;
                    }
                    if (true) {
                        metal::float4 w2_1 = w_tile.inner[w_at + 128u];
                        metal::float4 w3_ = w_tile.inner[w_at + 192u];
                        metal::float4 _e108 = sums.inner[4];
                        metal::float4 _e109 = add4_(_e108, w2_1, _e52);
                        sums.inner[4] = _e109;
                        metal::float4 _e112 = sums.inner[6];
                        metal::float4 _e113 = add4_(_e112, w3_, _e52);
                        sums.inner[6] = _e113;
                        if (true) {
                            metal::float4 _e120 = sums.inner[5];
                            metal::float4x4 _e121 = y;
                            metal::float4 _e122 = add4_(_e120, w2_1, _e121);
                            sums.inner[5] = _e122;
                            metal::float4 _e125 = sums.inner[7];
                            metal::float4x4 _e126 = y;
                            metal::float4 _e127 = add4_(_e125, w3_, _e126);
                            sums.inner[7] = _e127;
                        }
                    }
                    if (true) {
                        metal::float4 w4_1 = w_tile.inner[w_at + 256u];
                        metal::float4 w5_ = w_tile.inner[w_at + 320u];
                        metal::float4 w6_ = w_tile.inner[w_at + 384u];
                        metal::float4 w7_ = w_tile.inner[w_at + 448u];
                        metal::float4 _e158 = sums.inner[8];
                        metal::float4 _e159 = add4_(_e158, w4_1, _e52);
                        sums.inner[8] = _e159;
                        metal::float4 _e162 = sums.inner[10];
                        metal::float4 _e163 = add4_(_e162, w5_, _e52);
                        sums.inner[10] = _e163;
                        metal::float4 _e166 = sums.inner[12];
                        metal::float4 _e167 = add4_(_e166, w6_, _e52);
                        sums.inner[12] = _e167;
                        metal::float4 _e170 = sums.inner[14];
                        metal::float4 _e171 = add4_(_e170, w7_, _e52);
                        sums.inner[14] = _e171;
                        if (true) {
                            metal::float4 _e178 = sums.inner[9];
                            metal::float4x4 _e179 = y;
                            metal::float4 _e180 = add4_(_e178, w4_1, _e179);
                            sums.inner[9] = _e180;
                            metal::float4 _e183 = sums.inner[11];
                            metal::float4x4 _e184 = y;
                            metal::float4 _e185 = add4_(_e183, w5_, _e184);
                            sums.inner[11] = _e185;
                            metal::float4 _e188 = sums.inner[13];
                            metal::float4x4 _e189 = y;
                            metal::float4 _e190 = add4_(_e188, w6_, _e189);
                            sums.inner[13] = _e190;
                            metal::float4 _e193 = sums.inner[15];
                            metal::float4x4 _e194 = y;
                            metal::float4 _e195 = add4_(_e193, w7_, _e194);
                            sums.inner[15] = _e195;
                        }
                    }
                }
            }
        }
    }
    type_19 _e202 = sums;
    return _e202;
}

uint hidden_row(
    uint tile_row
) {
    return ((tile_row / 32u) * BLOCK) + (tile_row % BLOCK);
}

float silu(
    float x_1
) {
    return x_1 / (1.0 + metal::exp(metal::min(-(x_1), 80.0)));
}

void put_one(
    uint at_2,
    float sum_1,
    device type_14& out,
    constant _mslBufferSizes& _buffer_sizes
) {
    if (false) {
        float _e10 = out[at_2];
        float _e11 = silu(_e10);
        out[at_2] = _e11 * sum_1;
        return;
    }
    out[at_2] = sum_1;
    return;
}

void put(
    Tile tile,
    uint tile_row_1,
    uint tile_token,
    float a,
    float b,
    constant Params& p,
    device type_14& out,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint row_out = {};
    uint token = tile.token + tile_token;
    if (tile.n_token <= token) {
        return;
    }
    if (true) {
        uint _e14 = hidden_row(tile_row_1);
        uint row_10 = tile.row + _e14;
        uint _e18 = p.rows;
        if (row_10 < _e18) {
            uint _e25 = p.rows;
            float _e29 = silu(a);
            out[((tile.first_pair + token) * _e25) + row_10] = _e29 * b;
        }
        return;
    }
    row_out = tile.first_pair + token;
    if (false) {
        uint _e46 = jobs[(tile.pairs_at + (2u * token)) + 1u];
        row_out = _e46;
    }
    uint row_11 = tile.row + tile_row_1;
    uint _e49 = row_out;
    uint _e52 = p.rows;
    uint at_10 = (_e49 * _e52) + row_11;
    uint _e57 = p.rows;
    if (row_11 < _e57) {
        put_one(at_10, a, out, _buffer_sizes);
    }
    uint _e63 = p.rows;
    if ((row_11 + BLOCK) < _e63) {
        put_one(at_10 + BLOCK, b, out, _buffer_sizes);
        return;
    } else {
        return;
    }
}

void put4_(
    Tile tile_1,
    Place here,
    uint i_1,
    metal::float4 a_1,
    metal::float4 b_1,
    constant Params& p,
    device type_14& out,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint row_12 = ((2u * i_1) * BLOCK) + here.row;
    uint token_1 = 4u * here.quad_;
    put(tile_1, row_12, token_1, a_1.x, b_1.x, p, out, jobs, _buffer_sizes);
    put(tile_1, row_12, token_1 + 1u, a_1.y, b_1.y, p, out, jobs, _buffer_sizes);
    put(tile_1, row_12, token_1 + 2u, a_1.z, b_1.z, p, out, jobs, _buffer_sizes);
    put(tile_1, row_12, token_1 + 3u, a_1.w, b_1.w, p, out, jobs, _buffer_sizes);
    return;
}

Tile open(
    metal::uint3 group_2,
    constant Params& p,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e3 = p.jobs_at;
    uint job = _e3 + (group_2.z * 4u);
    uint token_2 = group_2.y * TILE_TOKENS;
    uint _e25 = jobs[job + 2u];
    uint _e28 = jobs[job];
    uint _e33 = jobs[job + 1u];
    uint _e38 = jobs[job + 3u];
    return Tile {group_2.x * 64u, token_2, _e25, _e28, _e33, _e38};
}

metal::uint3 weights(
    Tile tile_2,
    uint tile_row_2,
    constant Params& p
) {
    metal::uint3 planes_1 = {};
    uint row_9 = {};
    uint _e4 = p.codes;
    uint _e7 = p.scales;
    uint _e10 = p.biases;
    planes_1 = metal::uint3(_e4, _e7, _e10);
    row_9 = tile_2.row + tile_row_2;
    if (true) {
        uint _e21 = hidden_row(tile_row_2);
        row_9 = tile_2.row + _e21;
        if (((tile_row_2 / BLOCK) % 2u) == 1u) {
            uint _e31 = p.up_codes;
            uint _e34 = p.up_scales;
            uint _e37 = p.up_biases;
            planes_1 = metal::uint3(_e31, _e34, _e37);
        }
    }
    metal::uint3 _e40 = planes_1;
    uint _e43 = row_9;
    uint _e46 = p.rows;
    uint _e52 = p.cols;
    metal::uint3 _e53 = row_at(metal::uint3(tile_2.record_at) + _e40, metal::min(_e43, _e46 - 1u), _e52);
    return _e53;
}

uint input_row(
    Tile tile_3,
    uint tile_token_1,
    device type_3 const& jobs,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint token_3 = metal::min(tile_3.token + tile_token_1, tile_3.n_token - 1u);
    if (false) {
        return tile_3.first_pair + token_3;
    }
    uint _e20 = jobs[tile_3.pairs_at + (2u * token_3)];
    return _e20;
}

uint n_col(
    constant Params& p
) {
    uint _e2 = p.cols;
    return _e2;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, device type_3 const& w_1 [[buffer(1)]]
, device type_5 const& w2_ [[buffer(2)]]
, device type_7 const& w4_ [[buffer(3)]]
, device type_14 const& x_2 [[buffer(4)]]
, device type_15 const& x4_ [[buffer(5)]]
, threadgroup type_16& w_tile
, threadgroup type_17& x_tile
, constant Params& p [[buffer(0)]]
, device type_14& out [[buffer(7)]]
, device type_3 const& jobs [[buffer(6)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(8)]]
) {
    Tile _e2 = open(group, p, jobs, _buffer_sizes);
    if (_e2.n_token <= _e2.token) {
        return;
    }
    uint _e6 = loaded_row(thread_);
    metal::uint3 _e7 = weights(_e2, _e6, p);
    uint _e9 = loaded_quad(thread_);
    uint token_4 = 4u * metal::min(_e9, 31u);
    uint _e16 = input_row(_e2, token_4, jobs, _buffer_sizes);
    uint _e19 = input_row(_e2, token_4 + 1u, jobs, _buffer_sizes);
    uint _e22 = input_row(_e2, token_4 + 2u, jobs, _buffer_sizes);
    uint _e25 = input_row(_e2, token_4 + 3u, jobs, _buffer_sizes);
    metal::uint4 tokens_2 = metal::uint4(_e16, _e19, _e22, _e25);
    uint _e27 = n_col(p);
    type_19 _e28 = tile_sums(_e7, tokens_2, _e27, thread_, w_1, w2_, w4_, x_2, x4_, w_tile, x_tile, _buffer_sizes);
    Place _e29 = place(thread_);
    Place next_1 = Place {_e29.row, _e29.quad_ + N_TOKEN_THREAD};
    put4_(_e2, _e29, 0u, _e28.inner[0], _e28.inner[2], p, out, jobs, _buffer_sizes);
    if (true) {
        put4_(_e2, next_1, 0u, _e28.inner[1], _e28.inner[3], p, out, jobs, _buffer_sizes);
    }
    if (true) {
        put4_(_e2, _e29, 1u, _e28.inner[4], _e28.inner[6], p, out, jobs, _buffer_sizes);
        if (true) {
            put4_(_e2, next_1, 1u, _e28.inner[5], _e28.inner[7], p, out, jobs, _buffer_sizes);
        }
    }
    if (true) {
        put4_(_e2, _e29, 2u, _e28.inner[8], _e28.inner[10], p, out, jobs, _buffer_sizes);
        put4_(_e2, _e29, 3u, _e28.inner[12], _e28.inner[14], p, out, jobs, _buffer_sizes);
        if (true) {
            put4_(_e2, next_1, 2u, _e28.inner[9], _e28.inner[11], p, out, jobs, _buffer_sizes);
            put4_(_e2, next_1, 3u, _e28.inner[13], _e28.inner[15], p, out, jobs, _buffer_sizes);
            return;
        } else {
            return;
        }
    } else {
        return;
    }
}
