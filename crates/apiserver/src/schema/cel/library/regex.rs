//! `find` and `findAll`, and the cache of patterns for all rules.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::types::{CelInt, CelList, CelString};
use cel::{DeclarationError, Env, ExecutionError};
use parking_lot::Mutex;

use super::{failed, texts};
use crate::cpu;
use crate::schema::pattern::GoPattern;

/// The capacity of the cache. Rules use few patterns; when many others fill it, it is cleared.
const MAX_CACHED: usize = 512;
/// The states of all cached patterns, which decide how much memory they use. An object may contain its own patterns.
const MAX_CACHED_STATES: usize = 250_000;

#[derive(Default)]
struct PatternCache {
    patterns: HashMap<String, Arc<GoPattern>>,
    states: usize,
}

pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    cel::add_member_overload!(env, fn find: (CelString, CelString) -> Result<CelString>)?;
    cel::add_member_overload!(env, fn find_all: (CelString, CelString) -> Result<CelList>)?;
    cel::add_member_overload!(env, fn find_all_limited: (CelString, CelString, CelInt) -> Result<CelList>,
        name = "findAll")?;
    Ok(())
}

/// Returns a compiled pattern from the cache.
pub(super) fn cached(source: &str) -> Result<Arc<GoPattern>, String> {
    static CACHE: LazyLock<Mutex<PatternCache>> = LazyLock::new(Mutex::default);
    if let Some(pattern) = CACHE.lock().patterns.get(source) {
        return Ok(Arc::clone(pattern));
    }
    cpu::check().map_err(|error| error.to_string())?;
    let pattern = Arc::new(GoPattern::compile(source)?);
    let mut cache = CACHE.lock();
    let states = cache.states.saturating_add(pattern.states());
    if cache.patterns.len() >= MAX_CACHED || states > MAX_CACHED_STATES {
        *cache = PatternCache::default();
    }
    cache.states = cache.states.saturating_add(pattern.states());
    cache.patterns.insert(source.to_owned(), Arc::clone(&pattern));
    Ok(pattern)
}

fn find(this: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let pattern = cached(pattern.inner()).map_err(|error| failed("find", error))?;
    let regex = pattern
        .regex_for(this.inner())
        .map_err(|error| failed("find", error))?;
    let found = regex.find(this.inner()).map(|found| found.as_str().to_owned());
    Ok(CelString::from(found.unwrap_or_default()))
}

fn find_all(this: &CelString<'_>, pattern: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    find_all_limited(this, pattern, &CelInt::from(-1))
}

fn find_all_limited(
    this: &CelString<'_>,
    pattern: &CelString<'_>,
    limit: &CelInt,
) -> Result<CelList<'static>, ExecutionError> {
    let pattern = cached(pattern.inner()).map_err(|error| failed("findAll", error))?;
    let limit = usize::try_from(*limit.inner()).unwrap_or(usize::MAX);
    let regex = pattern
        .regex_for(this.inner())
        .map_err(|error| failed("findAll", error))?;
    let found = regex.find_iter(this.inner()).take(limit);
    // Each match can take as long as a search of the whole text.
    let found: Vec<String> = found
        .take_while(|_| !cpu::is_out_of_time())
        .map(|found| found.as_str().to_owned())
        .collect();
    cpu::check().map_err(|error| failed("findAll", error))?;
    Ok(texts(found))
}
