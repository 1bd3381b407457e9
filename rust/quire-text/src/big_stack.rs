//! Runs deeply recursive third-party code where a deep but legal input cannot overflow the stack.

use crate::error::{guard, TextError, TextResult};

/// Address space only: pages are committed as they are touched.
const STACK_BYTES: usize = 256 << 20;

/// Runs `body` on a thread of its own. A stack overflow cannot be caught, so whoever calls this
/// bounds the nesting of the input first; the large stack covers what those bounds allow.
pub fn on_big_stack<T: Send>(
    what: &str,
    body: impl FnOnce() -> TextResult<T> + Send,
) -> TextResult<T> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || guard(what, body))
            .map_err(|e| TextError(format!("{what}: cannot start a thread: {e}")))?;
        worker.join().unwrap_or_else(|_| Err(TextError(format!("{what}: internal error"))))
    })
}

/// The deepest nesting of brackets in `text`, in or out of quotes: cheap enough to run on every
/// request. Brackets in quotes may hide others, so each reader also has a limit of its own.
pub fn bracket_depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
