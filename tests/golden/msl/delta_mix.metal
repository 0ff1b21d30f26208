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
    uint n_tile;
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
struct type_12 {
    float inner[8];
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
    uint _e12 = channels(p);
    float value = mixed[(((piece.start + metal::min(i_1, piece.n - 1u)) * _e12) + start) + metal::min(at, n - 1u)];
    if (i_1 < piece.n) {
        local = at < n;
    } else {
        local = false;
    }
    bool _e27 = local;
    return _e27 ? value : 0.0;
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
    uint r_1 = {};
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
                r_1 = 0u;
                bool loop_init_1 = true;
                while(true) {
                    if (!loop_init_1) {
                        uint _e80 = r_1;
                        r_1 = _e80 + 1u;
                    }
                    loop_init_1 = false;
                    uint _e59 = r_1;
                    if (_e59 < 4u) {
                    } else {
                        break;
                    }
                    {
                        float _e62 = sum;
                        uint _e64 = i_3;
                        uint _e65 = r_1;
                        float _e68 = log_gates.inner[_e64 + _e65];
                        uint _e69 = i_3;
                        uint _e70 = r_1;
                        sum = _e62 + (((_e69 + _e70) > thread_1) ? _e68 : 0.0);
                        uint _e76 = r_1;
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
    metal::float4 k_four = {};
    metal::float4 q_four = {};
    uint dim = 0u;
    uint r_2 = {};
    uint d = {};
    uint j_1 = {};
    uint j_2 = 0u;
    uint quad_ = thread_2 / 16u;
    uint column_2 = thread_2 % 16u;
    uint _e30 = p.n_head_k;
    uint _e34 = p.dk;
    uint k_at = (_e30 + key_head) * _e34;
    uint _e38 = p.dk;
    uint q_at = key_head * _e38;
    metal::float4 _e42 = four_channels(piece_3, quad_ * 4u, k_at, column_2, p, mixed, _buffer_sizes);
    k_four = _e42;
    metal::float4 _e46 = four_channels(piece_3, quad_ * 4u, q_at, column_2, p, mixed, _buffer_sizes);
    q_four = _e46;
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e162 = dim;
            dim = _e162 + SLAB;
        }
        loop_init_3 = false;
        uint _e50 = dim;
        uint _e53 = p.dk;
        if (_e50 < _e53) {
        } else {
            break;
        }
        {
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            metal::float4 _e60 = k_four;
            k_rows.inner[(column_2 * STRIDE) + quad_] = _e60;
            r_2 = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e79 = r_2;
                    r_2 = _e79 + 1u;
                }
                loop_init_4 = false;
                uint _e63 = r_2;
                if (_e63 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e72 = r_2;
                    uint _e75 = r_2;
                    float _e77 = k_four[_e75];
                    k_columns.inner[((column_2 * CHUNK) + (quad_ * 4u)) + _e72] = _e77;
                }
            }
            metal::float4 _e86 = q_four;
            q_rows.inner[(column_2 * STRIDE) + quad_] = _e86;
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
            uint _e87 = dim;
            uint _e92 = p.dk;
            if ((_e87 + SLAB) < _e92) {
                uint _e96 = dim;
                metal::float4 _e100 = four_channels(piece_3, quad_ * 4u, k_at, (_e96 + SLAB) + column_2, p, mixed, _buffer_sizes);
                k_four = _e100;
                uint _e103 = dim;
                metal::float4 _e107 = four_channels(piece_3, quad_ * 4u, q_at, (_e103 + SLAB) + column_2, p, mixed, _buffer_sizes);
                q_four = _e107;
            }
            d = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e160 = d;
                    d = _e160 + 1u;
                }
                loop_init_5 = false;
                uint _e110 = d;
                if (_e110 < SLAB) {
                } else {
                    break;
                }
                {
                    uint _e114 = d;
                    metal::float4 k_row = k_rows.inner[(_e114 * STRIDE) + quad_];
                    uint _e121 = d;
                    metal::float4 q_row = q_rows.inner[(_e121 * STRIDE) + quad_];
                    j_1 = 0u;
                    bool loop_init_6 = true;
                    while(true) {
                        if (!loop_init_6) {
                            uint _e157 = j_1;
                            j_1 = _e157 + 1u;
                        }
                        loop_init_6 = false;
                        uint _e129 = j_1;
                        if (_e129 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e133 = d;
                            uint _e138 = j_1;
                            float _e142 = k_columns.inner[((_e133 * CHUNK) + column_2) + (16u * _e138)];
                            metal::float4 k_column = metal::float4(_e142);
                            uint _e144 = j_1;
                            uint _e146 = j_1;
                            metal::float4 _e148 = kk.inner[_e146];
                            kk.inner[_e144] = metal::fma(k_row, k_column, _e148);
                            uint _e150 = j_1;
                            uint _e152 = j_1;
                            metal::float4 _e154 = qk.inner[_e152];
                            qk.inner[_e150] = metal::fma(q_row, k_column, _e154);
                        }
                    }
                }
            }
        }
    }
    metal::uint4 rows = metal::uint4(0u, 1u, 2u, 3u) + metal::uint4(quad_ * 4u);
    float _e178 = betas.inner[quad_ * 4u];
    float _e185 = betas.inner[(quad_ * 4u) + 1u];
    float _e192 = betas.inner[(quad_ * 4u) + 2u];
    float _e199 = betas.inner[(quad_ * 4u) + 3u];
    metal::float4 beta_1 = metal::float4(_e178, _e185, _e192, _e199);
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e248 = j_2;
            j_2 = _e248 + 1u;
        }
        loop_init_7 = false;
        uint _e203 = j_2;
        if (_e203 < 4u) {
        } else {
            break;
        }
        {
            uint _e207 = j_2;
            uint token = column_2 + (16u * _e207);
            metal::float4 _e215 = between.inner[(token * STRIDE) + quad_];
            metal::float4 decay = metal::exp(_e215);
            uint _e222 = j_2;
            metal::float4 _e224 = kk.inner[_e222];
            between.inner[(token * STRIDE) + quad_] = metal::select(metal::float4(0.0), (beta_1 * _e224) * decay, rows > metal::uint4(token));
            uint _e238 = j_2;
            metal::float4 _e240 = qk.inner[_e238];
            answers[(answers_at + (token * 16u)) + quad_] = metal::select(metal::float4(0.0), _e240 * decay, rows >= metal::uint4(token));
        }
    }
    return;
}

type_12 solved(
    Column column,
    uint i_5,
    device type_2 const& w,
    device type_2 const& u,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_12 eight_1 = {};
    uint r_3 = 0u;
    uint r_4 = 0u;
    if (column.is_w) {
        bool loop_init_8 = true;
        while(true) {
            if (!loop_init_8) {
                uint _e21 = r_3;
                r_3 = _e21 + 1u;
            }
            loop_init_8 = false;
            uint _e6 = r_3;
            if (_e6 < 8u) {
            } else {
                break;
            }
            {
                uint _e9 = r_3;
                uint _e13 = r_3;
                float _e19 = w[column.at + ((i_5 + _e13) * column.stride)];
                eight_1.inner[_e9] = _e19;
            }
        }
    } else {
        bool loop_init_9 = true;
        while(true) {
            if (!loop_init_9) {
                uint _e40 = r_4;
                r_4 = _e40 + 1u;
            }
            loop_init_9 = false;
            uint _e25 = r_4;
            if (_e25 < 8u) {
            } else {
                break;
            }
            {
                uint _e28 = r_4;
                uint _e32 = r_4;
                float _e38 = u[column.at + ((i_5 + _e32) * column.stride)];
                eight_1.inner[_e28] = _e38;
            }
        }
    }
    type_12 _e42 = eight_1;
    return _e42;
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
    uint r_5 = 0u;
    bool loop_init_10 = true;
    while(true) {
        if (!loop_init_10) {
            uint _e31 = r_5;
            r_5 = _e31 + 1u;
        }
        loop_init_10 = false;
        uint _e9 = r_5;
        if (_e9 < 4u) {
        } else {
            break;
        }
        {
            uint _e12 = r_5;
            float _e14 = channel(piece_4, i_7 + _e12, start_2, at_2, width, p, mixed, _buffer_sizes);
            uint _e16 = r_5;
            float _e19 = betas.inner[i_7 + _e16];
            float value_1 = _e14 * _e19;
            uint _e21 = r_5;
            uint _e24 = r_5;
            float _e27 = decays.inner[i_7 + _e24];
            four_1[_e21] = is_w ? (value_1 * _e27) : value_1;
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
    type_12 eight = {};
    uint r = {};
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
    uint k_at_1 = (_e29 + key_head_1) * _e33;
    uint _e38 = p.n_head_k;
    uint _e42 = p.dk;
    uint _e46 = p.dv;
    uint v_at = ((2u * _e38) * _e42) + (head_1 * _e46);
    c = thread_;
    bool loop_init_11 = true;
    while(true) {
        if (!loop_init_11) {
            uint _e326 = c;
            c = _e326 + 256u;
        }
        loop_init_11 = false;
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
            uint start_4 = is_w_1 ? k_at_1 : v_at;
            uint _e74 = p.dv;
            uint _e77 = p.dk;
            uint width_1 = is_w_1 ? _e77 : _e74;
            uint _e82 = p.n_head_v;
            uint _e89 = p.n_head_v;
            Column column_3 = Column {is_w_1, {}, (((_e3.start * _e82) + head_1) * width_1) + at_4, _e89 * width_1};
            i = 0u;
            bool loop_init_12 = true;
            while(true) {
                if (!loop_init_12) {
                    uint _e323 = i;
                    i = _e323 + 8u;
                }
                loop_init_12 = false;
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
                    bool loop_init_13 = true;
                    while(true) {
                        if (!loop_init_13) {
                            uint _e152 = j;
                            j = _e152 + 8u;
                        }
                        loop_init_13 = false;
                        uint _e111 = j;
                        uint _e112 = i;
                        if (_e111 < _e112) {
                        } else {
                            break;
                        }
                        {
                            uint _e114 = j;
                            type_12 _e115 = solved(column_3, _e114, w, u, _buffer_sizes);
                            eight = _e115;
                            r = 0u;
                            bool loop_init_14 = true;
                            while(true) {
                                if (!loop_init_14) {
                                    uint _e150 = r;
                                    r = _e150 + 1u;
                                }
                                loop_init_14 = false;
                                uint _e119 = r;
                                if (_e119 < 8u) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e123 = a;
                                    metal::float4 _e125 = between.inner[_e123];
                                    uint _e127 = r;
                                    float _e129 = eight.inner[_e127];
                                    metal::float4 _e131 = low;
                                    low = metal::fma(-(_e125), metal::float4(_e129), _e131);
                                    uint _e134 = a;
                                    metal::float4 _e138 = between.inner[_e134 + 1u];
                                    uint _e140 = r;
                                    float _e142 = eight.inner[_e140];
                                    metal::float4 _e144 = high;
                                    high = metal::fma(-(_e138), metal::float4(_e142), _e144);
                                    uint _e146 = a;
                                    a = _e146 + STRIDE;
                                }
                            }
                        }
                    }
                    uint _e156 = a;
                    metal::float4 _e158 = between.inner[_e156];
                    metal::float4 _e160 = low;
                    metal::float4 _e162 = low;
                    low = metal::fma(-(_e158), _e160.xxxx, _e162);
                    uint _e165 = a;
                    metal::float4 _e169 = between.inner[_e165 + 1u];
                    metal::float4 _e171 = low;
                    metal::float4 _e173 = high;
                    high = metal::fma(-(_e169), _e171.xxxx, _e173);
                    uint _e175 = a;
                    a = _e175 + STRIDE;
                    uint _e179 = a;
                    metal::float4 _e181 = between.inner[_e179];
                    metal::float4 _e183 = low;
                    metal::float4 _e185 = low;
                    low = metal::fma(-(_e181), _e183.yyyy, _e185);
                    uint _e188 = a;
                    metal::float4 _e192 = between.inner[_e188 + 1u];
                    metal::float4 _e194 = low;
                    metal::float4 _e196 = high;
                    high = metal::fma(-(_e192), _e194.yyyy, _e196);
                    uint _e198 = a;
                    a = _e198 + STRIDE;
                    uint _e202 = a;
                    metal::float4 _e204 = between.inner[_e202];
                    metal::float4 _e206 = low;
                    metal::float4 _e208 = low;
                    low = metal::fma(-(_e204), _e206.zzzz, _e208);
                    uint _e211 = a;
                    metal::float4 _e215 = between.inner[_e211 + 1u];
                    metal::float4 _e217 = low;
                    metal::float4 _e219 = high;
                    high = metal::fma(-(_e215), _e217.zzzz, _e219);
                    uint _e221 = a;
                    a = _e221 + STRIDE;
                    uint _e225 = a;
                    metal::float4 _e229 = between.inner[_e225 + 1u];
                    metal::float4 _e231 = low;
                    metal::float4 _e233 = high;
                    high = metal::fma(-(_e229), _e231.wwww, _e233);
                    uint _e235 = a;
                    a = _e235 + STRIDE;
                    uint _e239 = a;
                    metal::float4 _e243 = between.inner[_e239 + 1u];
                    metal::float4 _e245 = high;
                    metal::float4 _e247 = high;
                    high = metal::fma(-(_e243), _e245.xxxx, _e247);
                    uint _e249 = a;
                    a = _e249 + STRIDE;
                    uint _e253 = a;
                    metal::float4 _e257 = between.inner[_e253 + 1u];
                    metal::float4 _e259 = high;
                    metal::float4 _e261 = high;
                    high = metal::fma(-(_e257), _e259.yyyy, _e261);
                    uint _e263 = a;
                    a = _e263 + STRIDE;
                    uint _e267 = a;
                    metal::float4 _e271 = between.inner[_e267 + 1u];
                    metal::float4 _e273 = high;
                    metal::float4 _e275 = high;
                    high = metal::fma(-(_e271), _e273.zzzz, _e275);
                    uint _e277 = i;
                    float _e280 = low.x;
                    solve(column_3, _e277, _e3.n, _e280, w, u, _buffer_sizes);
                    uint _e281 = i;
                    float _e286 = low.y;
                    solve(column_3, _e281 + 1u, _e3.n, _e286, w, u, _buffer_sizes);
                    uint _e287 = i;
                    float _e292 = low.z;
                    solve(column_3, _e287 + 2u, _e3.n, _e292, w, u, _buffer_sizes);
                    uint _e293 = i;
                    float _e298 = low.w;
                    solve(column_3, _e293 + 3u, _e3.n, _e298, w, u, _buffer_sizes);
                    uint _e299 = i;
                    float _e304 = high.x;
                    solve(column_3, _e299 + 4u, _e3.n, _e304, w, u, _buffer_sizes);
                    uint _e305 = i;
                    float _e310 = high.y;
                    solve(column_3, _e305 + 5u, _e3.n, _e310, w, u, _buffer_sizes);
                    uint _e311 = i;
                    float _e316 = high.z;
                    solve(column_3, _e311 + 6u, _e3.n, _e316, w, u, _buffer_sizes);
                    uint _e317 = i;
                    float _e322 = high.w;
                    solve(column_3, _e317 + 7u, _e3.n, _e322, w, u, _buffer_sizes);
                }
            }
        }
    }
    return;
}
