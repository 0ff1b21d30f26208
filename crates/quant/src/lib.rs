//! What one block of weights means: formats, their layout in bytes, scalar encode and decode.
//!
//! A matrix is `[rows, cols]`, applied as `y = x Wᵀ`. Every format stores it in one to three *planes*
//! (codes, scales, biases), each row-major. This crate knows neither files nor roles nor CPU features.
#![forbid(unsafe_code)]

mod affine;
mod block;
mod blocks;
mod buffer;
mod curvature;
mod finite;
mod format;
mod matrix;
mod minifloat;
mod row;
mod search;

pub use block::Block;
pub use blocks::{IQ4, codebooks};
pub use buffer::Buffer;
pub use curvature::Curvature;
pub use format::{Format, FormatError, PLANE_ALIGN};
pub use matrix::{Matrix, MatrixRef};
pub use minifloat::{E2M1_DOUBLED, FP8_BLOCK, e4m3};
pub use row::{decode_row, encode_row, encode_rows};
pub use search::{Cost, Searcher};
