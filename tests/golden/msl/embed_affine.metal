// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size2;
    uint size3;
};

typedef uint type_3[1];
struct type_7 {
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
typedef float type_9[1];
constant uint CHUNK = 32u;
constant uint RUNS = 1u;
constant bool SCALED = true;
constant bool BIASED = true;
constant uint BITS = 4u;
constant uint GROUP = 64u;
constant uint HALF = 0u;

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
        metal::uint4 place_1 = metal::uint4(0u, 4u, 8u, 12u);
        metal::float4 _e35 = in_place(metal::uint4(word) & metal::uint4(15u, 240u, 3840u, 61440u), place_1);
        return _e35;
    }
    uint high_1 = word >> 8u;
    metal::uint4 place_2 = metal::uint4(0u, 4u, 0u, 4u);
    metal::float4 _e58 = in_place(metal::uint4(word, word, high_1, high_1) & metal::uint4(15u, 240u, 15u, 240u), place_2);
    return _e58;
}

type_7 codes8_(
    metal::uint3 row_1,
    uint col,
    uint n,
    device type_3 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint low = {};
    uint high = 0u;
    uint byte = (col / 8u) * BITS;
    uint at = row_1.x + (byte / 4u);
    uint shift = 8u * (byte % 4u);
    uint _e17 = w[at];
    low = _e17 >> shift;
    if (32u < (shift + 32u)) {
        uint next = w[at + 1u];
        high = next >> shift;
        if (shift != 0u) {
            uint _e37 = low;
            low = _e37 | (next << (32u - shift));
        }
    }
    if (false) {
        uint _e46 = low;
        metal::float4 _e47 = four(_e46);
        uint _e48 = high;
        metal::float4 _e49 = four(_e48);
        return type_7 {{_e47, _e49}};
    }
    uint _e57 = low;
    metal::float4 _e58 = four(_e57);
    uint _e59 = low;
    uint _e61 = high;
    metal::float4 _e66 = four((_e59 >> 16u) | (_e61 << 16u));
    return type_7 {{_e58, _e66}};
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

metal::float2 scale_bias(
    metal::uint3 row_2,
    uint col_1,
    device type_3 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::uint2 group_1 = row_2.yz + metal::uint2(col_1 / GROUP);
    uint _e12 = w[group_1.x / 2u];
    float _e14 = number_of(_e12, group_1.x);
    uint _e20 = w[group_1.y / 2u];
    float _e22 = number_of(_e20, group_1.y);
    return metal::float2(_e14, _e22);
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(64)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, device type_3 const& w [[buffer(1)]]
, constant Params& p [[buffer(0)]]
, device type_3 const& ids [[buffer(4)]]
, device type_9& out [[buffer(5)]]
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
    uint row_3 = _e29 - _e32;
    uint _e36 = p.rows;
    if (row_3 >= _e36) {
        return;
    }
    uint col_2 = (item % per_row) * 8u;
    uint _e43 = p.cols;
    uint n_1 = _e43 - col_2;
    metal::uint3 _e47 = p.planes;
    uint _e50 = p.cols;
    metal::uint3 _e51 = row_at(_e47, row_3, _e50);
    type_7 _e52 = codes8_(_e51, col_2, n_1, w, _buffer_sizes);
    metal::float2 _e53 = scale_bias(_e51, col_2, w, _buffer_sizes);
    uint _e56 = p.cols;
    uint start = (t * _e56) + col_2;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e81 = i;
            i = _e81 + 1u;
        }
        loop_init = false;
        uint _e61 = i;
        if (_e61 < metal::min(8u, n_1)) {
        } else {
            break;
        }
        {
            uint _e66 = i;
            uint _e70 = i;
            uint _e74 = i;
            out[start + _e66] = metal::fma(_e53.x, _e52.inner[_e70 / 4u][_e74 % 4u], _e53.y);
        }
    }
    return;
}
