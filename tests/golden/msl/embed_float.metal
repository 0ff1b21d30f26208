// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size0;
    uint size1;
    uint size3;
    uint size4;
};

typedef uint type_2[1];
typedef metal::uint4 type_4[1];
struct type_5 {
    uint inner[8];
};
struct Chunk {
    type_5 words;
};
struct type_9 {
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
typedef float type_11[1];
constant uint CHUNK = 8u;
constant uint RUNS = 1u;
constant bool SCALED = false;
constant bool BIASED = false;
constant uint KIND = 2u;

metal::uint3 row_at(
    metal::uint3 planes,
    uint row,
    uint cols
) {
    return metal::uint3((planes.x * 2u) + (row * cols), 0u, 0u);
}

Chunk load_chunk(
    metal::uint3 row_1,
    uint chunk,
    uint n,
    device type_2 const& w,
    device type_4 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunk c = {};
    bool local = {};
    uint i_1 = 0u;
    uint i_2 = 0u;
    uint bits = {};
    uint at = row_1.x + (chunk * CHUNK);
    if ((at % 8u) == 0u) {
        local = CHUNK <= n;
    } else {
        local = false;
    }
    bool _e27 = local;
    if (_e27) {
        bool loop_init = true;
        while(true) {
            if (!loop_init) {
                uint _e73 = i_1;
                i_1 = _e73 + 1u;
            }
            loop_init = false;
            uint _e30 = i_1;
            if (_e30 < 1u) {
            } else {
                break;
            }
            {
                uint _e38 = i_1;
                metal::uint4 words = w4_[(at / 8u) + _e38];
                uint _e44 = i_1;
                c.words.inner[4u * _e44] = words.x;
                uint _e50 = i_1;
                c.words.inner[(4u * _e50) + 1u] = words.y;
                uint _e58 = i_1;
                c.words.inner[(4u * _e58) + 2u] = words.z;
                uint _e66 = i_1;
                c.words.inner[(4u * _e66) + 3u] = words.w;
            }
        }
        Chunk _e75 = c;
        return _e75;
    }
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e116 = i_2;
            i_2 = _e116 + 1u;
        }
        loop_init_1 = false;
        uint _e78 = i_2;
        if (_e78 < CHUNK) {
        } else {
            break;
        }
        {
            bits = 0u;
            uint _e83 = i_2;
            if (_e83 < n) {
                uint _e86 = i_2;
                uint _e90 = w[(at + _e86) / 2u];
                bits = _e90;
                if (true) {
                    uint _e93 = bits;
                    uint _e95 = i_2;
                    bits = (_e93 >> (16u * ((at + _e95) % 2u))) & 65535u;
                }
            }
            uint _e104 = i_2;
            uint _e107 = c.words.inner[_e104 / 2u];
            uint _e108 = bits;
            uint _e110 = i_2;
            c.words.inner[_e104 / 2u] = _e107 | (_e108 << (16u * (_e110 % 2u)));
        }
    }
    Chunk _e118 = c;
    return _e118;
}

metal::float4 chunk4_(
    Chunk c_1,
    uint k
) {
    if (false) {
        uint at_1 = 4u * k;
        return as_type<metal::float4>(metal::uint4(c_1.words.inner[at_1], c_1.words.inner[at_1 + 1u], c_1.words.inner[at_1 + 2u], c_1.words.inner[at_1 + 3u]));
    }
    uint low = c_1.words.inner[2u * k];
    uint high = c_1.words.inner[(2u * k) + 1u];
    if (false) {
        return metal::float4(float2(as_type<half2>(low)), float2(as_type<half2>(high)));
    }
    return as_type<metal::float4>(metal::uint4(low << 16u, low & 4294901760u, high << 16u, high & 4294901760u));
}

type_9 codes8_(
    metal::uint3 row_2,
    uint col,
    uint n_1,
    device type_2 const& w,
    device type_4 const& w4_,
    constant _mslBufferSizes& _buffer_sizes
) {
    Chunk _e5 = load_chunk(row_2, col / CHUNK, n_1, w, w4_, _buffer_sizes);
    metal::float4 _e7 = chunk4_(_e5, 0u);
    metal::float4 _e9 = chunk4_(_e5, 1u);
    return type_9 {{_e7, _e9}};
}

metal::float2 scale_bias(
    metal::uint3 row_3,
    uint col_1
) {
    return metal::float2(1.0, 0.0);
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(64)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, device type_2 const& w [[buffer(1)]]
, device type_4 const& w4_ [[buffer(3)]]
, constant Params& p [[buffer(0)]]
, device type_2 const& ids [[buffer(4)]]
, device type_11& out [[buffer(5)]]
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
    uint row_4 = _e29 - _e32;
    uint _e36 = p.rows;
    if (row_4 >= _e36) {
        return;
    }
    uint col_2 = (item % per_row) * 8u;
    uint _e43 = p.cols;
    uint n_2 = _e43 - col_2;
    metal::uint3 _e47 = p.planes;
    uint _e50 = p.cols;
    metal::uint3 _e51 = row_at(_e47, row_4, _e50);
    type_9 _e52 = codes8_(_e51, col_2, n_2, w, w4_, _buffer_sizes);
    metal::float2 _e53 = scale_bias(_e51, col_2);
    uint _e56 = p.cols;
    uint start = (t * _e56) + col_2;
    bool loop_init_2 = true;
    while(true) {
        if (!loop_init_2) {
            uint _e81 = i;
            i = _e81 + 1u;
        }
        loop_init_2 = false;
        uint _e61 = i;
        if (_e61 < metal::min(8u, n_2)) {
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
