//! `strftime_now(format)`: the time of the rendering, local and without a zone as in transformers.

use super::meter::error;
use minijinja::Error;
use std::cell::Cell;
use std::ffi::CString;

/// Broken-down time of a rendering, given by the caller: no clock is read here.
#[derive(Clone, Copy, Default)]
pub struct Now {
    pub year: i32,
    pub month: i32,
    pub day: i32,
    pub hour: i32,
    pub minute: i32,
    pub second: i32,
}

thread_local! {
    static NOW: Cell<Now> = const { Cell::new(Now { year: 1970, month: 1, day: 1, hour: 0, minute: 0, second: 0 }) };
}

pub fn set_now(now: Now) {
    NOW.with(|cell| cell.set(now));
}

pub fn now(format: &str) -> Result<String, Error> {
    if format.is_empty() {
        return Ok(String::new());
    }
    if format.len() > 1024 {
        return Err(error("strftime_now: the format is too long"));
    }
    // A glibc width (%1000000d) would ask for any amount of memory.
    if format.bytes().collect::<Vec<_>>().windows(2).any(|w| w[0] == b'%' && w[1].is_ascii_digit())
    {
        return Err(error("strftime_now: field widths are not supported"));
    }
    // Naive times have neither zone nor offset.
    let format = format.replace("%Z", "").replace("%z", "");
    let format = CString::new(format).map_err(|_| error("strftime_now: NUL in the format"))?;
    let now = NOW.with(Cell::get);
    // SAFETY: all fields of tm may be zero; timegm only normalises it and fills in the weekday.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    tm.tm_year = now.year - 1900;
    tm.tm_mon = now.month - 1;
    tm.tm_mday = now.day;
    tm.tm_hour = now.hour;
    tm.tm_min = now.minute;
    tm.tm_sec = now.second;
    let mut buffer = vec![0u8; 64 << 10];
    // SAFETY: the buffer's length is passed, the format ends with NUL.
    let written = unsafe {
        libc::timegm(&mut tm);
        libc::strftime(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), &tm)
    };
    buffer.truncate(written);
    String::from_utf8(buffer).map_err(|_| error("strftime_now: the result is not UTF-8"))
}
