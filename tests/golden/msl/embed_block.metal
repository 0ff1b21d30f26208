// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size1;
    uint size2;
    uint size4;
    uint size5;
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
struct Params {
    metal::packed_uint3 planes;
    uint rows;
    uint cols;
    uint row0_;
    uint ids_at;
    uint n_token;
};
typedef float type_14[1];
constant uint Q8_0_ = 0u;
constant uint Q4_K = 1u;
constant uint Q5_K = 2u;
constant uint Q6_K = 3u;
constant uint IQ4_XS = 4u;
constant uint MXFP4_ = 5u;
constant uint MXFP4_PLANES = 6u;
constant uint CHUNK = 32u;
constant bool SCALED = true;
constant uint KIND = 2u;
constant uint GROUP = 64u;

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
    device type_3 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint word = {};
    uint i_1 = 0u;
    uint next = {};
    bool local_2 = {};
    uint at = row_1.y + byte;
    uint first = row_1.x + (at / 4u);
    uint shift = 8u * (at % 4u);
    uint _e17 = w[first];
    word = _e17;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e58 = i_1;
            i_1 = _e58 + 1u;
        }
        loop_init = false;
        uint _e21 = i_1;
        if (_e21 < n) {
        } else {
            break;
        }
        {
            next = 0u;
            uint _e25 = i_1;
            if (!(((_e25 + 1u) < n))) {
                local_2 = shift != 0u;
            } else {
                local_2 = true;
            }
            bool _e35 = local_2;
            if (_e35) {
                uint _e37 = i_1;
                uint _e42 = w[(first + _e37) + 1u];
                next = _e42;
            }
            uint _e44 = i_1;
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
    device type_3 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunk c_1 = {};
    load_words(c_1, 0u, row_2, byte_1, 2u, w, _buffer_sizes);
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
    metal::uint4 place = metal::uint4(0u, 8u, 0u, 8u);
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
    device type_3 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::uint2 low_1 = {};
    metal::uint2 top_1 = {};
    uint _e3 = block_cols();
    uint _e5 = block_bytes();
    uint start = (col / _e3) * _e5;
    uint group_2 = (col % 256u) / 32u;
    uint at_1 = col % 32u;
    switch(KIND) {
        case 0u: {
            metal::uint2 _e19 = two_words(row_3, (start + 2u) + at_1, w, _buffer_sizes);
            low_1 = _e19;
            break;
        }
        case 1u: {
            metal::uint2 _e28 = two_words(row_3, ((start + 16u) + ((group_2 / 2u) * 32u)) + at_1, w, _buffer_sizes);
            low_1 = _e28 >> metal::uint2(4u * (group_2 % 2u));
            break;
        }
        case 2u: {
            metal::uint2 _e43 = two_words(row_3, ((start + 48u) + ((group_2 / 2u) * 32u)) + at_1, w, _buffer_sizes);
            low_1 = _e43 >> metal::uint2(4u * (group_2 % 2u));
            metal::uint2 _e53 = two_words(row_3, (start + 16u) + at_1, w, _buffer_sizes);
            top_1 = _e53 >> metal::uint2(group_2);
            break;
        }
        case 3u: {
            uint half_1 = group_2 / 4u;
            uint quarter = group_2 % 4u;
            metal::uint2 _e69 = two_words(row_3, ((start + (64u * half_1)) + (32u * (quarter % 2u))) + at_1, w, _buffer_sizes);
            low_1 = _e69 >> metal::uint2((quarter / 2u) * 4u);
            metal::uint2 _e82 = two_words(row_3, ((start + 128u) + (32u * half_1)) + at_1, w, _buffer_sizes);
            top_1 = _e82 >> metal::uint2(2u * quarter);
            break;
        }
        case 4u: {
            metal::uint2 _e95 = two_words(row_3, ((start + 8u) + (16u * group_2)) + (at_1 % 16u), w, _buffer_sizes);
            low_1 = _e95 >> metal::uint2((at_1 / 16u) * 4u);
            break;
        }
        case 5u: {
            metal::uint2 _e107 = two_words(row_3, (start + 1u) + (at_1 % 16u), w, _buffer_sizes);
            low_1 = _e107 >> metal::uint2((at_1 / 16u) * 4u);
            break;
        }
        default: {
            uint word_2 = w[row_3.x + (col / 8u)];
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
    device type_3 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint at_2 = row_4.y + byte_2;
    uint _e10 = w[row_4.x + (at_2 / 4u)];
    return (_e10 >> (8u * (at_2 % 4u))) & 65535u;
}

metal::uint4 head_at(
    metal::uint3 row_5,
    uint block,
    uint half_,
    device type_3 const& w,
    device type_5 const& w2_,
    device type_7 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e3 = block_bytes();
    uint start_1 = block * _e3;
    switch(KIND) {
        case 0u: {
            uint _e6 = pair_of_bytes(row_5, start_1, w, _buffer_sizes);
            return metal::uint4(_e6, 0u, 0u, 0u);
        }
        case 1u:
        case 2u: {
            metal::uint4 _e19 = w4_[(row_5.x / 4u) + (start_1 / 16u)];
            return _e19;
        }
        case 3u: {
            metal::uint2 _e25 = two_words(row_5, (start_1 + 192u) + (8u * half_), w, _buffer_sizes);
            uint _e28 = pair_of_bytes(row_5, start_1 + 208u, w, _buffer_sizes);
            return metal::uint4(_e25, _e28, 0u);
        }
        case 4u: {
            metal::uint2 _e39 = w2_[(row_5.x / 2u) + (start_1 / 8u)];
            return metal::uint4(_e39, 0u, 0u);
        }
        case 5u: {
            uint at_3 = row_5.y + start_1;
            uint _e51 = w[row_5.x + (at_3 / 4u)];
            return metal::uint4((_e51 >> (8u * (at_3 % 4u))) & 255u, 0u, 0u, 0u);
        }
        default: {
            uint at_4 = row_5.z + block;
            uint _e71 = w[row_5.y + (at_4 / 4u)];
            return metal::uint4((_e71 >> (8u * (at_4 % 4u))) & 255u, 0u, 0u, 0u);
        }
    }
}

metal::float2 scale_bias(
    metal::uint3 row_6,
    uint col_1,
    device type_3 const& w,
    device type_5 const& w2_,
    device type_7 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint group_3 = false ? ((col_1 % 128u) / GROUP) : ((col_1 % 256u) / GROUP);
    uint _e16 = block_cols();
    metal::uint4 _e22 = head_at(row_6, col_1 / _e16, (col_1 % 256u) / 128u, w, w2_, w4_, _buffer_sizes);
    metal::float2 _e23 = factors(_e22, group_3);
    return _e23;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(64)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, device type_3 const& w [[buffer(1)]]
, device type_5 const& w2_ [[buffer(2)]]
, device type_7 const& w4_ [[buffer(3)]]
, constant Params& p [[buffer(0)]]
, device type_3 const& ids [[buffer(4)]]
, device type_14& out [[buffer(5)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(6)]]
) {
    uint i = 0u;
    uint item = (((group.y * n_group.x) + group.x) * 64u) + thread_;
    uint _e13 = p.cols;
    uint per_row = (_e13 + 7u) / 8u;
    uint t = item / per_row;
    uint _e21 = p.n_token;
    if (t >= _e21) {
        return;
    }
    uint _e26 = p.ids_at;
    uint _e29 = ids[_e26 + t];
    uint _e32 = p.row0_;
    uint row_7 = _e29 - _e32;
    uint _e36 = p.rows;
    if (row_7 >= _e36) {
        return;
    }
    uint col_2 = (item % per_row) * 8u;
    uint _e43 = p.cols;
    uint n_2 = _e43 - col_2;
    metal::uint3 _e47 = p.planes;
    uint _e50 = p.cols;
    metal::uint3 _e51 = row_at(_e47, row_7, _e50);
    type_12 _e52 = codes8_(_e51, col_2, n_2, w, _buffer_sizes);
    metal::float2 _e53 = scale_bias(_e51, col_2, w, w2_, w4_, _buffer_sizes);
    uint _e56 = p.cols;
    uint start_2 = (t * _e56) + col_2;
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e81 = i;
            i = _e81 + 1u;
        }
        loop_init_1 = false;
        uint _e61 = i;
        if (_e61 < metal::min(8u, n_2)) {
        } else {
            break;
        }
        {
            uint _e66 = i;
            uint _e70 = i;
            uint _e74 = i;
            out[start_2 + _e66] = metal::fma(_e53.x, _e52.inner[_e70 / 4u][_e74 % 4u], _e53.y);
        }
    }
    return;
}
