//! The one error type that crosses the bridge, and the guard against panics.

use std::fmt;
use std::panic::{catch_unwind, set_hook, AssertUnwindSafe};
use std::sync::Once;

/// A message for the client or the operator. cxx turns it into `rust::Error`.
#[derive(Debug)]
pub struct TextError(pub String);

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub type TextResult<T> = Result<T, TextError>;

pub fn fail<T>(message: impl fmt::Display) -> TextResult<T> {
    Err(TextError(message.to_string()))
}

/// The first `most` bytes of `text`, and dots if there are more.
pub fn cut(text: &str, most: usize) -> String {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let dots = if end < text.len() { "..." } else { "" };
    format!("{}{dots}", &text[..end])
}

/// A name that a client chose, as it stands in an error: no longer than tells it apart.
pub fn short(name: &str) -> String {
    cut(name, 64)
}

/// Runs a bridged body. A panic that reached cxx would abort the process, so it becomes an error:
/// one hostile request must never take the server down.
pub fn guard<T>(what: &str, body: impl FnOnce() -> TextResult<T>) -> TextResult<T> {
    // Its message may quote what a client sent. It is in the error; nothing goes to the terminal.
    static SILENCE: Once = Once::new();
    if cfg!(not(test)) {
        SILENCE.call_once(|| set_hook(Box::new(|_| {})));
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(payload) => {
            let reason = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("unknown cause");
            fail(format!("{what}: internal error: {reason}"))
        }
    }
}

/// The bytes as text, or an error that says where they stop being UTF-8.
pub fn utf8<'a>(bytes: &'a [u8], what: &str) -> TextResult<&'a str> {
    std::str::from_utf8(bytes)
        .map_err(|e| TextError(format!("{what} is not valid UTF-8 (byte {})", e.valid_up_to())))
}
