//! A calculator: numbers, `+ - * / ^`, brackets and a few functions. It cannot do anything else.

use serde_json::{Value, json};

const TEXT_BYTES_MAX: usize = 1000;
/// Brackets within brackets.
const DEPTH_MAX: usize = 50;

type Function = (&'static str, fn(f64) -> f64);

const FUNCTIONS: [Function; 16] = [
    ("sqrt", f64::sqrt),
    ("cbrt", f64::cbrt),
    ("abs", f64::abs),
    ("exp", f64::exp),
    ("ln", f64::ln),
    ("log", f64::log10),
    ("log10", f64::log10),
    ("log2", f64::log2),
    ("sin", f64::sin),
    ("cos", f64::cos),
    ("tan", f64::tan),
    ("asin", f64::asin),
    ("acos", f64::acos),
    ("atan", f64::atan),
    ("floor", f64::floor),
    ("ceil", f64::ceil),
];

pub(super) fn declaration() -> Value {
    json!({ "type": "function", "function": {
        "name": "calculator",
        "description": "Calculates a numeric expression exactly as written.",
        "parameters": {
            "type": "object",
            "properties": { "expression": {
                "type": "string",
                "description": "Numbers, + - * / ^, brackets, pi, e, and sqrt, cbrt, abs, round, floor, ceil, exp, ln, \
                                log, log2, sin, cos, tan, asin, acos, atan of one number (angles in radians)"
            } },
            "required": ["expression"]
        }
    } })
}

/// The value of an expression.
///
/// # Errors
/// It is no expression, too long, or its value is no finite number.
pub(super) fn calculate(expression: &str) -> Result<f64, String> {
    if TEXT_BYTES_MAX < expression.len() {
        return Err(format!("the expression is longer than {TEXT_BYTES_MAX} bytes"));
    }
    let mut parser = Parser { text: expression, pos: 0, depth: 0 };
    let value = parser.sum()?;
    if let Some(c) = parser.peek() {
        return Err(parser.error(&format!("unexpected '{c}'")));
    }
    if value.is_finite() { Ok(value) } else { Err("the result is not a finite number".into()) }
}

struct Parser<'a> {
    text: &'a str,
    pos: usize,
    depth: usize,
}

impl Parser<'_> {
    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.take("+") {
                value += self.product()?;
            } else if self.take("-") || self.take("\u{2212}") {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.signed()?;
        loop {
            if self.take("*") || self.take("\u{d7}") {
                value *= self.signed()?;
            } else if self.take("/") || self.take("\u{f7}") {
                value /= self.signed()?;
            } else {
                return Ok(value);
            }
        }
    }

    /// `-2^2` is -4.
    fn signed(&mut self) -> Result<f64, String> {
        let mut sign = 1.0;
        loop {
            if self.take("-") || self.take("\u{2212}") {
                sign = -sign;
            } else if !self.take("+") {
                return Ok(sign * self.power()?);
            }
        }
    }

    /// `2^3^2` is 2^9.
    fn power(&mut self) -> Result<f64, String> {
        let base = self.atom()?;
        if !self.take("**") && !self.take("^") {
            return Ok(base);
        }
        self.enter()?;
        let exponent = self.signed()?;
        self.depth -= 1;
        Ok(base.powf(exponent))
    }

    fn atom(&mut self) -> Result<f64, String> {
        match self.peek() {
            Some('(') => self.bracket(),
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.word(),
            Some(c) => Err(self.error(&format!("unexpected '{c}'"))),
            None => Err(self.error("a number is missing")),
        }
    }

    fn bracket(&mut self) -> Result<f64, String> {
        if !self.take("(") {
            return Err(self.error("'(' is missing"));
        }
        self.enter()?;
        let value = self.sum()?;
        self.depth -= 1;
        if self.take(")") { Ok(value) } else { Err(self.error("')' is missing")) }
    }

    fn number(&mut self) -> Result<f64, String> {
        let rest = &self.text[self.pos..];
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut len = digits(rest);
        if rest[len..].starts_with('.') {
            len += 1 + digits(&rest[len + 1..]);
        }
        if let Some(exponent) = rest[len..].strip_prefix(['e', 'E']) {
            let n_sign = usize::from(exponent.starts_with(['+', '-']));
            let n_digit = digits(&exponent[n_sign..]);
            len += if 0 < n_digit { 1 + n_sign + n_digit } else { 0 };
        }
        let value =
            rest[..len].parse().map_err(|_| self.error(&format!("'{}' is no number", &rest[..len])))?;
        self.pos += len;
        Ok(value)
    }

    fn word(&mut self) -> Result<f64, String> {
        let rest = &self.text[self.pos..];
        let len = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let word = rest[..len].to_ascii_lowercase();
        let unknown = self.error(&format!("there is no '{word}' here"));
        self.pos += len;
        match word.as_str() {
            "pi" => Ok(std::f64::consts::PI),
            "e" => Ok(std::f64::consts::E),
            "round" => Ok(self.bracket()?.round()),
            _ => {
                let (_, function) = FUNCTIONS.iter().find(|(name, _)| *name == word).ok_or(unknown)?;
                Ok(function(self.bracket()?))
            }
        }
    }

    fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        if DEPTH_MAX < self.depth { Err("too many brackets within brackets".into()) } else { Ok(()) }
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.pos..];
        self.pos += rest.len() - rest.trim_start().len();
        self.text[self.pos..].chars().next()
    }

    /// `*` is not the beginning of `**`.
    fn take(&mut self, symbol: &str) -> bool {
        self.peek();
        let rest = &self.text[self.pos..];
        let is_here = rest.starts_with(symbol) && !(symbol == "*" && rest.starts_with("**"));
        self.pos += if is_here { symbol.len() } else { 0 };
        is_here
    }

    fn error(&self, why: &str) -> String {
        format!("{why} (character {})", self.text[..self.pos].chars().count() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model would be told a wrong number.
    #[test]
    fn values_are_right() {
        let cases = [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("10 - 4 - 3", 3.0),
            ("100 / 10 / 5", 2.0),
            ("2^3^2", 512.0),
            ("2 ** 10", 1024.0),
            ("-2^2", -4.0),
            ("(-2)^2", 4.0),
            ("2^-1", 0.5),
            ("--3", 3.0),
            ("3 - -4", 7.0),
            ("1.5e3 + .5", 1500.5),
            ("2e", f64::NAN),
            ("6 \u{d7} 7 \u{2212} 2 \u{f7} 2", 41.0),
            ("sqrt(16) + abs(-2)", 6.0),
            ("ROUND(2.5) + floor(2.9) + ceil(2.1)", 8.0),
            ("log(1000)", 3.0),
            ("log2(8) + cbrt(27)", 6.0),
            ("sin(0) + cos(0)", 1.0),
            ("ln(e)", 1.0),
            ("2*pi", std::f64::consts::TAU),
            ("0.1 + 0.2", 0.1 + 0.2),
        ];
        for (expression, value) in cases {
            match calculate(expression) {
                Ok(got) => assert!((got - value).abs() <= 1e-12 * value.abs(), "{expression} = {got}"),
                Err(why) => assert!(value.is_nan(), "{expression}: {why}"),
            }
        }
    }

    /// Words of the model's would crash the program, run for ever, or be taken for a number.
    #[test]
    fn anything_else_is_refused() {
        let deep = "(".repeat(900);
        let tower = "2^".repeat(400) + "2";
        let long = "1+".repeat(600) + "1";
        let cases = [
            ("", "a number is missing (character 1)"),
            ("1 +", "a number is missing (character 4)"),
            ("1 2", "unexpected '2' (character 3)"),
            ("(1", "')' is missing"),
            ("1)", "unexpected ')'"),
            ("1/0", "not a finite number"),
            ("sqrt(-1)", "not a finite number"),
            ("1e308 * 10", "not a finite number"),
            ("sqrt 4", "'(' is missing"),
            ("1.2.3", "unexpected '.'"),
            (".", "'.' is no number"),
            ("import os", "there is no 'import' here"),
            ("é", "unexpected 'é'"),
            ("2 € 3", "unexpected '€' (character 3)"),
            (&deep, "too many brackets"),
            (&tower, "too many brackets"),
            (&long, "longer than"),
        ];
        for (expression, why) in cases {
            let error = calculate(expression).unwrap_err();
            assert!(error.contains(why), "{expression}: {error}");
        }
    }
}
