// Counts the passes that were carried out.

@group(0) @binding(0) var<storage, read_write> n_pass: array<u32>;

@compute @workgroup_size(1)
fn main() {
    n_pass[0] = n_pass[0] + 1u;
}
