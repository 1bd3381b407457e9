//! What one rendering may cost. minijinja counts instructions; a single instruction can still touch
//! or make megabytes, so every operation whose cost depends on its operands pays here first.

use crate::budget::{thread_ns, Budget};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use std::cell::RefCell;

#[derive(Clone, Copy)]
pub struct Limits {
    /// Bytes and nodes read or made by operations.
    pub work: u64,
    /// Bytes of rendered text, blocks captured by `set` and `call` included.
    pub output_bytes: u64,
    /// Instructions of the template machine.
    pub fuel: u64,
    /// Of this thread's processor time: a busy machine refuses nobody.
    pub milliseconds: i64,
}

/// Containers nest at most this deep: printing, comparing and dropping them recurse.
pub const MAX_DEPTH: usize = 200;
/// Reading the clock costs some 100 ns; once per this much work is often enough.
const WORK_PER_CLOCK_READ: u64 = 1 << 16;

struct Meter {
    limits: Limits,
    budget: Budget,
    work: u64,
    output: u64,
    next_clock_read: u64,
    started_ns: i64,
    raised: Option<String>,
}

thread_local! {
    static METER: RefCell<Option<Meter>> = const { RefCell::new(None) };
}

/// Arms the meter of this thread for one rendering; returns what `raise_exception` was given.
pub fn metered<T>(limits: Limits, budget: Budget, body: impl FnOnce() -> T) -> (T, Option<String>) {
    let meter = Meter {
        limits,
        budget,
        work: 0,
        output: 0,
        next_clock_read: 0,
        started_ns: thread_ns(),
        raised: None,
    };
    METER.with(|cell| *cell.borrow_mut() = Some(meter));
    let result = body();
    let meter = METER.with(|cell| cell.borrow_mut().take());
    let raised = meter.and_then(|mut meter| {
        // What came after the last check counts too; the work is done, so it fails nothing.
        let _ = meter.budget.check();
        meter.raised
    });
    (result, raised)
}

pub fn raise(message: String) {
    METER.with(|cell| {
        if let Some(meter) = cell.borrow_mut().as_mut() {
            meter.raised = Some(message);
        }
    });
}

pub fn error(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// What one operation or one visited value costs by itself, in the bytes that are copied meanwhile.
const BASE_COST: u64 = 16;

/// Pays for one operation on `units` bytes or nodes.
pub fn charge(units: usize) -> Result<(), Error> {
    METER.with(|cell| match cell.borrow_mut().as_mut() {
        Some(meter) => meter.charge(units as u64 + BASE_COST),
        None => Ok(()),
    })
}

/// Pays for text that is about to be written.
pub fn charge_output(bytes: usize) -> Result<(), Error> {
    METER.with(|cell| {
        let mut cell = cell.borrow_mut();
        let Some(meter) = cell.as_mut() else { return Ok(()) };
        meter.output += bytes as u64;
        if meter.output > meter.limits.output_bytes {
            let limit = meter.limits.output_bytes;
            return Err(error(format!("the rendered text exceeds {limit} bytes")));
        }
        meter.charge(bytes as u64 + BASE_COST)
    })
}

impl Meter {
    fn charge(&mut self, units: u64) -> Result<(), Error> {
        self.work = self.work.saturating_add(units);
        if self.work > self.limits.work {
            return Err(error("the template does too much work"));
        }
        if self.work >= self.next_clock_read {
            self.next_clock_read = self.work + WORK_PER_CLOCK_READ;
            if (thread_ns() - self.started_ns) / 1_000_000 > self.limits.milliseconds {
                return Err(error("the template takes too much processor time"));
            }
            self.budget.check().map_err(|e| error(e.0))?;
        }
        Ok(())
    }
}

/// Pays for a whole value, as a tree: `[x, x]` repeated thirty times holds a billion nodes once it
/// is printed or compared. Bounds the depth as well.
pub fn weigh(value: &Value) -> Result<(), Error> {
    weigh_at(value, 0)
}

fn weigh_at(value: &Value, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(error(format!("values are nested deeper than {MAX_DEPTH}")));
    }
    match value.kind() {
        ValueKind::String => charge(value.as_str().map_or(0, str::len) / 32),
        ValueKind::Seq | ValueKind::Iterable => {
            charge(1)?;
            value.try_iter()?.try_for_each(|item| weigh_at(&item, depth + 1))
        }
        ValueKind::Map => {
            charge(1)?;
            value.try_iter()?.try_for_each(|key| weigh_at(&value.get_item(&key)?, depth + 1))
        }
        _ => charge(1),
    }
}

/// A value that is safe to keep: lazy iterables become lists, so that nothing that is stored can
/// nest iterators or produce items that were never paid for.
pub fn settle(value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable {
        weigh(&value)?;
        return Ok(value);
    }
    let mut items = Vec::new();
    for item in value.try_iter()? {
        charge(1)?;
        items.push(settle(item)?);
    }
    Ok(Value::from(items))
}
