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
    uint dv;
    float eps;
    uint first;
    uint n_row;
    uint n_head_v;
    uint n_tile;
};
typedef float type_2[1];
constant uint N_THREAD = 256u;
constant uint N_ROW = 8u;

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
    float z_1 = y / (2.0 + y);
    float square_1 = z_1 * z_1;
    float _e12 = series;
    series = metal::fma(_e12, square_1, 0.07692308);
    float _e15 = series;
    series = metal::fma(_e15, square_1, 0.09090909);
    float _e18 = series;
    series = metal::fma(_e18, square_1, 0.11111111);
    float _e21 = series;
    series = metal::fma(_e21, square_1, 0.14285715);
    float _e24 = series;
    series = metal::fma(_e24, square_1, 0.2);
    float _e27 = series;
    series = metal::fma(_e27, square_1, 0.33333334);
    float _e30 = series;
    series = metal::fma(_e30, square_1, 1.0);
    float _e35 = series;
    return metal::fma(2.0 * z_1, _e35, metal::max(x_2, 0.0));
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

uint out_head(
    uint head,
    uint n_head_v,
    uint n_tile
) {
    return ((head % n_tile) * (n_head_v / n_tile)) + (head / n_tile);
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, uint lane [[thread_index_in_simdgroup]]
, uint n_lane [[threads_per_simdgroup]]
, constant Params& p [[buffer(0)]]
, device type_2 const& z [[buffer(1)]]
, device type_2 const& norm [[buffer(2)]]
, device type_2& out [[buffer(3)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(4)]]
) {
    uint i = {};
    float square = {};
    uint c = {};
    uint c_1 = {};
    bool local = {};
    uint first = ((group.y * n_group.x) + group.x) * N_ROW;
    i = thread_ / n_lane;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e119 = i;
            i = _e119 + (N_THREAD / n_lane);
        }
        loop_init = false;
        uint _e14 = i;
        if (_e14 < N_ROW) {
        } else {
            break;
        }
        {
            uint _e19 = p.first;
            uint _e20 = i;
            uint _e24 = p.n_row;
            uint row = _e19 + metal::min(first + _e20, _e24 - 1u);
            uint _e31 = p.dv;
            uint start = row * _e31;
            uint _e35 = p.n_head_v;
            uint head_1 = row % _e35;
            uint _e40 = p.n_head_v;
            uint _e43 = p.n_tile;
            uint _e44 = out_head(head_1, _e40, _e43);
            uint _e48 = p.dv;
            uint out_at = ((row - head_1) + _e44) * _e48;
            square = 0.0;
            c = lane;
            bool loop_init_1 = true;
            while(true) {
                if (!loop_init_1) {
                    uint _e65 = c;
                    c = _e65 + n_lane;
                }
                loop_init_1 = false;
                uint _e53 = c;
                uint _e56 = p.dv;
                if (_e53 < _e56) {
                } else {
                    break;
                }
                {
                    uint _e59 = c;
                    float value = out[out_at + _e59];
                    float _e63 = square;
                    square = metal::fma(value, value, _e63);
                }
            }
            float _e67 = square;
            float unnamed = metal::simd_sum(_e67);
            uint _e71 = p.dv;
            float _e76 = p.eps;
            float scale = metal::rsqrt((unnamed / static_cast<float>(_e71)) + _e76);
            c_1 = lane;
            bool loop_init_2 = true;
            while(true) {
                if (!loop_init_2) {
                    uint _e117 = c_1;
                    c_1 = _e117 + n_lane;
                }
                loop_init_2 = false;
                uint _e80 = c_1;
                uint _e83 = p.dv;
                if (_e80 < _e83) {
                    uint _e87 = i;
                    uint _e91 = p.n_row;
                    local = (first + _e87) < _e91;
                } else {
                    local = false;
                }
                bool _e94 = local;
                if (_e94) {
                } else {
                    break;
                }
                {
                    uint _e96 = c_1;
                    uint _e100 = c_1;
                    float _e103 = out[out_at + _e100];
                    uint _e105 = c_1;
                    float _e107 = norm[_e105];
                    uint _e111 = c_1;
                    float _e114 = z[start + _e111];
                    float _e115 = silu(_e114);
                    out[out_at + _e96] = (_e103 * (scale * _e107)) * _e115;
                }
            }
        }
    }
    return;
}
