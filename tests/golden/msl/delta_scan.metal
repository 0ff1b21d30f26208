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
    float inner[4096];
};
struct type_6 {
    metal::float4 inner[544];
};
struct type_7 {
    float inner[1024];
};
struct type_10 {
    metal::float4 inner[4];
};
constant uint CHUNK = 64u;
constant uint COLUMNS = 16u;
constant uint DK_MAX = 256u;
constant uint SLAB = 16u;
constant uint STRIDE = 17u;
constant uint TOKENS = 8u;

Piece piece_of(
    uint number_1,
    constant Params& p
) {
    uint _e3 = p.pos;
    uint chunk = (_e3 / CHUNK) + number_1;
    uint _e9 = p.pos;
    uint start_1 = metal::max(_e9, chunk * CHUNK);
    uint _e15 = p.pos;
    uint _e19 = p.pos;
    uint _e22 = p.n_token;
    return Piece {start_1 - _e15, metal::min(_e19 + _e22, (chunk + 1u) * CHUNK) - start_1};
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

float at_w(
    Piece piece,
    uint head,
    uint i_1,
    uint dim_1,
    constant Params& p,
    device type_2 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_3 = {};
    if (!((i_1 >= piece.n))) {
        uint _e11 = p.dk;
        local_3 = dim_1 >= _e11;
    } else {
        local_3 = true;
    }
    bool _e14 = local_3;
    if (_e14) {
        return 0.0;
    }
    uint _e21 = p.n_head_v;
    uint _e26 = p.dk;
    float _e30 = w[((((piece.start + i_1) * _e21) + head) * _e26) + dim_1];
    return _e30;
}

float at_mixed(
    Piece piece_1,
    uint start,
    uint i_2,
    uint dim_2,
    constant Params& p,
    device type_2 const& mixed,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_4 = {};
    if (!((i_2 >= piece_1.n))) {
        uint _e11 = p.dk;
        local_4 = dim_2 >= _e11;
    } else {
        local_4 = true;
    }
    bool _e14 = local_4;
    if (_e14) {
        return 0.0;
    }
    uint _e19 = channels(p);
    float _e24 = mixed[(((piece_1.start + i_2) * _e19) + start) + dim_2];
    return _e24;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(256)]] kernel void main_(
  metal::uint3 group [[threadgroup_position_in_grid]]
, uint thread_ [[thread_index_in_threadgroup]]
, constant Params& p [[buffer(0)]]
, device type_2 const& mixed [[buffer(1)]]
, device type_2 const& w [[buffer(2)]]
, device type_2 const& u [[buffer(3)]]
, device type_4 const& answers [[buffer(4)]]
, device type_2 const& gates [[buffer(5)]]
, device type_2& state [[buffer(6)]]
, device type_2& out [[buffer(7)]]
, threadgroup type_5& s
, threadgroup type_6& tile
, threadgroup type_7& learnt
, constant _mslBufferSizes& _buffer_sizes [[buffer(8)]]
) {
    uint row = {};
    float value = {};
    bool local = {};
    uint number = 0u;
    metal::float4 w_sum = {};
    metal::float4 q_sum = {};
    uint dim = {};
    uint k = {};
    metal::float4 o = {};
    uint r = {};
    float value_1 = {};
    bool local_1 = {};
    uint first = {};
    uint j = {};
    uint r_1 = {};
    bool local_2 = {};
    type_10 sums = {};
    uint k_1 = {};
    uint first_1 = {};
    uint item = {};
    uint i = {};
    uint k_2 = {};
    uint k_3 = {};
    uint r_2 = {};
    uint row_1 = {};
    uint head_1 = group.x;
    uint _e5 = p.n_head_v;
    uint _e8 = p.n_head_k;
    uint key_head = head_1 / (_e5 / _e8);
    uint quad_ = thread_ / COLUMNS;
    uint own = thread_ % COLUMNS;
    uint column = (group.y * COLUMNS) + own;
    uint _e21 = p.dv;
    bool is_inside = column < _e21;
    row = quad_;
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e59 = row;
            row = _e59 + 16u;
        }
        loop_init = false;
        uint _e24 = row;
        if (_e24 < DK_MAX) {
        } else {
            break;
        }
        {
            value = 0.0;
            uint _e29 = row;
            uint _e32 = p.dk;
            if (_e29 < _e32) {
                local = is_inside;
            } else {
                local = false;
            }
            bool _e37 = local;
            if (_e37) {
                uint _e41 = p.dk;
                uint _e43 = row;
                uint _e47 = p.dv;
                float _e51 = state[(((head_1 * _e41) + _e43) * _e47) + column];
                value = _e51;
            }
            uint _e53 = row;
            float _e58 = value;
            s.inner[(_e53 * COLUMNS) + own] = _e58;
        }
    }
    bool loop_init_1 = true;
    while(true) {
        if (!loop_init_1) {
            uint _e516 = number;
            number = _e516 + 1u;
        }
        loop_init_1 = false;
        uint _e64 = number;
        uint _e65 = n_piece(p);
        if (_e64 < _e65) {
        } else {
            break;
        }
        {
            uint _e67 = number;
            Piece _e68 = piece_of(_e67, p);
            uint _e69 = number;
            uint _e72 = p.n_head_v;
            uint gates_at = (((_e69 * _e72) + head_1) * 2u) * CHUNK;
            uint _e79 = number;
            uint _e82 = p.n_head_v;
            uint answers_at = (((_e79 * _e82) + head_1) * CHUNK) * 16u;
            w_sum = metal::float4(0.0);
            q_sum = metal::float4(0.0);
            dim = 0u;
            bool loop_init_2 = true;
            while(true) {
                if (!loop_init_2) {
                    uint _e182 = dim;
                    dim = _e182 + SLAB;
                }
                loop_init_2 = false;
                uint _e97 = dim;
                uint _e100 = p.dk;
                if (_e97 < _e100) {
                } else {
                    break;
                }
                {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    uint i_3 = quad_ * 4u;
                    uint _e104 = dim;
                    uint d = _e104 + own;
                    uint _e108 = p.dk;
                    uint q_at = key_head * _e108;
                    float _e115 = at_w(_e68, head_1, i_3, d, p, w, _buffer_sizes);
                    float _e118 = at_w(_e68, head_1, i_3 + 1u, d, p, w, _buffer_sizes);
                    float _e121 = at_w(_e68, head_1, i_3 + 2u, d, p, w, _buffer_sizes);
                    float _e124 = at_w(_e68, head_1, i_3 + 3u, d, p, w, _buffer_sizes);
                    tile.inner[(own * STRIDE) + quad_] = metal::float4(_e115, _e118, _e121, _e124);
                    float _e133 = at_mixed(_e68, q_at, i_3, d, p, mixed, _buffer_sizes);
                    float _e136 = at_mixed(_e68, q_at, i_3 + 1u, d, p, mixed, _buffer_sizes);
                    float _e139 = at_mixed(_e68, q_at, i_3 + 2u, d, p, mixed, _buffer_sizes);
                    float _e142 = at_mixed(_e68, q_at, i_3 + 3u, d, p, mixed, _buffer_sizes);
                    tile.inner[((SLAB + own) * STRIDE) + quad_] = metal::float4(_e133, _e136, _e139, _e142);
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    k = 0u;
                    bool loop_init_3 = true;
                    while(true) {
                        if (!loop_init_3) {
                            uint _e180 = k;
                            k = _e180 + 1u;
                        }
                        loop_init_3 = false;
                        uint _e146 = k;
                        if (_e146 < SLAB) {
                        } else {
                            break;
                        }
                        {
                            uint _e150 = dim;
                            uint _e151 = k;
                            float _e157 = s.inner[((_e150 + _e151) * COLUMNS) + own];
                            metal::float4 value_2 = metal::float4(_e157);
                            uint _e160 = k;
                            metal::float4 _e165 = tile.inner[(_e160 * STRIDE) + quad_];
                            metal::float4 _e166 = w_sum;
                            w_sum = metal::fma(_e165, value_2, _e166);
                            uint _e170 = k;
                            metal::float4 _e176 = tile.inner[((SLAB + _e170) * STRIDE) + quad_];
                            metal::float4 _e177 = q_sum;
                            q_sum = metal::fma(_e176, value_2, _e177);
                        }
                    }
                }
            }
            o = metal::float4(0.0);
            r = 0u;
            bool loop_init_4 = true;
            while(true) {
                if (!loop_init_4) {
                    uint _e241 = r;
                    r = _e241 + 1u;
                }
                loop_init_4 = false;
                uint _e190 = r;
                if (_e190 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e195 = r;
                    uint i_4 = (quad_ * 4u) + _e195;
                    value_1 = 0.0;
                    if (i_4 < _e68.n) {
                        local_1 = is_inside;
                    } else {
                        local_1 = false;
                    }
                    bool _e204 = local_1;
                    if (_e204) {
                        uint _e210 = p.n_head_v;
                        uint _e215 = p.dv;
                        float _e219 = u[((((_e68.start + i_4) * _e210) + head_1) * _e215) + column];
                        uint _e220 = r;
                        float _e222 = w_sum[_e220];
                        value_1 = _e219 - _e222;
                    }
                    float _e229 = value_1;
                    learnt.inner[(i_4 * COLUMNS) + own] = _e229;
                    uint _e230 = r;
                    float _e235 = gates[gates_at + i_4];
                    uint _e236 = r;
                    float _e238 = q_sum[_e236];
                    o[_e230] = _e235 * _e238;
                }
            }
            first = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e285 = first;
                    first = _e285 + SLAB;
                }
                loop_init_5 = false;
                uint _e245 = first;
                if (_e245 < _e68.n) {
                } else {
                    break;
                }
                {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    uint _e251 = first;
                    metal::float4 _e257 = answers[(answers_at + (_e251 * 16u)) + thread_];
                    tile.inner[thread_] = _e257;
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    j = 0u;
                    bool loop_init_6 = true;
                    while(true) {
                        if (!loop_init_6) {
                            uint _e283 = j;
                            j = _e283 + 1u;
                        }
                        loop_init_6 = false;
                        uint _e260 = j;
                        if (_e260 < SLAB) {
                        } else {
                            break;
                        }
                        {
                            uint _e264 = j;
                            metal::float4 _e269 = tile.inner[(_e264 * 16u) + quad_];
                            uint _e271 = first;
                            uint _e272 = j;
                            float _e278 = learnt.inner[((_e271 + _e272) * COLUMNS) + own];
                            metal::float4 _e280 = o;
                            o = metal::fma(_e269, metal::float4(_e278), _e280);
                        }
                    }
                }
            }
            r_1 = 0u;
            bool loop_init_7 = true;
            while(true) {
                if (!loop_init_7) {
                    uint _e325 = r_1;
                    r_1 = _e325 + 1u;
                }
                loop_init_7 = false;
                uint _e290 = r_1;
                if (_e290 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e295 = r_1;
                    uint i_5 = (quad_ * 4u) + _e295;
                    if (i_5 < _e68.n) {
                        local_2 = is_inside;
                    } else {
                        local_2 = false;
                    }
                    bool _e302 = local_2;
                    if (_e302) {
                        uint _e306 = p.first;
                        uint _e312 = p.n_head_v;
                        uint _e317 = p.dv;
                        uint _e321 = r_1;
                        float _e323 = o[_e321];
                        out[(((((_e306 + _e68.start) + i_5) * _e312) + head_1) * _e317) + column] = _e323;
                    }
                }
            }
            float whole = gates[(gates_at + _e68.n) - 1u];
            sums = type_10 {};
            k_1 = 0u;
            bool loop_init_8 = true;
            while(true) {
                if (!loop_init_8) {
                    uint _e373 = k_1;
                    k_1 = _e373 + 1u;
                }
                loop_init_8 = false;
                uint _e338 = k_1;
                if (_e338 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e341 = k_1;
                    uint at = (((_e341 * 64u) + (quad_ * 4u)) * COLUMNS) + own;
                    uint _e350 = k_1;
                    float _e354 = s.inner[at];
                    float _e359 = s.inner[at + COLUMNS];
                    float _e364 = s.inner[at + 32u];
                    float _e369 = s.inner[at + 48u];
                    sums.inner[_e350] = whole * metal::float4(_e354, _e359, _e364, _e369);
                }
            }
            first_1 = 0u;
            bool loop_init_9 = true;
            while(true) {
                if (!loop_init_9) {
                    uint _e478 = first_1;
                    first_1 = _e478 + TOKENS;
                }
                loop_init_9 = false;
                uint _e377 = first_1;
                if (_e377 < _e68.n) {
                } else {
                    break;
                }
                {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    item = thread_;
                    bool loop_init_10 = true;
                    while(true) {
                        if (!loop_init_10) {
                            uint _e425 = item;
                            item = _e425 + 256u;
                        }
                        loop_init_10 = false;
                        uint _e381 = item;
                        if (_e381 < 512u) {
                        } else {
                            break;
                        }
                        {
                            uint _e384 = first_1;
                            uint _e385 = item;
                            uint i_6 = _e384 + (_e385 / 64u);
                            uint _e389 = item;
                            uint dim_3 = (_e389 % 64u) * 4u;
                            uint _e396 = p.n_head_k;
                            uint _e400 = p.dk;
                            uint k_at = (_e396 + key_head) * _e400;
                            float _e402 = at_mixed(_e68, k_at, i_6, dim_3, p, mixed, _buffer_sizes);
                            float _e405 = at_mixed(_e68, k_at, i_6, dim_3 + 1u, p, mixed, _buffer_sizes);
                            float _e408 = at_mixed(_e68, k_at, i_6, dim_3 + 2u, p, mixed, _buffer_sizes);
                            float _e411 = at_mixed(_e68, k_at, i_6, dim_3 + 3u, p, mixed, _buffer_sizes);
                            metal::float4 k_four = metal::float4(_e402, _e405, _e408, _e411);
                            uint _e414 = item;
                            float _e423 = gates[(gates_at + CHUNK) + metal::min(i_6, 63u)];
                            tile.inner[_e414] = _e423 * k_four;
                        }
                    }
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    i = 0u;
                    bool loop_init_11 = true;
                    while(true) {
                        if (!loop_init_11) {
                            uint _e476 = i;
                            i = _e476 + 1u;
                        }
                        loop_init_11 = false;
                        uint _e430 = i;
                        if (_e430 < TOKENS) {
                        } else {
                            break;
                        }
                        {
                            uint _e434 = first_1;
                            uint _e435 = i;
                            float _e441 = learnt.inner[((_e434 + _e435) * COLUMNS) + own];
                            metal::float4 value_3 = metal::float4(_e441);
                            k_2 = 0u;
                            bool loop_init_12 = true;
                            while(true) {
                                if (!loop_init_12) {
                                    uint _e473 = k_2;
                                    k_2 = _e473 + 1u;
                                }
                                loop_init_12 = false;
                                uint _e445 = k_2;
                                if (_e445 < 4u) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e448 = k_2;
                                    uint _e453 = p.dk;
                                    if ((_e448 * 64u) < _e453) {
                                        uint _e455 = k_2;
                                        uint _e458 = i;
                                        uint _e461 = k_2;
                                        metal::float4 _e467 = tile.inner[((_e458 * 64u) + (_e461 * 16u)) + quad_];
                                        uint _e468 = k_2;
                                        metal::float4 _e470 = sums.inner[_e468];
                                        sums.inner[_e455] = metal::fma(_e467, value_3, _e470);
                                    }
                                }
                            }
                        }
                    }
                }
            }
            k_3 = 0u;
            bool loop_init_13 = true;
            while(true) {
                if (!loop_init_13) {
                    uint _e513 = k_3;
                    k_3 = _e513 + 1u;
                }
                loop_init_13 = false;
                uint _e483 = k_3;
                if (_e483 < 4u) {
                } else {
                    break;
                }
                {
                    r_2 = 0u;
                    bool loop_init_14 = true;
                    while(true) {
                        if (!loop_init_14) {
                            uint _e510 = r_2;
                            r_2 = _e510 + 1u;
                        }
                        loop_init_14 = false;
                        uint _e488 = r_2;
                        if (_e488 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e492 = k_3;
                            uint _e498 = r_2;
                            uint _e504 = k_3;
                            uint _e506 = r_2;
                            float _e508 = sums.inner[_e504][_e506];
                            s.inner[((((_e492 * 64u) + (quad_ * 4u)) + _e498) * COLUMNS) + own] = _e508;
                        }
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        }
    }
    row_1 = quad_;
    bool loop_init_15 = true;
    while(true) {
        if (!loop_init_15) {
            uint _e544 = row_1;
            row_1 = _e544 + 16u;
        }
        loop_init_15 = false;
        uint _e519 = row_1;
        uint _e522 = p.dk;
        if (_e519 < _e522) {
        } else {
            break;
        }
        {
            if (is_inside) {
                uint _e527 = p.dk;
                uint _e529 = row_1;
                uint _e533 = p.dv;
                uint _e538 = row_1;
                float _e543 = s.inner[(_e538 * COLUMNS) + own];
                state[(((head_1 * _e527) + _e529) * _e533) + column] = _e543;
            }
        }
    }
    return;
}
