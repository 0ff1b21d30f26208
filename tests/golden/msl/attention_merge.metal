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
constant uint BLOCK = 64u;
constant uint SPLIT_BLOCKS = 16u;
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
    uint block_1,
    uint dim,
    constant Params& p,
    device type_3 const& partials,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e5 = p.n_row;
    uint at = (block_1 * _e5) + row;
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
    uint first = 0u;
    metal::float4 split = {};
    uint block = {};
    uint i = {};
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
    uint _e62 = p.n_block;
    uint n_split = ((_e62 + SPLIT_BLOCKS) - 1u) / SPLIT_BLOCKS;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e159 = first;
            first = _e159 + N_LANE;
        }
        loop_init = false;
        uint _e71 = first;
        if (_e71 < n_split) {
        } else {
            break;
        }
        {
            uint _e73 = first;
            uint start = (_e73 + lane) * SPLIT_BLOCKS;
            uint _e79 = p.n_block;
            uint end = metal::min(_e79, start + SPLIT_BLOCKS);
            split = metal::float4(-1000000000000000000000000000000.0, 0.0, 0.0, 0.0);
            block = start;
            bool loop_init_1 = true;
            while(true) {
                if (!loop_init_1) {
                    uint _e131 = block;
                    block = _e131 + 4u;
                }
                loop_init_1 = false;
                uint _e90 = block;
                if (_e90 < end) {
                } else {
                    break;
                }
                {
                    uint last = end - 1u;
                    uint _e94 = block;
                    metal::float4 _e95 = partial(row_1, _e94, dim_read, p, partials, _buffer_sizes);
                    uint _e96 = block;
                    metal::float4 _e100 = partial(row_1, metal::min(_e96 + 1u, last), dim_read, p, partials, _buffer_sizes);
                    uint _e101 = block;
                    metal::float4 _e105 = partial(row_1, metal::min(_e101 + 2u, last), dim_read, p, partials, _buffer_sizes);
                    uint _e106 = block;
                    metal::float4 _e110 = partial(row_1, metal::min(_e106 + 3u, last), dim_read, p, partials, _buffer_sizes);
                    metal::float4 _e111 = split;
                    metal::float4 _e112 = fold_one(_e111, _e95);
                    split = _e112;
                    uint _e113 = block;
                    if ((_e113 + 1u) < end) {
                        metal::float4 _e117 = split;
                        metal::float4 _e118 = fold_one(_e117, _e100);
                        split = _e118;
                    }
                    uint _e119 = block;
                    if ((_e119 + 2u) < end) {
                        metal::float4 _e123 = split;
                        metal::float4 _e124 = fold_one(_e123, _e105);
                        split = _e124;
                    }
                    uint _e125 = block;
                    if ((_e125 + 3u) < end) {
                        metal::float4 _e129 = split;
                        metal::float4 _e130 = fold_one(_e129, _e110);
                        split = _e130;
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            metal::float4 _e136 = split;
            folded.inner[thread_] = _e136;
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            i = 0u;
            bool loop_init_2 = true;
            while(true) {
                if (!loop_init_2) {
                    uint _e157 = i;
                    i = _e157 + 1u;
                }
                loop_init_2 = false;
                uint _e139 = i;
                uint _e141 = first;
                if (_e139 < metal::min(N_LANE, n_split - _e141)) {
                } else {
                    break;
                }
                {
                    metal::float4 _e145 = total;
                    uint _e147 = i;
                    metal::float4 _e154 = folded.inner[(_e147 * 32u) + (thread_ % 32u)];
                    metal::float4 _e155 = fold_one(_e145, _e154);
                    total = _e155;
                }
            }
        }
    }
    if (!((lane != 0u))) {
        local = !(is_inside);
    } else {
        local = true;
    }
    bool _e169 = local;
    if (_e169) {
        return;
    }
    uint _e172 = p.is_last;
    if (_e172 == 0u) {
        float _e178 = total.z;
        out[place] = _e178;
        if (dim_1 == 0u) {
            uint _e184 = p.carry_to;
            float _e190 = total.x;
            partials[_e184 + (2u * row_1)] = _e190;
            uint _e194 = p.carry_to;
            float _e202 = total.y;
            partials[(_e194 + (2u * row_1)) + 1u] = _e202;
        }
        return;
    }
    float _e204 = total.z;
    float _e206 = total.y;
    value = _e204 / _e206;
    uint _e211 = p.is_gated;
    if (_e211 != 0u) {
        float _e214 = value;
        uint _e218 = p.first_head;
        uint _e222 = p.q_stride;
        uint _e226 = p.head_dim;
        float _e230 = q[(((_e218 + row_1) * _e222) + _e226) + dim_1];
        float _e231 = sigmoid(_e230);
        value = _e214 * _e231;
    }
    float _e235 = value;
    out[place] = _e235;
    return;
}
