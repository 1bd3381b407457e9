//! What a request's grammar has taken: CPU time and memory.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

/// CPU time for all masks of one request, whatever number of answers it has: so much at once, and so
/// much more for each token, which is several times what an ordinary schema takes.
const REQUEST_CPU: Duration = Duration::from_secs(1);
const TOKEN_CPU: Duration = Duration::from_millis(1);

/// What a state and its forks have taken, in CPU time and in memory.
#[derive(Default)]
pub struct Meter {
    nanoseconds: AtomicU64,
    pub tokens: AtomicU64, // taken in
    rules: usize,          // bytes; those of tables and forks, too
    pub tables: AtomicUsize,
    pub forks: AtomicUsize,
    pub failure: OnceLock<String>,
}

impl Meter {
    /// `rules`: bytes that the compiled grammar holds.
    pub fn new(rules: usize) -> Meter {
        Meter { rules, ..Meter::default() }
    }

    pub fn spent(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// An estimate of the heap that the family holds, not below it.
    pub fn bytes(&self) -> usize {
        self.rules + self.tables.load(Ordering::Relaxed) + self.forks.load(Ordering::Relaxed)
    }

    pub fn add(&self, time: Duration) {
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub fn left(&self) -> Duration {
        let tokens = self.tokens.load(Ordering::Relaxed).min(u64::from(u32::MAX)) as u32;
        (REQUEST_CPU + TOKEN_CPU * tokens).saturating_sub(self.spent())
    }
}

pub fn request_limit() -> String {
    format!(
        "the grammar takes too long: its masks have taken more than {} s of CPU time and {} ms a token",
        REQUEST_CPU.as_secs(),
        TOKEN_CPU.as_millis()
    )
}
