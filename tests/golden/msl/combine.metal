// language: metal3.1
#include <metal_stdlib>
#include <simd/simd.h>

using metal::uint;

struct _mslBufferSizes {
    uint size1;
    uint size2;
    uint size3;
    uint size4;
    uint size5;
};

struct Params {
    uint n_token;
    uint k;
    uint d;
    uint weight_at;
    uint weight_stride;
    uint has_shared;
    float eps;
};
typedef uint type_2[1];
typedef float type_3[1];
struct Part {
    uint at;
    float weight;
};

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

uint n_part(
    constant Params& p
) {
    uint _e2 = p.k;
    uint _e5 = p.has_shared;
    return _e2 + _e5;
}

Part part(
    uint t,
    uint j_1,
    constant Params& p,
    device type_2 const& weights,
    device type_3 const& shared_gate,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e4 = p.k;
    uint pair = (t * _e4) + j_1;
    uint _e10 = p.weight_at;
    uint _e13 = p.k;
    uint _e17 = p.k;
    uint _e26 = p.weight_stride;
    uint _e30 = weights[_e10 + (((t * _e13) + metal::min(j_1, metal::max(_e17, 1u) - 1u)) * _e26)];
    float own = as_type<float>(_e30);
    float _e34 = shared_gate[t];
    float _e35 = sigmoid(_e34);
    uint _e38 = p.n_token;
    uint _e41 = p.k;
    uint _e46 = p.k;
    uint _e51 = p.d;
    uint _e55 = p.k;
    return Part {((j_1 < _e46) ? pair : ((_e38 * _e41) + t)) * _e51, (j_1 < _e55) ? own : _e35};
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, metal::uint3 n_group [[threadgroups_per_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_2 const& control [[buffer(1)]]
, device type_3& x_4 [[buffer(2)]]
, device type_3 const& routed [[buffer(3)]]
, device type_2 const& weights [[buffer(4)]]
, device type_3 const& shared_gate [[buffer(5)]]
, constant _mslBufferSizes& _buffer_sizes [[buffer(6)]]
) {
    bool local = {};
    float sum = 0.0;
    uint j = 0u;
    uint i = (((group.y * n_group.x) + group.x) * 256u) + thread_;
    uint _e13 = control[0];
    if (!((_e13 != 0u))) {
        uint _e21 = p.n_token;
        uint _e24 = p.d;
        local = i >= (_e21 * _e24);
    } else {
        local = true;
    }
    bool _e28 = local;
    if (_e28) {
        return;
    }
    uint _e31 = p.d;
    uint t_1 = i / _e31;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e55 = j;
            j = _e55 + 1u;
        }
        loop_init = false;
        uint _e37 = j;
        uint _e38 = n_part(p);
        if (_e37 < _e38) {
        } else {
            break;
        }
        {
            uint _e40 = j;
            Part _e41 = part(t_1, _e40, p, weights, shared_gate, _buffer_sizes);
            uint _e47 = p.d;
            float _e51 = routed[_e41.at + (i % _e47)];
            float _e52 = sum;
            sum = metal::fma(_e41.weight, _e51, _e52);
        }
    }
    float _e61 = x_4[i];
    float _e62 = sum;
    x_4[i] = _e61 + _e62;
    return;
}
