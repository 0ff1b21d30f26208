//! What goes into a model's matrices on a given text: mean squares of each column and mean products of neighbouring
//! columns. Quantising then knows which errors cost most. `docs/imatrix.md` describes the file.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use quant::Curvature;
use serde::{Deserialize, Serialize};
use store::{Input, ModelConfig};
use xxhash_rust::xxh3::Xxh3;

use crate::ConvertError;

#[cfg(test)]
mod tests;

const MAGIC: &[u8; 8] = b"FMOEIMAT";
const VERSION: u32 = 1;
const HEADER_BYTES_MAX: u32 = 1 << 20;
/// Columns whose products are kept together are a multiple of this, the largest group of a format.
const BLOCK_ALIGN: usize = 128;
const BLOCK_MAX: usize = 4096;
/// So many rows of the layer's mean count in what is known of an expert.
const N_PRIOR_ROW: f64 = 64.0;
/// Rows that go into the sums of products at a time.
const N_SUM: usize = 4;

/// An importance matrix.
pub struct Imatrix {
    config: ModelConfig,
    kept: Kept,
    n_token: u64,
    /// In the order of [`Input::all`].
    moments: Vec<Moments>,
    hash: u64,
}

/// Which products there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// Columns whose products are kept together; 0: none are.
    block: usize,
    /// Are those of the inputs of routed experts' down kept?
    expert_down: bool,
}

/// Of one input: means over the rows that were seen, or sums while they are collected.
#[derive(Clone, Debug, Default, PartialEq)]
struct Moments {
    n_row: u64,
    /// `[width]`
    squares: Vec<f32>,
    /// `[Curvature::products_len(width, block)]`, or empty.
    products: Vec<f32>,
}

/// The beginning of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    n_token: u64,
    kept: Kept,
    config: ModelConfig,
}

/// What errors of a matrix cost.
#[derive(Clone, Debug)]
pub(crate) enum Weighting {
    Columns(Vec<f32>),
    Curvature(Curvature),
}

impl Kept {
    fn products_len(self, input: Input, width: usize) -> usize {
        match input {
            // Of each expert they would take more than the experts themselves; the layer's stand for them.
            Input::Expert(_) => 0,
            Input::ExpertDown(_) if !self.expert_down => 0,
            _ if self.block == 0 => 0,
            _ => Curvature::products_len(width, self.block),
        }
    }

    fn check(self) -> Result<(), String> {
        if self.block > BLOCK_MAX || !self.block.is_multiple_of(BLOCK_ALIGN) {
            return Err(format!(
                "{} columns to a block are not a multiple of {BLOCK_ALIGN} up to {BLOCK_MAX}",
                self.block
            ));
        }
        Ok(())
    }

    /// Bytes of all numbers; `u128`, since shapes may come from a file.
    fn moment_bytes(self, config: &ModelConfig) -> u128 {
        let experts = config.n_expert as u128;
        let bytes = |layer, input: Input| {
            let width = input.width(config, layer);
            8 + 4 * (width as u128 + self.products_len(input, width) as u128)
        };
        let of_layer = |layer| {
            let shared = if config.d_ff_shared > 0 { bytes(layer, Input::SharedDown) } else { 0 };
            let dense: u128 =
                [Input::Mixer, Input::MixerOut, Input::Experts].map(|i| bytes(layer, i)).iter().sum();
            dense + shared + experts * (bytes(layer, Input::Expert(0)) + bytes(layer, Input::ExpertDown(0)))
        };
        (0..config.n_layer()).map(|layer| of_layer(Some(layer))).sum::<u128>() + bytes(None, Input::Head)
    }
}

/// Collects an [`Imatrix`] while a text runs through the model.
pub struct ImatrixCollector {
    config: ModelConfig,
    kept: Kept,
    moments: Vec<Moments>,
}

impl ImatrixCollector {
    /// Bytes that collecting takes.
    ///
    /// # Errors
    /// `block` is not a multiple of 128 up to 4096.
    pub fn bytes(config: &ModelConfig, block: usize, expert_down: bool) -> Result<u128, ConvertError> {
        let kept = Kept { block, expert_down };
        kept.check().map_err(ConvertError::Options)?;
        Ok(kept.moment_bytes(config))
    }

    /// Keeps the products of `block` neighbouring columns together (0: of none), and those of the inputs of the routed
    /// experts' down if `expert_down`.
    ///
    /// # Errors
    /// As [`Self::bytes`].
    pub fn new(config: &ModelConfig, block: usize, expert_down: bool) -> Result<Self, ConvertError> {
        let kept = Kept { block, expert_down };
        kept.check().map_err(ConvertError::Options)?;
        let empty = |(layer, input): (_, Input)| {
            let width = input.width(config, layer);
            Moments {
                n_row: 0,
                squares: vec![0.0; width],
                products: vec![0.0; kept.products_len(input, width)],
            }
        };
        let moments = Input::all(config).map(empty).collect();
        Ok(Self { config: config.clone(), kept, moments })
    }

    /// Adds `[_, width]` rows of an input.
    pub fn add(&mut self, layer: Option<usize>, input: Input, rows: &[f32]) {
        let moments = &mut self.moments[place(&self.config, layer, input)];
        let width = moments.squares.len();
        for row in rows.chunks_exact(width) {
            moments.n_row += 1;
            moments.squares.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * x);
        }
        if moments.products.is_empty() {
            return;
        }
        let mut products = &mut moments.products[..];
        for start in (0..width).step_by(self.kept.block) {
            let n = self.kept.block.min(width - start);
            let (block, rest) = products.split_at_mut(n * n);
            add_products(block, rows, width, start, n);
            products = rest;
        }
    }

    /// Means of what was added; `n_token` tokens were fed.
    pub fn finish(mut self, n_token: u64) -> Imatrix {
        for moments in &mut self.moments {
            let scale = 1.0 / moments.n_row.max(1) as f32;
            moments.squares.iter_mut().chain(&mut moments.products).for_each(|sum| *sum *= scale);
        }
        let Self { config, kept, moments } = self;
        Imatrix { config, kept, n_token, moments, hash: 0 }
    }
}

/// `sums[i][j] += Σ_t x[t][i] · x[t][j]` for the `n` columns from `start` on.
fn add_products(sums: &mut [f32], rows: &[f32], width: usize, start: usize, n: usize) {
    let zero = vec![0.0; n];
    for rows in rows.chunks(N_SUM * width) {
        let row = |t: usize| rows.get(t * width + start..t * width + start + n).unwrap_or(&zero);
        let x: [&[f32]; N_SUM] = [row(0), row(1), row(2), row(3)];
        for (i, sums) in sums.chunks_exact_mut(n).enumerate() {
            let a = x.map(|x| x[i]);
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum += (a[0] * x[0][j] + a[1] * x[1][j]) + (a[2] * x[2][j] + a[3] * x[3][j]);
            }
        }
    }
}

/// Where an input is in the order of [`Input::all`].
fn place(config: &ModelConfig, layer: Option<usize>, input: Input) -> usize {
    let n_dense = if config.d_ff_shared > 0 { 4 } else { 3 };
    let n_layer_input = n_dense + 2 * config.n_expert;
    let within = match input {
        Input::Mixer => 0,
        Input::MixerOut => 1,
        Input::Experts => 2,
        Input::SharedDown => 3,
        Input::Expert(expert) => n_dense + expert,
        Input::ExpertDown(expert) => n_dense + config.n_expert + expert,
        Input::Head => 0,
    };
    layer.unwrap_or(config.n_layer()) * n_layer_input + within
}

impl Imatrix {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, is not an importance matrix, is damaged, or of a version that this program does not know.
    pub fn read(path: &Path) -> Result<Self, ConvertError> {
        let failed = |source| ConvertError::Io { path: path.to_owned(), action: "read".into(), source };
        let bad = |why: String| ConvertError::Imatrix { path: path.to_owned(), why };
        let file = File::open(path).map_err(failed)?;
        let file_bytes = file.metadata().map_err(failed)?.len();
        let mut input = Hashed { inner: BufReader::with_capacity(1 << 20, file), hash: Xxh3::new() };
        let header = read_header(&mut input).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => bad(error.to_string()),
            io::ErrorKind::UnexpectedEof => bad("it ends inside its header".into()),
            _ => failed(error),
        })?;
        let (header, header_bytes) = header;
        header.config.check().and_then(|()| header.kept.check()).map_err(&bad)?;
        let expected = header.kept.moment_bytes(&header.config) + u128::from(header_bytes) + 8;
        if expected != u128::from(file_bytes) {
            return Err(bad(format!("it has {file_bytes} bytes, its header calls for {expected}")));
        }
        let Header { n_token, kept, config } = header;
        let mut moments = Vec::new();
        for (layer, of) in Input::all(&config) {
            let width = of.width(&config, layer);
            let read = read_moments(&mut input, width, kept.products_len(of, width)).map_err(failed)?;
            let is_finite = read.products.iter().all(|x| x.is_finite());
            if !is_finite || !read.squares.iter().all(|x| x.is_finite() && *x >= 0.0) {
                return Err(bad(format!(
                    "the moments of {of:?} in layer {layer:?} are not finite or negative"
                )));
            }
            moments.push(read);
        }
        let hash = input.hash.digest();
        if input.read_u64().map_err(failed)? != hash {
            return Err(bad("its checksum does not match: it is damaged".into()));
        }
        Ok(Self { config, kept, n_token, moments, hash })
    }

    /// Writes the file's bytes.
    ///
    /// # Errors
    /// `out` does not take them.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut out = Hashed { inner: out, hash: Xxh3::new() };
        let header = Header { n_token: self.n_token, kept: self.kept, config: self.config.clone() };
        let header = serde_json::to_vec(&header)?;
        out.write_all(MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&(header.len() as u32).to_le_bytes())?;
        out.write_all(&header)?;
        let mut bytes = Vec::new();
        for moments in &self.moments {
            bytes.clear();
            bytes.extend_from_slice(&moments.n_row.to_le_bytes());
            let numbers = moments.squares.iter().chain(&moments.products);
            bytes.extend(numbers.flat_map(|x| x.to_le_bytes()));
            out.write_all(&bytes)?;
        }
        let hash = out.hash.digest();
        out.inner.write_all(&hash.to_le_bytes())
    }

    /// Is it one of a model with these shapes?
    pub(crate) fn is_of(&self, config: &ModelConfig) -> bool {
        self.config == *config
    }

    /// Names the contents.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Tokens of the text.
    pub fn n_token(&self) -> u64 {
        self.n_token
    }

    /// Routed experts that no token chose, and those that fewer than 64 did: what is known of them comes from the
    /// layer's mean, wholly or in good part.
    pub fn n_unseen(&self) -> (usize, usize) {
        let rows = Input::all(&self.config).zip(&self.moments);
        let rows = rows.filter(|((_, input), _)| matches!(input, Input::Expert(_))).map(|(_, m)| m.n_row);
        rows.fold((0, 0), |(none, few), n| match n {
            0 => (none + 1, few),
            n if (n as f64) < N_PRIOR_ROW => (none, few + 1),
            _ => (none, few),
        })
    }

    /// What errors of a matrix with this input cost.
    pub(crate) fn weighting(&self, layer: Option<usize>, input: Input) -> Weighting {
        let own = &self.moments[place(&self.config, layer, input)];
        let (squares, products, n_row) = match input {
            Input::Expert(_) => {
                let all = &self.moments[place(&self.config, layer, Input::Experts)];
                (blend(own, &all.squares), &all.products, all.n_row)
            }
            Input::ExpertDown(_) => (blend(own, &self.mean_of_experts(layer)), &own.products, own.n_row),
            _ => (own.squares.clone(), &own.products, own.n_row),
        };
        if products.is_empty() {
            return Weighting::Columns(squares);
        }
        let block = self.kept.block;
        // With fewer rows than columns there are correlations by chance.
        let trust = n_row as f64 / (n_row as f64 + block.min(squares.len()) as f64);
        Weighting::Curvature(Curvature::new(&squares, products, block, trust as f32))
    }

    /// Mean squares of the inputs of the layer's downs, over all rows of all experts, the same for each column: columns
    /// of two experts have nothing to do with each other.
    fn mean_of_experts(&self, layer: Option<usize>) -> Vec<f32> {
        let experts = (0..self.config.n_expert)
            .map(|expert| &self.moments[place(&self.config, layer, Input::ExpertDown(expert))]);
        let (mut sum, mut n_row) = (0.0, 0.0);
        for moments in experts {
            sum += moments.n_row as f64 * moments.squares.iter().map(|&x| f64::from(x)).sum::<f64>();
            n_row += moments.n_row as f64;
        }
        let width = self.config.d_ff_expert;
        vec![(sum / f64::max(n_row, 1.0) / width as f64) as f32; width]
    }
}

/// What was seen of an expert, and of its layer as if that were some rows more.
fn blend(own: &Moments, layer: &[f32]) -> Vec<f32> {
    let share = own.n_row as f64 / (own.n_row as f64 + N_PRIOR_ROW);
    let mix =
        |(&own, &layer): (&f32, &f32)| (share * f64::from(own) + (1.0 - share) * f64::from(layer)) as f32;
    own.squares.iter().zip(layer).map(mix).collect()
}

/// Bytes on their way, and their checksum.
struct Hashed<T> {
    inner: T,
    hash: Xxh3,
}

impl<T: Write> Hashed<T> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<T: Read> Hashed<T> {
    fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(&bytes);
        Ok(bytes)
    }

    fn read_u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.read()?))
    }

    fn read_vec(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.inner.read_exact(&mut bytes)?;
        self.hash.update(&bytes);
        Ok(bytes)
    }
}

/// The header and the bytes up to its end.
fn read_header<T: Read>(input: &mut Hashed<T>) -> io::Result<(Header, u32)> {
    let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if input.read::<8>()? != *MAGIC {
        return Err(bad("it is no importance matrix of `eval --collect-imatrix`".into()));
    }
    let version = u32::from_le_bytes(input.read()?);
    if version != VERSION {
        return Err(bad(format!("version {version} is unknown, this program reads {VERSION}")));
    }
    let len = u32::from_le_bytes(input.read()?);
    if len > HEADER_BYTES_MAX {
        return Err(bad(format!("a header of {len} bytes is too long")));
    }
    let header = input.read_vec(len as usize)?;
    let header = serde_json::from_slice(&header).map_err(|error| bad(format!("its header: {error}")))?;
    Ok((header, MAGIC.len() as u32 + 8 + len))
}

fn read_moments<T: Read>(input: &mut Hashed<T>, width: usize, n_product: usize) -> io::Result<Moments> {
    let n_row = input.read_u64()?;
    let bytes = input.read_vec((width + n_product) * 4)?;
    let float = |b: &[u8]| f32::from_le_bytes(b.try_into().expect("4 bytes"));
    let mut squares: Vec<f32> = bytes.chunks_exact(4).map(float).collect();
    let products = squares.split_off(width);
    Ok(Moments { n_row, squares, products })
}

impl std::fmt::Debug for Imatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kept, n_token, hash, .. } = self;
        write!(f, "Imatrix({kept:?}, {n_token} tokens, {hash:016x})")
    }
}
