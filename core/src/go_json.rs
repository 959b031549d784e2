//! JSON in the exact form of Go's encoder.
//!
//! The data of a ControllerRevision is immutable, and the API server compares its bytes. When another client (for
//! example, the garbage collector) patches the object, the API server encodes the data again, in Go. If we had written
//! other bytes for the same value, the API server would take that for a change of the data, and refuse the patch.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;

/// Compact JSON with sorted keys. `<`, `>`, `&`, U+2028 and U+2029 are escaped, and numbers are written as Go writes
/// them.
pub fn to_bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Go);
    // Writing a value to memory cannot fail.
    let _ = value.serialize(&mut serializer);
    bytes
}

struct Go;

impl Formatter for Go {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut remaining = fragment;
        while let Some(at) = remaining.find(SPECIAL) {
            writer.write_all(&remaining.as_bytes()[..at])?;
            let special = remaining[at..].chars().next().unwrap_or_default();
            write!(writer, "\\u{:04x}", u32::from(special))?;
            remaining = &remaining[at + special.len_utf8()..];
        }
        writer.write_all(remaining.as_bytes())
    }

    fn write_f64<W>(&mut self, writer: &mut W, value: f64) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        writer.write_all(float(value).as_bytes())
    }
}

const SPECIAL: [char; 5] = ['<', '>', '&', '\u{2028}', '\u{2029}'];

/// A float as Go writes it: with as few digits as possible, and with an exponent if its absolute value is less than
/// 1e-6 or at least 1e21.
fn float(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        return match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                format!("{digits}e+{exponent}")
            }
            _ => text,
        };
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(value: &Value) -> String {
        String::from_utf8(to_bytes(value)).unwrap()
    }

    #[test]
    fn text_is_escaped_as_in_go() {
        let value = json!({"b": "a<b>&c\u{2028}\u{2029}\"\\\n", "a": "Spielstände 游戏"});
        let expected = r#"{"a":"Spielstände 游戏","b":"a\u003cb\u003e\u0026c\u2028\u2029\"\\\n"}"#;
        assert_eq!(text(&value), expected);
    }

    #[test]
    fn numbers_are_written_as_in_go() {
        let value = json!([1.0, 0.5, -2, 1e21, 1.5e-7, 0.0, 123456789012345u64]);
        assert_eq!(text(&value), "[1,0.5,-2,1e+21,1.5e-7,0,123456789012345]");
    }

    #[test]
    fn the_patch_directive_is_the_first_key() {
        let value = json!({"spec": {}, "$patch": "replace", "metadata": {}});
        assert!(text(&value).starts_with(r#"{"$patch":"replace","metadata""#));
    }
}
