//! The corners of Python that chat templates rely on: `json.dumps`, `str` of numbers, `strftime`.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Containers nested deeper than this are refused: they come from a template that nests without end, never
/// from JSON (whose parser has the same limit).
const DEPTH_MAX: usize = 128;
/// More indentation than anybody asks for.
const INDENT_MAX: usize = 64;

/// `repr` of a float: the shortest digits that read back the same; exponents below -4 and from 16 on.
pub(crate) fn float_repr(x: f64) -> String {
    if !x.is_finite() {
        return if x.is_nan() { "nan".into() } else { if x > 0.0 { "inf" } else { "-inf" }.into() };
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').expect("`e` format always has an exponent");
    let exponent: i32 = exponent.parse().expect("`e` format ends in an integer");
    if (-4..16).contains(&exponent) || x == 0.0 {
        format!("{x:?}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}

/// A value that is a float and not an integer.
fn as_float(value: &Value) -> Option<f64> {
    (value.kind() == ValueKind::Number && !value.is_integer()).then(|| f64::try_from(value.clone()).ok())?
}

/// `str(value)` as Python prints it; None for all values that the engine already prints that way.
pub(crate) fn number_text(value: &Value) -> Option<String> {
    as_float(value).map(float_repr)
}

/// The `string` filter.
pub(crate) fn string_filter(value: Value) -> Value {
    match number_text(&value) {
        Some(text) => text.into(),
        None if value.kind() == ValueKind::String => value,
        None => value.to_string().into(),
    }
}

/// The `trim` filter: `str.strip`. Python counts four more control characters as white space than Unicode
/// does.
pub(crate) fn trim_filter(value: Value, chars: Option<String>) -> String {
    let text = value.to_string();
    match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).into(),
        None => text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c)).into(),
    }
}

/// The `iterable` test. The engine also iterates over `none`, which Python does not.
pub(crate) fn is_iterable(value: &Value) -> bool {
    use ValueKind::{Bytes, Iterable, Map, Seq, String, Undefined};
    matches!(value.kind(), String | Bytes | Seq | Map | Iterable | Undefined)
}

/// The `tojson` filter: `json.dumps(value, ensure_ascii=False)`, without the HTML escapes of Jinja's own.
/// Keyword arguments are those of Hugging Face: `indent`, `separators`, `sort_keys`, `ensure_ascii`.
pub(crate) fn tojson_filter(value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    if indent.is_some_and(|n| n > INDENT_MAX) {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("indent is at most {INDENT_MAX}")));
    }
    let separators: Option<(String, String)> = match kwargs.get::<Option<Vec<String>>>("separators")? {
        None => None,
        Some(pair) => <[String; 2]>::try_from(pair).ok().map(|[item, key]| (item, key)),
    };
    let default_item = if indent.is_some() { "," } else { ", " };
    let (item, key) = separators.unwrap_or((default_item.into(), ": ".into()));
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let mut dumper = Dumper { out: String::new(), indent, item, key, sort_keys, ensure_ascii };
    dumper.value(&value, 0)?;
    Ok(dumper.out.into())
}

struct Dumper {
    out: String,
    indent: Option<usize>,
    item: String,
    key: String,
    sort_keys: bool,
    ensure_ascii: bool,
}

impl Dumper {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::new(ErrorKind::InvalidOperation, "tojson: nested too deeply"));
        }
        match value.kind() {
            ValueKind::None | ValueKind::Bool | ValueKind::Number => self.out.push_str(&scalar(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.checked().collect::<Result<_, _>>()?;
                self.list(items.len(), depth, ['[', ']'], &mut |this, i| this.value(&items[i], depth + 1))?;
            }
            ValueKind::Map => self.map(value, depth)?,
            other => {
                let why = format!("tojson: a value of kind {other} is not JSON serializable");
                return Err(Error::new(ErrorKind::InvalidOperation, why));
            }
        }
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut pairs = Vec::new();
        for key in value.try_iter()? {
            let text = if key.kind() == ValueKind::String { key.to_string() } else { scalar(&key) };
            pairs.push((text, value.get_item(&key)?));
        }
        if self.sort_keys {
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
        }
        self.list(pairs.len(), depth, ['{', '}'], &mut |this, i| {
            this.string(&pairs[i].0);
            this.out.push_str(&this.key.clone());
            this.value(&pairs[i].1, depth + 1)
        })
    }

    fn list(
        &mut self,
        n: usize,
        depth: usize,
        [open, close]: [char; 2],
        item: &mut dyn FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for i in 0..n {
            if i > 0 {
                self.out.push_str(&self.item.clone());
            }
            self.newline(depth + 1);
            item(self, i)?;
        }
        if n > 0 {
            self.newline(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn newline(&mut self, depth: usize) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(self.out, "\\u{unit:04x}").expect("writing to a String cannot fail");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A JSON scalar that is not a string; also how such a value becomes a key.
fn scalar(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.into(),
        // Python's json spells these three differently from its repr.
        _ => match as_float(value) {
            Some(x) if x.is_nan() => "NaN".into(),
            Some(x) if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
            Some(x) => float_repr(x),
            None => value.to_string(),
        },
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// `strftime` of a UTC time in seconds since 1970, for the directives that templates use.
pub(crate) fn strftime(unix_s: u64, format: &str) -> Result<String, String> {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (month_name, weekday) = (MONTHS[month as usize - 1], WEEKDAYS[(days as usize + 3) % 7]);
    let hour_12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next();
        let unpadded = directive == Some('-');
        if unpadded {
            directive = chars.next();
        }
        let number = |n: u64| if unpadded { n.to_string() } else { format!("{n:02}") };
        out.push_str(&match directive {
            Some('Y') => year.to_string(),
            Some('y') => number(year % 100),
            Some('m') => number(month),
            Some('d') => number(day),
            Some('H') => number(hour),
            Some('I') => number(hour_12),
            Some('M') => number(minute),
            Some('S') => number(second),
            Some('p') => if hour < 12 { "AM" } else { "PM" }.into(),
            Some('B') => month_name.into(),
            Some('b') => month_name[..3].into(),
            Some('A') => weekday.into(),
            Some('a') => weekday[..3].into(),
            Some('F') => format!("{year}-{month:02}-{day:02}"),
            Some('T') => format!("{hour:02}:{minute:02}:{second:02}"),
            Some('%') => "%".into(),
            other => return Err(format!("strftime directive %{} is not supported", other.unwrap_or(' '))),
        });
    }
    Ok(out)
}

/// Year, month (1 to 12) and day of a day count since 1970-01-01, by years of 365.2425 days that begin in
/// March (Hinnant's days_from_civil, inverted).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        // Prompts with numbers would differ from what the model was trained on. Expected values are Python's
        // repr.
        let cases = [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e-7, "1e-07"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e20, "1e+20"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (5e-324, "5e-324"),
        ];
        for (x, expected) in cases {
            assert_eq!(float_repr(x), expected);
        }
    }

    #[test]
    fn dates_print_as_in_python() {
        // A template that prints the date would print a wrong one. Expected values are from Python's
        // datetime.
        let format = "%Y-%m-%d %H:%M:%S %A %d %B %-d %b %a %I %p %y %F %T %%";
        let cases = [
            (0, "1970-01-01 00:00:00 Thursday 01 January 1 Jan Thu 12 AM 70 1970-01-01 00:00:00 %"),
            (
                951_827_696,
                "2000-02-29 12:34:56 Tuesday 29 February 29 Feb Tue 12 PM 00 2000-02-29 12:34:56 %",
            ),
            (
                1_767_225_599,
                "2025-12-31 23:59:59 Wednesday 31 December 31 Dec Wed 11 PM 25 2025-12-31 23:59:59 %",
            ),
        ];
        for (unix_s, expected) in cases {
            assert_eq!(strftime(unix_s, format).unwrap(), expected);
        }
        assert!(strftime(0, "%Q").is_err());
        assert!(strftime(0, "%").is_err());
    }
}
