//! Panics and deep recursion end in errors.

use crate::big_stack::{bracket_depth, on_big_stack};
use crate::error::{fail, guard, utf8};

#[test]
fn a_panic_becomes_an_error() {
    let text = |body: fn() -> u8| guard("part", || Ok(body())).unwrap_err().0;
    assert_eq!(text(|| panic!("plain")), "part: internal error: plain");
    assert_eq!(text(|| panic!("{}", 7)), "part: internal error: 7");
    assert_eq!(text(|| std::panic::panic_any(7u8)), "part: internal error: unknown cause");
    assert_eq!(guard::<u8>("part", || fail("own words")).unwrap_err().0, "own words");
    let on_thread = on_big_stack::<u8>("part", || panic!("there")).unwrap_err().0;
    assert_eq!(on_thread, "part: internal error: there");
}

#[test]
fn a_deep_recursion_fits_on_the_big_stack() {
    fn depth(n: u64) -> u64 {
        let frame = std::hint::black_box([n; 16]);
        if n == 0 {
            0
        } else {
            1 + depth(frame[3] - 1)
        }
    }
    assert_eq!(on_big_stack("depth", || Ok(depth(300_000))).unwrap(), 300_000);
}

#[test]
fn bracket_depth_is_the_deepest_nesting() {
    assert_eq!(bracket_depth(""), 0);
    assert_eq!(bracket_depth("a(b[c{d}])(e)"), 3);
    assert_eq!(bracket_depth(")))((\"(\""), 3);
}

#[test]
fn broken_utf8_is_located() {
    assert_eq!(utf8(b"ok", "the text").unwrap(), "ok");
    assert_eq!(utf8(b"ab\xff", "the text").unwrap_err().0, "the text is not valid UTF-8 (byte 2)");
}
