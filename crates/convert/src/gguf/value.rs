//! Metadata values, kept as compactly as the file has them.

/// One metadata value. Integers and floats of all widths are widened.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// A float; one of single precision has the shortest decimal that names it (1e-6, not 9.99…e-7).
    Float(f64),
    /// 0 or 1 in the file.
    Bool(bool),
    /// Text, not checked to be UTF-8.
    Text(Vec<u8>),
    /// Numbers or truth values of one type.
    Numbers(Numbers),
    /// Texts.
    Texts(Texts),
    /// An array of arrays: checked and passed over, nothing of ours has this form.
    Nested,
}

/// Types of numbers in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// 8 bits.
    U8,
    /// 8 bits.
    I8,
    /// 16 bits.
    U16,
    /// 16 bits.
    I16,
    /// 32 bits.
    U32,
    /// 32 bits.
    I32,
    /// Single precision.
    F32,
    /// A byte, 0 or 1.
    Bool,
    /// 64 bits.
    U64,
    /// 64 bits.
    I64,
    /// Double precision.
    F64,
}

/// An array of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    kind: Scalar,
    /// Little-endian, as in the file.
    bytes: Vec<u8>,
}

/// An array of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts {
    bytes: Vec<u8>,
    /// Where each one ends in `bytes`.
    ends: Vec<usize>,
}

impl Scalar {
    /// The type that files number so.
    pub(super) fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of one in a file.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The value of its bytes; `None` for a truth value that is neither 0 nor 1.
    ///
    /// # Panics
    /// There are fewer bytes than [`Self::bytes`].
    pub(super) fn read(self, bytes: &[u8]) -> Option<Value> {
        let mut wide = [0; 8];
        wide[..self.bytes()].copy_from_slice(&bytes[..self.bytes()]);
        let bits = u64::from_le_bytes(wide);
        Some(match self {
            Self::U8 | Self::U16 | Self::U32 | Self::U64 => Value::Unsigned(bits),
            Self::I8 => Value::Signed(i64::from(bits as u8 as i8)),
            Self::I16 => Value::Signed(i64::from(bits as u16 as i16)),
            Self::I32 => Value::Signed(i64::from(bits as u32 as i32)),
            Self::I64 => Value::Signed(bits as i64),
            Self::F32 => Value::Float(shortest(f32::from_bits(bits as u32))),
            Self::F64 => Value::Float(f64::from_bits(bits)),
            Self::Bool => match bits {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                _ => return None,
            },
        })
    }
}

/// The number whose shortest decimal is that of `x`.
fn shortest(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}

impl Numbers {
    /// `bytes` are whole numbers of type `kind`.
    pub(super) fn new(kind: Scalar, bytes: Vec<u8>) -> Self {
        Self { kind, bytes }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.bytes()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them, as single values.
    pub fn iter(&self) -> impl Iterator<Item = Value> {
        let values = self.bytes.chunks_exact(self.kind.bytes());
        values.map(|bytes| self.kind.read(bytes).expect("checked when the file was read"))
    }
}

impl Texts {
    /// Adds one at the end.
    pub(super) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

impl Value {
    /// An integer that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Unsigned(n) => Some(*n),
            Value::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// A float, or an integer as one.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Unsigned(n) => Some(*n as f64),
            Value::Signed(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// A truth value.
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(b) = self { Some(*b) } else { None }
    }

    /// A text that is UTF-8.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::Text(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }
}

/// As messages show it.
impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Unsigned(n) => n.fmt(f),
            Value::Signed(n) => n.fmt(f),
            Value::Float(x) => x.fmt(f),
            Value::Bool(b) => b.fmt(f),
            Value::Text(_) => match self.as_str() {
                Some(text) if text.len() <= 80 => write!(f, "{text:?}"),
                _ => f.write_str("a long text"),
            },
            Value::Numbers(numbers) => write!(f, "an array of {} numbers", numbers.len()),
            Value::Texts(texts) => write!(f, "an array of {} texts", texts.len()),
            Value::Nested => f.write_str("an array of arrays"),
        }
    }
}
