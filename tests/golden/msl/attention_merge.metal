// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
    uint size3;
};

struct Params {
    uint n_row;
    uint head_dim;
    uint q_stride;
    uint is_gated;
    uint n_block;
    uint stats_at;
    uint carry_from;
    uint carry_to;
    uint is_first;
    uint is_last;
    uint first_head;
};
typedef float type_3[1];
struct type_4 {
    metal::float4 inner[256];
};
struct type_7 {
    metal::float4 inner[16];
};
constant uint BLOCK = 64u;
constant uint SPLIT_BLOCKS = 16u;
constant uint DOT_DIMS = 32u;
constant float UNSEEN = -1000000000000000000000000000000.0;
constant float UNSEEN_BELOW = -900000000000000000000000000000.0;
constant uint N_LANE = 8u;

float sigmoid(
    float x
) {
    return 1.0 / (1.0 + metal::exp(-(metal::clamp(x, -87.0, 87.0))));
}

float silu(
    float x_1
) {
    float _e1 = sigmoid(x_1);
    return (x_1 > -87.0) ? (x_1 * _e1) : 0.0;
}

float softplus(
    float x_2
) {
    float series = 0.06666667;
    float y = metal::exp(-(metal::min(metal::abs(x_2), 87.0)));
    float z = y / (2.0 + y);
    float square = z * z;
    float _e12 = series;
    series = metal::fma(_e12, square, 0.07692308);
    float _e15 = series;
    series = metal::fma(_e15, square, 0.09090909);
    float _e18 = series;
    series = metal::fma(_e18, square, 0.11111111);
    float _e21 = series;
    series = metal::fma(_e21, square, 0.14285715);
    float _e24 = series;
    series = metal::fma(_e24, square, 0.2);
    float _e27 = series;
    series = metal::fma(_e27, square, 0.33333334);
    float _e30 = series;
    series = metal::fma(_e30, square, 1.0);
    float _e35 = series;
    return metal::fma(2.0 * z, _e35, metal::max(x_2, 0.0));
}

float decay_of(
    float x_3
) {
    float series_1 = 0.0001984127;
    float small = metal::max(x_3, -0.25);
    float _e5 = series_1;
    series_1 = metal::fma(_e5, small, 0.0013888889);
    float _e8 = series_1;
    series_1 = metal::fma(_e8, small, 0.008333334);
    float _e11 = series_1;
    series_1 = metal::fma(_e11, small, 0.041666668);
    float _e14 = series_1;
    series_1 = metal::fma(_e14, small, 0.16666667);
    float _e17 = series_1;
    series_1 = metal::fma(_e17, small, 0.5);
    float _e20 = series_1;
    series_1 = metal::fma(_e20, small, 1.0);
    float _e23 = series_1;
    series_1 = metal::fma(_e23, small, 1.0);
    float _e27 = series_1;
    return (x_3 > -0.25) ? _e27 : metal::exp(x_3);
}

metal::float4 fold_weight(
    metal::float4 m,
    metal::float4 largest
) {
    metal::float4 weight = metal::select(metal::exp(m - largest), metal::float4(1.0), m == largest);
    return metal::select(weight, metal::float4(0.0), m < metal::float4(-900000000000000000000000000000.0));
}

metal::float4 fold(
    metal::float4 old,
    metal::float4 old_weight,
    metal::float4 more,
    metal::float4 more_weight
) {
    return metal::fma(more, more_weight, old * old_weight);
}

metal::float4 fold_one(
    metal::float4 old_1,
    metal::float4 more_1
) {
    float largest_1 = metal::max(old_1.x, more_1.x);
    metal::float4 _e11 = fold_weight(metal::float4(old_1.x, more_1.x, old_1.x, more_1.x), metal::float4(largest_1));
    metal::float4 _e24 = fold(metal::float4(old_1.y, old_1.z, 0.0, 0.0), _e11.xxxx, metal::float4(more_1.y, more_1.z, 0.0, 0.0), _e11.yyyy);
    return metal::float4(largest_1, _e24.x, _e24.y, 0.0);
}

metal::float4 partial(
    uint row,
    uint block,
    uint dim,
    constant Params& p,
    device type_3 const& partials,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e5 = p.n_row;
    uint at = (block * _e5) + row;
    uint _e10 = p.stats_at;
    uint stats = _e10 + (2u * at);
    float _e16 = partials[stats];
    float _e21 = partials[stats + 1u];
    uint _e25 = p.head_dim;
    float _e29 = partials[(at * _e25) + dim];
    return metal::float4(_e16, _e21, _e29, 0.0);
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_3 const& q [[buffer(1)]]
, device type_3& partials [[buffer(2)]]
, device type_3& out [[buffer(3)]]
, threadgroup type_4& folded
, constant _mslBufferSizes& _buffer_sizes [[buffer(4)]]
) {
    metal::float4 total = metal::float4(-1000000000000000000000000000000.0, 0.0, 0.0, 0.0);
    float gate = 0.0;
    uint first = 0u;
    metal::float4 split = {};
    type_7 blocks = {};
    uint i = {};
    uint i_1 = {};
    uint i_2 = {};
    bool local = {};
    float value = {};
    uint row_1 = group.x;
    uint lane = thread_ / 32u;
    uint dim_1 = (group.y * 32u) + (thread_ % 32u);
    uint _e13 = p.head_dim;
    bool is_inside = dim_1 < _e13;
    uint _e17 = p.head_dim;
    uint dim_read = metal::min(dim_1, _e17 - 1u);
    uint _e23 = p.first_head;
    uint _e27 = p.head_dim;
    uint place = ((_e23 + row_1) * _e27) + dim_read;
    uint _e38 = p.is_first;
    if (_e38 == 0u) {
        uint _e43 = p.carry_from;
        uint carry = _e43 + (2u * row_1);
        float _e49 = partials[carry];
        float _e54 = partials[carry + 1u];
        float _e57 = out[place];
        total = metal::float4(_e49, _e54, _e57, 0.0);
    }
    uint _e62 = p.first_head;
    uint _e66 = p.q_stride;
    uint _e70 = p.head_dim;
    uint gate_at = (((_e62 + row_1) * _e66) + _e70) + dim_read;
    uint _e77 = p.is_gated;
    if (_e77 != 0u) {
        float _e82 = q[gate_at];
        gate = _e82;
    }
    uint _e85 = p.n_block;
    uint n_split = ((_e85 + SPLIT_BLOCKS) - 1u) / SPLIT_BLOCKS;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e180 = first;
            first = _e180 + N_LANE;
        }
        loop_init = false;
        uint _e94 = first;
        if (_e94 < n_split) {
        } else {
            break;
        }
        {
            uint _e96 = first;
            uint start = (_e96 + lane) * SPLIT_BLOCKS;
            split = metal::float4(-1000000000000000000000000000000.0, 0.0, 0.0, 0.0);
            uint _e108 = p.n_block;
            if (start < _e108) {
                blocks = type_7 {};
                i = 0u;
                bool loop_init_1 = true;
                while(true) {
                    if (!loop_init_1) {
                        uint _e129 = i;
                        i = _e129 + 1u;
                    }
                    loop_init_1 = false;
                    uint _e114 = i;
                    if (_e114 < SPLIT_BLOCKS) {
                    } else {
                        break;
                    }
                    {
                        uint _e117 = i;
                        uint _e119 = i;
                        uint _e123 = p.n_block;
                        metal::float4 _e127 = partial(row_1, metal::min(start + _e119, _e123 - 1u), dim_read, p, partials, _buffer_sizes);
                        blocks.inner[_e117] = _e127;
                    }
                }
                i_1 = 0u;
                bool loop_init_2 = true;
                while(true) {
                    if (!loop_init_2) {
                        uint _e150 = i_1;
                        i_1 = _e150 + 1u;
                    }
                    loop_init_2 = false;
                    uint _e133 = i_1;
                    if (_e133 < SPLIT_BLOCKS) {
                    } else {
                        break;
                    }
                    {
                        metal::float4 _e136 = split;
                        metal::float4 _e137 = split;
                        uint _e138 = i_1;
                        metal::float4 _e140 = blocks.inner[_e138];
                        metal::float4 _e141 = fold_one(_e137, _e140);
                        uint _e142 = i_1;
                        uint _e146 = p.n_block;
                        split = ((start + _e142) < _e146) ? _e141 : _e136;
                    }
                }
            }
            uint _e152 = first;
            if (_e152 > 0u) {
                metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            }
            metal::float4 _e157 = split;
            folded.inner[thread_] = _e157;
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            i_2 = 0u;
            bool loop_init_3 = true;
            while(true) {
                if (!loop_init_3) {
                    uint _e178 = i_2;
                    i_2 = _e178 + 1u;
                }
                loop_init_3 = false;
                uint _e160 = i_2;
                uint _e162 = first;
                if (_e160 < metal::min(N_LANE, n_split - _e162)) {
                } else {
                    break;
                }
                {
                    metal::float4 _e166 = total;
                    uint _e168 = i_2;
                    metal::float4 _e175 = folded.inner[(_e168 * 32u) + (thread_ % 32u)];
                    metal::float4 _e176 = fold_one(_e166, _e175);
                    total = _e176;
                }
            }
        }
    }
    if (!((lane != 0u))) {
        local = !(is_inside);
    } else {
        local = true;
    }
    bool _e190 = local;
    if (_e190) {
        return;
    }
    uint _e193 = p.is_last;
    if (_e193 == 0u) {
        float _e199 = total.z;
        out[place] = _e199;
        if (dim_1 == 0u) {
            uint _e205 = p.carry_to;
            float _e211 = total.x;
            partials[_e205 + (2u * row_1)] = _e211;
            uint _e215 = p.carry_to;
            float _e223 = total.y;
            partials[(_e215 + (2u * row_1)) + 1u] = _e223;
        }
        return;
    }
    float _e225 = total.z;
    float _e227 = total.y;
    value = _e225 / _e227;
    uint _e232 = p.is_gated;
    if (_e232 != 0u) {
        float _e235 = value;
        float _e236 = gate;
        float _e237 = sigmoid(_e236);
        value = _e235 * _e237;
    }
    float _e241 = value;
    out[place] = _e241;
    return;
}
