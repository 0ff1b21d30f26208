// Pieces of a gated delta-net's tokens: cut at absolute multiples of 64 positions, a chunk.

const CHUNK: u32 = 64u;

struct Params {
    n_head_k: u32,
    n_head_v: u32,
    dk: u32,
    dv: u32,
    pos: u32, // of the first token
    first: u32, // its number in the call
    n_token: u32,
    n_tile: u32, // of the heads of the output
}
var<immediate> p: Params;

struct Piece {
    start: u32, // its first token, counted from the dispatch's
    n: u32,
}

fn piece_of(number: u32) -> Piece {
    let chunk = p.pos / CHUNK + number;
    let start = max(p.pos, chunk * CHUNK);
    return Piece(start - p.pos, min(p.pos + p.n_token, (chunk + 1u) * CHUNK) - start);
}

fn n_piece() -> u32 {
    return (p.pos + p.n_token - 1u) / CHUNK - p.pos / CHUNK + 1u;
}

fn channels() -> u32 {
    return 2u * p.n_head_k * p.dk + p.n_head_v * p.dv;
}
