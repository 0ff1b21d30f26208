//! Which experts each token used in each layer: recorded, written, read back, replayed.
//!
//! The file is little-endian 32-bit signed integers and nothing else: `n_token`, `n_layer`, `n_expert_used`, then
//! the experts, `[n_token, n_layer, n_expert_used]`, best first.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// The router's choices for a number of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingTrace {
    /// Layers.
    pub n_layer: usize,
    /// Experts a token uses in a layer.
    pub n_expert_used: usize,
    /// `[n_token, n_layer, n_expert_used]`
    pub experts: Vec<u32>,
}

/// A routing trace that cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The system failed us.
    #[error("{file}: cannot {action} the routing trace: {source}")]
    Io {
        /// The file.
        file: String,
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The content is no routing trace.
    #[error("{file} is no routing trace: {why}")]
    Content {
        /// The file.
        file: String,
        /// What is wrong.
        why: String,
    },
    /// The trace is of another model.
    #[error("the routing trace does not fit the model: {0}")]
    Misfit(String),
}

/// Bytes of a number in a file.
const NUMBER_BYTES: usize = 4;
/// Numbers before the experts.
const N_HEADER: usize = 3;
/// Longest file that is read: over 400,000 tokens of the largest model known.
const FILE_BYTES_MAX: u64 = 1 << 30;

impl RoutingTrace {
    /// Tokens.
    pub fn n_token(&self) -> usize {
        self.experts.len().checked_div(self.n_layer * self.n_expert_used).unwrap_or(0)
    }

    /// The experts of one token in one layer, best first.
    ///
    /// # Panics
    /// There is no such token or layer.
    pub fn at(&self, token: usize, layer: usize) -> &[u32] {
        assert!(layer < self.n_layer, "layer {layer} of {}", self.n_layer);
        let k = self.n_expert_used;
        &self.experts[(token * self.n_layer + layer) * k..][..k]
    }

    /// Reads a file. What comes back has at least one token, layer and expert, and no token uses an expert twice.
    ///
    /// # Errors
    /// The file cannot be read, or is something else.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let (file, io) = (path.display().to_string(), io_error(path, "read"));
        let meta = fs::metadata(path).map_err(&io)?;
        if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
            let why = format!("not a file of at most {FILE_BYTES_MAX} bytes");
            return Err(TraceError::Content { file, why });
        }
        let mut bytes = Vec::with_capacity(meta.len() as usize);
        File::open(path).and_then(|f| f.take(FILE_BYTES_MAX).read_to_end(&mut bytes)).map_err(&io)?;
        Self::parse(&bytes, path)
    }

    /// The same from the bytes of a file that `path` names in errors.
    ///
    /// # Errors
    /// They are no routing trace.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, TraceError> {
        Self::from_bytes(bytes).map_err(|why| TraceError::Content { file: path.display().to_string(), why })
    }

    /// Writes a file that appears under its name only when it is complete.
    ///
    /// # Errors
    /// The file cannot be written, or the trace is not one that [`RoutingTrace::read`] would give back.
    pub fn write(&self, path: &Path) -> Result<(), TraceError> {
        let content = |why| TraceError::Content { file: path.display().to_string(), why };
        self.validate().map_err(content)?;
        let shape = [self.n_token(), self.n_layer, self.n_expert_used];
        let numbers = shape.into_iter().map(|n| n as u32).chain(self.experts.iter().copied());
        let bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        let mut partial: OsString = path.into();
        partial.push(".partial");
        let written = fs::write(&partial, bytes).and_then(|()| fs::rename(&partial, path));
        written.map_err(io_error(path, "write"))
    }

    /// Checks that the trace is of a model with `n_layer` layers of `n_expert` experts, of which a token uses
    /// `n_expert_used`.
    ///
    /// # Errors
    /// It is not; says how.
    pub fn check(&self, n_layer: usize, n_expert: usize, n_expert_used: usize) -> Result<(), TraceError> {
        let shapes =
            [("layers", self.n_layer, n_layer), ("experts a token", self.n_expert_used, n_expert_used)];
        if let Some((what, got, want)) = shapes.into_iter().find(|(_, got, want)| got != want) {
            return Err(TraceError::Misfit(format!("it has {got} {what}, the model {want}")));
        }
        match self.experts.iter().position(|&e| e as usize >= n_expert) {
            Some(i) => Err(TraceError::Misfit(format!(
                "{} uses expert {}, the model has {n_expert}",
                self.place(i),
                self.experts[i]
            ))),
            None => Ok(()),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let header_bytes = N_HEADER * NUMBER_BYTES;
        let (header, experts) = bytes
            .split_at_checked(header_bytes)
            .ok_or_else(|| format!("{} bytes, its header has {header_bytes}", bytes.len()))?;
        let number = |b: &[u8]| i32::from_le_bytes(b.try_into().expect("4 bytes"));
        let shape: Vec<i32> = header.chunks_exact(NUMBER_BYTES).map(number).collect();
        if shape.iter().any(|&n| n < 1) {
            return Err(format!("tokens, layers and experts a token are {shape:?}: all must be at least 1"));
        }
        let expected = shape.iter().map(|&n| n as u128).product::<u128>() * NUMBER_BYTES as u128;
        if experts.len() as u128 != expected {
            return Err(format!("{shape:?} experts need {expected} bytes, it has {}", experts.len()));
        }
        let trace = Self {
            n_layer: shape[1] as usize,
            n_expert_used: shape[2] as usize,
            // What is negative in the file is above i32::MAX here, and refused.
            experts: experts.chunks_exact(NUMBER_BYTES).map(|b| number(b) as u32).collect(),
        };
        trace.validate()?;
        Ok(trace)
    }

    /// What every trace file promises.
    fn validate(&self) -> Result<(), String> {
        let (n_token, k) = (self.n_token(), self.n_expert_used);
        if n_token == 0 || n_token * self.n_layer * k != self.experts.len() {
            let Self { n_layer, experts, .. } = self;
            return Err(format!("{} experts are no tokens of {n_layer} layers of {k}", experts.len()));
        }
        let limit = i32::MAX as u32;
        if let Some(i) = self.experts.iter().position(|&e| e > limit) {
            return Err(format!("{} uses expert {}", self.place(i), self.experts[i] as i32));
        }
        let mut sorted = Vec::with_capacity(k);
        for (i, row) in self.experts.chunks_exact(k).enumerate() {
            sorted.clear();
            sorted.extend_from_slice(row);
            sorted.sort_unstable();
            if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("{} uses expert {} twice", self.place(i * k), twice[0]));
            }
        }
        Ok(())
    }

    /// Where number `i` of the experts belongs.
    fn place(&self, i: usize) -> String {
        let row = i / self.n_expert_used;
        format!("token {} layer {}", row / self.n_layer, row % self.n_layer)
    }
}

fn io_error(path: &Path, action: &'static str) -> impl Fn(io::Error) -> TraceError {
    let file = path.display().to_string();
    move |source| TraceError::Io { file: file.clone(), action, source }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn traces() -> impl Strategy<Value = RoutingTrace> {
        (1..5usize, 1..4usize, 1..6usize).prop_flat_map(|(n_token, n_layer, n_expert_used)| {
            let row = Just((0..9u32).map(|e| e * 7).collect::<Vec<_>>()).prop_shuffle();
            prop::collection::vec(row, n_token * n_layer).prop_map(move |rows| {
                let experts = rows.iter().flat_map(|row| row[..n_expert_used].to_vec()).collect();
                RoutingTrace { n_layer, n_expert_used, experts }
            })
        })
    }

    fn file(bytes: &[u8]) -> Result<RoutingTrace, TraceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        RoutingTrace::read(file.path())
    }

    proptest! {
        /// A recorded routing comes back as another one, or a cut or longer file as a whole one.
        #[test]
        fn what_is_written_is_read(trace in traces(), cut in 1..40usize) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("trace");
            trace.write(&path).unwrap();
            prop_assert_eq!(&RoutingTrace::read(&path).unwrap(), &trace);
            prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside the file");
            let mut bytes = fs::read(&path).unwrap();
            prop_assert!(file(&bytes[..bytes.len().saturating_sub(cut)]).is_err());
            bytes.extend(vec![0; cut]);
            prop_assert!(file(&bytes).is_err());
        }

        /// Bytes that are no trace: a panic, a huge allocation, or a trace that breaks its own promises.
        #[test]
        fn garbage_is_refused(header in any::<[i32; 3]>(), small in any::<[u8; 3]>(), rest in any::<Vec<i32>>()) {
            for header in [header, small.map(|n| i32::from(n) % 4)] {
                let numbers = header.into_iter().chain(rest.iter().copied());
                let bytes: Vec<u8> = numbers.flat_map(i32::to_le_bytes).collect();
                if let Ok(trace) = file(&bytes) {
                    prop_assert!(trace.validate().is_ok());
                    prop_assert_eq!(trace.experts.len(), rest.len());
                }
            }
        }
    }

    /// A mistake in a file that is not named, or not told.
    #[test]
    fn errors_say_what_is_wrong() {
        let cases: [(&[i32], &str); 8] = [
            (&[1, 1], "8 bytes, its header has 12"),
            (&[1, 0, 1], "at least 1"),
            (&[1, -1, 1, 5], "at least 1"),
            (&[i32::MAX, i32::MAX, i32::MAX, 1], "need 39614081201791936601413124092 bytes"),
            (&[1, 1, 2, 5], "need 8 bytes, it has 4"),
            (&[1, 2, 2, 5, 6, 7, -3], "token 0 layer 1 uses expert -3"),
            (&[2, 1, 2, 5, 6, 7, 7], "token 1 layer 0 uses expert 7 twice"),
            (&[], "0 bytes"),
        ];
        for (numbers, says) in cases {
            let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let error = file(&bytes).unwrap_err().to_string();
            assert!(
                error.contains(says) && std::path::Path::new(&error).is_absolute(),
                "{numbers:?}: {error}"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(RoutingTrace::read(dir.path()), Err(TraceError::Content { .. })));
        assert!(matches!(RoutingTrace::read(&dir.path().join("none")), Err(TraceError::Io { .. })));
        let unreadable = RoutingTrace { n_layer: 1, n_expert_used: 2, experts: vec![1] };
        assert!(unreadable.write(&dir.path().join("odd")).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    /// A trace of one model is replayed on another.
    #[test]
    fn traces_fit_their_model_only() {
        let trace = RoutingTrace { n_layer: 2, n_expert_used: 2, experts: vec![0, 1, 2, 3, 4, 5, 6, 7] };
        trace.check(2, 8, 2).unwrap();
        for (shape, says) in [
            ((3, 8, 2), "2 layers, the model 3"),
            ((2, 8, 1), "2 experts a token, the model 1"),
            ((2, 7, 2), "token 1 layer 1 uses expert 7, the model has 7"),
        ] {
            let error = trace.check(shape.0, shape.1, shape.2).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
