//! What one block of weights means: formats, their layout in bytes, scalar encode and decode.
//!
//! A matrix is `[rows, cols]`, applied as `y = x Wᵀ`. Every format stores it in one to three *planes*
//! (codes, scales, biases), each row-major. This crate knows neither files nor roles nor CPU features.
#![forbid(unsafe_code)]

mod affine;
mod buffer;
mod format;
mod matrix;

pub use affine::{decode_row, encode_row};
pub use buffer::Buffer;
pub use format::{Format, FormatError, PLANE_ALIGN};
pub use matrix::{Matrix, MatrixRef};
