//! `multipleOf` in a JSON schema. The compiler computes with divisors in 32 bits and does not see
//! when these overflow: an answer would be a multiple of something else.

use crate::error::{fail, TextResult};
use crate::schema_keywords::{schemas_in, MAX_LOOKS};
use serde_json::{Map, Value as Json};
use std::collections::HashSet;

/// coefficient / 10^exponent, in the compiler's simplest form.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Divisor {
    coefficient: u64,
    exponent: u32,
}

impl Divisor {
    fn new(mut coefficient: u64, mut exponent: u32) -> Self {
        while exponent > 0 && coefficient.is_multiple_of(10) {
            coefficient /= 10;
            exponent -= 1;
        }
        Divisor { coefficient, exponent }
    }

    /// None if it is 0 or no number of some digits.
    fn read(value: &Json) -> Option<Self> {
        let (mut size, mut exponent) = (value.as_f64()?.abs(), 0);
        while size.fract() != 0.0 {
            size *= 10.0;
            exponent += 1;
        }
        let fits = size > 0.0 && size <= f64::from(u32::MAX);
        fits.then(|| Self::new(size as u64, exponent)).filter(Self::can_be_followed)
    }

    /// With each digit of a number its remainder is multiplied by ten, and the digit is added.
    fn can_be_followed(&self) -> bool {
        let digit = 10u64.checked_pow(self.exponent).and_then(|scale| scale.checked_mul(9));
        digit.is_some_and(|digit| self.coefficient * 10 + digit <= u64::from(u32::MAX))
    }

    /// What numbers are multiples of that are multiples of both; None if the compiler cannot tell.
    fn merged(self, other: Self) -> Option<Self> {
        let scaled = |one: Self, other: Self| {
            let scale = 10u64.checked_pow(other.exponent.saturating_sub(one.exponent))?;
            one.coefficient.checked_mul(scale).filter(|product| *product <= u64::from(u32::MAX))
        };
        let (a, b) = (scaled(self, other)?, scaled(other, self)?);
        let product = a.checked_mul(b).filter(|product| *product <= u64::from(u32::MAX))?;
        let exponent = self.exponent.max(other.exponent);
        Some(Self::new(product / gcd(a, b), exponent)).filter(Self::can_be_followed)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

pub fn why_no_divisor(value: &Json) -> Option<&'static str> {
    match value.as_f64() {
        None => Some("it must be a number"),
        Some(0.0) => Some("it must not be 0"),
        Some(_) => Divisor::read(value).is_none().then_some("it has too many digits"),
    }
}

/// Different divisors that may come together where parts are merged.
const MAX_DIVISORS: usize = 64;
const MAX_EXACT: usize = 8;
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The divisors in a schema.
struct Divisors<'a> {
    root: &'a Json,
    found: Vec<Divisor>,
    /// References; what they lead to belongs to the schema, its definitions themselves do not.
    followed: HashSet<&'a str>,
    /// Whether one may meet itself.
    repeats: bool,
}

impl<'a> Divisors<'a> {
    fn add(&mut self, schema: &'a Json, looks: &mut usize) {
        *looks += 1;
        let Some(members) = schema.as_object().filter(|_| *looks <= MAX_LOOKS) else { return };
        if let Some(divisor) = members.get("multipleOf").and_then(Divisor::read) {
            self.repeats |= self.found.contains(&divisor);
            self.found.push(divisor);
        }
        if let Some(name) = members.get("$ref").and_then(Json::as_str) {
            let is_new = self.followed.insert(name);
            self.repeats |= !is_new;
            let target = name.strip_prefix('#').and_then(|path| self.root.pointer(path));
            if let Some(target) = target.filter(|_| is_new) {
                self.add(target, looks);
            }
        }
        for (name, value) in
            members.iter().filter(|(name, _)| !DEFINITIONS.contains(&name.as_str()))
        {
            for schema in schemas_in(name, value) {
                self.add(schema, looks);
            }
        }
    }
}

/// Whether all that can come together can be merged, in any order.
fn can_be_merged(found: &[Divisor], repeats: bool) -> bool {
    let mut all: Vec<Divisor> = Vec::new();
    for divisor in found {
        if !all.contains(divisor) && all.len() <= MAX_DIVISORS {
            all.push(*divisor);
        }
    }
    close(all.clone()) || (!repeats && all.len() <= MAX_EXACT && subsets_can_be_merged(&all))
}

/// Whether also what was merged can be merged again, with what it was made of, too.
fn close(mut all: Vec<Divisor>) -> bool {
    let mut next = 0;
    while next < all.len() && all.len() <= MAX_DIVISORS {
        for i in 0..=next {
            let Some(both) = all[i].merged(all[next]) else { return false };
            if !all.contains(&both) {
                all.push(both);
            }
        }
        next += 1;
    }
    next == all.len()
}

/// Whether every two subsets without a common divisor can be merged.
fn subsets_can_be_merged(all: &[Divisor]) -> bool {
    let mut merged: Vec<Option<Divisor>> = vec![None; 1 << all.len()];
    for set in 1..merged.len() {
        let lowest = set & set.wrapping_neg();
        merged[set] = Some(all[lowest.trailing_zeros() as usize]);
        let mut part = (set - 1) & set;
        while part > 0 {
            let both = merged[part].zip(merged[set - part]).and_then(|(a, b)| a.merged(b));
            if both.is_none() {
                return false;
            }
            merged[set] = both;
            part = (part - 1) & set;
        }
    }
    true
}

/// Whether the compiler makes one schema of several that stand here.
fn merges(members: &Map<String, Json>) -> bool {
    let count = |names: &[&str]| names.iter().filter(|name| members.contains_key(**name)).count();
    let parts = members.get("allOf").and_then(Json::as_array).map_or(0, Vec::len);
    let others = count(&["anyOf", "oneOf", "$ref", "const", "enum"]);
    let own = [
        "multipleOf",
        "properties",
        "patternProperties",
        "additionalProperties",
        "items",
        "prefixItems",
        "additionalItems",
    ];
    parts + others + usize::from(count(&own) > 0) > 1
        || count(&["properties", "patternProperties"]) == 2
}

/// Whether there are divisors that could not be merged if they came together.
pub fn may_overflow(root: &Json) -> bool {
    fn collect(value: &Json, found: &mut Vec<Divisor>) {
        match value {
            Json::Array(values) => values.iter().for_each(|value| collect(value, found)),
            Json::Object(members) => {
                found.extend(members.get("multipleOf").and_then(Divisor::read));
                members.values().for_each(|value| collect(value, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(root, &mut found);
    !can_be_merged(&found, true)
}

/// Of a place whose parts are merged. `looks`: how many schemas were looked at for all places.
pub fn check_merged(
    schema: &Json,
    members: &Map<String, Json>,
    path: &str,
    root: &Json,
    looks: &mut usize,
) -> TextResult<()> {
    if !merges(members) {
        return Ok(());
    }
    let (found, followed) = (Vec::new(), HashSet::new());
    let mut divisors = Divisors { root, found, followed, repeats: false };
    divisors.add(schema, looks);
    if can_be_merged(&divisors.found, divisors.repeats) {
        return Ok(());
    }
    fail(format!("{path}: the `multipleOf` of several parts have too many digits together"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema_keywords::refusal;
    use serde_json::json;

    #[test]
    fn one_divisor_leaves_room_for_a_digit() {
        for fine in [json!(1), json!(429_496_728), json!(0.01), json!(-0.5), json!(1e-8)] {
            assert_eq!(why_no_divisor(&fine), None, "{fine}");
        }
        for bad in [json!(429_496_729), json!(1e9 + 7.0), json!(1e-9), json!(0.100000001)] {
            assert_eq!(why_no_divisor(&bad), Some("it has too many digits"), "{bad}");
        }
    }

    #[test]
    fn divisors_that_meet_need_room_together() {
        let of = |divisor: f64| json!({ "multipleOf": divisor });
        let at = |place: &str| {
            format!("{place}: the `multipleOf` of several parts have too many digits together")
        };
        let (a, b) = (of(65_536.0), of(131_072.0));
        let property = |schema: &Json| json!({"properties": {"p": schema}});
        for (schema, place) in [
            (json!({"allOf": [a, b]}), "s"),
            (json!({"allOf": [a, a]}), "s"),
            (json!({"allOf": [a], "multipleOf": 131_072}), "s"),
            (json!({"anyOf": [a, true], "multipleOf": 131_072}), "s"),
            (json!({"anyOf": [a, true], "oneOf": [b, true]}), "s"),
            (json!({"allOf": [of(1e-5), of(1e5)]}), "s"),
            (json!({"allOf": [of(7.0), of(11.0), of(1e8)]}), "s"),
            (json!({"$ref": "#/$defs/d", "multipleOf": 65_536, "$defs": {"d": b}}), "s"),
            (json!({"items": {"allOf": [property(&a), property(&b)]}}), "s.items"),
            (json!({"properties": {"p": a}, "patternProperties": {"^p": b}}), "s"),
            (json!({"$defs": {"d": {"allOf": [{"items": a}, {"items": b}]}}}), "s.$defs.d"),
            // Twice the same.
            (
                json!({"allOf": [{"$ref": "#/$defs/d"}, {"$ref": "#/$defs/d"}], "$defs": {"d": a}}),
                "s",
            ),
        ] {
            assert_eq!(refusal(schema.clone()), at(place), "{schema}");
        }
        for fine in [
            json!({"properties": {"p": a, "q": b}}),
            json!({"anyOf": [a, b]}),
            json!({"allOf": [a], "title": "t", "$defs": {"d": b}}),
            json!({"allOf": [of(0.001), of(1000.0)]}),
            json!({"allOf": [of(0.01), of(0.25), of(5.0), of(100.0)]}),
            json!({"allOf": [{"$ref": "#/$defs/d"}, {"minimum": 1}], "$defs": {"d": a}}),
            json!({"anyOf": [{"$ref": "#/$defs/d"}, {"items": {"$ref": "#/$defs/d"}}], "$defs": {"d": a}}),
        ] {
            assert_eq!(refusal(fine.clone()), "", "{fine}");
        }
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        let list = json!({
            "allOf": [{"$ref": "#/$defs/n"}, {"multipleOf": 131_072}],
            "$defs": {"n": {"multipleOf": 65_536, "properties": {"next": {"$ref": "#/$defs/n"}}}}
        });
        assert!(refusal(list).starts_with("s: the `multipleOf` of several parts"));
    }
}
