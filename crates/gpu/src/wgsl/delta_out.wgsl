// Where a gated delta-net's output has the value heads: head j of tiles of n_tile lies at place
// (j mod n_tile) · (n_head_v / n_tile) + j div n_tile. Tiles of one change nothing.

fn out_head(head: u32, n_head_v: u32, n_tile: u32) -> u32 {
    return head % n_tile * (n_head_v / n_tile) + head / n_tile;
}
