//! What tokenising takes of memory while it works, and who is asked before it does.

use crate::error::{fail, TextResult};
use std::ffi::c_void;
use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

/// At most so many bytes for each byte of a text that is tokenised in one go, the allocator's own
/// included. Measured with every kind of model and pre-tokenizer that is read: a letter of a long
/// word takes 150, a character that is a pre-token of its own 410, and 480 with WordPiece.
const BYTES_FOR_BYTE: usize = 480;
/// The same for each token, where the post-processor does more than to put tokens around a text.
const BYTES_FOR_PROCESSED: usize = 512;
/// An id, in a list that may have twice the room it needs, and in C++.
const BYTES_FOR_ID: usize = 16;
/// What every thread may take without asking: a piece of usual size fits.
const OWN_BYTES: usize = 2 << 20;
/// A normalizer is tried on so much at a time.
const TRIED_BYTES: usize = 1 << 10;

/// The memory layout of `quire::text::WorkingMemory`.
#[repr(C)]
struct Lender {
    try_add: unsafe extern "C" fn(*mut c_void, usize) -> bool,
    owner: *mut c_void,
}

/// What one call takes. It grows to the most that was needed at once.
pub struct WorkingMemory {
    /// Static in name only: C++ keeps it until the call that uses it returns.
    lender: Option<&'static Lender>,
    lent: usize,
}

impl WorkingMemory {
    /// # Safety
    /// `address` is 0 (no limit) or that of a `quire::text::WorkingMemory` that outlives this.
    pub unsafe fn from_address(address: usize) -> Self {
        // SAFETY: the caller's promise.
        WorkingMemory { lender: unsafe { (address as *const Lender).as_ref() }, lent: 0 }
    }

    /// Asks for what `bytes` at once are more than what was asked for so far.
    pub fn need(&mut self, bytes: usize) -> TextResult<()> {
        let Some(lender) = self.lender else { return Ok(()) };
        let more = bytes.saturating_sub(OWN_BYTES).saturating_sub(self.lent);
        // SAFETY: the function is C++'s, for this owner.
        if more > 0 && !unsafe { (lender.try_add)(lender.owner, more) } {
            return fail("there is no memory for tokenising this now");
        }
        self.lent += more;
        Ok(())
    }
}

/// How a tokenizer's need follows from a text.
pub struct Appetite {
    growth: Growth,
    for_byte: usize,
}

/// Which texts the normalizer may make longer, beyond what BYTES_FOR_BYTE allows for.
#[derive(PartialEq)]
enum Growth {
    None,
    BeyondAscii,
    All,
}

impl Appetite {
    /// `spaces_only`: all that the normalizer does is to write spaces as "▁".
    pub fn new(
        normalizer: Option<&NormalizerWrapper>,
        spaces_only: bool,
        only_frames: bool,
    ) -> Self {
        let growth = match normalizer {
            None => Growth::None,
            Some(_) if spaces_only => Growth::None,
            Some(NormalizerWrapper::NFC(_)) => Growth::BeyondAscii,
            Some(_) => Growth::All,
        };
        let processed = if only_frames { 0 } else { BYTES_FOR_PROCESSED };
        Appetite { growth, for_byte: BYTES_FOR_BYTE + processed }
    }

    /// At most how many bytes it takes to tokenise `text` in one go, beside `ids` that are there.
    pub fn bytes(&self, text: &str, normalizer: Option<&NormalizerWrapper>, ids: usize) -> usize {
        let grows = match self.growth {
            Growth::None => false,
            Growth::BeyondAscii => !text.is_ascii(),
            Growth::All => true,
        };
        let normalized = normalizer.filter(|_| grows).map_or(0, |n| normalized_bytes(text, n));
        let longest = text.len().max(normalized);
        longest.saturating_mul(self.for_byte + BYTES_FOR_ID).saturating_add(ids * BYTES_FOR_ID)
    }
}

/// About how long the normalizer makes a text: what stands around a character may change that
/// little.
fn normalized_bytes(text: &str, normalizer: &NormalizerWrapper) -> usize {
    let (mut start, mut bytes) = (0, 0usize);
    while start < text.len() {
        let end = text.len().min(start + TRIED_BYTES);
        let end = (start + 1..=end).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(end);
        let mut part = NormalizedString::from(&text[start..end]);
        // One that fails does so again when the text is tokenised.
        if normalizer.normalize(&mut part).is_ok() {
            bytes = bytes.saturating_add(part.len());
        }
        start = end;
    }
    bytes
}

#[cfg(test)]
#[path = "working_memory_test.rs"]
mod tests;
