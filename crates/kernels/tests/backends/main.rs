//! Every operation of every CPU instruction set against the scalar reference, over ragged shapes.

mod attention;
mod common;
mod delta_net;
mod ffn;
mod pointwise;
mod products;
mod stored;
