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
    uint size6;
    uint size7;
    uint size8;
    uint size9;
};

struct Params {
    uint n_head_k;
    uint n_head_v;
    uint dk;
    uint dv;
    uint pos;
    uint first;
    uint n_token;
};
struct Piece {
    uint start;
    uint n;
};
typedef float type_2[1];
typedef metal::float4 type_4[1];
struct type_5 {
    float inner[64];
};
struct type_6 {
    metal::float4 inner[1088];
};
struct type_7 {
    metal::float4 inner[272];
};
struct type_8 {
    float inner[1024];
};
struct type_10 {
    metal::float4 inner[4];
};
struct Column {
    bool is_w;
    char _pad1[3];
    uint at;
    uint stride;
};
constant uint CHUNK = 64u;
constant uint SLAB = 16u;
constant uint STRIDE = 17u;

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

Piece piece_of(
    uint number,
    constant Params& p
) {
    uint _e3 = p.pos;
    uint chunk = (_e3 / CHUNK) + number;
    uint _e9 = p.pos;
    uint start_3 = metal::max(_e9, chunk * CHUNK);
    uint _e15 = p.pos;
    uint _e19 = p.pos;
    uint _e22 = p.n_token;
    return Piece {start_3 - _e15, metal::min(_e19 + _e22, (chunk + 1u) * CHUNK) - start_3};
}

uint n_piece(
    constant Params& p
) {
    uint _e2 = p.pos;
    uint _e5 = p.n_token;
    uint _e13 = p.pos;
    return ((((_e2 + _e5) - 1u) / CHUNK) - (_e13 / CHUNK)) + 1u;
}

uint channels(
    constant Params& p
) {
    uint _e3 = p.n_head_k;
    uint _e7 = p.dk;
    uint _e11 = p.n_head_v;
    uint _e14 = p.dv;
    return ((2u * _e3) * _e7) + (_e11 * _e14);
}

float channel(
    Piece piece,
    uint i_1,
    uint start,
    uint at,
    uint n,
    constant Params& p,
    device type_2 const& mixed,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local = {};
    if (!((i_1 >= piece.n))) {
        local = at >= n;
    } else {
        local = true;
    }
    bool _e12 = local;
    if (_e12) {
        return 0.0;
    }
    uint _e17 = channels(p);
    float _e22 = mixed[(((piece.start + i_1) * _e17) + start) + at];
    return _e22;
}

metal::float4 four_channels(
    Piece piece_1,
    uint i_2,
    uint start_1,
    uint at_1,
    constant Params& p,
    device type_2 const& mixed,
    constant _mslBufferSizes& _buffer_sizes
) {
    uint _e6 = p.dk;
    float _e7 = channel(piece_1, i_2, start_1, at_1, _e6, p, mixed, _buffer_sizes);
    uint _e12 = p.dk;
    float _e13 = channel(piece_1, i_2 + 1u, start_1, at_1, _e12, p, mixed, _buffer_sizes);
    uint _e18 = p.dk;
    float _e19 = channel(piece_1, i_2 + 2u, start_1, at_1, _e18, p, mixed, _buffer_sizes);
    uint _e24 = p.dk;
    float _e25 = channel(piece_1, i_2 + 3u, start_1, at_1, _e24, p, mixed, _buffer_sizes);
    return metal::float4(_e7, _e13, _e19, _e25);
}

void sum_gates(
    Piece piece_2,
    uint head,
    uint gates_at,
    uint thread_1,
    constant Params& p,
    device type_2 const& b,
    device type_2 const& a_1,
    device type_2 const& log_decay,
    device type_2 const& dt_bias,
    device type_2& gates,
    threadgroup type_5& log_gates,
    threadgroup type_5& betas,
    threadgroup type_5& decays,
    threadgroup type_6& between,
    constant _mslBufferSizes& _buffer_sizes
) {
    float beta = 0.0;
    float log_gate = 0.0;
    float sum = 0.0;
    uint i_3 = 0u;
    metal::float4 four = {};
    uint r = {};
    float sum_1 = 0.0;
    uint i_4 = 0u;
    if (thread_1 < CHUNK) {
        if (thread_1 < piece_2.n) {
            uint _e14 = p.first;
            uint _e20 = p.n_head_v;
            uint at_3 = (((_e14 + piece_2.start) + thread_1) * _e20) + head;
            float _e25 = b[at_3];
            float _e26 = sigmoid(_e25);
            beta = _e26;
            float _e29 = log_decay[head];
            float _e33 = a_1[at_3];
            float _e36 = dt_bias[head];
            float _e38 = softplus(_e33 + _e36);
            log_gate = -(_e29) * _e38;
        }
        float _e42 = beta;
        betas.inner[thread_1] = _e42;
        float _e45 = log_gate;
        log_gates.inner[thread_1] = _e45;
    }
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    if (thread_1 < CHUNK) {
        bool loop_init = true;
        while(true) {
            if (!loop_init) {
                uint _e91 = i_3;
                i_3 = _e91 + 4u;
            }
            loop_init = false;
            uint _e52 = i_3;
            if (_e52 < CHUNK) {
            } else {
                break;
            }
            {
                four = metal::float4 {};
                r = 0u;
                bool loop_init_1 = true;
                while(true) {
                    if (!loop_init_1) {
                        uint _e80 = r;
                        r = _e80 + 1u;
                    }
                    loop_init_1 = false;
                    uint _e59 = r;
                    if (_e59 < 4u) {
                    } else {
                        break;
                    }
                    {
                        float _e62 = sum;
                        uint _e64 = i_3;
                        uint _e65 = r;
                        float _e68 = log_gates.inner[_e64 + _e65];
                        uint _e69 = i_3;
                        uint _e70 = r;
                        sum = _e62 + (((_e69 + _e70) > thread_1) ? _e68 : 0.0);
                        uint _e76 = r;
                        float _e78 = sum;
                        four[_e76] = _e78;
                    }
                }
                uint _e85 = i_3;
                metal::float4 _e90 = four;
                between.inner[(thread_1 * STRIDE) + (_e85 / 4u)] = _e90;
            }
        }
        float _e99 = sum;
        float _e100 = decay_of(_e99);
        gates[(gates_at + CHUNK) + thread_1] = _e100;
        return;
    } else {
        if (thread_1 == CHUNK) {
            bool loop_init_2 = true;
            while(true) {
                if (!loop_init_2) {
                    uint _e126 = i_4;
                    i_4 = _e126 + 1u;
                }
                loop_init_2 = false;
                uint _e107 = i_4;
                if (_e107 < CHUNK) {
                } else {
                    break;
                }
                {
                    float _e110 = sum_1;
                    uint _e112 = i_4;
                    float _e114 = log_gates.inner[_e112];
                    sum_1 = _e110 + _e114;
                    float _e116 = sum_1;
                    float _e117 = decay_of(_e116);
                    uint _e119 = i_4;
                    decays.inner[_e119] = _e117;
                    uint _e122 = i_4;
                    gates[gates_at + _e122] = _e117;
                }
            }
            return;
        } else {
            return;
        }
    }
}

void mix(
    Piece piece_3,
    uint key_head,
    uint answers_at,
    uint thread_2,
    constant Params& p,
    device type_2 const& mixed,
    device type_4& answers,
    threadgroup type_5& betas,
    threadgroup type_6& between,
    threadgroup type_7& k_rows,
    threadgroup type_7& q_rows,
    threadgroup type_8& k_columns,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 kk = type_10 {{metal::float4(0.0), metal::float4(0.0), metal::float4(0.0), metal::float4(0.0)}};
    type_10 qk = type_10 {{metal::float4(0.0), metal::float4(0.0), metal::float4(0.0), metal::float4(0.0)}};
    uint dim = 0u;
    uint r_1 = {};
    uint d = {};
    uint j_1 = {};
    uint j_2 = 0u;
    uint quad_ = thread_2 / 16u;
    uint column_2 = thread_2 % 16u;
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e140 = dim;
            dim = _e140 + SLAB;
        }
        loop_init_3 = false;
        uint _e30 = dim;
        uint _e33 = p.dk;
        if (_e30 < _e33) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e39 = p.n_head_k;
            uint _e43 = p.dk;
            uint _e45 = dim;
            metal::float4 _e47 = four_channels(piece_3, quad_ * 4u, (_e39 + key_head) * _e43, _e45 + column_2, p, mixed, _buffer_sizes);
            k_rows.inner[(column_2 * STRIDE) + quad_] = _e47;
            r_1 = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e70 = r_1;
                    r_1 = _e70 + 1u;
                }
                loop_init_4 = false;
                uint _e55 = r_1;
                if (_e55 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e64 = r_1;
                    uint _e67 = r_1;
                    k_columns.inner[((column_2 * CHUNK) + (quad_ * 4u)) + _e64] = _e47[_e67];
                }
            }
            uint _e81 = p.dk;
            uint _e83 = dim;
            metal::float4 _e85 = four_channels(piece_3, quad_ * 4u, key_head * _e81, _e83 + column_2, p, mixed, _buffer_sizes);
            q_rows.inner[(column_2 * STRIDE) + quad_] = _e85;
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            d = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e138 = d;
                    d = _e138 + 1u;
                }
                loop_init_5 = false;
                uint _e88 = d;
                if (_e88 < SLAB) {
                } else {
                    break;
                }
                {
                    uint _e92 = d;
                    metal::float4 k_row = k_rows.inner[(_e92 * STRIDE) + quad_];
                    uint _e99 = d;
                    metal::float4 q_row = q_rows.inner[(_e99 * STRIDE) + quad_];
                    j_1 = 0u;
                    bool loop_init_6 = true;
                    while(true) {
                        if (!loop_init_6) {
                            uint _e135 = j_1;
                            j_1 = _e135 + 1u;
                        }
                        loop_init_6 = false;
                        uint _e107 = j_1;
                        if (_e107 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e111 = d;
                            uint _e116 = j_1;
                            float _e120 = k_columns.inner[((_e111 * CHUNK) + column_2) + (16u * _e116)];
                            metal::float4 k_column = metal::float4(_e120);
                            uint _e122 = j_1;
                            uint _e124 = j_1;
                            metal::float4 _e126 = kk.inner[_e124];
                            kk.inner[_e122] = metal::fma(k_row, k_column, _e126);
                            uint _e128 = j_1;
                            uint _e130 = j_1;
                            metal::float4 _e132 = qk.inner[_e130];
                            qk.inner[_e128] = metal::fma(q_row, k_column, _e132);
                        }
                    }
                }
            }
        }
    }
    metal::uint4 rows = metal::uint4(0u, 1u, 2u, 3u) + metal::uint4(quad_ * 4u);
    float _e156 = betas.inner[quad_ * 4u];
    float _e163 = betas.inner[(quad_ * 4u) + 1u];
    float _e170 = betas.inner[(quad_ * 4u) + 2u];
    float _e177 = betas.inner[(quad_ * 4u) + 3u];
    metal::float4 beta_1 = metal::float4(_e156, _e163, _e170, _e177);
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e226 = j_2;
            j_2 = _e226 + 1u;
        }
        loop_init_7 = false;
        uint _e181 = j_2;
        if (_e181 < 4u) {
        } else {
            break;
        }
        {
            uint _e185 = j_2;
            uint token = column_2 + (16u * _e185);
            metal::float4 _e193 = between.inner[(token * STRIDE) + quad_];
            metal::float4 decay = metal::exp(_e193);
            uint _e200 = j_2;
            metal::float4 _e202 = kk.inner[_e200];
            between.inner[(token * STRIDE) + quad_] = metal::select(metal::float4(0.0), (beta_1 * _e202) * decay, rows > metal::uint4(token));
            uint _e216 = j_2;
            metal::float4 _e218 = qk.inner[_e216];
            answers[(answers_at + (token * 16u)) + quad_] = metal::select(metal::float4(0.0), _e218 * decay, rows >= metal::uint4(token));
        }
    }
    return;
}

float solved(
    Column column,
    uint i_5,
    device type_2 const& w,
    device type_2 const& u,
    constant _mslBufferSizes& _buffer_sizes
) {
    if (column.is_w) {
        float _e9 = w[column.at + (i_5 * column.stride)];
        return _e9;
    }
    float _e16 = u[column.at + (i_5 * column.stride)];
    return _e16;
}

void solve(
    Column column_1,
    uint i_6,
    uint n_1,
    float x_4,
    device type_2& w,
    device type_2& u,
    constant _mslBufferSizes& _buffer_sizes
) {
    if (i_6 < n_1) {
        if (column_1.is_w) {
            w[column_1.at + (i_6 * column_1.stride)] = x_4;
            return;
        } else {
            u[column_1.at + (i_6 * column_1.stride)] = x_4;
            return;
        }
    } else {
        return;
    }
}

metal::float4 right_side(
    Piece piece_4,
    uint i_7,
    uint start_2,
    uint at_2,
    uint width,
    bool is_w,
    constant Params& p,
    device type_2 const& mixed,
    threadgroup type_5& betas,
    threadgroup type_5& decays,
    constant _mslBufferSizes& _buffer_sizes
) {
    metal::float4 four_1 = {};
    uint r_2 = 0u;
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e31 = r_2;
            r_2 = _e31 + 1u;
        }
        loop_init_8 = false;
        uint _e9 = r_2;
        if (_e9 < 4u) {
        } else {
            break;
        }
        {
            uint _e12 = r_2;
            float _e14 = channel(piece_4, i_7 + _e12, start_2, at_2, width, p, mixed, _buffer_sizes);
            uint _e16 = r_2;
            float _e19 = betas.inner[i_7 + _e16];
            float value = _e14 * _e19;
            uint _e21 = r_2;
            uint _e24 = r_2;
            float _e27 = decays.inner[i_7 + _e24];
            four_1[_e21] = is_w ? (value * _e27) : value;
        }
    }
    metal::float4 _e33 = four_1;
    return _e33;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_2 const& mixed [[buffer(1)]]
, device type_2 const& b [[buffer(2)]]
, device type_2 const& a_1 [[buffer(3)]]
, device type_2 const& log_decay [[buffer(4)]]
, device type_2 const& dt_bias [[buffer(5)]]
, device type_2& w [[buffer(6)]]
, device type_2& u [[buffer(7)]]
, device type_4& answers [[buffer(8)]]
, device type_2& gates [[buffer(9)]]
, threadgroup type_5& log_gates
, threadgroup type_5& betas
, threadgroup type_5& decays
, threadgroup type_6& between
, threadgroup type_7& k_rows
, threadgroup type_7& q_rows
, threadgroup type_8& k_columns
, constant _mslBufferSizes& _buffer_sizes [[buffer(10)]]
) {
    uint c = {};
    uint i = {};
    metal::float4 low = {};
    metal::float4 high = {};
    uint a = {};
    uint j = {};
    Piece _e3 = piece_of(group.x, p);
    uint head_1 = group.y;
    uint _e7 = p.n_head_v;
    uint _e10 = p.n_head_k;
    uint key_head_1 = head_1 / (_e7 / _e10);
    uint _e16 = p.n_head_v;
    uint number_1 = (group.x * _e16) + head_1;
    sum_gates(_e3, head_1, (number_1 * 2u) * CHUNK, thread_, p, b, a_1, log_decay, dt_bias, gates, log_gates, betas, decays, between, _buffer_sizes);
    mix(_e3, key_head_1, (number_1 * CHUNK) * 16u, thread_, p, mixed, answers, betas, between, k_rows, q_rows, k_columns, _buffer_sizes);
    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    uint _e29 = p.n_head_k;
    uint _e33 = p.dk;
    uint k_at = (_e29 + key_head_1) * _e33;
    uint _e38 = p.n_head_k;
    uint _e42 = p.dk;
    uint _e46 = p.dv;
    uint v_at = ((2u * _e38) * _e42) + (head_1 * _e46);
    c = thread_;
    bool loop_init_9 = true;
    while(true) {
        if (!loop_init_9) {
            uint _e310 = c;
            c = _e310 + 256u;
        }
        loop_init_9 = false;
        uint _e50 = c;
        uint _e53 = p.dk;
        uint _e56 = p.dv;
        if (_e50 < (_e53 + _e56)) {
        } else {
            break;
        }
        {
            uint _e59 = c;
            uint _e62 = p.dk;
            bool is_w_1 = _e59 < _e62;
            uint _e64 = c;
            uint _e67 = p.dk;
            uint _e69 = c;
            uint at_4 = is_w_1 ? _e69 : (_e64 - _e67);
            uint start_4 = is_w_1 ? k_at : v_at;
            uint _e74 = p.dv;
            uint _e77 = p.dk;
            uint width_1 = is_w_1 ? _e77 : _e74;
            uint _e82 = p.n_head_v;
            uint _e89 = p.n_head_v;
            Column column_3 = Column {is_w_1, {}, (((_e3.start * _e82) + head_1) * width_1) + at_4, _e89 * width_1};
            i = 0u;
            bool loop_init_10 = true;
            while(true) {
                if (!loop_init_10) {
                    uint _e307 = i;
                    i = _e307 + 8u;
                }
                loop_init_10 = false;
                uint _e94 = i;
                if (_e94 < _e3.n) {
                } else {
                    break;
                }
                {
                    uint _e97 = i;
                    metal::float4 _e98 = right_side(_e3, _e97, start_4, at_4, width_1, is_w_1, p, mixed, betas, decays, _buffer_sizes);
                    low = _e98;
                    uint _e100 = i;
                    metal::float4 _e103 = right_side(_e3, _e100 + 4u, start_4, at_4, width_1, is_w_1, p, mixed, betas, decays, _buffer_sizes);
                    high = _e103;
                    uint _e105 = i;
                    a = _e105 / 4u;
                    j = 0u;
                    bool loop_init_11 = true;
                    while(true) {
                        if (!loop_init_11) {
                            uint _e137 = j;
                            j = _e137 + 1u;
                        }
                        loop_init_11 = false;
                        uint _e111 = j;
                        uint _e112 = i;
                        if (_e111 < _e112) {
                        } else {
                            break;
                        }
                        {
                            uint _e114 = j;
                            float _e115 = solved(column_3, _e114, w, u, _buffer_sizes);
                            metal::float4 x_5 = metal::float4(_e115);
                            uint _e118 = a;
                            metal::float4 _e120 = between.inner[_e118];
                            metal::float4 _e122 = low;
                            low = metal::fma(-(_e120), x_5, _e122);
                            uint _e125 = a;
                            metal::float4 _e129 = between.inner[_e125 + 1u];
                            metal::float4 _e131 = high;
                            high = metal::fma(-(_e129), x_5, _e131);
                            uint _e133 = a;
                            a = _e133 + STRIDE;
                        }
                    }
                    uint _e140 = a;
                    metal::float4 _e142 = between.inner[_e140];
                    metal::float4 _e144 = low;
                    metal::float4 _e146 = low;
                    low = metal::fma(-(_e142), _e144.xxxx, _e146);
                    uint _e149 = a;
                    metal::float4 _e153 = between.inner[_e149 + 1u];
                    metal::float4 _e155 = low;
                    metal::float4 _e157 = high;
                    high = metal::fma(-(_e153), _e155.xxxx, _e157);
                    uint _e159 = a;
                    a = _e159 + STRIDE;
                    uint _e163 = a;
                    metal::float4 _e165 = between.inner[_e163];
                    metal::float4 _e167 = low;
                    metal::float4 _e169 = low;
                    low = metal::fma(-(_e165), _e167.yyyy, _e169);
                    uint _e172 = a;
                    metal::float4 _e176 = between.inner[_e172 + 1u];
                    metal::float4 _e178 = low;
                    metal::float4 _e180 = high;
                    high = metal::fma(-(_e176), _e178.yyyy, _e180);
                    uint _e182 = a;
                    a = _e182 + STRIDE;
                    uint _e186 = a;
                    metal::float4 _e188 = between.inner[_e186];
                    metal::float4 _e190 = low;
                    metal::float4 _e192 = low;
                    low = metal::fma(-(_e188), _e190.zzzz, _e192);
                    uint _e195 = a;
                    metal::float4 _e199 = between.inner[_e195 + 1u];
                    metal::float4 _e201 = low;
                    metal::float4 _e203 = high;
                    high = metal::fma(-(_e199), _e201.zzzz, _e203);
                    uint _e205 = a;
                    a = _e205 + STRIDE;
                    uint _e209 = a;
                    metal::float4 _e213 = between.inner[_e209 + 1u];
                    metal::float4 _e215 = low;
                    metal::float4 _e217 = high;
                    high = metal::fma(-(_e213), _e215.wwww, _e217);
                    uint _e219 = a;
                    a = _e219 + STRIDE;
                    uint _e223 = a;
                    metal::float4 _e227 = between.inner[_e223 + 1u];
                    metal::float4 _e229 = high;
                    metal::float4 _e231 = high;
                    high = metal::fma(-(_e227), _e229.xxxx, _e231);
                    uint _e233 = a;
                    a = _e233 + STRIDE;
                    uint _e237 = a;
                    metal::float4 _e241 = between.inner[_e237 + 1u];
                    metal::float4 _e243 = high;
                    metal::float4 _e245 = high;
                    high = metal::fma(-(_e241), _e243.yyyy, _e245);
                    uint _e247 = a;
                    a = _e247 + STRIDE;
                    uint _e251 = a;
                    metal::float4 _e255 = between.inner[_e251 + 1u];
                    metal::float4 _e257 = high;
                    metal::float4 _e259 = high;
                    high = metal::fma(-(_e255), _e257.zzzz, _e259);
                    uint _e261 = i;
                    float _e264 = low.x;
                    solve(column_3, _e261, _e3.n, _e264, w, u, _buffer_sizes);
                    uint _e265 = i;
                    float _e270 = low.y;
                    solve(column_3, _e265 + 1u, _e3.n, _e270, w, u, _buffer_sizes);
                    uint _e271 = i;
                    float _e276 = low.z;
                    solve(column_3, _e271 + 2u, _e3.n, _e276, w, u, _buffer_sizes);
                    uint _e277 = i;
                    float _e282 = low.w;
                    solve(column_3, _e277 + 3u, _e3.n, _e282, w, u, _buffer_sizes);
                    uint _e283 = i;
                    float _e288 = high.x;
                    solve(column_3, _e283 + 4u, _e3.n, _e288, w, u, _buffer_sizes);
                    uint _e289 = i;
                    float _e294 = high.y;
                    solve(column_3, _e289 + 5u, _e3.n, _e294, w, u, _buffer_sizes);
                    uint _e295 = i;
                    float _e300 = high.z;
                    solve(column_3, _e295 + 6u, _e3.n, _e300, w, u, _buffer_sizes);
                    uint _e301 = i;
                    float _e306 = high.w;
                    solve(column_3, _e301 + 7u, _e3.n, _e306, w, u, _buffer_sizes);
                }
            }
        }
    }
    return;
}
