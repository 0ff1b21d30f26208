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
    uint n_tile;
};
struct Piece {
    uint start;
    uint n;
};
typedef float type_2[1];
typedef metal::float4 type_4[1];
struct type_6 {
    metal::float2 inner[2048];
};
struct type_7 {
    metal::float4 inner[272];
};
struct type_8 {
    metal::float2 inner[1024];
};
struct Place {
    uint thread_;
    uint head;
    uint quad_;
    uint lane;
    uint q_at;
    uint k_at;
};
struct type_10 {
    metal::float4 inner[2];
};
struct type_13 {
    metal::float2 inner[4];
};
struct type_14 {
    metal::float4 inner[8];
};
constant uint CHUNK = 64u;
constant uint SLAB = 8u;
constant uint ANSWERS = 16u;
constant uint STRIDE = 17u;
constant uint LANES = 32u;
constant uint N_THREAD = 512u;
constant uint ROWS = 64u;
constant uint ROW_FOURS = 16u;
constant uint TOKENS = 16u;
constant uint N_ITEM = 0u;

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

uint out_head(
    uint head,
    uint n_head_v,
    uint n_tile
) {
    return ((head % n_tile) * (n_head_v / n_tile)) + (head / n_tile);
}

float at_w(
    Piece piece,
    uint head_1,
    uint i_1,
    uint dim_1,
    constant Params& p,
    device type_2 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    bool local_2 = {};
    uint _e13 = p.n_head_v;
    uint _e18 = p.dk;
    uint _e22 = p.dk;
    float value = w[((((piece.start + metal::min(i_1, piece.n - 1u)) * _e13) + head_1) * _e18) + metal::min(dim_1, _e22 - 1u)];
    if (i_1 < piece.n) {
        uint _e35 = p.dk;
        local_2 = dim_1 < _e35;
    } else {
        local_2 = false;
    }
    bool _e38 = local_2;
    return _e38 ? value : 0.0;
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
    bool local_3 = {};
    uint _e11 = channels(p);
    uint _e16 = p.dk;
    float value_1 = mixed[(((piece_1.start + metal::min(i_2, piece_1.n - 1u)) * _e11) + start) + metal::min(dim_2, _e16 - 1u)];
    if (i_2 < piece_1.n) {
        uint _e29 = p.dk;
        local_3 = dim_2 < _e29;
    } else {
        local_3 = false;
    }
    bool _e32 = local_3;
    return _e32 ? value_1 : 0.0;
}

type_10 load_dims(
    Piece piece_2,
    Place place,
    uint dim_3,
    constant Params& p,
    device type_2 const& mixed,
    device type_2 const& w,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 fours = {};
    uint o = 0u;
    uint r_5 = {};
    uint r_6 = {};
    bool loop_init = true;
    while(true) {
        if (!loop_init) {
            uint _e58 = o;
            o = _e58 + 1u;
        }
        loop_init = false;
        uint _e6 = o;
        if (_e6 < N_ITEM) {
        } else {
            break;
        }
        {
            uint _e10 = o;
            uint item = place.thread_ + (_e10 * N_THREAD);
            uint d = dim_3 + (item % SLAB);
            uint i_3 = ((item % 128u) / SLAB) * 4u;
            if (item < 128u) {
                r_5 = 0u;
                bool loop_init_1 = true;
                while(true) {
                    if (!loop_init_1) {
                        uint _e39 = r_5;
                        r_5 = _e39 + 1u;
                    }
                    loop_init_1 = false;
                    uint _e27 = r_5;
                    if (_e27 < 4u) {
                    } else {
                        break;
                    }
                    {
                        uint _e30 = o;
                        uint _e32 = r_5;
                        uint _e35 = r_5;
                        float _e37 = at_w(piece_2, place.head, i_3 + _e35, d, p, w, _buffer_sizes);
                        fours.inner[_e30][_e32] = _e37;
                    }
                }
            } else {
                r_6 = 0u;
                bool loop_init_2 = true;
                while(true) {
                    if (!loop_init_2) {
                        uint _e55 = r_6;
                        r_6 = _e55 + 1u;
                    }
                    loop_init_2 = false;
                    uint _e43 = r_6;
                    if (_e43 < 4u) {
                    } else {
                        break;
                    }
                    {
                        uint _e46 = o;
                        uint _e48 = r_6;
                        uint _e51 = r_6;
                        float _e53 = at_mixed(piece_2, place.q_at, i_3 + _e51, d, p, mixed, _buffer_sizes);
                        fours.inner[_e46][_e48] = _e53;
                    }
                }
            }
        }
    }
    type_10 _e60 = fours;
    return _e60;
}

type_10 load_answers(
    uint answers_at,
    Place place_1,
    uint first_2,
    device type_4 const& answers,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 fours_1 = {};
    uint o_1 = 0u;
    bool loop_init_3 = true;
    while(true) {
        if (!loop_init_3) {
            uint _e24 = o_1;
            o_1 = _e24 + 1u;
        }
        loop_init_3 = false;
        uint _e6 = o_1;
        if (_e6 < N_ITEM) {
        } else {
            break;
        }
        {
            uint _e9 = o_1;
            uint _e17 = o_1;
            metal::float4 _e22 = answers[((answers_at + (first_2 * 16u)) + place_1.thread_) + (_e17 * N_THREAD)];
            fours_1.inner[_e9] = _e22;
        }
    }
    type_10 _e26 = fours_1;
    return _e26;
}

type_10 load_keys(
    Piece piece_3,
    Place place_2,
    uint gates_at,
    uint first_3,
    constant Params& p,
    device type_2 const& mixed,
    device type_2 const& gates,
    constant _mslBufferSizes& _buffer_sizes
) {
    type_10 fours_2 = {};
    uint o_2 = 0u;
    uint r_7 = {};
    bool loop_init_4 = true;
    while(true) {
        if (!loop_init_4) {
            uint _e48 = o_2;
            o_2 = _e48 + 1u;
        }
        loop_init_4 = false;
        uint _e7 = o_2;
        if (_e7 < N_ITEM) {
        } else {
            break;
        }
        {
            uint _e11 = o_2;
            uint item_1 = place_2.thread_ + (_e11 * N_THREAD);
            uint i_4 = first_3 + (item_1 / ROW_FOURS);
            uint dim_4 = (item_1 % ROW_FOURS) * 4u;
            float gate = gates[(gates_at + CHUNK) + metal::min(i_4, 63u)];
            r_7 = 0u;
            bool loop_init_5 = true;
            while(true) {
                if (!loop_init_5) {
                    uint _e45 = r_7;
                    r_7 = _e45 + 1u;
                }
                loop_init_5 = false;
                uint _e32 = r_7;
                if (_e32 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e35 = o_2;
                    uint _e37 = r_7;
                    uint _e40 = r_7;
                    float _e42 = at_mixed(piece_3, place_2.k_at, i_4, dim_4 + _e40, p, mixed, _buffer_sizes);
                    fours_2.inner[_e35][_e37] = gate * _e42;
                }
            }
        }
    }
    type_10 _e50 = fours_2;
    return _e50;
}

void store(
    Place place_3,
    type_10 fours_3,
    threadgroup type_7& tile
) {
    type_10 items = {};
    uint o_3 = 0u;
    items = fours_3;
    bool loop_init_6 = true;
    while(true) {
        if (!loop_init_6) {
            uint _e19 = o_3;
            o_3 = _e19 + 1u;
        }
        loop_init_6 = false;
        uint _e5 = o_3;
        if (_e5 < N_ITEM) {
        } else {
            break;
        }
        {
            uint _e10 = o_3;
            uint _e15 = o_3;
            metal::float4 _e17 = items.inner[_e15];
            tile.inner[place_3.thread_ + (_e10 * N_THREAD)] = _e17;
        }
    }
    return;
}

void store_dims(
    Place place_4,
    type_10 fours_4,
    threadgroup type_7& tile
) {
    type_10 items_1 = {};
    uint o_4 = 0u;
    items_1 = fours_4;
    bool loop_init_7 = true;
    while(true) {
        if (!loop_init_7) {
            uint _e33 = o_4;
            o_4 = _e33 + 1u;
        }
        loop_init_7 = false;
        uint _e5 = o_4;
        if (_e5 < N_ITEM) {
        } else {
            break;
        }
        {
            uint _e9 = o_4;
            uint item_2 = place_4.thread_ + (_e9 * N_THREAD);
            uint _e29 = o_4;
            metal::float4 _e31 = items_1.inner[_e29];
            tile.inner[((((item_2 / 128u) * SLAB) + (item_2 % SLAB)) * STRIDE) + ((item_2 % 128u) / SLAB)] = _e31;
        }
    }
    return;
}

struct main_Input {
};
[[max_total_threads_per_threadgroup(512)]] kernel void main_(
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
, threadgroup type_6& s
, threadgroup type_7& tile
, threadgroup type_8& learnt
, constant _mslBufferSizes& _buffer_sizes [[buffer(8)]]
) {
    uint row = {};
    uint number = 0u;
    type_10 next = {};
    type_13 rest = {};
    uint r = {};
    type_10 w_sums = {};
    type_10 q_sums = {};
    uint dim = {};
    uint k = {};
    uint r_1 = {};
    uint first = {};
    uint j = {};
    uint r_2 = {};
    bool local = {};
    bool local_1 = {};
    type_14 sums = {};
    uint k_1 = {};
    uint r_3 = {};
    uint first_1 = {};
    uint i = {};
    uint k_2 = {};
    uint k_3 = {};
    uint r_4 = {};
    uint row_1 = {};
    uint head_2 = group.x;
    uint _e5 = p.n_head_v;
    uint _e8 = p.n_head_k;
    uint key_head = head_2 / (_e5 / _e8);
    uint _e17 = p.dk;
    uint _e21 = p.n_head_k;
    uint _e25 = p.dk;
    Place place_5 = Place {thread_, head_2, thread_ / LANES, thread_ % LANES, key_head * _e17, (_e21 + key_head) * _e25};
    uint quad_ = place_5.quad_;
    uint lane = place_5.lane;
    uint column = ((group.y * 2u) * LANES) + lane;
    uint _e41 = p.dv;
    metal::uint2 columns = metal::min(metal::uint2(column, column + LANES), metal::uint2(_e41 - 1u));
    uint _e51 = p.dv;
    metal::bool2 is_inside = metal::uint2(column, column + LANES) < metal::uint2(_e51);
    row = quad_;
    bool loop_init_8 = true;
    while(true) {
        if (!loop_init_8) {
            uint _e100 = row;
            row = _e100 + 16u;
        }
        loop_init_8 = false;
        uint _e55 = row;
        if (_e55 < ROWS) {
        } else {
            break;
        }
        {
            uint _e60 = p.dk;
            uint _e62 = row;
            uint _e65 = p.dk;
            uint _e72 = p.dv;
            uint at = ((head_2 * _e60) + metal::min(_e62, _e65 - 1u)) * _e72;
            uint _e75 = row;
            float _e84 = state[at + columns.x];
            float _e89 = state[at + columns.y];
            uint _e91 = row;
            uint _e94 = p.dk;
            s.inner[(_e75 * LANES) + lane] = metal::select(metal::float2(0.0), metal::float2(_e84, _e89), metal::bool2(_e91 < _e94));
        }
    }
    bool loop_init_9 = true;
    while(true) {
        if (!loop_init_9) {
            uint _e636 = number;
            number = _e636 + 1u;
        }
        loop_init_9 = false;
        uint _e105 = number;
        uint _e106 = n_piece(p);
        if (_e105 < _e106) {
        } else {
            break;
        }
        {
            uint _e108 = number;
            Piece _e109 = piece_of(_e108, p);
            uint _e110 = number;
            uint _e113 = p.n_head_v;
            uint gates_at_1 = (((_e110 * _e113) + head_2) * 2u) * CHUNK;
            uint _e120 = number;
            uint _e123 = p.n_head_v;
            uint answers_at_1 = (((_e120 * _e123) + head_2) * CHUNK) * 16u;
            type_10 _e131 = load_dims(_e109, place_5, 0u, p, mixed, w, _buffer_sizes);
            next = _e131;
            rest = type_13 {};
            r = 0u;
            bool loop_init_10 = true;
            while(true) {
                if (!loop_init_10) {
                    uint _e179 = r;
                    r = _e179 + 1u;
                }
                loop_init_10 = false;
                uint _e137 = r;
                if (_e137 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e142 = r;
                    uint i_5 = (quad_ * 4u) + _e142;
                    uint _e152 = p.n_head_v;
                    uint _e157 = p.dv;
                    uint at_1 = (((_e109.start + metal::min(i_5, _e109.n - 1u)) * _e152) + head_2) * _e157;
                    uint _e159 = r;
                    float _e165 = u[at_1 + columns.x];
                    float _e170 = u[at_1 + columns.y];
                    rest.inner[_e159] = metal::select(metal::float2(0.0), metal::float2(_e165, _e170), metal::bool2(i_5 < _e109.n));
                }
            }
            w_sums = type_10 {{metal::float4(0.0), metal::float4(0.0)}};
            q_sums = type_10 {{metal::float4(0.0), metal::float4(0.0)}};
            dim = 0u;
            bool loop_init_11 = true;
            while(true) {
                if (!loop_init_11) {
                    uint _e271 = dim;
                    dim = _e271 + SLAB;
                }
                loop_init_11 = false;
                uint _e195 = dim;
                uint _e198 = p.dk;
                if (_e195 < _e198) {
                } else {
                    break;
                }
                {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    type_10 _e200 = next;
                    store_dims(place_5, _e200, tile);
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    uint _e201 = dim;
                    uint _e206 = p.dk;
                    if ((_e201 + SLAB) < _e206) {
                        uint _e208 = dim;
                        type_10 _e211 = load_dims(_e109, place_5, _e208 + SLAB, p, mixed, w, _buffer_sizes);
                        next = _e211;
                    } else {
                        type_10 _e213 = load_answers(answers_at_1, place_5, 0u, answers, _buffer_sizes);
                        next = _e213;
                    }
                    k = 0u;
                    bool loop_init_12 = true;
                    while(true) {
                        if (!loop_init_12) {
                            uint _e269 = k;
                            k = _e269 + 1u;
                        }
                        loop_init_12 = false;
                        uint _e216 = k;
                        if (_e216 < SLAB) {
                        } else {
                            break;
                        }
                        {
                            uint _e220 = dim;
                            uint _e221 = k;
                            metal::float2 values = s.inner[((_e220 + _e221) * LANES) + lane];
                            uint _e229 = k;
                            metal::float4 w_four = tile.inner[(_e229 * STRIDE) + quad_];
                            uint _e237 = k;
                            metal::float4 q_four = tile.inner[((SLAB + _e237) * STRIDE) + quad_];
                            metal::float4 _e248 = w_sums.inner[0];
                            w_sums.inner[0] = metal::fma(w_four, metal::float4(values.x), _e248);
                            metal::float4 _e254 = w_sums.inner[1];
                            w_sums.inner[1] = metal::fma(w_four, metal::float4(values.y), _e254);
                            metal::float4 _e260 = q_sums.inner[0];
                            q_sums.inner[0] = metal::fma(q_four, metal::float4(values.x), _e260);
                            metal::float4 _e266 = q_sums.inner[1];
                            q_sums.inner[1] = metal::fma(q_four, metal::float4(values.y), _e266);
                        }
                    }
                }
            }
            r_1 = 0u;
            bool loop_init_13 = true;
            while(true) {
                if (!loop_init_13) {
                    uint _e320 = r_1;
                    r_1 = _e320 + 1u;
                }
                loop_init_13 = false;
                uint _e276 = r_1;
                if (_e276 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e281 = r_1;
                    uint i_6 = (quad_ * 4u) + _e281;
                    uint _e288 = r_1;
                    metal::float2 _e290 = rest.inner[_e288];
                    uint _e292 = r_1;
                    float _e294 = w_sums.inner[0][_e292];
                    uint _e296 = r_1;
                    float _e298 = w_sums.inner[1][_e296];
                    learnt.inner[(i_6 * LANES) + lane] = _e290 - metal::float2(_e294, _e298);
                    uint _e302 = r_1;
                    float _e304 = q_sums.inner[0][_e302];
                    float _e308 = gates[gates_at_1 + i_6];
                    q_sums.inner[0][_e302] = _e304 * _e308;
                    uint _e311 = r_1;
                    float _e313 = q_sums.inner[1][_e311];
                    float _e317 = gates[gates_at_1 + i_6];
                    q_sums.inner[1][_e311] = _e313 * _e317;
                }
            }
            first = 0u;
            bool loop_init_14 = true;
            while(true) {
                if (!loop_init_14) {
                    uint _e375 = first;
                    first = _e375 + ANSWERS;
                }
                loop_init_14 = false;
                uint _e324 = first;
                if (_e324 < _e109.n) {
                } else {
                    break;
                }
                {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    type_10 _e327 = next;
                    store(place_5, _e327, tile);
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    uint _e328 = first;
                    if ((_e328 + ANSWERS) < _e109.n) {
                        uint _e333 = first;
                        type_10 _e336 = load_answers(answers_at_1, place_5, _e333 + ANSWERS, answers, _buffer_sizes);
                        next = _e336;
                    } else {
                        type_10 _e338 = load_keys(_e109, place_5, gates_at_1, 0u, p, mixed, gates, _buffer_sizes);
                        next = _e338;
                    }
                    j = 0u;
                    bool loop_init_15 = true;
                    while(true) {
                        if (!loop_init_15) {
                            uint _e373 = j;
                            j = _e373 + 1u;
                        }
                        loop_init_15 = false;
                        uint _e341 = j;
                        if (_e341 < ANSWERS) {
                        } else {
                            break;
                        }
                        {
                            uint _e345 = first;
                            uint _e346 = j;
                            metal::float2 values_1 = learnt.inner[((_e345 + _e346) * LANES) + lane];
                            uint _e354 = j;
                            metal::float4 four = tile.inner[(_e354 * 16u) + quad_];
                            metal::float4 _e364 = q_sums.inner[0];
                            q_sums.inner[0] = metal::fma(four, metal::float4(values_1.x), _e364);
                            metal::float4 _e370 = q_sums.inner[1];
                            q_sums.inner[1] = metal::fma(four, metal::float4(values_1.y), _e370);
                        }
                    }
                }
            }
            r_2 = 0u;
            bool loop_init_16 = true;
            while(true) {
                if (!loop_init_16) {
                    uint _e440 = r_2;
                    r_2 = _e440 + 1u;
                }
                loop_init_16 = false;
                uint _e380 = r_2;
                if (_e380 < 4u) {
                } else {
                    break;
                }
                {
                    uint _e385 = r_2;
                    uint i_7 = (quad_ * 4u) + _e385;
                    uint _e389 = p.first;
                    uint _e395 = p.n_head_v;
                    uint _e399 = p.n_head_v;
                    uint _e402 = p.n_tile;
                    uint _e403 = out_head(head_2, _e399, _e402);
                    uint _e407 = p.dv;
                    uint at_2 = ((((_e389 + _e109.start) + i_7) * _e395) + _e403) * _e407;
                    if (i_7 < _e109.n) {
                        local = is_inside.x;
                    } else {
                        local = false;
                    }
                    bool _e415 = local;
                    if (_e415) {
                        uint _e421 = r_2;
                        float _e423 = q_sums.inner[0][_e421];
                        out[at_2 + columns.x] = _e423;
                    }
                    if (i_7 < _e109.n) {
                        local_1 = is_inside.y;
                    } else {
                        local_1 = false;
                    }
                    bool _e430 = local_1;
                    if (_e430) {
                        uint _e436 = r_2;
                        float _e438 = q_sums.inner[1][_e436];
                        out[at_2 + columns.y] = _e438;
                    }
                }
            }
            float whole = gates[(gates_at_1 + _e109.n) - 1u];
            sums = type_14 {};
            k_1 = 0u;
            bool loop_init_17 = true;
            while(true) {
                if (!loop_init_17) {
                    uint _e499 = k_1;
                    k_1 = _e499 + 1u;
                }
                loop_init_17 = false;
                uint _e453 = k_1;
                if (_e453 < 1u) {
                } else {
                    break;
                }
                {
                    r_3 = 0u;
                    bool loop_init_18 = true;
                    while(true) {
                        if (!loop_init_18) {
                            uint _e496 = r_3;
                            r_3 = _e496 + 1u;
                        }
                        loop_init_18 = false;
                        uint _e461 = r_3;
                        if (_e461 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e465 = k_1;
                            uint _e471 = r_3;
                            metal::float2 _e477 = s.inner[((((_e465 * 64u) + (quad_ * 4u)) + _e471) * LANES) + lane];
                            metal::float2 values_2 = whole * _e477;
                            uint _e480 = k_1;
                            uint _e483 = r_3;
                            sums.inner[2u * _e480][_e483] = values_2.x;
                            uint _e487 = k_1;
                            uint _e492 = r_3;
                            sums.inner[(2u * _e487) + 1u][_e492] = values_2.y;
                        }
                    }
                }
            }
            first_1 = 0u;
            bool loop_init_19 = true;
            while(true) {
                if (!loop_init_19) {
                    uint _e583 = first_1;
                    first_1 = _e583 + TOKENS;
                }
                loop_init_19 = false;
                uint _e503 = first_1;
                if (_e503 < _e109.n) {
                } else {
                    break;
                }
                {
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    type_10 _e506 = next;
                    store(place_5, _e506, tile);
                    metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
                    uint _e507 = first_1;
                    if ((_e507 + TOKENS) < _e109.n) {
                        uint _e512 = first_1;
                        type_10 _e515 = load_keys(_e109, place_5, gates_at_1, _e512 + TOKENS, p, mixed, gates, _buffer_sizes);
                        next = _e515;
                    }
                    i = 0u;
                    bool loop_init_20 = true;
                    while(true) {
                        if (!loop_init_20) {
                            uint _e581 = i;
                            i = _e581 + 1u;
                        }
                        loop_init_20 = false;
                        uint _e518 = i;
                        if (_e518 < TOKENS) {
                        } else {
                            break;
                        }
                        {
                            uint _e522 = first_1;
                            uint _e523 = i;
                            metal::float2 values_3 = learnt.inner[((_e522 + _e523) * LANES) + lane];
                            k_2 = 0u;
                            bool loop_init_21 = true;
                            while(true) {
                                if (!loop_init_21) {
                                    uint _e578 = k_2;
                                    k_2 = _e578 + 1u;
                                }
                                loop_init_21 = false;
                                uint _e532 = k_2;
                                if (_e532 < 1u) {
                                } else {
                                    break;
                                }
                                {
                                    uint _e539 = i;
                                    uint _e542 = k_2;
                                    metal::float4 four_1 = tile.inner[((_e539 * ROW_FOURS) + (_e542 * 16u)) + quad_];
                                    uint _e550 = k_2;
                                    uint _e556 = k_2;
                                    metal::float4 _e559 = sums.inner[2u * _e556];
                                    sums.inner[2u * _e550] = metal::fma(four_1, metal::float4(values_3.x), _e559);
                                    uint _e562 = k_2;
                                    uint _e570 = k_2;
                                    metal::float4 _e575 = sums.inner[(2u * _e570) + 1u];
                                    sums.inner[(2u * _e562) + 1u] = metal::fma(four_1, metal::float4(values_3.y), _e575);
                                }
                            }
                        }
                    }
                }
            }
            k_3 = 0u;
            bool loop_init_22 = true;
            while(true) {
                if (!loop_init_22) {
                    uint _e633 = k_3;
                    k_3 = _e633 + 1u;
                }
                loop_init_22 = false;
                uint _e588 = k_3;
                if (_e588 < 1u) {
                } else {
                    break;
                }
                {
                    r_4 = 0u;
                    bool loop_init_23 = true;
                    while(true) {
                        if (!loop_init_23) {
                            uint _e630 = r_4;
                            r_4 = _e630 + 1u;
                        }
                        loop_init_23 = false;
                        uint _e596 = r_4;
                        if (_e596 < 4u) {
                        } else {
                            break;
                        }
                        {
                            uint _e600 = k_3;
                            uint _e606 = r_4;
                            uint _e613 = k_3;
                            uint _e616 = r_4;
                            float _e618 = sums.inner[2u * _e613][_e616];
                            uint _e620 = k_3;
                            uint _e625 = r_4;
                            float _e627 = sums.inner[(2u * _e620) + 1u][_e625];
                            s.inner[((((_e600 * 64u) + (quad_ * 4u)) + _e606) * LANES) + lane] = metal::float2(_e618, _e627);
                        }
                    }
                }
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_threadgroup);
        }
    }
    row_1 = quad_;
    bool loop_init_24 = true;
    while(true) {
        if (!loop_init_24) {
            uint _e680 = row_1;
            row_1 = _e680 + 16u;
        }
        loop_init_24 = false;
        uint _e639 = row_1;
        uint _e642 = p.dk;
        if (_e639 < _e642) {
        } else {
            break;
        }
        {
            uint _e646 = p.dk;
            uint _e648 = row_1;
            uint _e652 = p.dv;
            uint at_3 = ((head_2 * _e646) + _e648) * _e652;
            if (is_inside.x) {
                uint _e660 = row_1;
                float _e666 = s.inner[(_e660 * LANES) + lane].x;
                state[at_3 + columns.x] = _e666;
            }
            if (is_inside.y) {
                uint _e673 = row_1;
                float _e679 = s.inner[(_e673 * LANES) + lane].y;
                state[at_3 + columns.y] = _e679;
            }
        }
    }
    return;
}
